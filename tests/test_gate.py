"""When the audit must not speak: broken runs and clean data; and what its numbers mean where it does."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from torchcurriculum import Arrays, Curriculum, Predictions, Record, methods
from torchcurriculum.audit import Audit, audit
from torchcurriculum.audit import channel as channels
from torchcurriculum.audit.channel import Channel
from torchcurriculum.audit.health import doubts_of_losses
from torchcurriculum.audit.outside import Opinion, _without_exceptions
from torchcurriculum.audit.result import called_wrong

datasets = pytest.importorskip("sklearn.datasets")

Table = tuple[np.ndarray, np.ndarray]


def out_of_fold(x: np.ndarray, y: np.ndarray, classes: int, trees: bool = False) -> np.ndarray:
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import KFold
    from sklearn.preprocessing import StandardScaler

    x = StandardScaler().fit_transform(x)
    shares = np.zeros((len(y), classes))
    for rows, held in KFold(4, shuffle=True, random_state=0).split(x):
        model = ExtraTreesClassifier(40, random_state=0) if trees else LogisticRegression(max_iter=200)
        model.fit(x[rows], y[rows])
        shares[np.ix_(held, model.classes_)] = model.predict_proba(x[held])
    return shares


def flipped(y: np.ndarray, rate: float, classes: int, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return np.where(draw.random(len(y)) < rate, (y + draw.integers(1, classes, len(y))) % classes, y)


# ---------------------------------------------------------------------- clean data


def _ties() -> Table:
    """A number cut into four classes: rows beside a cut are ties."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(1000, 6))
    total = x.sum(axis=1) + draw.normal(0, 0.5, 1000)
    return x, np.digitize(total, np.quantile(total, [0.25, 0.5, 0.75]))


def _words() -> Table:
    """Counts of 25 words from one of six topics."""
    draw = np.random.default_rng(0)
    topics, y = draw.dirichlet(np.full(100, 0.1), 6), draw.integers(0, 6, 900)
    topics = (topics + topics.mean(axis=0)) / 2
    return np.stack([draw.multinomial(25, topics[k]) for k in y]).astype(np.float64), y


def _rare() -> Table:
    draw = np.random.default_rng(0)
    y = (draw.random(1500) < 0.06).astype(np.int64)
    return draw.normal(size=(1500, 8)) + 1.5 * y[:, None], y


def _made(**options: object) -> Callable[[], Table]:
    known = {"n_features": 12, "n_informative": 8, "n_redundant": 0, "flip_y": 0, "random_state": 0}
    return functools.partial(datasets.make_classification, **{**known, **options})


CLEAN: dict[str, Callable[[], Table]] = {
    "iris": functools.partial(datasets.load_iris, return_X_y=True),
    "wine": functools.partial(datasets.load_wine, return_X_y=True),
    "breast cancer": functools.partial(datasets.load_breast_cancer, return_X_y=True),
    "digits": functools.partial(datasets.load_digits, return_X_y=True),
    "blobs": functools.partial(datasets.make_blobs, 600, centers=4, random_state=0),
    "wide blobs": functools.partial(datasets.make_blobs, 600, centers=4, cluster_std=3.0, random_state=0),
    "moons": functools.partial(datasets.make_moons, 600, noise=0.3, random_state=0),
    "two classes": _made(n_samples=800, n_clusters_per_class=1),
    "clusters": _made(n_samples=800, class_sep=0.7),
    "five classes": _made(n_samples=1000, n_classes=5),
    "ties": _ties,
    "words": _words,
    "a rare class": _rare,
}


@pytest.mark.parametrize("trees", [False, True], ids=["linear", "trees"])
@pytest.mark.parametrize("name", CLEAN)
def test_nothing_is_called_wrong_in_clean_data(name: str, trees: bool) -> None:
    x, y = CLEAN[name]()
    found = audit(y, out_of_fold(x, y, int(y.max()) + 1, trees), features=x)
    assert not found.issue.any()
    assert found.share_low == 0.0
    assert found.summary().startswith("No label is called wrong")


