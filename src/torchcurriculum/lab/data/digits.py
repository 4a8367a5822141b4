"""scikit-learn's bundled digits: 1,797 real 8x8 images, no download."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .splits import split

__all__ = ["grey_values", "load_digits"]


def load_digits(seed: int = 0, valid: float = 0.1, test: float = 0.3) -> dict[str, tuple[Tensor, Tensor]]:
    """The digits, split at random into train, valid and test parts.

    Args:
        seed: Seed of the split.
        valid: Share of the validation part.
        test: Share of the test part.

    Returns:
        ``{"train": (x, y), "valid": ..., "test": ...}`` with x (n, 1, 8, 8) float32 in [-1, 1] and y (n,) int64.
    """
    try:
        from sklearn import datasets
    except ImportError as error:
        raise ImportError("the digits need scikit-learn: pip install 'torchcurriculum[digits]'") from error
    images, labels = datasets.load_digits(return_X_y=True)
    x = torch.from_numpy((images / 8.0 - 1.0).astype(np.float32)).view(-1, 1, 8, 8)
    y = torch.from_numpy(labels.astype(np.int64))
    return {part: (x[rows], y[rows]) for part, rows in split(len(x), seed, valid, test).items()}


def grey_values(x: Tensor) -> Tensor:
    """(M, 8, 8) uint8 grey values of M inputs, to show them."""
    return ((x.reshape(-1, 8, 8) + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
