"""The contract on an accelerator, where there is one; ``cuda.py`` is the same without pytest."""

from __future__ import annotations

import pytest
import torch

from .cuda import DRAWS, agreement, steps_without_waiting
from .every import every_row
from .row import Row

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
every = every_row()


@every
def test_device_and_host_agree(row: Row) -> None:
    assert agreement(row) <= 1e-9 or row.name in DRAWS


@every
def test_no_step_waits_for_the_device(row: Row) -> None:
    steps_without_waiting(row)
