"""Unbiased dynamic data pruning (InfoBatch, Qin et al., 2024)."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["soft_prune"]


def soft_prune(losses: Tensor, ratio: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    r"""Which rows to keep, and which of them also count for pruned ones (Eqs. 3 and 5).

    A row is pruned with probability r if its loss is below the mean :math:`\bar H_t` of all known losses, and never
    otherwise. A kept row below the mean counts :math:`1/(1-r)` times, so that the expected sum of gradients is that of
    all rows. Rows with unknown loss are kept and count once.

    Args:
        losses: (N,) scores, the last known losses; not finite where a row has never been seen.
        ratio: The probability r in [0, 1).
        generator: On the device of ``losses``.

    Returns:
        (N,) bool, kept rows; (N,) bool, kept rows that count 1 / (1 - r) times.

    Example:
        >>> losses = torch.tensor([0.1, 0.1, 0.1, 3.0, torch.inf])              # the mean is 3.3 / 4
        >>> keep, scaled = soft_prune(losses, 0.5, torch.Generator().manual_seed(0))
        >>> keep, scaled
        (tensor([ True,  True, False,  True,  True]), tensor([ True,  True, False, False, False]))
    """
    known = losses.isfinite()
    mean = torch.where(known, losses, 0.0).double().sum() / known.sum()
    low = known & (losses.double() < mean)
    spared = torch.rand(losses.shape, generator=generator, device=losses.device, dtype=torch.float64) >= ratio
    return ~low | spared, low & spared
