"""Every method in every numeric corner: parameters stay finite and nothing is NaN, or a sentence says why not."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torchcurriculum import Arrays
from torchcurriculum.shell.steps import cross_entropy

from ..contract.problem import N, Run, data, method
from ..contract.table import TABLE


def losses(change: Callable[[Tensor, Tensor], Tensor]) -> dict[str, Any]:
    return {"loss_fn": lambda outputs, y: change(cross_entropy(outputs, y), y)}


def rows(change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> dict[str, Any]:
    here = data()
    return {"rows": Arrays(*change(here.x, here.y))}


CORNERS: dict[str, Callable[[], dict[str, Any]]] = {
    "zero losses": lambda: losses(lambda loss, y: loss * 0),
    "denormal losses": lambda: losses(lambda loss, y: loss * 1e-310),
    "tiny losses": lambda: losses(lambda loss, y: loss * 1e-45),
    "equal losses": lambda: losses(lambda loss, y: loss - loss.detach() + 1),
    "negative losses": lambda: losses(lambda loss, y: loss - 5),
    "huge losses": lambda: losses(lambda loss, y: loss + 1e30),
    "hugely negative losses": lambda: losses(lambda loss, y: loss - 1e30),
    "one class with huge losses": lambda: losses(lambda loss, y: torch.where(y == 0, loss + 1e30, loss)),
    "all easy": lambda: losses(lambda loss, y: loss * 1e-3),
    "all hard": lambda: losses(lambda loss, y: loss + 100),
    "losses in float16": lambda: losses(lambda loss, y: loss.half()),
    "losses in bfloat16": lambda: losses(lambda loss, y: loss.bfloat16()),
    "losses in float32": lambda: losses(lambda loss, y: loss.float()),
    "steep losses": lambda: losses(lambda loss, y: loss * 1e20),
    "one class": lambda: rows(lambda x, y: (x, torch.zeros_like(y))),
    "equal inputs": lambda: rows(lambda x, y: (torch.ones_like(x), y)),
    "huge inputs": lambda: rows(lambda x, y: (x * 1e30, y)),
    "tiny inputs": lambda: rows(lambda x, y: (x * 1e-300, y)),
    "batches of one": lambda: {"batch_size": 1},
    "one batch": lambda: {"batch_size": N},
    "a batch larger than the set": lambda: {"batch_size": 10**9},
}
USUAL = ("zero losses", "negative losses", "one class")  # in ``make test``


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "corner", [pytest.param(name, marks=() if name in USUAL else pytest.mark.hostile) for name in CORNERS]
)
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.label)
def test_nothing_is_nan(row: Any, corner: str) -> None:
    words = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = Run(method(row), row, **CORNERS[corner]())
        try:
            run.train(epochs=2)
        except (ValueError, TypeError) as error:
            words = str(error)
    if words:
        assert len(words.split()) > 6, words
        return
    for name, value in run.net.named_parameters():
        assert value.isfinite().all(), name
    weights = getattr(run.curriculum.method, "weights", None)
    assert weights is None or weights.isfinite().all()
    for epoch in run.curriculum.record.epochs:
        assert not [name for name, value in epoch.items() if isinstance(value, float) and math.isnan(value)], epoch
