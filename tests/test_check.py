"""Whether a fix helped: it says so of a good one, and of a bad one the contrary."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from torchcurriculum.clean import Proposal, Source, Suspect, digest
from torchcurriculum.clean.check import check_fix
from torchcurriculum.clean.userdata import UserData
from torchcurriculum.cli import main

pytest.importorskip("sklearn", reason="needs scikit-learn")


def points(flipped: float) -> tuple[UserData, np.ndarray]:
    """Two classes in five dimensions, with some labels of one of them flipped; and the true labels."""
    generator = np.random.default_rng(0)
    truth = np.arange(600) % 2
    features = (generator.normal(size=(600, 5)) + 0.8 * truth[:, None]).astype(np.float32)
    labels = np.where((generator.random(600) < flipped) & (truth == 1), 0, truth)
    rows = np.arange(600) * 3
    ids, groups = [str(row) for row in rows], np.ones(5, int)
    return UserData("text", Path("x"), labels, ["a", "b"], ids, features, groups, rows), truth


def test_right_corrections_help_and_wrong_ones_do_not() -> None:
    data, truth = points(0.4)
    wrong = {int(data.rows[place]): "ab"[truth[place]] for place in np.flatnonzero(data.labels != truth)}
    better = check_fix(data, wrong, folds=3)
    assert better.rows == 600 - len(wrong)
    assert better.after > better.before + 0.01
    assert better.only_after - better.only_before == round((better.after - better.before) * better.rows)
    dropped = check_fix(data, dict.fromkeys(wrong), folds=3)
    assert dropped.after > dropped.before + 0.01
    clean, _ = points(0.0)
    worse = check_fix(clean, {int(row): "a" for row in clean.rows[1:400:2]}, folds=3)
    assert worse.after < worse.before - 0.05


def test_the_command_prints_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, truth = points(0.3)
    path = tmp_path / "points.csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "c", "d", "e", "label"])
        writer.writerows([*map(str, row), "ab"[label]] for row, label in zip(data.features, data.labels, strict=True))
    source = Source(str(path), "table", digest(path), "label", "utf-8", ",", drop=["e"])
    wrong = np.flatnonzero(data.labels != truth)
    rows = [Suspect(int(place), "a", "b", 0.05, None, 0.9, sure=True) for place in wrong]
    found = Proposal(source, ["a", "b"], 600, rows).write(tmp_path / "proposal.json")
    assert main(["fix", str(found), "--dry-run", "--check"]) == 0
    said = capsys.readouterr().out
    assert f"held-out accuracy on the {600 - len(wrong)} rows whose labels stay: " in said
    assert "Nothing was written" in said
    assert main(["fix", str(found), "--out", str(tmp_path / "f.csv"), "--check", "--mode", "weight"]) == 2
    assert "--check compares labels, but the mode 'weight' changes none" in capsys.readouterr().err
    nothing = Proposal(source, ["a", "b"], 600).write(tmp_path / "nothing.json")
    assert main(["fix", str(nothing), "--dry-run", "--check"]) == 2
    assert "no label is changed" in capsys.readouterr().err
    assert not (tmp_path / "f.csv").exists()
