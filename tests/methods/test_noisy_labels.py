"""Argmax, small-loss and ELR: numbers from the authors' code, and what each refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from torchcurriculum import Batch, Step
from torchcurriculum.core import Epoch, Pair
from torchcurriculum.methods import ELR, Argmax, SmallLoss


def doubles(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def step(logits: Any, y: Any, rows: list[int], epoch: int = 1, **more: Any) -> Step:
    logits = logits if isinstance(logits, Tensor) else doubles(logits)
    labels = torch.tensor(y)
    losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    return Step(None, Batch(None, labels, torch.tensor(rows), epoch=epoch, **more), logits, losses)


def test_elr_is_the_authors_loss() -> None:
    # Values, gradients and targets of elr_loss in ELR/model/loss.py of github.com/shengliu66/ELR, run in float64 with
    # beta = 0.7 and lambda = 3; the second call has a probability above 1 - 1e-4, which the code clips.
    method = ELR(3)
    first = doubles([[2.0, -1.0, 0.5], [0.0, 1.0, -2.0]]).requires_grad_()
    loss = method.loss(step(first, [0, 2], [2, 0]))
    loss.backward()
    assert loss.item() == pytest.approx(1.1909085332260338, rel=1e-12)
    expected = [
        [-0.16699152403633766, 0.03289724813280555, 0.13409427590353212],
        [0.17288181466989194, 0.29944974629882914, -0.472331560968721],
    ]
    torch.testing.assert_close(first.grad, doubles(expected), rtol=1e-12, atol=1e-15)
    second = doubles([[-2.0, 12.0, 0.5], [0.5, 1.0, 1.0]]).requires_grad_()
    loss = method.loss(step(second, [0, 2], [2, 0]))
    loss.backward()
    assert loss.item() == pytest.approx(6.634438475311258, rel=1e-12)
    expected = [
        [-0.49999958424019786, 0.499994519248919, 5.064991278793916e-06],
        [0.1386516982457619, 0.13146895012994275, -0.2701206483757046],
    ]
    torch.testing.assert_close(second.grad, doubles(expected), rtol=1e-12, atol=1e-15)
    expected = [
        [0.12430321795757762, 0.26322626702379587, 0.12247051501862657],
        [0.0, 0.0, 0.0],
        [0.1650053742640479, 0.30815364638624443, 0.03684097934970768],
    ]
    torch.testing.assert_close(method.predictions, doubles(expected), rtol=1e-12, atol=1e-15)


def test_small_loss_keeps_as_many_as_the_authors() -> None:
    # R(T) of the paper with tau = 0.4 and T_k = 10: 0.96, 0.8, 0.6, 0.6. Of 128 rows, int(R B) as in loss.py of
    # github.com/bhanML/Co-teaching: 122, 102, 76 and 76.
    method = SmallLoss(gradual=10, forget=0.4)
    losses = torch.rand(128, generator=torch.Generator().manual_seed(0))
    order = losses.argsort()
    for epoch, count in {1: 122, 5: 102, 10: 76, 200: 76}.items():
        batch = Batch(None, None, torch.arange(128), epoch=epoch)
        weights = method.weigh(Step(None, batch, None, losses))
        assert weights[order[:count]].tolist() == pytest.approx([1 / count] * count, rel=1e-15)
        assert weights[order[count:]].abs().max() == 0
    method.plan(Epoch(5, 128, losses, lambda: losses))
    assert method.report()["forgotten"].item() == pytest.approx(0.2)


def test_small_loss_keeps_one_row_at_least_and_equal_losses_together() -> None:
    batch = Batch(None, None, torch.arange(3), epoch=9)
    assert SmallLoss(1, 0.9).weigh(Step(None, batch, None, doubles([3.0, 1.0, 2.0]))).tolist() == [0, 1, 0]
    assert SmallLoss(1, 0.5).weigh(Step(None, batch, None, doubles([2.0, 1.0, 1.0]))).tolist() == [0, 0.5, 0.5]


def test_argmax_follows_the_mean_of_the_predictions() -> None:
    # Two classes, memory 1/2. Row 7 is predicted with p = (0.8, 0.2), then (0.3, 0.7), then (0.3, 0.7) again:
    # t = (0.4, 0.1), (0.35, 0.4), (0.325, 0.55). Row 2 always has p = (0.6, 0.4).
    method = Argmax(8, warmup=0, memory=0.5)

    def visit(p: float, label: int) -> list[float]:
        odds = [[math.log(p), math.log(1 - p)], [math.log(0.6), math.log(0.4)]]
        return method.weigh(step(odds, [label, 0], [7, 2])).tolist()

    assert visit(0.8, 0) == [0.5, 0.5]
    assert visit(0.3, 0) == [0, 1]
    torch.testing.assert_close(method.predictions[7], doubles([0.35, 0.4]), rtol=1e-12, atol=0)
    assert visit(0.3, 1) == [0.5, 0.5]
    torch.testing.assert_close(method.predictions[7], doubles([0.325, 0.55]), rtol=1e-12, atol=0)
    assert method.report()["kept"].item() == 1
    visit(0.3, 0)
    assert method.report()["kept"].item() == 7 / 8
    assert method.kept[7] == 0


def test_argmax_without_a_row_that_agrees_trains_on_nothing() -> None:
    method = Argmax(2, warmup=1)
    now = step([[1.0, 0.0], [1.0, 0.0]], [1, 1], [0, 1], epoch=2)
    assert method.loss(now).item() == 0
    assert method.weigh(step([[1.0, 0.0], [1.0, 0.0]], [1, 1], [0, 1])).tolist() == [0.5, 0.5]  # the warm-up


@pytest.mark.parametrize("method", [Argmax(4, warmup=0), ELR(4)])
def test_what_is_not_one_label_for_each_row_is_refused(method: Argmax | ELR) -> None:
    name = type(method).__name__
    with pytest.raises(TypeError, match=f"{name} needs classes: the model must return logits"):
        method.loss(Step(None, Batch(None, torch.tensor([1]), torch.tensor([0])), torch.zeros(1), torch.ones(1)))
    with pytest.raises(TypeError, match=f"{name} needs classes: targets"):
        method.loss(Step(None, Batch(None, torch.ones(1, 2), torch.tensor([0])), torch.zeros(1, 2), torch.ones(1)))
    pair = Pair(torch.tensor([0]), torch.tensor([1]), torch.tensor([0.5]))
    with pytest.raises(TypeError, match=f"{name} compares .* mixtures of two"):
        method.loss(step([[0.0, 1.0]], [0], [0], pair=pair))
    method.loss(step([[0.0, 1.0]], [0], [0]))
    with pytest.raises(ValueError, match="the model had 2 outputs and has 3 now"):
        method.loss(step([[0.0, 1.0, 0.0]], [0], [0]))


def test_a_state_of_other_rows_is_refused() -> None:
    method = ELR(3)
    method.loss(step([[0.0, 1.0]], [0], [0]))
    fresh = ELR(3)
    fresh.load_state_dict(method.state_dict())
    assert torch.equal(fresh.predictions, method.predictions)
    with pytest.raises(RuntimeError, match="size mismatch for predictions"):
        ELR(4).load_state_dict(method.state_dict())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ELR(3, lam=-1.0), r"lam must be a number in \[0, inf\), got -1.0"),
        (lambda: ELR(3, beta=1.0), r"beta must be a number in \[0, 1\), got 1.0"),
        (lambda: Argmax(3, warmup=-1), "warmup must be a number of epochs, at least 0, got -1"),
        (lambda: Argmax(3, warmup=1, memory=1.0), r"memory must be a number in \[0, 1\)"),
        (lambda: SmallLoss(0), "gradual must be a whole number, at least 1, got 0"),
        (lambda: SmallLoss(1, forget=1.0), r"forget must be a number in \[0, 1\), got 1.0; it is the share of wrong"),
        (lambda: ELR(3, lam=math.nan), "lam of ELR is NaN"),
    ],
)
def test_bad_knobs(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_pace_from_the_length_of_the_run() -> None:
    assert Argmax.for_run(10, 200).warmup == 50
    assert Argmax.for_run(10, 2).warmup == 1
    assert SmallLoss.for_run(10, 200).gradual == 10
    assert SmallLoss.for_run(10, 20, forget=0.4).gradual == 5
