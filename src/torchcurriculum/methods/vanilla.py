"""Plain training: every sample, as it is, with the average loss."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ..core import Method
from .registry import register

__all__ = ["Vanilla"]


class Vanilla(Method):
    """No curriculum: the baseline that every figure is put beside."""

    def graph_key(self) -> Hashable:
        """Every step is the same."""
        return "vanilla"


@register(
    "vanilla",
    Vanilla,
    "plain training with the average loss: the baseline",
    when="Labels are clean and the data is even. Always run it beside anything else.",
    cost="Nothing.",
)
def _vanilla(n: int, epochs: int, **options: Any) -> Vanilla:
    return Vanilla(**options)
