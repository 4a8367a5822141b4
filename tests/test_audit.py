"""The audit: numbers worked by hand, real digits with and without flips, damaged arrays, and what it exports."""

from __future__ import annotations

import contextlib
import csv
import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from torchcurriculum import Record
from torchcurriculum.audit import Audit, Predictions, audit, export, read_csv
from torchcurriculum.audit.groups import find_groups
from torchcurriculum.audit.health import doubts_of_refused_rows
from torchcurriculum.record import RecordError


def record_of(losses: list[Any], **arrays: Any) -> Record:
    record = Record(len(losses[0]))
    for row in losses:
        record.append({}, losses=np.array(row, dtype=np.float64))
    for name, values in arrays.items():
        record.set_array(name, np.array(values))
    return record


def two_populations(n: int = 1000, wrong: int = 200, epochs: int = 8, seed: int = 0) -> Record:
    """Learnt from the second epoch on, but for the first ``wrong`` rows, which are learnt by heart in the last two."""
    draw = np.random.default_rng(seed)
    rows = []
    for epoch in range(epochs):
        learnt = np.full(n, 2.3) if epoch == 0 else np.full(n, 0.3)
        learnt[:wrong] = 2.3 if epoch == 0 else 4.0 if epoch < epochs - 2 else 0.3
        rows.append(learnt * np.exp(draw.normal(0, 0.2, n)))
    clean = draw.integers(0, 10, n)
    labels = clean.copy()
    labels[:wrong] = (clean[:wrong] + 1) % 10
    shares = _sure_of(clean, draw.beta(12, 2, n))
    return record_of(rows, labels=labels, clean=clean, mean_probabilities=shares)


def _sure_of(classes: np.ndarray, sure: np.ndarray) -> np.ndarray:
    shares = np.repeat(((1 - sure) / 9)[:, None], 10, 1)
    shares[np.arange(len(classes)), classes] = sure
    return shares.astype(np.float32)


# ---------------------------------------------------------------------- by hand


def test_one_population_is_ranked_and_nothing_is_called_wrong() -> None:
    """Probabilities of the labels in epoch 2: 2/3, 1/8, 1/4; the first epoch is left out; row 3 was never seen."""
    log = math.log
    record = record_of([[9.0, 0.1, 0.1, math.inf], [log(1.5), log(8), log(4), math.inf]])
    found = audit(record)
    assert found.order.tolist() == [1, 2, 0, 3]
    assert found.score[:3] == pytest.approx([-log(2), log(7), log(3)], abs=1e-6)  # the odds against the label
    assert found.score[3] == -math.inf
    assert np.isnan(found.quality).all()  # nothing is known of so few rows
    assert (found.share, found.share_low, found.share_high, int(found.issue.sum())) == (0.0, 0.0, 1.0, 0)
    assert found.easy.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert (found.precision(2), found.auroc(), found.average_precision(), found.false_alarms()) == (None,) * 4
    assert found.summary() == "No label is called wrong. There are too few rows to judge by: 3, and 200 are needed."


def test_measures_by_hand() -> None:
    record = record_of([[1.0, 4.0, 2.0, 0.5]], labels=[0, 1, 1, 0], clean=[0, 0, 1, 1])
    found = audit(record)  # order 1 (wrong), 2 (right), 0 (right), 3 (wrong)
    assert found.order.tolist() == [1, 2, 0, 3]
    assert found.precision(1) == 1.0
    assert found.precision(4) == 0.5
    assert found.auroc() == 0.5  # of the four pairs, row 1 wins both and row 3 none
    assert found.average_precision() == pytest.approx((1 / 1 + 2 / 4) / 2)
    assert found.rows(1)[0] | {"score": 0, "quality": 0} == {
        **{"row": 1, "name": None, "score": 0, "quality": 0, "issue": False, "easy": 0.0},
        **{"given": 1, "suggested": None, "suggestion_probability": None, "wrong": True},
    }


