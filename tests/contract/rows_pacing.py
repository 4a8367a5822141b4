"""Curricula with a pace: fixed orders, self-paced learning and its kin, dynamic instance hardness."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchcurriculum import Arrays

from .row import Row

WHOLE = {"start": 1.0}


class Teacher(nn.Module):
    """A linear teacher that takes inputs of any precision."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(2)
        self.matrix = nn.Parameter(torch.randn(64, 3, generator=generator, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1).double() @ self.matrix


def given_scores(data: Arrays) -> dict[str, Any]:
    return {"scores": data.x.flatten(1).std(1)}


def balanced(data: Arrays) -> dict[str, Any]:
    return {"groups": data.y}


def with_teacher(data: Arrays) -> dict[str, Any]:
    return {"teacher": Teacher()}


UNLIKELY = "the loss is divided by a small probability, and its rounding with it"

ROWS = [
    Row("baby-step", zero={"buckets": 1}),
    Row("baby-step", {"order": "random"}, zero={"buckets": 1}),
    Row("baby-step", given_scores, zero={"buckets": 1}),
    Row("lambda-step", zero=WHOLE),
    Row("lambda-step", {"shape": "geometric"}, zero=WHOLE, measure="running"),
    Row("lambda-step", {"shape": "root", "p": 3.0}, zero=WHOLE),
    Row("lambda-step", given_scores, zero=WHOLE),
    Row("lambda-step", balanced, zero=WHOLE),
    Row("anti", zero=WHOLE),
    Row("random", zero=WHOLE),
    Row("ttcl", zero=WHOLE),
    Row("ttcl", with_teacher, zero=WHOLE),
    Row("spl", zero=WHOLE),
    Row("spl", {"scheme": "linear"}, zero=WHOLE, sums="any"),
    Row("spl", {"scheme": "logarithmic"}, zero=WHOLE, sums="any"),
    Row("spl", {"scheme": "mixture"}, zero=WHOLE, sums="any"),
    Row("spl", {"scheme": "root-mixture"}, zero=WHOLE, sums="any"),
    Row("spl", {"scheme": "polynomial"}, zero=WHOLE, sums="any"),
    Row("spl", {"scheme": "linear"}, zero=WHOLE, sums="any", measure="running"),
    Row("spcl", zero=WHOLE, sums="any"),
    Row("spcl", given_scores, zero=WHOLE, sums="any"),
    Row("spld", zero=WHOLE),
    Row("spld", balanced, zero=WHOLE, measure="running"),
    Row("lambda-step", {"batch_size": 7, "grow": 20}, zero={"start": 1.0}),
    Row("dihcl", zero={"bottom": 1.0}),
    Row("dihcl", {"hardness": "change"}, zero={"bottom": 1.0}),
    Row("dihcl", {"hardness": "flip", "warmup": 1}, zero={"bottom": 1.0}),
    Row("dihcl", {"policy": "beta", "hardness": "flip", "warmup": 3, "bottom": 0.5}, zero={"bottom": 1.0}),
    Row("dihcl", {"policy": "ucb"}, zero={"bottom": 1.0}),
    Row("dihcl", {"policy": "exp"}, zero={"bottom": 1.0}, ranks_reason=UNLIKELY),
    Row("dihcl", {"policy": "greedy"}, zero={"bottom": 1.0}, trains_reason="in the end only the fifth that is hardest"),
]
