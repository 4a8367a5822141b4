"""DDS."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from torchcurriculum import Batch, Step
from torchcurriculum.core import Task
from torchcurriculum.functional.meta import score_gradient
from torchcurriculum.methods import DDS

from .naive_meta import meta_loss_after, problem

LINEAR = Task(lambda net, x: net(x), lambda out, y: y * out[:, 0])


class Scores(nn.Module):
    """One free score for each row of a batch of two."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.tensor([0.0, math.log(3)], dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=6))
def test_the_score_gradient_is_that_of_the_rewarded_log_likelihood(pairs: list[tuple[float, float]]) -> None:
    rewards, values = (torch.tensor(part, dtype=torch.float64) for part in zip(*pairs, strict=True))
    scores = values.clone().requires_grad_()
    (rewards * scores.log_softmax(0)).sum().backward()
    torch.testing.assert_close(score_gradient(rewards, values.softmax(0)), scores.grad, rtol=1e-9, atol=1e-12)


def test_golden_step() -> None:
    # Scores 0 and log 3: p = 1/4, 3/4. L_i = y_i w x_i with gradients 1 and -2, grad M = 1 wherever it is taken:
    # rewards 1 and -2. d/ds = r - p sum r = 1 + 1/4, -2 + 3/4 = 1.25, -1.25; over B = 2 and uphill: slope -0.625 and
    # 0.625.
    net = nn.Linear(1, 1, bias=False).double()
    x, y = torch.tensor([[1.0], [2.0]], dtype=torch.float64), torch.tensor([1.0, -1.0], dtype=torch.float64)
    step = Step(net, Batch(x, y, torch.arange(2), task=LINEAR), None, y * net(x)[:, 0])
    one = torch.ones(1, dtype=torch.float64)
    method = DDS(2, meta=(one.view(1, 1), one), net=Scores(), lr=0.01)
    assert method.weigh(step).tolist() == pytest.approx([0.25, 0.75], rel=1e-14)
    assert (10 * method.scorer.first).tolist() == pytest.approx([-0.625, 0.625], rel=1e-12)
    assert method.scorer.net.scores.tolist() == pytest.approx([0.01, math.log(3) - 0.01], abs=1e-8)
    assert method.report()["reward"].item() == pytest.approx(0.25 - 1.5, rel=1e-12)


@pytest.mark.parametrize("virtual_lr", [0.0, 0.3])
def test_rewards_are_those_of_the_explicit_virtual_step_and_the_same_twice(virtual_lr: float) -> None:
    # Peer bug: a finite difference of two random views over 1e-3, whose noise drowned the reward.
    net, step, meta = problem()
    weights = torch.full((12,), 1 / 12, dtype=torch.float64)
    epsilon = torch.zeros(12, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(meta_loss_after(net, step, meta, virtual_lr * weights + epsilon), epsilon)
    found = []
    for _ in range(2):
        method = DDS(12, meta=meta, virtual_lr=virtual_lr)
        found.append(method.meta_set.agreement(step, virtual_lr * weights if virtual_lr else None))
    torch.testing.assert_close(found[0], -slope, rtol=1e-9, atol=1e-13)
    assert torch.equal(found[0], found[1])
    assert not found[0].requires_grad


def test_first_weights_are_equal_and_sum_to_one() -> None:
    # Peer bug: DDS crashed on the shape of the scorer's output; (B,) and (B, 1) are both fine here.
    _, step, meta = problem()
    assert DDS(12, meta=meta).weigh(step).tolist() == [1 / 12] * 12
    scorer = nn.Linear(4, 1).double()
    assert DDS(12, meta=meta, net=scorer).weigh(step).sum().item() == pytest.approx(1, abs=1e-12)


def test_the_scorer_learns_to_prefer_rows_that_agree() -> None:
    net, step, _ = problem()
    x = step.batch.x
    with torch.no_grad():
        net[3].weight.mul_(8)  # a network that is sure, so that wrong labels have large losses
        right = net(x).argmax(1)
    y = right.clone()
    y[right == 0] = 1  # class 0 is mislabelled throughout: the scorer can see it in the outputs
    batch = step.batch.with_(y=y)
    wrong = right == 0
    assert 0 < wrong.sum() < 12
    method = DDS(12, meta=(x, right), lr=0.03)
    logits, losses = batch.task.losses(net, batch)  # type: ignore[union-attr]
    for _ in range(60):
        weights = method.weigh(Step(net, batch, logits, losses))
    assert weights[wrong].mean() < 0.5 * weights[~wrong].mean()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"virtual_lr": -0.1}, r"virtual_lr must .*got -0\.1"),
        ({"lr": math.inf}, "^lr must .*got inf"),
        ({"meta_batch": 0}, "meta_batch must be .*at least 1, got 0"),
    ],
)
def test_bad_knobs(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DDS(10, **options)
