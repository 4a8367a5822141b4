"""LRE, the meta set, and the inner products that all meta methods share."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from torchcurriculum import Arrays, Batch, Curriculum, Step
from torchcurriculum.functional.meta import flatten, forward_products, reverse_products, shares
from torchcurriculum.methods import LRE
from torchcurriculum.methods._base.meta_set import MetaSet

from .naive_meta import TASK, meta_loss_after, problem


@pytest.mark.parametrize("batch_norm", [False, True])
def test_weights_are_those_of_the_explicit_virtual_step(batch_norm: bool) -> None:
    net, step, meta = problem(batch_norm)
    epsilon = torch.zeros(12, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(meta_loss_after(net, step, meta, 0.1 * epsilon), epsilon)
    expected = (-slope).clamp_min(0)
    expected = expected / expected.sum()
    assert 0 < (expected > 0).sum() < 12
    weights = LRE(12, meta=meta).weigh(step)
    torch.testing.assert_close(weights, expected, rtol=1e-10, atol=1e-14)


def test_the_loss_has_the_size_of_an_average() -> None:
    # Peer bug: weights that sum to one, and then the mean of weight times loss: 1/B of the right size.
    _, step, meta = problem()
    method = LRE(12, meta=meta)
    weights = LRE(12, meta=meta).weigh(step)
    assert weights.sum().item() == pytest.approx(1, abs=1e-12)
    assert method.loss(step).item() == pytest.approx((weights * step.losses).sum().item(), rel=1e-12)


def test_golden_inner_products() -> None:
    # L_i = y_i w x_i, so grad L_i = y_i x_i = 1, 3, -1; M = mean(2 w, 4 w), grad M = 3: products 3, 9, -3, which are
    # rectified and divided by 12.
    net = nn.Linear(1, 1, bias=False)
    task = type(TASK)(lambda net, x: net(x), lambda out, y: y * out[:, 0])
    x, y = torch.tensor([[1.0], [3.0], [1.0]]), torch.tensor([1.0, 1.0, -1.0])
    step = Step(net, Batch(x, y, torch.arange(3), task=task), None, torch.zeros(3))
    meta = (torch.tensor([[2.0], [4.0]]), torch.ones(2))
    assert MetaSet(3, meta).agreement(step).tolist() == [3, 9, -3]
    method = LRE(3, meta=meta)
    assert method.weigh(step).tolist() == [0.25, 0.75, 0]
    assert method.report()["helpful"].item() == pytest.approx(2 / 3)


def test_all_weights_are_zero_if_no_sample_helps() -> None:
    net = nn.Linear(1, 1, bias=False)
    task = type(TASK)(lambda net, x: net(x), lambda out, y: y * out[:, 0])
    batch = Batch(torch.ones(2, 1), torch.tensor([-1.0, -2.0]), torch.arange(2), task=task)
    method = LRE(2, meta=(torch.ones(1, 1), torch.ones(1)))
    assert method.weigh(Step(net, batch, None, torch.zeros(2))).tolist() == [0, 0]


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=9))
def test_shares_sum_to_one_or_to_zero(values: list[float]) -> None:
    weights = shares(torch.tensor(values, dtype=torch.float64).clamp_min(0))
    assert (weights >= 0).all()
    assert weights.sum().item() == pytest.approx(1.0 if max(values) > 0 else 0.0, abs=1e-12)


class Square(torch.autograd.Function):
    """An operation without a forward mode."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return 2 * ctx.saved_tensors[0] * gradient


class Squared(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Square.apply(x)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(1, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(x.unsqueeze(2))[0][:, -1])


def networks() -> dict[str, tuple[nn.Module, bool]]:
    """Networks on (B, 4) inputs, and whether they have a forward mode."""
    encoder = nn.TransformerEncoderLayer(2, 1, 8, dropout=0.1, batch_first=True)
    return {
        "plain": (nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), True),
        "frozen": (nn.Sequential(nn.Linear(4, 6).requires_grad_(False), nn.ReLU(), nn.Linear(6, 3)), True),
        "batch norm": (nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)), True),
        "dropout": (nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 3)), True),
        "attention": (nn.Sequential(nn.Unflatten(1, (2, 2)), encoder, nn.Flatten(), nn.Linear(4, 3)), True),
        "custom": (nn.Sequential(nn.Linear(4, 6), Squared(), nn.Linear(6, 3)), False),
        "recurrent": (Recurrent(), True),
    }


