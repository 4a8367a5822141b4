"""ScreenerNet, and the network a method learns beside the model."""

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
from torchcurriculum.functional.optim import adam_step
from torchcurriculum.functional.screener import screener_objective
from torchcurriculum.methods import ScreenerNet, scorer_like
from torchcurriculum.methods._base.side_net import Perceptron, SideNet

TASK = Task(lambda net, x: net(x), lambda out, y: out)


def step(outputs: Any, losses: list[float], x: Any = None) -> Step:
    values = torch.tensor(losses, dtype=torch.float64)
    return Step(nn.Identity(), Batch(x, None, torch.arange(len(values)), task=TASK), outputs, values)


class Bias(nn.Module):
    """One score for all inputs: its gradient can be worked by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.score.expand(len(x))


@given(st.floats(0, 5), st.floats(0.1, 3))
def test_the_best_weight_of_the_objective(loss: float, margin: float) -> None:
    # d/dw [(1-w)^2 L + w^2 h] = 0 at w = L / (L + h), h = max(M - L, 0).
    hinge = max(margin - loss, 0)
    best = torch.tensor(loss / (loss + hinge))
    losses = torch.tensor(loss)
    at_best = screener_objective(best, losses, margin)
    for w in torch.linspace(0, 1, 11):
        assert at_best <= screener_objective(w, losses, margin) + 1e-6


def test_golden_step() -> None:
    # S is one number s = 0, w = 1/2, losses 0.2 and 3, M = 1.
    # dJ/dw of a sample = -2 (1-w) L + 2 w max(M - L, 0): -0.2 + 0.8 = 0.6 and -3 + 0 = -3; their mean is -1.2;
    # dw/ds = 1/4: slope -0.3. Adam's first step is -lr sign(slope) = +lr, so s = 0.01.
    method = ScreenerNet(Bias(), lr=0.01)
    now = step(None, [0.2, 3.0], torch.zeros(2, 1))
    assert method.weigh(now).tolist() == [0.25, 0.25]
    assert method.screener.first.item() == pytest.approx(0.1 * -0.3)
    assert method.screener.net.score.item() == pytest.approx(0.01, rel=1e-6)
    assert (method.weigh(now) * 2).tolist() == pytest.approx([1 / (1 + math.exp(-0.01))] * 2, rel=1e-6)
    assert method.report()["mean_weight"].item() == pytest.approx(0.5025, abs=1e-4)


def test_gradients_do_not_pile_up() -> None:
    # Peer bug: zero_grad was never called. With the weight held at 1/2 the slope must be the same in every step.
    method = ScreenerNet(Bias(), lr=0.0)
    slopes, first = [], torch.zeros(1, dtype=torch.float64)
    for _ in range(4):
        method.weigh(step(None, [0.2, 3.0], torch.zeros(2, 1)))
        slopes.append(((method.screener.first - 0.9 * first) / 0.1).item())
        first = method.screener.first.clone()
    assert slopes == pytest.approx([-0.3] * 4)
    assert all(p.grad is None for p in method.parameters())


def test_the_default_learns_which_outputs_go_with_large_losses() -> None:
    method = ScreenerNet(lr=0.05)
    outputs = torch.tensor([[3.0, 0.0], [0.0, 0.2]])
    for _ in range(200):
        weights = method.weigh(step(outputs, [0.1, 3.0])) * 2
    # Targets L / M = 0.1 and 1.
    assert weights[0] < 0.2
    assert weights[1] > 0.8


def test_the_default_reads_any_width_and_says_what_it_cannot_read() -> None:
    for outputs in (torch.zeros(2), torch.zeros(2, 1), torch.zeros(2, 100)):
        assert ScreenerNet().weigh(step(outputs, [1.0, 2.0])).tolist() == [0.25, 0.25]
    with pytest.raises(TypeError, match=r"shape \(2, 3, 4\); pass net="):
        ScreenerNet().weigh(step(torch.zeros(2, 3, 4), [1.0, 2.0]))
    with pytest.raises(TypeError, match="they are dict; pass net="):
        ScreenerNet().weigh(step({}, [1.0, 2.0]))
    with pytest.raises(ValueError, match=r"one score per sample.*gave .*\(2, 3\)"):
        ScreenerNet(nn.Linear(1, 3)).weigh(step(None, [1.0, 2.0], torch.zeros(2, 1)))


def test_the_model_gets_no_gradient_from_the_screener() -> None:
    outputs = torch.zeros(2, 3, requires_grad=True)
    assert not ScreenerNet().weigh(step(outputs, [1.0, 2.0])).requires_grad
    assert outputs.grad is None


def test_a_state_of_any_width_loads_into_a_fresh_method() -> None:
    trained = ScreenerNet(lr=0.1)
    for _ in range(3):
        trained.weigh(step(torch.tensor([[3.0, 0.0, 1.0], [0.0, 0.2, -1.0]]), [0.1, 3.0]))
    fresh = ScreenerNet(lr=0.1)
    fresh.load_state_dict(trained.state_dict())
    for name, value in trained.state_dict().items():
        assert torch.equal(value, fresh.state_dict()[name]), name
        assert value.dtype == fresh.state_dict()[name].dtype


def test_adam_is_torchs() -> None:
    torch_net, ours = nn.Linear(3, 1).double(), nn.Linear(3, 1).double()
    ours.load_state_dict(torch_net.state_dict())
    side = SideNet(ours, lr=0.03, weight_decay=0.1)
    optimizer = torch.optim.Adam(torch_net.parameters(), lr=0.03, weight_decay=0.1)
    x = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for _ in range(5):
        optimizer.zero_grad()
        (torch_net(x) ** 3).mean().backward()
        optimizer.step()
        side.descend((ours(x) ** 3).mean())
    torch.testing.assert_close(ours.weight, torch_net.weight, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(ours.bias, torch_net.bias, rtol=1e-12, atol=1e-14)


def test_adam_does_not_move_at_rate_zero() -> None:
    change, *_ = adam_step(torch.tensor([5.0]), torch.zeros(1), torch.zeros(1), torch.tensor(1.0), lr=0.0)
    assert change.item() == 0


def test_a_perceptron_draws_from_no_global_generator() -> None:
    before = torch.get_rng_state()
    one, two = Perceptron(4), Perceptron(4)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(one.first, two.first)
    assert one.first.abs().max() <= 0.5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"margin": 0.0}, r"margin must .*got 0\.0"),
        ({"lr": -1.0}, r"lr must .*got -1\.0"),
        ({"lr": math.inf}, "lr must .*got inf"),
    ],
)
def test_bad_knobs(options: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ScreenerNet(**options)  # type: ignore[arg-type]


def test_a_copy_of_the_model_is_the_scorer() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    net = scorer_like(model)
    assert net[-1].out_features == 1
    assert torch.equal(net[0].weight, model[0].weight)
    assert net[0].weight is not model[0].weight
    x, y = torch.randn(6, 1, 4, 4, dtype=torch.float64), torch.arange(6) % 3
    task = Task(lambda net, x: net(x), lambda z, y: nn.functional.cross_entropy(z, y, reduction="none"))
    batch = Batch(x, y, torch.arange(6), task=task)
    logits, losses = task.losses(model, batch)
    method = ScreenerNet(net=net, lr=0.01)
    torch.testing.assert_close(method.weigh(Step(model, batch, logits, losses)), torch.full_like(losses, 0.5 / 6))
    before = net[0].weight.clone()
    method.weigh(Step(model, batch, logits, losses))
    assert not torch.equal(net[0].weight, before)  # the copy learns
    assert scorer_like(nn.Linear(3, 2))(torch.ones(1, 3)).tolist() == [[0.0]]
    with pytest.raises(ValueError, match=r"Conv2d has no nn\.Linear to replace"):
        scorer_like(nn.Conv2d(1, 1, 1))
