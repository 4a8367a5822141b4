"""Importance sampling: its authors' weights and their test of variance, and an expectation that is that of all rows."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchcurriculum import Arrays, Curriculum
from torchcurriculum.functional.scores import error_norms
from torchcurriculum.functional.selection import draws, variance_reduction
from torchcurriculum.methods import ImportanceSampling

from ..contract.problem import N, data, model
from .pacing import epoch

SCORES = torch.tensor([0.1, 0.4, 0.2, 1.3], dtype=torch.float64)


def test_weights_and_tau_are_the_authors() -> None:
    # BiasedReweightingPolicy(k=1) and VarianceReductionCondition of idiap/importance-sampling, run on these scores.
    times, factor = draws(SCORES, 4, torch.full((4,), 0.5))
    assert factor.tolist() == pytest.approx([5.0, 1.25, 2.5, 0.38461538461538464])
    assert times.tolist() == [0.0, 1.0, 0.0, 3.0]  # floor(4 p + 1/2) with p = 0.05, 0.2, 0.1, 0.65
    assert variance_reduction(SCORES).item() == pytest.approx(1.3784048752090223, rel=1e-12)
    assert variance_reduction(torch.ones(4)).item() == variance_reduction(torch.zeros(4)).item() == 1.0


def test_the_bound_is_the_gradient_for_the_outputs() -> None:
    logits = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    labels = torch.tensor([0, 1, 2, 1, 0])
    torch.nn.functional.cross_entropy(logits, labels, reduction="sum").backward()
    torch.testing.assert_close(error_norms(logits.detach(), labels), logits.grad.norm(dim=1))


@given(st.integers(0, 10**6), st.floats(0.05, 1.0))
def test_the_expected_sum_is_that_of_all_rows(seed: int, fraction: float) -> None:
    # The mean over M draws of g / (N p) has the mean of g as its mean. A count is p M rounded up or down, so the
    # variance of a term is at most 1/4 (g / (N p M))^2. Six standard errors.
    generator = torch.Generator().manual_seed(seed)
    losses, gradients = torch.rand(2, 4000, generator=generator, dtype=torch.float64) + 0.05
    method = ImportanceSampling(4000, "loss", fraction, threshold=1.0)
    rows = method.plan(epoch(2, losses, seed))
    found = (method.factor[rows] * gradients[rows]).sum() / len(rows)
    spread = (gradients / (losses / losses.sum()) / 4000 / (fraction * 4000)).square().sum().sqrt() / 2
    assert abs(found - gradients.mean()) <= 6 * spread


def test_the_test_of_variance_switches_it_on() -> None:
    # Presampling three times the batch, the authors' threshold is (B + 3b) / 3b = 2.
    method = ImportanceSampling(100, "loss")
    assert method.threshold == pytest.approx(2.0)
    even, uneven = torch.ones(100), torch.cat([torch.full((90,), 0.01), torch.full((10,), 5.0)])
    assert method.plan(epoch(2, even)) is None
    assert method.factor.tolist() == [1.0] * 100
    rows = method.plan(epoch(3, uneven))
    assert method.report()["tau"] == pytest.approx(math.sqrt(100 * (90 * 1e-4 + 10 * 25) / 50.9**2))
    assert set(range(90, 100)) <= set(rows.tolist())
    assert len(rows) < 20
    assert method.plan(epoch(4, even)) is None
    assert method.factor.tolist() == [1.0] * 100


def test_rows_that_cannot_be_drawn() -> None:
    method = ImportanceSampling(4, "loss", threshold=1.0)
    assert method.plan(epoch(1, [math.inf, 1.0, 2.0, 3.0])) is None, "a loss is not known"
    with pytest.raises(ValueError, match="some are negative; pass score='gradient'"):
        method.plan(epoch(1, [-1.0, 1.0, 2.0, 3.0]))
    assert ImportanceSampling(4, "loss", threshold=1.0).plan(epoch(1, [0.0] * 4)) is None, "all alike"


def test_gradients_need_classes() -> None:
    targets = Arrays(data().x, data().x.flatten(1)[:, 0])
    curriculum = Curriculum(ImportanceSampling(N), targets, lambda z, y: (z[:, 0] - y) ** 2, unpack=tuple)
    with pytest.raises(TypeError, match="importance sampling by gradients needs classes"):
        next(iter(curriculum.epoch(model())))


def test_bad_knobs_are_refused() -> None:
    for options, words in (
        ({"score": "norm"}, "score must be 'gradient' or 'loss'"),
        ({"fraction": 0.0}, "fraction must be a number in"),
        ({"threshold": 0.5}, r"threshold must be a number in \[1, inf\], got 0\.5"),
    ):
        with pytest.raises(ValueError, match=words):
            ImportanceSampling(**{"n": 4, **options})
