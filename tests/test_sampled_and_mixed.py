"""S-APW against Algorithm 1 and M-APW against Appendix A.4, with numbers worked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from torchcurriculum import (
    APW,
    Arrays,
    Batch,
    Curriculum,
    Epoch,
    Mixed,
    Mixup,
    Sampled,
    Step,
    Vanilla,
    functional,
    methods,
)
from torchcurriculum.core import Task
from torchcurriculum.functional.mixup import beta_sample, mixing_share, pair_share


def epoch(number: int, losses: torch.Tensor) -> Epoch:
    return Epoch(number, len(losses), losses, lambda: losses)


def batch(size: int, seed: int = 0) -> Batch:
    task = Task(lambda model, x: model(x), lambda out, y: (out[:, 0] - y) ** 2)
    x = torch.arange(size, dtype=torch.float64)[:, None]
    return Batch(x, torch.arange(size, dtype=torch.float64), torch.arange(size), task=task, seed=seed)


# ---------------------------------------------------------------- the draw


def test_draw_follows_the_weights() -> None:
    # Two of three rows with weights 1/2, 1/3, 1/6, one after another. The probabilities of being left out are
    # 1/2 * (1/3)/(1/2) + 1/3 * (1/2)/(2/3) = 7/12 for row 2, 1/2 * 1/3 + 1/6 * 3/5 = 4/15 for row 1, 3/20 for row 0.
    logs = torch.tensor([1 / 2, 1 / 3, 1 / 6], dtype=torch.float64).log()
    generator = torch.Generator().manual_seed(0)
    left_out = torch.zeros(3)
    for _ in range(6000):
        rows = functional.draw(logs, 2, generator)
        left_out[3 - int(rows.sum())] += 1
    # Three standard deviations of a share of 6000 are at most 0.02.
    assert (left_out / 6000).tolist() == pytest.approx([3 / 20, 4 / 15, 7 / 12], abs=0.02)


def test_draw_has_no_limit_of_2_to_the_24() -> None:
    n = 2**24 + 8
    logs = torch.full((n,), -50.0)
    logs[-5:] = 50.0
    rows = functional.draw(logs, 5, torch.Generator().manual_seed(0))
    assert rows.tolist() == list(range(n - 5, n))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-700, 700), min_size=1, max_size=30), st.integers(0, 10**6), st.data())
def test_draw_gives_different_rows_in_order(logs: list[float], seed: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, len(logs)))
    rows = functional.draw(torch.tensor(logs, dtype=torch.float64), size, torch.Generator().manual_seed(seed)).tolist()
    assert rows == sorted(set(rows))
    assert len(rows) == size


# ---------------------------------------------------------------- Algorithm 1


def test_growth_and_its_stop_rule() -> None:
    # N = 20, fraction 0.25: 5 rows are drawn each epoch, and growth stops after the epoch in which fewer than 5 miss.
    method = Sampled(APW(20, q=10, threshold=1.0), fraction=0.25)
    losses = torch.tensor([0.1, 3.0, 3.0, 3.0] * 5, dtype=torch.float64)
    before: set[int] = set()
    for number in range(1, 60):
        step = Step(nn.Identity(), batch(4).with_(epoch=number), None, torch.ones(4, dtype=torch.float64))
        rows = method.plan(epoch(number, losses))
        if rows is None:
            break
        now = set(rows.tolist())
        assert before <= now, "a row once drawn stays"
        assert 5 <= len(now) <= len(before) + 5
        assert method.weigh(step).tolist() == [0.25] * 4, "the average loss while growing"
        assert (method.grown == number) == (20 - len(now) < 5)
        assert not before or 20 - len(before) >= 5, "the epoch before must not have been the last of the growth"
        before = now
    assert rows is None
    assert 20 - len(before) < 5
    assert not torch.allclose(method.weigh(step), torch.full((4,), 0.25, dtype=torch.float64)), "then APW's weights"


def test_all_weights_are_updated_while_growing_also_for_i_weighting() -> None:
    # As E-weighting by hand in test_apw: rho = 3/4 -> 1/2, 1/6, 1/6, 1/6, though the method is I.
    method = Sampled(APW(4, q=2, threshold=1.0, weighting="I"), fraction=0.25)
    method.plan(epoch(1, torch.tensor([0.5, 2.0, 2.0, 2.0])))
    assert method.weights.tolist() == pytest.approx([1 / 2, 1 / 6, 1 / 6, 1 / 6])


def test_average_after_the_growth_needs_no_measuring() -> None:
    method = Sampled(APW(4, q=2), fraction=1.0, average=True)
    method.plan(epoch(1, torch.ones(4)))
    assert method.grown == 1

    def refuse() -> torch.Tensor:
        raise AssertionError("S-APW-A measured after its growth")

    assert method.plan(Epoch(2, 4, torch.ones(4), refuse)) is None
    step = Step(nn.Identity(), batch(4).with_(epoch=2), None, torch.ones(4, dtype=torch.float64))
    assert method.weigh(step).tolist() == [0.25] * 4


@pytest.mark.parametrize(("n", "fraction", "size"), [(100, 0.29, 29), (60, 0.05, 3), (19, 0.05, 1), (1, 0.05, 1)])
def test_the_number_drawn_is_the_floor(n: int, fraction: float, size: int) -> None:
    assert Sampled(APW(n, q=2), fraction).size == size


def test_sampled_refuses_what_it_cannot_sample_from() -> None:
    with pytest.raises(TypeError, match="Sampled needs a method with a weight for every row, which Vanilla lacks"):
        Sampled(Vanilla())
    with pytest.raises(ValueError, match=r"fraction .*\(0, 1\], got 0"):
        Sampled(APW(4, q=2), 0)


# ---------------------------------------------------------------- mixing


def test_shares_by_hand() -> None:
    # weights 3 : 1 -> 3/4; 1 : 4 -> 1/5
    share = pair_share(torch.tensor([3.0, 1.0]).log(), torch.tensor([1.0, 4.0]).log())
    assert share.tolist() == pytest.approx([0.75, 0.2])
    generator = torch.Generator().manual_seed(0)
    inputs, labels = mixing_share(share, "weights", 1.0, generator)
    assert inputs.tolist() == labels.tolist() == pytest.approx([0.75, 0.2])
    many = torch.full((20000,), 0.75, dtype=torch.float64)
    inputs, labels = mixing_share(many, "labels", 1.0, generator)
    # Inputs by Beta(1, 1): mean 1/2, variance 1/12; labels by the weights.
    assert (inputs.mean().item(), inputs.var().item()) == (
        pytest.approx(0.5, abs=0.01),
        pytest.approx(1 / 12, abs=0.005),
    )
    assert labels.unique().tolist() == [0.75]
    inputs, labels = mixing_share(many, "beta", 1.0, generator)
    # Beta(3/2, 1/2): mean 3/4, variance (3/2)(1/2) / (4 * 3) = 1/16.
    assert (inputs.mean().item(), inputs.var().item()) == (
        pytest.approx(0.75, abs=0.01),
        pytest.approx(1 / 16, abs=0.005),
    )
    assert torch.equal(inputs, labels)


def test_beta_reading_is_plain_mixup_when_weights_are_equal() -> None:
    half = torch.full((20000,), 0.5, dtype=torch.float64)
    drawn, _ = mixing_share(half, "beta", 1.0, torch.Generator().manual_seed(1))
    quartiles = drawn.sort().values[[5000, 10000, 15000]].tolist()
    assert quartiles == pytest.approx([0.25, 0.5, 0.75], abs=0.02)  # Beta(1, 1) is uniform


def test_beta_sample_is_finite_for_tiny_shapes() -> None:
    shape = torch.tensor([1e-6, 1e-6, 2.0])
    drawn = beta_sample(shape, shape.flip(0), torch.Generator().manual_seed(0))
    assert drawn.isfinite().all()
    assert ((drawn >= 0) & (drawn <= 1)).all()


def test_the_papers_names_build_the_literal_reading() -> None:
    # Appendix A.4: the normalised weights replace mixup's coefficient. With weights 1 : 3 both shares are 1/4 and 3/4.
    for weighting in ("e", "i", "ei"):
        assert methods.build(f"m-apw-{weighting}", 4, 2).reading == "weights"
        assert methods.build(f"m-apw-beta-{weighting}", 4, 2).reading == "beta"
    method = methods.build("m-apw-e", 2, 2)
    method.method.log_weights.copy_(torch.tensor([0.25, 0.75]).log())
    mixed = next(found for seed in range(9) if (found := method.view(nn.Identity(), batch(2, seed))).pair.index[0] == 1)
    assert mixed.pair is not None
    assert mixed.pair.share.tolist() == pytest.approx([0.25, 0.75])
    assert mixed.x.flatten().tolist() == pytest.approx([0.75, 0.75])


def test_an_alpha_that_would_be_ignored_is_refused() -> None:
    with pytest.raises(ValueError, match=r"alpha=0\.2 would be ignored: reading='weights' mixes by the weights"):
        methods.build("m-apw-e", 4, 2, alpha=0.2)
    assert methods.build("m-apw-beta-e", 4, 2, alpha=0.2).alpha == 0.2
    assert methods.build("m-apw-e", 4, 2, reading="labels", alpha=0.2).alpha == 0.2
    with pytest.raises(TypeError, match="'m-apw-beta-e' has no option 'reading'"):
        methods.build("m-apw-beta-e", 4, 2, reading="weights")


def test_a_mixed_batch_has_the_mixture_of_two_losses() -> None:
    # weights 1/2, 1/6, 1/6, 1/6 (see test_apw). For a pair (0, j): c = (1/2) / (1/2 + 1/6) = 3/4.
    inner = APW(4, q=2, threshold=1.0)
    inner.advance(torch.tensor([0.5, 2.0, 2.0, 2.0]))
    whole = batch(4, seed=3)
    mixed = Mixed(inner, reading="weights").view(nn.Identity(), whole)
    assert mixed.pair is not None
    assert whole.task is not None
    partner = mixed.pair.index.tolist()
    weights = [3, 1, 1, 1]
    for i, j in enumerate(partner):
        c = weights[i] / (weights[i] + weights[j])
        assert mixed.pair.share[i].item() == pytest.approx(c)
        assert mixed.x[i, 0].item() == pytest.approx(c * i + (1 - c) * j)
        out = c * i + (1 - c) * j
        expected = c * (out - i) ** 2 + (1 - c) * (out - j) ** 2
        assert whole.task.losses(nn.Identity(), mixed)[1][i].item() == pytest.approx(expected)
    assert sorted(partner) == [0, 1, 2, 3]


def test_the_rows_own_loss_drives_i_weighting_under_mixup() -> None:
    # A model that is right on every row as it is, and wrong on mixtures: all own losses are zero, so all are easy,
    # and the update must leave the batch's weights equal, whatever the mixed losses are.
    class Exact(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.where(x == x.round(), x, x + 100)

    inner = APW(4, q=2, threshold=1.0, weighting="I")
    inner.advance(torch.tensor([0.5, 2.0, 2.0, 2.0]))
    mixed = Mixed(inner, reading="weights")
    mixed.view(Exact(), batch(4))
    assert inner.weights.tolist() == pytest.approx([0.25] * 4)


def test_mixing_needs_tensors_and_running_losses_need_rows() -> None:
    tokens = Batch({"input_ids": torch.ones(2, 3)}, torch.zeros(2), torch.arange(2))
    with pytest.raises(TypeError, match="floating-point tensors, but this batch has dict"):
        Mixup().view(nn.Identity(), tokens)
    with pytest.raises(TypeError, match="this batch has torch.int64"):
        Mixup().view(nn.Identity(), Batch(torch.ones(2, 3, dtype=torch.int64), torch.zeros(2), torch.arange(2)))
    with pytest.raises(ValueError, match="reading must be 'weights', 'labels' or 'beta', got 'guess'"):
        Mixed(APW(4, q=2), reading="guess")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"alpha must be .*got 0"):
        Mixup(alpha=0)
    net = nn.Linear(2, 2)
    data = Arrays(torch.randn(6, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1] * 3))
    curriculum = Curriculum(Mixed(APW(6, q=2)), data, batch_size=3, measure="running")
    with pytest.raises(ValueError, match="mixtures of rows, whose losses belong to no row. Use measure='pass'"):
        for part in curriculum.epoch(net):
            curriculum.loss(net, part)


def test_mixup_at_its_moments() -> None:
    parts = [Mixup(alpha=0.4).view(nn.Identity(), batch(64, seed)).pair for seed in range(200)]
    shares = torch.cat([pair.share for pair in parts if pair is not None])
    # Beta(a, a) has mean 1/2 and variance 1 / (4 (2 a + 1)) = 1 / 7.2 for a = 0.4.
    assert shares.mean().item() == pytest.approx(0.5, abs=0.01)
    assert shares.var().item() == pytest.approx(1 / 7.2, abs=0.005)
    assert math.isfinite(shares.sum().item())