@pytest.mark.parametrize("name", ["breast cancer", "digits", "blobs", "ties", "words"])
def test_flipped_labels_are_found(name: str) -> None:
    """The other side: silence alone would pass the tests above."""
    x, true = CLEAN[name]()
    classes = int(true.max()) + 1
    y = flipped(true, 0.2, classes)
    wrong = y != true
    found = audit(y, out_of_fold(x, y, classes, trees=name != "ties"), features=x)
    assert not found.health
    assert found.share_low <= wrong.mean() <= found.share_high
    assert found.share == pytest.approx(wrong.mean(), abs=0.05)
    assert (found.issue & wrong).sum() > 0.6 * wrong.sum()
    assert (found.issue & ~wrong).sum() < 0.12 * found.issue.sum()
    assert found.suggested is not None
    assert (found.suggested == true)[found.issue & wrong].mean() > 0.7


@pytest.mark.parametrize(("rate", "trees"), [(0.2, True), (0.35, False)])
def test_labels_that_all_go_to_the_next_class_are_found(rate: float, trees: bool) -> None:
    """A temperature alone takes them for classes that overlap: it estimated 9 of 35 %."""
    x, true = CLEAN["digits"]()
    y = np.where(np.random.default_rng(1).random(len(true)) < rate, (true + 1) % 10, true)
    wrong = y != true
    found = audit(y, out_of_fold(x, y, 10, trees), features=x)
    assert not found.health
    assert found.share == pytest.approx(wrong.mean(), abs=0.05)
    assert found.share_low <= wrong.mean() <= found.share_high
    assert (found.issue & wrong).sum() > 0.65 * wrong.sum()
    assert (found.issue & ~wrong).sum() < 0.15 * found.issue.sum()


# ---------------------------------------------------------------------- classes that overlap


def _clusters(classes: int, draw: np.random.Generator) -> Table:
    """Two clusters for each class, which reach into each other."""
    y = draw.integers(0, classes, 1200)
    centres = draw.normal(size=(classes, 2, 8)) * draw.uniform(1.2, 2.4)
    return centres[y, draw.integers(0, 2, 1200)] + draw.normal(size=(1200, 8)), y


def _cells(classes: int, draw: np.random.Generator) -> Table:
    """Six columns of a few values, and labels that follow from them more or less."""
    cells = draw.integers(0, 3, (1200, 6))
    odds = sum(draw.normal(size=(3, classes))[cells[:, one]] for one in range(6)) * draw.uniform(0.6, 2)
    y = (odds + draw.gumbel(size=(1200, classes))).argmax(axis=1)
    return np.concatenate([cells == value for value in range(3)], axis=1).astype(np.float64), y


def _exceptions(classes: int, draw: np.random.Generator) -> Table:
    """One column tells the label, but for exceptions that no column tells; the others tell little."""
    rule = draw.integers(0, classes, 1200)
    y = np.where(draw.random(1200) < draw.uniform(0.05, 0.15), draw.integers(0, classes, 1200), rule)
    little = draw.normal(size=(1200, 4)) + 0.3 * draw.normal(size=(classes, 4))[y]
    return np.column_stack([np.eye(classes)[rule], little]), y


OVERLAPPING = {"clusters": _clusters, "cells": _cells, "exceptions": _exceptions}


def overlapping(kind: str, classes: int, noise: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[np.ndarray]]:
    """Labels, which are wrong, and probabilities by all columns and by two halves."""
    draw = np.random.default_rng([classes, len(kind), len(noise)])
    x, true = OVERLAPPING[kind](classes, draw)
    rates = {"clean": 0.0, "uniform": 0.1, "next": 0.2, "by class": 0.3 * draw.random(classes)}[noise]
    step = 1 if noise == "next" else draw.integers(1, classes, len(true))
    y = np.where(draw.random(len(true)) < np.broadcast_to(rates, classes)[true], (true + step) % classes, true)
    left = np.arange(x.shape[1]) < classes if kind == "exceptions" else np.arange(x.shape[1]) % 2 == 0
    views = [out_of_fold(x[:, part], y, classes) for part in (left, ~left)]
    return y, y != true, out_of_fold(x, y, classes), views


@pytest.mark.parametrize("classes", [2, 3, 5, 10])
@pytest.mark.parametrize("kind", OVERLAPPING)
def test_exceptions_of_overlapping_classes_are_not_called_wrong(kind: str, classes: int) -> None:
    for noise in ("clean", "uniform", "next", "by class"):
        y, wrong, shares, views = overlapping(kind, classes, noise)
        found = audit(y, shares, views=views)
        called, falsely = int(found.issue.sum()), int((found.issue & ~wrong).sum())
        assert falsely <= 0.07 * called + 2 * math.sqrt(0.07 * 0.93 * called), noise  # promised, and two sigmas
        assert found.share_low <= wrong.mean() <= found.share_high, noise