def test_epochs_are_weighted_by_the_variance_of_probabilities_where_there_is_one_population() -> None:
    """Epoch 2: p = 1 and 1/2, variance 1/16; epoch 3: p = 3/4 and 1/2, variance 1/64. Squares 16 to 1."""
    log = math.log
    record = record_of([[0.0, 0.0], [1e-4, log(2)], [log(4 / 3), log(2)]])
    expected = (16 * 1e-4 + log(4 / 3)) / 17
    mean = np.log1p(np.exp(audit(record).score[0]))  # -log of the quality
    assert mean == pytest.approx(expected, rel=2e-3)  # the variance of the first is 1e-4 short


def test_two_populations_are_found_counted_and_called() -> None:
    found = audit(two_populations())
    assert not found.health
    assert found.share == pytest.approx(0.2, abs=0.005)
    assert found.share_low < 0.2 < found.share_high < 0.24
    assert found.issue.sum() == 200
    assert found.false_alarms() == 0
    assert found.auroc() == 1.0
    assert "About 20.0% of the labels are wrong" in found.summary()


def test_a_single_epoch_of_two_populations_is_not_believed() -> None:
    record = two_populations(epochs=2)
    assert "too short" in audit(record).summary()
    assert "too few rows" in audit(two_populations(n=150, wrong=30)).summary()  # and nor are so few rows


def test_mean_probabilities_are_the_second_opinion() -> None:
    """Two labels of the same loss: the network has a better one for the first, and none for the second."""
    log = math.log
    shares = [[0.4, 0.58, 0.02], [0.4, 0.3, 0.3], [0.9, 0.05, 0.05]]
    record = record_of([[1.0] * 3, [log(2), log(2), log(1.2)]], labels=[0, 0, 0])
    assert audit(record).order.tolist() == [0, 1, 2]
    record.set_array("mean_probabilities", np.array(shares[1:2] + shares[0:1] + shares[2:], dtype=np.float16))
    found = audit(record)
    assert found.order.tolist() == [1, 0, 2]
    assert found.score[1] == pytest.approx(log(0.59 / 0.41) / 2, abs=1e-3)  # the losses' odds are even


def test_losses_alone_rank_and_do_not_speak() -> None:
    record = two_populations()
    del record.arrays["mean_probabilities"]
    found = audit(record)
    assert found.auroc() == 1.0
    assert not found.issue.any()
    assert "The record holds losses only" in found.summary()


def test_hard_rows_are_one_group() -> None:
    """Margins that thin out evenly from 1 down to -1 are those of clean, hard data."""
    draw, n = np.random.default_rng(0), 2000
    labels, mine = draw.integers(0, 2, n), draw.beta(3, 1, n)
    shares = np.stack([np.where(labels == 0, mine, 1 - mine), np.where(labels == 1, mine, 1 - mine)], axis=1)
    losses = draw.normal(0.3, 0.05, (4, n))
    found = audit(record_of(list(losses), labels=labels, mean_probabilities=shares))
    assert (shares.argmax(1) != labels).mean() > 0.1
    assert "The labels show one group" in found.summary()
    assert (found.share, found.share_low, found.share_high) == (0.0, 0.0, 1.0)


@pytest.mark.parametrize(("at_odds", "speaks"), [(0.19, True), (0.02, False), (None, True), ("0.02", True)])
def test_wrong_labels_are_found_among_easy_rows_too(at_odds: object, speaks: bool) -> None:
    """A fifth looks wrong; RAPW says how many labels the surest tenth of the rows contradicted at first."""
    record = two_populations()
    if at_odds is not None:
        record.annotate(at_odds=at_odds)
    found = audit(record)
    assert bool(found.issue.any()) == speaks
    assert speaks or found.health == [
        "Hard rows look like wrong labels here: where the network was surest it contradicted 2.0% of the labels, and "
        f"{_share_of(record):.1%} look wrong. Audit a run of vanilla, or out-of-fold probabilities."
    ]


def _share_of(record: Record) -> float:
    record.annotate(at_odds=1.0)
    return audit(record).share


def test_large_sets_of_people_s_labels_are_silent_only_where_hardly_any_sure_row_is_contradicted() -> None:
    assert not doubts_of_refused_rows(0.032, 0.103, 45_000), "CIFAR-10N aggregate"
    assert doubts_of_refused_rows(0.003, 0.155, 12_000), "overlapping classes"


