"""The precision of the equations."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["at_least_float32"]


def at_least_float32(x: Tensor) -> Tensor:
    """Keeps float32 and float64; converts half precision and integers to float32.

    Example:
        >>> at_least_float32(torch.zeros(1, dtype=torch.bfloat16)).dtype
        torch.float32
    """
    return x if x.dtype in (torch.float32, torch.float64) else x.float()