def test_without_views_exceptions_look_like_wrong_labels() -> None:
    """So the test above can fail; and with views labels are still found where columns agree."""
    y, wrong, shares, views = overlapping("exceptions", 10, "clean")
    assert not wrong.any()
    assert audit(y, shares).issue.sum() > 50
    assert not audit(y, shares, views=views).issue.any()
    x, true = CLEAN["digits"]()
    y = flipped(true, 0.15, 10)
    found = audit(y, out_of_fold(x, y, 10), views=[out_of_fold(x[:, start::2], y, 10) for start in (0, 1)])
    assert (found.issue & (y != true)).sum() > 0.8 * (y != true).sum()
    assert (found.issue & (y == true)).sum() < 0.07 * found.issue.sum()


def test_the_share_without_exceptions_by_hand() -> None:
    """12 % of 20 % without, and 20 % of 30 % and 16 % of 20 % with half of the columns: the slope is 0.8."""
    none = np.zeros(0)
    whole, half, same = (Opinion(none, none, none, *two) for two in ((0.12, 0.2), (0.2, 0.3), (0.16, 0.2)))
    assert _without_exceptions(whole, [half, same]) == pytest.approx(0.0)  # (0.12 - 0.8 * 0.2) / 0.2 is below 0
    weak = Opinion(none, none, none, 0.16, 0.3)
    assert _without_exceptions(whole, [weak]) == pytest.approx((0.12 - 0.4 * 0.2) / 0.6)
    assert _without_exceptions(whole, [same]) == pytest.approx(0.12)  # as sure as the whole: it tells nothing


# ---------------------------------------------------------------------- broken probabilities


def _shuffled() -> Table:
    x, y = CLEAN["digits"]()
    return x, np.random.default_rng(0).permutation(y)