@pytest.mark.parametrize("name", list(networks()))
def test_forward_and_reverse_mode_agree_and_disturb_nothing(name: str) -> None:
    net, has_forward_mode = networks()[name]
    net = net.double()
    x = torch.randn(5, 4, dtype=torch.float64)
    y = torch.tensor([0, 1, 2, 1, 0])
    direction = flatten([torch.randn_like(p) for p in net.parameters() if p.requires_grad])
    before = {key: value.clone() for key, value in net.state_dict().items()}
    state = torch.get_rng_state()

    def losses(net: nn.Module) -> torch.Tensor:
        return F.cross_entropy(net(x), y, reduction="none")

    forward = forward_products(losses, net, direction)
    reverse = reverse_products(losses, net, direction)
    assert (forward is not None) == has_forward_mode
    if forward is not None:
        torch.testing.assert_close(forward, reverse, rtol=1e-10, atol=1e-12)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    # A finite difference along the direction, for networks that are the same function twice.
    if name in ("plain", "custom", "recurrent"):
        with torch.no_grad():
            values = []
            for sign in (1e-5, -1e-5):
                offset = 0
                for p in net.parameters():
                    p.add_(sign * direction[offset : offset + p.numel()].view_as(p))
                    offset += p.numel()
                values.append(losses(net))
                net.load_state_dict(before)
        torch.testing.assert_close(reverse, (values[0] - values[1]) / 2e-5, rtol=1e-5, atol=1e-6)


def test_a_model_without_forward_mode_is_found_out_once() -> None:
    _, step, meta = problem()
    net = nn.Sequential(nn.Linear(4, 7), Squared(), nn.Linear(7, 3)).double()
    step = Step(net, step.batch, None, step.losses.detach())
    meta_set = MetaSet(12, meta)
    products = meta_set.agreement(step)
    assert not meta_set.forward_mode
    assert products.shape == (12,)
    assert meta_set.agreement(step).shape == (12,)


def test_held_out_rows_are_the_same_in_every_epoch_and_never_trained_on() -> None:
    data = Arrays(torch.randn(40, 4), torch.arange(40) % 3)
    method = LRE(40, meta_fraction=0.2)
    curriculum = Curriculum(method, data, batch_size=8, seed=3)
    net = nn.Linear(4, 3)
    held = None
    for _ in range(3):
        seen = set()
        for batch in curriculum.epoch(net):
            curriculum.loss(net, batch).backward()
            seen |= set(batch.index.tolist())
        rows = set(method.meta_set.rows.tolist())
        assert len(rows) == 8
        assert seen == set(range(40)) - rows
        assert held in (None, rows)
        held = rows


def test_meta_batches_go_round_the_whole_set() -> None:
    _, step, _ = problem()
    seen = []

    class Spy(Arrays):
        def batch(self, index: torch.Tensor, generator: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
            seen.extend(index.tolist())
            return super().batch(index, generator)

    meta_set = MetaSet(12, Spy(torch.randn(6, 4, dtype=torch.float64), torch.zeros(6).long()), batch_size=4)
    for _ in range(3):
        meta_set.agreement(step)
    assert sorted(seen) == sorted(2 * list(range(6)))


class Rows:
    """A dataset of rows without a ``batch`` of its own."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return self.x[row], int(self.y[row])


def test_a_dataset_and_a_pair_of_another_precision_are_as_good_as_a_pair() -> None:
    _, step, (x, y) = problem()
    expected = MetaSet(12, (x, y)).agreement(step)
    torch.testing.assert_close(MetaSet(12, Arrays(x, y)).agreement(step), expected)
    torch.testing.assert_close(MetaSet(12, Rows(x, y)).agreement(step), expected)
    torch.testing.assert_close(MetaSet(12, (x.float(), y)).agreement(step), expected, rtol=1e-4, atol=1e-5)


def test_dict_inputs() -> None:
    x, y = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    task = type(TASK)(lambda net, x: net(x["a"]), TASK.loss_fn)
    step = Step(nn.Linear(4, 3), Batch({"a": x}, y, torch.arange(6), task=task), None, torch.zeros(6))
    weights = LRE(6, meta=({"a": x[:3]}, y[:3])).weigh(step)
    assert weights.sum().item() == pytest.approx(1)


def test_a_meta_row_that_is_not_finite_is_named() -> None:
    _, step, (x, y) = problem()
    x = x.clone()
    x[3] = torch.nan
    with pytest.raises(ValueError, match=r"at rows \[3\]"):
        LRE(12, meta=(x, y)).weigh(step)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"meta_fraction": 0.0}, r"meta_fraction must .*\(0, 1\), got 0\.0"),
        ({"meta_fraction": 1.0}, r"meta_fraction must .*\(0, 1\), got 1\.0"),
        ({"meta_batch": 0}, "meta_batch must be .*at least 1, got 0"),
        ({"n": 1}, "cannot be held out"),
        ({"meta": (torch.zeros(2, 1), torch.zeros(3))}, r"as many inputs as targets.*\[2, 3\]"),
        ({"meta": (torch.zeros(0, 1), torch.zeros(0))}, "at least one"),
        ({"meta": (torch.zeros(2), torch.zeros(2), torch.zeros(2))}, "a tuple of 3"),
    ],
)
def test_bad_knobs(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LRE(**{"n": 10, **options})


def test_what_is_missing_is_said() -> None:
    _, step, meta = problem()
    bare = Step(step.model, step.batch.with_(task=None), None, step.losses)
    with pytest.raises(ValueError, match="needs the forward and loss functions"):
        LRE(12, meta=meta).weigh(bare)
    with pytest.raises(ValueError, match="only a Curriculum can hold out rows"):
        LRE(12).weigh(step)
