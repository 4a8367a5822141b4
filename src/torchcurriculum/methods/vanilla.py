"""Plain training: every sample, as it is, with the average loss."""

from __future__ import annotations

from typing import Any

from ..core import Method
from .registry import register

__all__ = ["Vanilla"]


class Vanilla(Method):
    """No curriculum: the baseline that every figure is put beside."""


@register("vanilla", "plain training with the average loss: the baseline")
def _vanilla(n: int, epochs: int, **options: Any) -> Vanilla:
    return Vanilla(**options)