BROKEN: dict[str, tuple[Callable[[], Table], str]] = {
    "shuffled labels": (_shuffled, "hardly better than chance"),
    "constant features": (lambda: (np.ones((300, 3)), np.arange(300) % 3), "hardly better than chance"),
    "20 rows": (lambda: tuple(part[::8][:20] for part in CLEAN["iris"]()), "too few rows"),  # type: ignore[dict-item]
    "1,000 classes": (
        lambda: (np.random.default_rng(0).normal(size=(3000, 4)), np.arange(3000) % 1000),
        "too few rows",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_predictions_are_not_judged_by(name: str) -> None:
    make, reason = BROKEN[name]
    x, y = make()
    classes = int(y.max()) + 1
    if classes == 1000:  # what a network of so many classes knows after a while: a little
        shares = np.full((3000, 1000), 0.5 / 999)
        shares[np.arange(3000), np.where(np.arange(3000) % 2, y, (y + 1) % 1000)] = 0.5
    else:
        shares = out_of_fold(x, y, classes)
    silent(audit(y, shares), reason)


def silent(found: Audit, reason: str) -> None:
    assert reason in found.health[0]
    assert not found.issue.any()
    assert np.isnan(found.quality).all()
    assert (found.share, found.share_low, found.share_high) == (0.0, 0.0, 1.0)
    assert found.health[0] in found.summary()


def test_one_class_and_a_whole_class() -> None:
    shares = np.tile([0.9, 0.1], (300, 1))
    silent(audit(np.zeros(300, dtype=int), shares), "the same label")
    draw = np.random.default_rng(0)
    y = np.arange(600) % 3
    sure = draw.uniform(0.8, 0.99, 600)
    said = np.where((y == 2) & (draw.random(600) < 0.9), 1, y)  # the network does not know class 2
    shares = np.repeat(((1 - sure) / 2)[:, None], 3, 1)
    shares[np.arange(600), said] = sure
    silent(audit(y, shares, classes=["a", "b", "c"]), "Nearly all labels of class 'c' look wrong")


def few_unlearnt() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Labels, which are wrong, sure predictions of the true ones but for one class of forty, and that class's rows."""
    draw = np.random.default_rng(0)
    true = np.arange(8000) % 40
    wrong = (draw.random(8000) < 0.2) & (true != 39)
    y = np.where(wrong, (true + draw.integers(1, 39, 8000)) % 39, true)
    said = np.where((true == 39) & (draw.random(8000) < 0.9), 5, true)
    sure = draw.uniform(0.8, 0.99, 8000)
    shares = np.repeat(((1 - sure) / 39)[:, None], 40, 1)
    shares[np.arange(8000), said] = sure
    return y, wrong, shares, y == 39


def test_a_few_classes_that_were_not_learnt_are_left_out() -> None:
    """On CIFAR-100N one class of a hundred, most of whose labels are wrong indeed, kept the audit silent."""
    y, wrong, shares, unlearnt = few_unlearnt()
    record = Record(len(y))
    for name, values in {"labels": y, "clean": np.where(wrong, -1, y), "mean_probabilities": shares}.items():
        record.set_array(name, values.astype(np.float16) if name == "mean_probabilities" else values)
    for scale in (1.5, 1.0, 0.5, 0.4):
        record.append({}, losses=-scale * np.log(shares[np.arange(len(y)), y]))
    for found in (audit(y, shares), audit(record)):
        assert not found.health
        assert not found.issue[unlearnt].any()
        assert np.isnan(found.quality[unlearnt]).all()
        assert not np.isnan(found.quality[~unlearnt]).any()
        assert found.issue[wrong].mean() > 0.9
        assert found.share_low < 0.195 < found.share_high, "0.195 are wrong, or 0.22 with that class"


def test_a_network_that_missed_a_region_is_noticed_by_the_neighbours() -> None:
    """A linear model of clusters is sure, and wrong, of whole clusters: to its probabilities that is noise."""
    x, y = datasets.make_classification(1000, 20, n_informative=5, flip_y=0, class_sep=0.5, random_state=1)
    shares = out_of_fold(x, y, 2)
    assert audit(y, shares).issue.sum() > 50
    silent(audit(y, shares, features=x), "lie among rows of the same label")


# ---------------------------------------------------------------------- broken runs


def run(x: np.ndarray, y: np.ndarray, epochs: int = 12, lr: float = 0.3, name: str = "vanilla") -> Record:
    inputs, labels, classes = torch.tensor(x, dtype=torch.float32), torch.tensor(y), int(y.max()) + 1
    inputs = (inputs - inputs.mean(0)) / (inputs.std(0) + 1e-6)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(inputs.shape[1], 32), nn.ReLU(), nn.Linear(32, max(classes, 2)))
    data = Arrays(inputs, labels)
    curriculum = Curriculum(methods.build(name, len(data), epochs), data, batch_size=64, seed=0, samples=True)
    optimizer, predictions = torch.optim.SGD(model.parameters(), lr=lr), Predictions(labels, max(classes, 2))
    for _ in range(epochs):
        for batch in curriculum.epoch(model):
            loss = curriculum.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            predictions.note(model(inputs))
    for word, values in {"labels": y, **predictions.arrays()}.items():
        curriculum.record.set_array(word, values)
    return curriculum.record


@pytest.mark.parametrize("draw", [3, 4, 5])
def test_hard_clean_labels_raise_no_alarm_in_a_run_of_rapw(draw: int) -> None:
    """Two classes of several clusters each, all labels right; plain training is silent, and RAPW refused hard rows."""
    options = {"n_informative": 5, "n_clusters_per_class": 4, "flip_y": 0, "class_sep": 0.6}
    x, y = datasets.make_classification(1500, 20, random_state=draw, **options)
    record = run(x, y, epochs=40, lr=1.0, name="rapw")
    assert record.epochs[-1]["doubt"] > 0, "or nothing was refused"
    silent(audit(record), "Hard rows look like wrong labels here")


def test_a_healthy_run_with_flipped_labels_speaks() -> None:
    x, true = CLEAN["digits"]()
    y = flipped(true, 0.2, 10)
    wrong = y != true
    found = audit(run(x, y))
    assert not found.health
    assert found.share == pytest.approx(wrong.mean(), abs=0.03)
    assert found.share_low <= wrong.mean() <= found.share_high
    assert (found.issue & ~wrong).sum() < 0.1 * found.issue.sum()
    assert (found.issue & wrong).sum() > 0.8 * wrong.sum()


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("digits", {}, "one group"),
        ("moons", {}, "one group"),
        ("shuffled", {"epochs": 4}, "hardly better than chance|learnt nothing"),
        ("digits", {"epochs": 2}, "too short"),
        ("20 rows", {}, "too few rows"),
        ("constant", {}, "hardly better than chance|learnt nothing"),
        ("one class", {}, "the same label"),
    ],
)
def test_broken_and_clean_runs_do_not_speak(name: str, options: dict[str, int], reason: str) -> None:
    x, y = _shuffled() if name == "shuffled" else CLEAN.get(name, CLEAN["digits"])()
    if name == "20 rows":
        x, y = x[:20], y[:20]
    elif name == "constant":
        x = np.ones_like(x)
    elif name == "one class":
        y = np.zeros_like(y)
    found = audit(run(x, y, **options))
    assert any(one in found.health[0] for one in reason.split("|")), found.health
    assert not found.issue.any()