def test_groups_by_hand() -> None:
    """300 of 1,000 margins at -0.75, 600 at 0.75, and 5 in each of 20 bins: that is the valley.

    v is 5 * 10 / 1000 = 0.05 over either side; 350 margins are negative; 0.35 + (0.45 - 0.25) * 0.05 = 0.36.
    """
    even = np.repeat(np.linspace(-0.95, 0.95, 20), 5)
    margins = np.concatenate([even, np.full(300, -0.75), np.full(600, 0.75)])
    groups = find_groups(margins)
    assert groups is not None
    assert groups.share == pytest.approx(0.36)
    error = 2 * math.sqrt((0.36 * 0.64 + 0.001) / 1000)
    assert groups.low == pytest.approx(0.35 - 0.0125 - error)
    assert groups.high == pytest.approx(0.36 + 0.025 + error)
    # At -0.25 all rows are in the valley; of its density, right labels have half of 1 - 0.25.
    assert groups.quality[35] == pytest.approx(0.375)
    assert groups.quality[65] == pytest.approx(0.55)  # at 0.35: the wrong ones have 0.45 of it
    again = find_groups(margins, held_out=0.45)  # a tenth more than of the rows themselves
    assert again is not None
    assert again.share == pytest.approx(0.36 + 0.05)
    assert again.high > 0.45
    assert again.quality.max() == pytest.approx(groups.quality.max() - 0.05 / 0.65)
    drawn = find_groups(margins, uneven=0.0)  # the tail of wrong labels is 0.1: 0.35 + (0.1 - 0.25) * 0.05
    assert drawn is not None
    assert drawn.share == pytest.approx(0.3425)
    error = 2 * math.sqrt((0.3425 * 0.6575 + 0.001) / 1000)
    assert drawn.low == pytest.approx(0.3425 - 0.0225 - error)
    assert drawn.quality[65] == pytest.approx(0.9)


def test_labels_drawn_at_random_are_told_from_those_of_people() -> None:
    """The same margins; the wrong labels fall on one other class, or on all nine alike."""
    draw, n = np.random.default_rng(0), 4000
    true, bad = draw.integers(0, 10, n), np.arange(n) < 1000
    margins = np.where(bad, draw.beta(1, 3, n), draw.beta(4, 1, n)) * 2 - 1
    shares_of = {}
    for name, step in {"people": np.ones(n, int), "random": draw.integers(1, 10, n)}.items():
        labels = np.where(bad, (true + step) % 10, true)
        other = np.where(bad, true, (true + 1) % 10)
        shares = np.zeros((n, 10))
        shares[np.arange(n), labels], shares[np.arange(n), other] = (1 + margins) / 2, (1 - margins) / 2
        losses = np.where(bad, 3.0, 0.3) + draw.normal(0, 0.05, (4, n))
        found = audit(record_of(list(losses), labels=labels, mean_probabilities=shares))
        assert found.health == []
        assert found.share_low < 0.25 < found.share_high
        shares_of[name] = found.share
    assert shares_of["random"] < shares_of["people"] - 0.005


def test_a_label_called_wrong_is_not_suggested_again() -> None:
    record = two_populations()
    labels = record.arrays["labels"]
    shares = record.arrays["mean_probabilities"]
    shares[:200] = 0.02
    shares[np.arange(200), labels[:200]] = 0.1
    shares[np.arange(200), (labels[:200] + 3) % 10] = 0.74
    record.set_array("mean_probabilities", shares)
    record.set_array("predicted", labels)
    found = audit(record)
    assert found.suggested is not None
    called = found.issue
    assert called.any()
    assert np.array_equal(found.suggested[called], (labels[called] + 3) % 10)
    assert np.array_equal(found.suggested[~called], labels[~called])


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("mean_probabilities", np.zeros((4, 1)), r"must be floats of shape \(4, C\)"),
        ("mean_probabilities", np.zeros((4, 3), np.int64), "must be floats"),
        ("mean_probabilities", np.full((4, 3), np.nan), "must be finite"),
        ("mean_probabilities", np.zeros((4, 2)), "with a column for every label"),
        ("labels", np.zeros((4, 2)), "one label for each of 4"),
    ],
)
def test_damaged_arrays_are_named(name: str, values: np.ndarray, message: str) -> None:
    record = record_of([[1.0] * 4, [1.0, 2.0, 3.0, 4.0]], labels=[0, 1, 2, 0])
    record.set_array(name, values)
    with pytest.raises(RecordError, match=message):
        audit(record)


