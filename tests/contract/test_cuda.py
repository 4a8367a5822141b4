"""The contract on an accelerator, where there is one; ``benchmarks/device_check.py`` runs the same without pytest."""

from __future__ import annotations

import pytest
import torch

from . import cuda
from .every import every_row
from .row import Row
from .table import TABLE

needs_one = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
every = every_row()


@needs_one
@every
def test_device_and_host_agree(row: Row) -> None:
    cuda.agreement(row, "cuda")


@needs_one
@every
def test_no_step_waits_for_the_device(row: Row) -> None:
    cuda.steps_without_waiting(row)


@needs_one
@pytest.mark.parametrize("strategy", cuda.STRATEGIES)
@every
def test_a_row_that_is_not_finite(row: Row, strategy: str) -> None:
    for value in cuda.VALUES.values():
        cuda.stays_finite(row, "cuda", strategy, value)


@needs_one
@every
def test_captured_steps_are_the_plain_ones(row: Row) -> None:
    if cuda.captured_step(row, "cuda"):
        for strategy in cuda.STRATEGIES:
            for value in cuda.VALUES.values():
                cuda.captured_stays_finite(row, "cuda", strategy, value)


@pytest.mark.parametrize("name", ["mixup", "m-apw-beta-e", "s-apw-e", "cbm", "efficient-train", "random", "infobatch"])
def test_draws_of_the_host_are_the_methods_own(name: str) -> None:
    """On the host nothing changes: what is compared on a device is the method itself."""
    assert cuda.agreement(next(row for row in TABLE if row.name == name), "cpu") == 0