def test_a_run_that_diverged_does_not_speak() -> None:
    """As `curriculum run image-folder --method rapw` did: mean loss 1.2e8, 43 right labels called wrong."""
    x, y = CLEAN["digits"]()
    for name in ("vanilla", "rapw"):
        try:
            record = run(x, y, epochs=6, lr=1e4, name=name)
        except ValueError as error:  # the losses are refused by name before an audit is asked for
            assert "finite" in str(error)  # noqa: PT017
            continue
        silent(audit(record), "The run diverged")
    draw = np.random.default_rng(0)
    record = Record(300)
    for scale in (2.3, 5.0, 1e4, 1e8):
        record.append({}, losses=scale * draw.exponential(size=300))
    silent(audit(record), "The run diverged: its mean loss ended at")
    record.append({}, losses=np.full(300, math.nan))
    silent(audit(record), "The run diverged: its last losses are not finite")


def test_a_run_that_rejects_wrong_labels_has_not_diverged() -> None:
    """RAPW's losses of rejected labels grow: 40 % of the rows at 10, the others near 0."""
    epochs = [np.where(np.arange(500) % 5 < 2, size, 0.05) for size in (1.0, 5.0, 10.0, 10.0)]
    assert doubts_of_losses(iter(epochs), 2) == []
    assert "diverged" in doubts_of_losses(iter([100 * epoch for epoch in epochs]), 2)[0]


def test_labels_learnt_by_heart_widen_the_interval() -> None:
    """As on a CSV with rapw at 60 epochs: 8 % stand out, 13.2 % are wrong, and 15 % of held-out labels disagree."""
    draw, n = np.random.default_rng(0), 1200
    wrong = np.arange(n) < 158
    learnt = np.arange(n) < 62
    y, accepted = np.arange(n) % 2, draw.beta(12, 1, n)
    mine = np.where(wrong & ~learnt, 1 - accepted, accepted)
    shares = np.stack([np.where(y == 0, mine, 1 - mine), np.where(y == 1, mine, 1 - mine)], axis=1)
    record = Record(n)
    for _ in range(4):
        record.append({"valid_acc": 0.85}, losses=-np.log(mine.clip(1e-3)))
    record.set_array("labels", y)
    record.set_array("mean_probabilities", shares)
    found = audit(record)
    assert not found.health
    assert found.share_low < 0.132 < found.share_high
    assert found.quality[learnt].max() < 0.97


def test_a_network_at_chance_on_held_out_rows_does_not_speak() -> None:
    x, true = CLEAN["digits"]()
    record = run(x, flipped(true, 0.2, 10))
    record.epochs[-1]["valid_acc"] = 0.11
    silent(audit(record), "hardly better than chance on held-out rows: 11.0%")


# ---------------------------------------------------------------------- numbers and arguments


def test_what_is_called_wrong_by_hand() -> None:
    """Odds of 0.1 to 0.9 are half of those of 2 / 11: qualities of 1 / 41, 1 / 9 and 1 / 3 become 1 / 21, 1 / 5, 1 / 2.

    The mean of the first two is 0.124, so one label is called. None is, if 1 % are wrong at the least: then 1 / 41
    becomes 0.35.
    """
    quality, share = np.array([1 / 3, 1 / 41, np.nan, 1 / 9]), 2 / 11
    assert called_wrong(quality, share, 0.1).tolist() == [False, True, False, False]
    assert called_wrong(quality, share, share).tolist() == [False, True, False, True]  # (1 / 41 + 1 / 9) / 2 < 0.07
    assert not called_wrong(quality, share, 0.01).any()
    assert not called_wrong(quality, share, 0.0).any()


def test_nothing_is_called_where_the_interval_is_wide() -> None:
    """Some labels are surely wrong, but which is not: rows far from the other class are few."""
    draw = np.random.default_rng(0)
    x, true = draw.normal(size=(1000, 4)), draw.integers(0, 2, 1000)
    x[:, 0] += 3 * (2 * true - 1) * draw.random(1000)
    y = flipped(true, 0.15, 2)
    found = audit(y, out_of_fold(x, y, 2))
    assert 0 < found.share_low < 0.15 < found.share_high
    assert (found.quality < 0.5).sum() > 40
    assert not found.issue.any()
    assert "but not one of them surely" in found.summary()