def test_nothing_to_rank_by() -> None:
    with pytest.raises(RecordError, match="no per-sample 'losses'"):
        audit(Record(3))
    with pytest.raises(RecordError, match="no finite losses"):
        audit(record_of([[math.inf, math.nan]]))


# ---------------------------------------------------------------------- predictions over a run


def test_epochs_with_two_populations_are_the_ones_that_count() -> None:
    labels = torch.zeros(400, dtype=torch.int64)
    predictions = Predictions(labels, classes=2)

    def logits(wrong: float, right: float) -> torch.Tensor:
        margin = torch.full((400,), right)
        margin[:100] = wrong
        margin += 0.3 * torch.randn(400, generator=torch.Generator().manual_seed(0))
        return torch.stack([margin, torch.zeros(400)], dim=1)

    predictions.note(logits(0.1, 0.2), best=True)
    assert predictions.arrays()["mean_probabilities"][0, 0] > 0.4
    for _ in range(2):
        predictions.note(logits(-3.0, 2.0))  # seen twice: from now on only such epochs count
    predictions.note(logits(5.0, 5.0))  # learnt by heart
    arrays = predictions.arrays()
    assert arrays["mean_probabilities"].dtype == arrays["probabilities"].dtype == np.float16
    assert arrays["mean_probabilities"][:100, 0].max() < 0.2
    assert arrays["predicted"][:100].all()
    assert not arrays["predicted"][100:].any()
    other = Predictions(labels, classes=2)
    other.load_state_dict(predictions.state_dict())
    assert np.array_equal(other.arrays()["mean_probabilities"], arrays["mean_probabilities"])


def test_predictions_of_another_shape_are_refused() -> None:
    predictions = Predictions(torch.tensor([0, 1]), classes=3)
    assert predictions.arrays() == {}
    with pytest.raises(ValueError, match=r"must be of shape \(2, 3\), got \(2, 2\)"):
        predictions.note(torch.zeros(2, 2))
    with pytest.raises(ValueError, match=r"lie in range\(3\)"):
        Predictions(torch.tensor([0, 3]), classes=3)


# ---------------------------------------------------------------------- exports


@pytest.fixture
def found() -> Audit:
    record = two_populations()
    record.set_array("predicted", record.arrays["clean"])
    return audit(record)


def test_a_table_that_users_of_cleanlab_know(found: Audit, tmp_path: Path) -> None:
    rows = list(csv.DictReader(export(found, tmp_path / "new" / "a.csv").read_text().splitlines()))
    assert {"is_label_issue", "label_quality", "given_label", "predicted_label", "row"} <= set(rows[0])
    assert len(rows) == 1000
    assert [row["is_label_issue"] for row in rows].count("True") == 200
    assert [row["row"] for row in rows[:3]] == [str(row) for row in found.order[:3]]
    same = json.loads(export(found, tmp_path / "a.json", "json", top=3).read_text())
    assert [row["label_quality"] for row in same] == pytest.approx([float(row["label_quality"]) for row in rows[:3]])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "new"]


def test_tasks_for_label_studio(found: Audit, tmp_path: Path) -> None:
    names, texts = [f"class {number}" for number in range(10)], [f"text {row}" for row in range(1000)]
    path = export(found, tmp_path / "tasks.json", "label-studio", top=2, names=names, texts=texts)
    task = json.loads(path.read_text())[0]
    row = int(found.order[0])
    assert found.given is not None
    assert found.suggested is not None
    assert task["data"]["text"] == f"text {row}"
    assert task["data"]["given_label"] == f"class {found.given[row]}"
    (prediction,) = task["predictions"]
    (result,) = prediction["result"]
    assert result["type"] == "choices"
    assert {"from_name", "to_name"} <= set(result)
    assert result["value"] == {"choices": [f"class {found.suggested[row]}"]}
    assert 0.5 < prediction["score"] <= 1


def test_only_suspects_become_tasks(found: Audit, tmp_path: Path) -> None:
    path = export(found, tmp_path / "tasks.json", "label-studio", names=[f"<{number}>" for number in range(10)])
    assert len(json.loads(path.read_text())) == int(found.issue.sum()) == 200
    xml = (tmp_path / "tasks.xml").read_text()
    assert [choice.get("value") for choice in ElementTree.fromstring(xml).iter("Choice")][:2] == ["<0>", "<1>"]


