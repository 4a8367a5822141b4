"""Parametrises a test over the table; rows with a reason must fail it."""

from __future__ import annotations

from typing import Any

import pytest

from .row import Row
from .table import TABLE


def every_row(reason: str = "") -> Any:
    """Every row of the table.

    Args:
        reason: The field that says why a row fails this test. Such a row is run, and a test that it passes is a
            failure: the reason no longer holds.
    """
    return pytest.mark.parametrize("row", [_param(row, reason) for row in TABLE], ids=lambda row: row.label)


def _param(row: Row, reason: str) -> Any:
    words = getattr(row, reason) if reason else ""
    return pytest.param(row, marks=pytest.mark.xfail(strict=True, raises=AssertionError, reason=words) if words else ())
