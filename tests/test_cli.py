"""The command line as a user types it, and the small pieces behind it."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from torchcurriculum import Arrays, Record, methods
from torchcurriculum.cli import main
from torchcurriculum.lab.evaluation import evaluate
from torchcurriculum.lab.models import digits_cnn as digits_model
from torchcurriculum.lab.recipes import RECIPES


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "demo"
    chosen = ["--method", "vanilla", "--method", "s-apw-e", "--seeds", "0", "1", "--epochs", "3"]
    assert main(["run", "digits", *chosen, "--out", str(out)]) == 0
    return out


def test_a_run_leaves_records_a_summary_and_one_self_contained_page(demo: Path) -> None:
    summary = json.loads((demo / "summary.json").read_text())
    assert {row["method"] for row in summary["table"]} == {"vanilla", "s-apw-e"}
    assert summary["environment"]["torch"] == torch.__version__
    record = Record.load(demo / "s-apw-e" / "seed-1")
    assert len(record.epochs) == 3
    assert {"rho", "alpha", "phase", "eprop", "valid_acc", "test_acc", "test_eprop", "test_ece"} <= set(
        record.epochs[0]
    )
    flipped = (record.arrays["labels"] != record.arrays["clean"]).mean()
    assert flipped == pytest.approx(0.4, abs=0.05)
    page = (demo / "report.html").read_text()
    assert "s-apw-e" in page
    assert "http:" not in page.replace("http://www.w3.org", "")
    assert "https:" not in page


def test_without_losses_of_rows_there_is_no_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "digits", "--method", "mixup", "--seeds", "0", "--epochs", "2", "--out", str(tmp_path / "m")]
    assert main(arguments) == 0
    assert "nothing to audit" in capsys.readouterr().out
    assert json.loads((tmp_path / "m" / "summary.json").read_text())["table"][0]["difference"] is None


def test_the_same_seed_gives_the_same_data_and_start_for_every_method(demo: Path) -> None:
    records = [Record.load(demo / name / "seed-0") for name in ("vanilla", "s-apw-e")]
    assert np.array_equal(records[0].arrays["labels"], records[1].arrays["labels"])


def test_compare_audit_report_and_list(demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(demo), "--json", str(tmp_path / "table.json")]) == 0
    written = json.loads((tmp_path / "table.json").read_text())
    assert [(run["method"], run["seed"]) for run in written["runs"]][:2] == [("vanilla", 0), ("vanilla", 1)]
    assert written["runs"][0]["last"]["epoch"] == 3
    table = capsys.readouterr().out
    assert "at the best-validation epoch" in table
    assert "2 seeds" in table
    run = demo / "vanilla" / "seed-0"
    files = {"csv": tmp_path / "a.csv", "json": tmp_path / "a.json", "label-studio": tmp_path / "tasks.json"}
    for form, path in files.items():
        assert main(["audit", str(run), "--top", "5", "--export", form, "--out", str(path)]) == 0
        assert "precision of these 5" in capsys.readouterr().out
    rows = list(csv.DictReader(files["csv"].read_text(encoding="utf-8").splitlines()))
    assert len(rows) == Record.load(run).n == len(json.loads(files["json"].read_text()))
    assert [float(row["score"]) for row in rows] == sorted((float(row["score"]) for row in rows), reverse=True)
    called = [row for row in rows if row["is_label_issue"] == "True"]
    assert len(json.loads(files["label-studio"].read_text())) == len(called)
    assert (tmp_path / "tasks.xml").read_text().count("<Choice ") == 11
    assert main(["report", str(demo), "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").stat().st_size > 10_000
    capsys.readouterr()
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in (*methods.names(), *RECIPES, "separable"))


def test_an_export_is_written_whoever_stops_reading(demo: Path, tmp_path: Path) -> None:
    run, out = demo / "vanilla" / "seed-0", tmp_path / "f.csv"
    command = [sys.executable, "-m", "torchcurriculum.cli", "audit", str(run), "--export", "csv", "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()  # as `| head -0` does
        process.wait()
    assert len(out.read_text(encoding="utf-8").splitlines()) == Record.load(run).n + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "digit"], "unknown recipe 'digit'; did you mean 'digits'?"),
        (["run", "digits", "--method", "apw_e"], "unknown method 'apw_e'; did you mean 'apw-e'"),
        (["run", "digits", "--epochs", "0"], "--epochs must be at least 1, got 0"),
        (["run", "separable", "--epochs", "3"], "the recipe 'separable' is fixed"),
        (["compare", "nowhere"], "no record found in nowhere"),
        (["audit", "nowhere"], "nowhere holds no record"),
        (["audit", "nowhere", "--top", "0"], "--top must be at least 1, got 0"),
        (
            ["audit", "nowhere", "--out", "a.csv"],
            "--out a.csv needs --export, one of csv, json, cleanlab, label-studio",
        ),
    ],
)
def test_mistakes_get_one_sentence(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "digits", "--out", "file"], "file is a file; give a new or empty folder (--out)"),
        (["run", "digits", "cifar10", "--data", "folder", "--out", "file"], "file is a file; give a new or empty"),
        (["run", "separable", "--out", "file"], "file is a file; give a new or empty folder (--out)"),
        (["run", "csv", "--data", "folder"], "folder is a folder, and a table is one file; give a CSV"),
        (["run", "digits", "--method", "syntax_bad:X"], "'syntax_bad:X' cannot be imported: SyntaxError: "),
        (["run", "digits", "--method", "raise_bad:X"], "cannot be imported: ZeroDivisionError: division by zero"),
        (["report", "demo", "--out", "folder"], "folder is a folder; give a file name"),
        (["compare", "demo", "nowhere"], "no record found in nowhere"),
        (["compare", "demo", "--md", "folder"], "folder is a folder; give a file name"),
        (["compare", "demo", "--json", "folder"], "folder is a folder; give a file name"),
        (["audit", "demo"], "demo is a folder of runs; give the folder of one run, such as demo/s-apw-e/seed-0"),
    ],
)
def test_files_and_folders_in_each_others_place_get_one_sentence(
    arguments: list[str],
    message: str,
    demo: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "demo").symlink_to(demo)
    (tmp_path / "folder").mkdir()
    for name, text in {"file": "", "syntax_bad.py": "def", "raise_bad.py": "1 / 0"}.items():
        (tmp_path / name).write_text(text)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert "Errno" not in error


def test_a_recipe_given_twice_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "digits", "digits", "--method", "vanilla", "--seeds", "0", "--epochs", "1"]) == 0
    assert (tmp_path / "runs" / "digits" / "vanilla" / "seed-0" / "record.json").exists()
    assert main(["compare", "runs", "--json", "new/a/x.json", "--md", "new/b/x.md"]) == 0
    assert (tmp_path / "new" / "a" / "x.json").exists()
    assert (tmp_path / "new" / "b" / "x.md").exists()


def test_a_folder_of_something_else_is_refused(demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "precious.txt").write_text("x")
    assert main(["run", "digits", "--out", str(tmp_path)]) == 2
    assert "holds other files" in capsys.readouterr().err
    other = tmp_path / "other"
    other.mkdir()
    (other / "recipe.json").write_text('{"name": "cifar"}')
    assert main(["run", "digits", "--out", str(other)]) == 2
    assert "holds runs of the recipe 'cifar'" in capsys.readouterr().err


def test_metrics_by_hand() -> None:
    class Fixed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    # Probabilities of class 0: 0.8, 0.6, 0.8; labels 0, 1, 0. Right, wrong, right: accuracy 2/3.
    # Losses 0.223, 0.916, 0.223: two are at most log 2 = 0.693. Confidences 0.8, 0.6, 0.8 fall into two bins:
    # |1 - 0.8| * 2/3 + |0 - 0.6| * 1/3 = 1/3.
    logits = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.8, 0.2]]).log()
    found = dict(evaluate(Fixed(), Arrays(logits, torch.tensor([0, 1, 0])), threshold=0.92))
    assert found == pytest.approx({"acc": 2 / 3, "eprop": 2 / 3, "eprop_e": 1.0, "ece": 1 / 3}, abs=1e-6)


def test_a_report_shows_what_can_be_read(demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of one record that is of a newer version, one that a kill cut short, and one that is damaged throughout."""
    runs = tmp_path / "runs"
    shutil.copytree(demo, runs)
    newer, cut, broken = (runs / "vanilla" / "seed-0", runs / "vanilla" / "seed-1", runs / "s-apw-e" / "seed-0")
    head = json.loads((newer / "record.json").read_text())
    (newer / "record.json").write_text(json.dumps(head | {"format": 99}))
    lines = (cut / "epochs.jsonl").read_bytes()
    (cut / "epochs.jsonl").write_bytes(lines[: len(lines) - 20])
    (broken / "record.json").write_text("{")
    assert main(["report", str(runs), "--out", str(tmp_path / "page.html")]) == 0
    said = capsys.readouterr().err
    page = (tmp_path / "page.html").read_text()
    for words in ("has format 99, and this version reads format 1", "is damaged"):
        assert words in said
        assert words in page
    assert "2 to 3 epochs" in page
    assert main(["report", str(broken), "--out", str(tmp_path / "none.html")]) == 0
    assert "There are no records to report on." in (tmp_path / "none.html").read_text()


def test_the_demo_network_is_as_large_as_its_docstring_says() -> None:
    assert sum(p.numel() for p in digits_model().parameters()) == 10_026
