"""Synthetic label noise, as the paper adds it."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import checks
from ..distributed import derive

__all__ = ["flip_labels"]

WHOLE = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8)


def flip_labels(labels: Tensor, rate: float, classes: int, seed: int) -> Tensor:
    """Each label, independently with probability ``rate``, becomes another class drawn uniformly.

    Args:
        labels: (N,) int64 labels in ``range(classes)``.
        rate: Probability of a flip, in [0, 1].
        classes: Number of classes, at least 2.
        seed: Determines the noise; the global generators are not used.

    Returns:
        (N,) labels; compare with the given ones to know which were flipped.

    Example:
        >>> clean = torch.zeros(1000, dtype=torch.int64)
        >>> noisy = flip_labels(clean, 0.4, classes=10, seed=0)
        >>> int((noisy != clean).sum()), int(noisy.max())
        (415, 9)
    """
    checks.real("rate", rate, "[0, 1]", "it is the probability of a flip")
    if not isinstance(labels, Tensor) or labels.ndim != 1 or labels.dtype not in WHOLE:
        raise ValueError(f"labels must be a tensor of whole numbers, shape (N,), got {checks.describe(labels)}")
    if classes < 2 or (len(labels) and (labels.min() < 0 or labels.max() >= classes)):
        raise ValueError(f"labels must lie in range({classes}), with at least two classes")
    generator = torch.Generator().manual_seed(derive(seed, "label noise"))
    flipped = torch.rand(len(labels), generator=generator) < rate
    shift = torch.randint(1, classes, (len(labels),), generator=generator)
    return torch.where(flipped.to(labels.device), (labels + shift.to(labels.device)) % classes, labels)
