"""Checks for methods that need classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...core import checks

__all__ = ["check_classes", "check_labels"]


def check_labels(y: Any, name: str) -> Tensor:
    """(B,) int64 labels; raises an error for ``name`` if there are none."""
    if not isinstance(y, Tensor) or y.ndim != 1 or y.is_floating_point() or y.is_complex():
        raise TypeError(f"{name} needs classes: targets must be one whole number per row, but are {checks.describe(y)}")
    return y.to(torch.int64)


def check_classes(outputs: Any, y: Any, name: str) -> tuple[Tensor, Tensor]:
    """(B, C) logits and (B,) labels; raises an error for ``name`` if there are none."""
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or outputs.shape[1] < 2:
        raise TypeError(
            f"{name} needs classes: the model must return logits of shape (B, C), but returned "
            f"{checks.describe(outputs)}; a forward function can pick them from the model's outputs"
        )
    # A rank without rows has padding in its batch and no logits.
    return outputs, check_labels(y, name)[: len(outputs)]
