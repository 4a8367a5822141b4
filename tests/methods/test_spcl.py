from __future__ import annotations

import pytest
import torch

from torchcurriculum.functional.spl import curriculum_penalty, spread
from torchcurriculum.methods import SPCL, SPL

from .pacing import epoch


def test_golden_penalty_and_spread() -> None:
    # a = rank / (N - 1) = 1, 0, 1/2; mu = 4. Deviations of 0, 2, 4 from 2: sqrt((4 + 0 + 4) / 3) = sqrt(8/3).
    assert curriculum_penalty(torch.tensor([2, 0, 1]), 4.0).tolist() == [4, 0, 2]
    assert spread(torch.tensor([0.0, 2.0, 4.0])).item() == pytest.approx((8 / 3) ** 0.5)


def test_golden_weights() -> None:
    # Losses 0 and 2 have a spread of 1; trust 3, so the keys of rows 0 and 1 are 0 + 3 and 2 + 0: the order wins.
    method = SPCL(2, grow=4, start=0.5, scores=[1.0, 0.0], trust=3.0, scheme="hard", warmup=0)
    assert method.plan(epoch(1, [0.0, 2.0])).tolist() == [1]  # type: ignore[union-attr]
    # With trust 1 they are 1 and 2: the losses win.
    method = SPCL(2, grow=4, start=0.5, scores=[1.0, 0.0], trust=1.0, scheme="hard", warmup=0)
    assert method.plan(epoch(1, [0.0, 2.0])).tolist() == [0]  # type: ignore[union-attr]


def test_without_trust_it_is_self_paced_learning() -> None:
    losses = torch.rand(20, generator=torch.Generator().manual_seed(0))
    a = SPCL(20, grow=4, start=0.4, trust=0.0, scheme="linear", scores=torch.arange(20), warmup=0)
    b = SPL(20, grow=4, start=0.4, scheme="linear", warmup=0)
    a.plan(epoch(1, losses))
    b.plan(epoch(1, losses))
    assert torch.equal(a.weights, b.weights)


def test_without_scores_the_first_impression_is_the_prior() -> None:
    method = SPCL(4, grow=4, start=0.25, trust=100.0, scheme="hard", warmup=0)
    method.plan(epoch(1, [0.0, 1.0, 2.0, 3.0]))
    assert method.plan(epoch(2, [3.0, 2.0, 1.0, 0.0])).tolist() == [0]  # type: ignore[union-attr]


def test_bad_knobs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"trust must .*\[0, inf\), got -1"):
        SPCL(4, grow=2, trust=-1)
