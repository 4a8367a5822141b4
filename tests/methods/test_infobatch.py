"""InfoBatch: who is pruned by hand, the expected gradient unbiased, rows exact at any N."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchcurriculum import Batch, Curriculum, Mixup, Step, methods
from torchcurriculum.core import Epoch
from torchcurriculum.functional.infobatch import soft_prune
from torchcurriculum.methods import Both, InfoBatch

from ..contract.problem import data, model


def epoch(number: int, last: torch.Tensor, seed: int = 0) -> Epoch:
    return Epoch(number, len(last), last, losses=lambda: last, seed=seed)


def step(index: torch.Tensor) -> Step:
    losses = torch.ones(len(index), dtype=torch.float64)
    return Step(torch.nn.Identity(), Batch(None, None, index), None, losses)


def test_only_rows_below_the_mean_are_pruned() -> None:
    # Known losses 1, 2, 3, 6: their mean is 3. Rows 0 and 1 are below it; 2 is at it, 3 above, 4 unknown: all kept.
    losses = torch.tensor([1.0, 2.0, 3.0, 6.0, math.inf])
    pruned = torch.zeros(5)
    for seed in range(400):
        keep, scaled = soft_prune(losses, 0.25, torch.Generator().manual_seed(seed))
        assert keep[2:].all()
        assert not scaled[2:].any()
        assert torch.equal(scaled[:2], keep[:2])
        pruned += ~keep
    torch.testing.assert_close(pruned[:2] / 400, torch.full((2,), 0.25), atol=0.07, rtol=0)  # standard error 0.022


def test_the_weights_by_hand() -> None:
    # r = 0.75: a kept row below the mean counts 1 / (1 - 0.75) = 4. A batch of four rows, two of them such:
    # 4/4, 4/4, 1/4, 1/4, which sum to 2.5.
    method = InfoBatch(40, epochs=10, ratio=0.75)
    rows = method.plan(epoch(2, torch.tensor([0.0] * 38 + [9.0, 9.0])))
    low = rows[rows < 38]
    assert {38, 39} <= set(rows.tolist())
    assert 2 <= len(low) < 38
    weights = method.weigh(step(torch.cat([low[:2], torch.tensor([38, 39])])))
    assert weights.tolist() == [1.0, 1.0, 0.25, 0.25]
    assert method.report() == {"rescaled": len(low)}


@given(st.floats(0.05, 0.9), st.integers(0, 1000))
def test_the_expected_sum_of_gradients_is_that_of_all_rows(ratio: float, seed: int) -> None:
    # With gradients g_i, E[sum of kept factor_i g_i] = sum g_i. Over 20000 rows the sum is within 5 standard errors:
    # a row below the mean has the variance g^2 r / (1 - r).
    generator = torch.Generator().manual_seed(seed)
    losses, gradients = torch.rand(2, 20000, generator=generator, dtype=torch.float64)
    method = InfoBatch(20000, epochs=10, ratio=ratio)
    rows = method.plan(epoch(2, losses, seed))
    got = (method.factor(rows) * gradients[rows]).sum()
    spread = (gradients[losses < losses.mean()].square().sum() * ratio / (1 - ratio)).sqrt()
    assert (got - gradients.sum()).abs() <= 5 * spread


def test_rows_are_exact_beyond_what_floats_can_count() -> None:
    # float32 counts exactly to 2^24 and bfloat16 to 2^8; the peer sends rows through the model's precision.
    n = 2**24 + 5
    last = torch.zeros(n)
    last[-5:] = 1.0
    rows = InfoBatch(n, epochs=10).plan(epoch(2, last))
    assert rows.dtype == torch.int64
    assert rows[-5:].tolist() == list(range(2**24, n))
    assert bool((rows[1:] > rows[:-1]).all())
    assert len(rows) / n == pytest.approx(0.5, abs=1e-3)


def test_everything_at_first_and_in_the_last_share() -> None:
    method = InfoBatch(8, epochs=8, ratio=0.9)  # prunes until epoch 0.875 * 8 = 7
    assert method.plan(epoch(1, torch.full((8,), math.inf))) is None
    losses = torch.tensor([0.0] * 7 + [1.0])
    assert len(method.plan(epoch(7, losses, seed=1))) < 8
    assert method.plan(epoch(8, losses)) is None
    assert method.factor(torch.arange(8)).tolist() == [1.0] * 8


def test_a_run_prunes_and_its_weights_say_so() -> None:
    net, method = model(), methods.build("infobatch", 37, 8)
    curriculum = Curriculum(method, data(), batch_size=8)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(8):
        for batch in curriculum.epoch(net):
            optimizer.zero_grad()
            curriculum.loss(net, batch).backward()
            optimizer.step()
    rows = [row["rows"] for row in curriculum.record.epochs]
    assert rows[0] == rows[7] == 37
    assert all(row < 37 for row in rows[1:7])


def test_never_seen_rows_are_kept_and_a_run_without_losses_is_told() -> None:
    last = torch.tensor([0.0, 1.0, math.inf, math.nan])
    assert {1, 2, 3} <= set(InfoBatch(4, epochs=10).plan(epoch(2, last)).tolist())
    with pytest.raises(ValueError, match="in epoch 2 there are none: a method that trains on mixtures"):
        InfoBatch(4, epochs=10).plan(epoch(2, torch.full((4,), math.inf)))
    curriculum = Curriculum(Both(methods.build("infobatch", 37, 8), Mixup()), data(), batch_size=8)
    net = model()
    for batch in curriculum.epoch(net):
        curriculum.loss(net, batch)
    with pytest.raises(ValueError, match="mixtures of rows"):
        next(iter(curriculum.epoch(net)))


def test_bad_knobs_are_refused() -> None:
    for options, words in (
        ({"n": 0}, "n must be"),
        ({"epochs": 0}, "epochs"),
        ({"ratio": 1.0}, r"ratio must .*\[0, 1\), got 1\.0"),
        ({"ratio": -0.1}, "ratio"),
        ({"delta": 1.1}, "delta"),
    ):
        with pytest.raises(ValueError, match=words):
            InfoBatch(**{"n": 4, "epochs": 5, **options})
