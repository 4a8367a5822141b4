"""LGL: the loss over some classes by hand, how classes are added, and the peers' bugs."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from torchcurriculum import Arrays, Batch, Curriculum, Epoch, Step, per_sample
from torchcurriculum.core import Task
from torchcurriculum.functional.classes import class_means, keep_classes, next_classes
from torchcurriculum.methods import LGL


def _entropy(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits, y, reduction="none")


def _planned(method: LGL, number: int, seed: int = 0) -> torch.Tensor | None:
    zeros = torch.zeros(method.n)
    return method.plan(Epoch(number, method.n, zeros, lambda: zeros, seed=seed))


def test_the_loss_over_some_classes_by_hand() -> None:
    # Classes 0 and 2 are in: -log(e^1 / (e^1 + e^0)) = log(1 + 1/e) = 0.313262 for label 0; label 2: 1 + that.
    method = LGL(4, interval=1, labels=torch.tensor([0, 1, 2, 0]))
    method.set_extra_state(torch.tensor([True, False, True]))
    logits = torch.tensor([[1.0, 2.0, 0.0], [1.0, 2.0, 0.0]], requires_grad=True)
    y = torch.tensor([0, 2])
    batch = Batch(None, y, torch.tensor([0, 2]), task=Task(lambda model, x: x, _entropy))
    loss = method.loss(Step(nn.Identity(), batch, logits, _entropy(logits, y)))
    one = math.log(1 + math.exp(-1))
    assert one == pytest.approx(0.313262, abs=1e-6)
    assert loss.item() == pytest.approx((one + one + 1) / 2, abs=1e-6)
    loss.backward()
    assert logits.grad is not None
    assert logits.grad[:, 1].tolist() == [0, 0]
    assert logits.grad[:, 0].abs().min() > 0


def _partial_loss(loss_fn: Callable[..., torch.Tensor], classes: int = 10, included: int = 3) -> torch.Tensor:
    """The loss of equal logits with the first classes included."""
    method = LGL(classes, interval=1, labels=torch.arange(classes))
    method.set_extra_state(torch.arange(classes) < included)
    logits, y = torch.zeros(1, classes, requires_grad=True), torch.tensor([1])
    batch = Batch(None, y, torch.tensor([1]), task=Task(lambda model, x: x, loss_fn))
    return method.loss(Step(nn.Identity(), batch, logits, loss_fn(logits, y)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_label_smoothing_runs_over_the_included_classes(smoothing: float) -> None:
    # A softmax over three classes of equal logits: log 3 = 1.0986, whatever the
    # smoothing. With the other seven logits at -1e4 it was 701.
    loss = _partial_loss(nn.CrossEntropyLoss(reduction="none", label_smoothing=smoothing))
    assert loss.item() == pytest.approx(math.log(3), abs=1e-6)


def test_a_loss_with_a_weight_for_each_class_is_refused() -> None:
    for criterion in (nn.CrossEntropyLoss(torch.ones(10), reduction="none"), per_sample(nn.NLLLoss(torch.ones(10)))):
        with pytest.raises(ValueError, match="LGL .* a subset of the classes, but this one has class weights"):
            _partial_loss(criterion)


def test_a_label_that_is_left_out_has_no_number() -> None:
    logits, labels = keep_classes(torch.tensor([[5.0, -5.0, 4.0]]), torch.tensor([0, 1, 2]), torch.tensor([0, 2]))
    assert logits.tolist() == [[5.0, 4.0]]
    assert labels.tolist() == [0, -1, 1]


def test_more_logits_than_labels() -> None:
    method = LGL(4, interval=1, labels=torch.tensor([0, 1, 2, 3]))
    assert _planned(method, 1) is not None
    logits, y = torch.zeros(1, 6), torch.tensor([int(method.included.nonzero()[0])])
    batch = Batch(None, y, torch.tensor([0]), task=Task(lambda model, x: x, _entropy))
    loss = method.loss(Step(nn.Identity(), batch, logits, _entropy(logits, y)))
    assert loss.item() == pytest.approx(math.log(2), abs=1e-6)


def test_all_hundred_classes_are_counted_and_added_for_good() -> None:
    labels = torch.arange(300) % 100
    method = LGL(300, interval=2, labels=labels)
    counts, before = [], torch.zeros(100, dtype=torch.bool)
    for number in range(1, 9):
        rows = _planned(method, number)
        now = method.included
        assert (now | ~before).all(), "a class that is in stays in"
        counts.append(int(now.sum()))
        assert method.report() == {"classes": counts[-1]}
        if rows is not None:
            assert rows.tolist() == now[labels].nonzero().flatten().tolist()
        before = now
    assert counts == [10, 10, 40, 40, 70, 70, 100, 100]


def test_the_order_of_classes_follows_the_seed() -> None:
    labels = torch.arange(40) % 20
    first = [LGL(40, interval=1, labels=labels) for _ in range(3)]
    for method, seed in zip(first, (0, 0, 1), strict=True):
        _planned(method, 1, seed)
    assert torch.equal(first[0].included, first[1].included)
    assert not torch.equal(first[0].included, first[2].included)


def test_two_classes_at_least_and_classes_without_rows_are_left_out() -> None:
    method = LGL(6, interval=1, labels=torch.tensor([0, 0, 3, 3, 7, 7]))
    rows = _planned(method, 1)
    assert rows is not None
    assert len(rows) == 4
    assert set(method.included.nonzero().flatten().tolist()) <= {0, 3, 7}
    assert _planned(method, 2) is None
    binary = LGL(4, interval=1, labels=torch.tensor([0, 1, 0, 1]))
    assert _planned(binary, 1) is None


def test_similar_and_dissimilar_by_hand() -> None:
    # Classes at 0, 1, 5, 6 on a line, 0 is in. Nearest: 1; then mean distances of 5 and 6 are 4.5 and 5.5: 5.
    # Farthest: 6; then 1 has (1 + 5) / 2 = 3 and 5 has (5 + 1) / 2 = 3: a tie, the first.
    means = class_means(torch.tensor([[0.0], [2.0], [0.0], [5.0], [6.0]]), torch.tensor([0, 1, 1, 2, 3]), 4)
    assert means.flatten().tolist() == [0, 1, 5, 6]
    start = torch.tensor([True, False, False, False])
    assert next_classes(means, start, ~start, 2, nearest=True).tolist() == [True, True, True, False]
    assert next_classes(means, start, ~start, 2, nearest=False).tolist() == [True, True, False, True]
    assert next_classes(means, start, torch.tensor([True, True, False, False]), 3, True).tolist()[2:] == [False, False]


@pytest.mark.parametrize("order", ["similar", "dissimilar"])
def test_similarity_is_measured_on_the_outputs(order: str) -> None:
    # The net is the identity: class means are 0, 1, 10, 11 on the first axis.
    places = torch.tensor([0.0, 1.0, 10.0, 11.0])
    y = torch.arange(16) % 4
    x = torch.zeros(16, 4)
    x[:, 0] = places[y]
    method = LGL(16, interval=1, start=0.5, growth=0.25, order=order)  # type: ignore[arg-type]
    curriculum = Curriculum(method, Arrays(x, y), batch_size=16, seed=3)
    model = nn.Sequential(nn.Identity())
    for _ in curriculum.epoch(model):
        pass
    first = set(method.included.nonzero().flatten().tolist())
    for _ in curriculum.epoch(model):
        pass
    (added,) = set(method.included.nonzero().flatten().tolist()) - first
    mean = {c: sum(abs(float(places[c] - places[i])) for i in first) for c in set(range(4)) - first}
    assert added == (min if order == "similar" else max)(mean, key=lambda c: mean[c])


def test_labels_that_are_no_classes_are_refused() -> None:
    targets = Arrays(torch.zeros(8, 2), torch.zeros(8))
    curriculum = Curriculum("lgl", targets, lambda out, y: (out[:, 0] - y).square(), epochs=4, unpack=tuple)
    with pytest.raises(TypeError, match=r"LGL needs classes.*float32"):
        next(curriculum.epoch(nn.Linear(2, 2)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n must .*got 0"),
        ({"interval": 0}, "interval must .*got 0"),
        ({"start": 0.0}, r"start must .*got 0\.0"),
        ({"growth": 1.5}, r"growth must .*got 1\.5"),
        ({"order": "alphabetic"}, "order must .*got 'alphabetic'"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, r"labels must .*10 rows.*got \(3,\)"),
        ({"labels": torch.zeros(10)}, "labels must be 10 whole numbers, got torch.float32"),
    ],
)
def test_bad_knobs(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LGL(**{"n": 10, "interval": 1, **options})  # type: ignore[arg-type]


def test_labels_of_another_set_are_refused_by_row() -> None:
    x = torch.rand(9, 2, generator=torch.Generator().manual_seed(0))
    method = LGL(9, interval=1, labels=torch.arange(9) % 3)
    curriculum = Curriculum(method, Arrays(x, (torch.arange(9) + 1) % 3), batch_size=9)
    net = nn.Linear(2, 3)
    with pytest.raises(ValueError, match=r"LGL's labels are not those of the training set: rows \[\d.*left out now"):
        for batch in curriculum.epoch(net):
            curriculum.loss(net, batch)