def test_cleanlab_trains_with_our_issues(found: Audit, tmp_path: Path) -> None:
    cleanlab = pytest.importorskip("cleanlab.classification", reason="needs cleanlab (pip install cleanlab)")
    pandas = pytest.importorskip("pandas")
    linear = pytest.importorskip("sklearn.linear_model")
    issues = pandas.read_csv(export(found, tmp_path / "issues.csv", "cleanlab"))
    assert found.given is not None
    labels = found.given
    inputs = np.random.default_rng(0).normal(size=(1000, 3)) + labels[:, None]
    learner = cleanlab.CleanLearning(linear.LogisticRegression(max_iter=5000), verbose=False)
    learner.fit(inputs, labels, label_issues=issues)
    assert learner.get_label_issues()["is_label_issue"].to_numpy().tolist() == found.issue.tolist()
    assert learner.clf.n_features_in_ == 3
    with pytest.raises(ValueError, match="cleanlab takes all rows and numbered classes"):
        export(found, tmp_path / "issues.csv", "cleanlab", top=3)


@pytest.mark.parametrize("label", ["-1", "=1+1", "+x", "@y", "-", "'=z", "''-", "'plain", "\tx", "1e5", "-1e5", "−1"])
def test_labels_come_back_as_they_were_and_are_harmless(found: Audit, tmp_path: Path, label: str) -> None:
    path = export(found, tmp_path / "a.csv", top=1, names=[label] * 10)
    assert {row["given_label"] for row in read_csv(path)} == {label}
    with open(path, encoding="utf-8", newline="") as file:
        cell = next(csv.DictReader(file))["given_label"]
    assert cell == label or cell == f"'{label}"
    with contextlib.suppress(ValueError):
        assert float(cell) == float(label)  # a number stays a number for others
        return
    assert cell[:1] not in tuple("=+-@\t\r")


def test_exports_are_safe_and_named(found: Audit, tmp_path: Path) -> None:
    names = ["=HYPERLINK(1)"] * 10
    text = export(found, tmp_path / "a.csv", top=1, names=names).read_text()
    assert ",'=HYPERLINK(1)," in text
    with pytest.raises(ValueError, match="no export called 'xml'; known: csv, json, cleanlab, label-studio"):
        export(found, tmp_path / "a.xml", "xml")


def test_samples_are_called_by_their_names(tmp_path: Path) -> None:
    record = record_of([[0.5, 2.0]], labels=[0, 1])
    names = ["=1+1", "ü" * 300]  # of 600 bytes, of which the first 500 are kept
    record.name_samples(names)
    found = audit(record)
    assert [found.name(0), found.name(1), found.rows(1)[0]["name"]] == ["=1+1", "ü" * 250, "ü" * 250]
    assert [row["name"] for row in json.loads(export(found, tmp_path / "a.json", "json").read_text())] == [
        "ü" * 250,
        "=1+1",
    ]
    assert "\n0,'=1+1," in export(found, tmp_path / "a.csv").read_text(encoding="utf-8")
    tasks = json.loads(export(found, tmp_path / "tasks.json", "label-studio", top=2).read_text())
    assert [task["data"]["text"] for task in tasks] == ["ü" * 250, "=1+1"]
    with pytest.raises(RecordError, match="'names' must hold one number or text for each of 2 samples"):
        record.name_samples(["a"])
    for damaged in (np.array([1, 2]), np.array(["a", "b"]), np.array([[b"a"], [b"b"]])):
        record.set_array("names", damaged)
        with pytest.raises(RecordError, match="'names' must be as Record.name_samples makes them, got "):
            audit(record)


def test_rows_that_nobody_knows_about_are_exported_without_a_number(tmp_path: Path) -> None:
    found = audit(record_of([[1.0, math.inf]]))
    rows = json.loads(export(found, tmp_path / "a.json", "json").read_text())
    assert [row["label_quality"] for row in rows] == [None, None]
    assert [row["score"] for row in rows] == [pytest.approx(math.log(math.e - 1), abs=1e-6), None]
