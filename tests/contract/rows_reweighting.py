"""Rows of the methods that weigh by losses, temperatures, a second network or a meta set."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchcurriculum import Step

from .row import Row

SCREENED = "the screener's weights start at one half, and no setting makes them one"
RECTIFIED = "weights come from the meta gradient alone; there is no strength"
HALVED = "V starts at one half, and without normalisation no setting makes it one"
HELD_OUT = "a tenth of the rows is held out for the meta set and not trained on"


def with_meta(rows: int = 6, **options: Any) -> Any:
    """Options with some rows as the user's meta set, and more."""
    return lambda data: {"meta": (data.x[:rows], data.y[:rows]), **options}


def with_net(data: Any) -> dict[str, Any]:
    """A network of the user's, the same at every call."""
    net = torch.nn.Sequential(torch.nn.Flatten(), _Linear(data.x[0].numel()))
    return {"net": net, "lr": 0.01}


class _Linear(torch.nn.Module):
    """Zero weights in float64, and inputs of any precision."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(inputs, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.double() @ self.weight


def one_hot(step: Step) -> torch.Tensor:
    return torch.nn.functional.one_hot(step.batch.y.long(), 3)


BELIEVED = "labels are believed by how far their remembered loss is below guessing"

ROWS = [
    Row("rapw", zero={"plain": 1}, measure="running"),  # of few rows none is held back, and no label is doubted
    Row("rapw", {"plain": 1, "decay": 0.5, "caution": 0.0}, zero={"plain": 2}),
    Row("rapw", {"classes": 3}, zero_reason=BELIEVED),
    Row("superloss", zero={"lam": math.inf}, sums="any"),
    Row("superloss", {"tau": math.log(3)}, zero={"lam": math.inf}, sums="any"),
    Row("superloss", {"tau": "running"}, zero={"lam": math.inf}, sums="any"),
    Row("superloss", {"tau": "average"}, zero={"lam": math.inf}, sums="any"),
    Row("dcl", {"lr": 0.5}, zero={"lr": 0.0}),
    Row("dcl", {"classes": 3, "samples": False}, zero={"lr_class": 0.0}),
    Row(
        "dcl",
        {"classes": 3, "init": 0.5, "init_class": 0.5, "weight_decay": 1e-4, "weight_decay_class": 1e-3},
        zero={"lr": 0.0, "lr_class": 0.0},
    ),
    Row("screenernet", {"lr": 0.01}, zero={"lr": 0.0}, zero_reason=SCREENED, sums="any"),
    Row("screenernet", with_net, zero={"lr": 0.0}, zero_reason=SCREENED, sums="any"),
    Row("lre", {"meta_fraction": 0.45}, zero_reason=RECTIFIED, sums="any", rank_batch=9),  # of 20 rows
    Row("lre", with_meta(37), zero_reason=RECTIFIED, sums="any"),
    Row("mw-net", zero={"lr": 0.0}, zero_reason=HELD_OUT, rank_batch=31),
    Row("mw-net", with_meta(meta_batch=4, virtual_lr=0.1, lr=0.01), zero={"lr": 0.0}),
    Row("mw-net", with_meta(normalise=False), zero={"lr": 0.0, "normalise": False}, zero_reason=HALVED, sums="any"),
    Row("mw-net", with_meta(features=one_hot, virtual_lr=lambda: 0.1, lr=0.01), zero={"lr": 0.0}),
    Row("dds", zero={"lr": 0.0}, zero_reason=HELD_OUT, rank_batch=31),
    Row("dds", with_meta(meta_batch=4, virtual_lr=0.1, lr=0.01), zero={"lr": 0.0}),
    Row("dds", with_meta(virtual_lr=0), zero={"lr": 0.0}),
]
