"""Weights of the user's: worked by hand, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from torchcurriculum import Batch, Step
from torchcurriculum.methods import GivenWeights


def test_the_loss_is_the_average_times_weights_of_average_one() -> None:
    method = GivenWeights(4, weights=[1, 2, 0, 5])  # of average 2: 0.5, 1, 0, 2.5
    step = Step(None, Batch(None, None, torch.tensor([3, 0])), None, torch.tensor([2.0, 4.0], dtype=torch.float64))
    assert method.weigh(step).tolist() == [1.25, 0.25]
    assert method.loss(step).item() == 3.5
    assert method.weights.tolist() == [0.125, 0.25, 0.0, 0.625]


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1.0, 2.0], r"one value for each of the 3 rows, shape \(3,\), got \(2,\)"),
        ([1.0, -2.0, 1.0], "not all zero; they range from -2.0 to 1.0"),
        ([0.0, 0.0, 0.0], "not all zero"),
        ([1.0, math.inf, 1.0], "must be finite"),
        ([1.0, math.nan, 1.0], r"weights are NaN at rows \[1\]"),
    ],
)
def test_what_is_refused(weights: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        GivenWeights(3, weights=weights)