def test_the_posterior_by_hand() -> None:
    """p = (0.8, 0.2), squared and normalised: (16, 1) / 17. A label 1 is right with odds 1 * 0.9 to 16 * 0.3."""
    channel = Channel(2.0, np.zeros(2), np.array([[0.7, 0.3], [0.1, 0.9]]))
    shares = np.array([[0.8, 0.2]])
    assert channel.true_shares(shares)[0] == pytest.approx([16 / 17, 1 / 17])
    assert channel.posterior(shares, np.array([1]))[0, 1] == pytest.approx(0.9 / (0.9 + 16 * 0.3))


def test_unfolding_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """One round: (0.6, 0.4) is (0.52, 0.48) behind the channel, so 0.6 becomes 0.6 (0.36 / 0.52 + 0.16 / 0.48)."""
    blurred, matrix = np.array([[0.6, 0.4], [0.5, 0.5]]), np.array([[0.6, 0.4], [0.4, 0.6]])
    monkeypatch.setattr(channels, "ROUNDS", 1)
    assert channels._unfold(blurred, matrix)[0, 0] == pytest.approx(0.6 * (0.36 / 0.52 + 0.16 / 0.48))
    monkeypatch.setattr(channels, "ROUNDS", 2000)
    assert channels._unfold(blurred, matrix) == pytest.approx(np.array([[1.0, 0.0], [0.5, 0.5]]), abs=0.02)


def test_names_of_classes_and_samples() -> None:
    x, true = CLEAN["iris"]()
    y = flipped(true, 0.15, 3)
    shares, words = out_of_fold(x, y, 3, trees=True), ["setosa", "versicolor", "virginica"]
    found = audit([words[label] for label in y], shares, classes=words, names=[f"flower {row}" for row in range(150)])
    again = audit(y, shares)
    assert np.array_equal(found.order, again.order)
    assert found.name(3) == "flower 3"
    assert (found.classes, again.classes) == (words, None)
    assert not found.issue.any() or found.rows(1)[0]["suggestion_probability"] > 0.3


@pytest.mark.parametrize(
    ("labels", "shares", "options", "message"),
    [
        ([0, 1], None, {}, "there are no pred_probs"),
        ([0, 1], [[0.5, 0.5]], {}, r"one for each of the 1 rows of pred_probs, got shape \(2,\)"),
        ([0, 2], [[0.5, 0.5]] * 2, {}, r"must lie in range\(2\), got 0 to 2"),
        (["a", "b"], [[0.5, 0.5]] * 2, {}, "need classes"),
        (["a", "c"], [[0.5, 0.5]] * 2, {"classes": ["a", "b"]}, "the label 'c' is not among the classes"),
        (["a", "b"], [[0.5, 0.3, 0.2]] * 2, {"classes": ["a", "a", "b"]}, "the class 'a' names several columns"),
        ([0, 1], [[0.5, 0.5]] * 2, {"classes": ["a"]}, "must name the 2 columns of pred_probs, got 1"),
        ([0, 1], [[3.0, -1.0]] * 2, {}, "pass probabilities, not logits"),
        ([0, 1], [[3.0, 1.0]] * 2, {}, "must sum to 1"),
        ([0, 1], [[0.5, math.nan]] * 2, {}, "must be finite"),
        ([0, 1], [0.5, 0.5], {}, r"shape \(N, C\)"),
        (
            [0, 1] * 99,
            [[0.9, 0.1], [0.1, 0.9]] * 99,
            {"views": [[[0.9, 0.1]]]},
            r"views must be .* \(198, 2\), got \(1, 2\)",
        ),
        (Record(2), None, {"views": []}, "views goes with labels"),
        (Record(2), None, {"classes": ["a"]}, "classes goes with labels"),
        (Record(2), [[0.5, 0.5]] * 2, {}, "pred_probs goes with labels"),
    ],
)
def test_arguments_are_refused_by_name(labels: object, shares: object, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        audit(labels, shares, **options)


def test_features_of_another_length_are_refused() -> None:
    x, y = CLEAN["iris"]()
    noisy = flipped(y, 0.3, 3)
    with pytest.raises(ValueError, match=r"one row for each of 150 labels, got shape \(149, 4\)"):
        audit(noisy, out_of_fold(x, noisy, 3), features=x[1:])
