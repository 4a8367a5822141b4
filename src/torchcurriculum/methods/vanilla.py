"""Plain training: every sample, unchanged, with the average loss."""

from __future__ import annotations

from ..core import Method
from .registry import register

__all__ = ["Vanilla"]


class Vanilla(Method):
    """No curriculum: the baseline for every comparison."""


register(
    "vanilla",
    Vanilla,
    "plain training with the average loss: the baseline",
    when="Labels are clean and classes are balanced. Always run it for comparison.",
    cost="Nothing.",
)
