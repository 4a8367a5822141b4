"""Plain training: every sample, as it is, with the average loss."""

from __future__ import annotations

from ..core import Method
from .registry import register

__all__ = ["Vanilla"]


class Vanilla(Method):
    """No curriculum: the baseline that every figure is put beside."""


register(
    "vanilla",
    Vanilla,
    "plain training with the average loss: the baseline",
    when="Labels are clean and the data is even. Always run it beside anything else.",
    cost="Nothing.",
)
