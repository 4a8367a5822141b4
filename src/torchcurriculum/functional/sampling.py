"""Weighted sampling without replacement by an exponential race: no limit on the number of categories."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["draw"]


def draw(log_weights: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """``size`` different rows, drawn one after another with probabilities proportional to the remaining weights.

    Row n finishes an exponential race at time E_n / w_n; the first ``size`` to finish are the sample (Efraimidis and
    Spirakis, 2006). Unlike ``torch.multinomial`` this has no limit of 2^24 rows, works on logarithms, and never
    returns a row of zero weight while others are left.

    Args:
        log_weights: (N,) log-weights, of any normalisation; -inf is never drawn.
        size: How many rows, at most the number of finite log-weights.
        generator: Source of randomness, on the device of ``log_weights``.

    Returns:
        (size,) int64 rows, in increasing order.

    Example:
        >>> draw(torch.tensor([0.0, -torch.inf, 0.0]), 2, torch.Generator().manual_seed(0))
        tensor([0, 2])
    """
    clock = torch.empty_like(log_weights).exponential_(generator=generator)
    # log(E / w) orders as E / w does; the smallest times win.
    return torch.topk(clock.log_() - log_weights, size, largest=False, sorted=False).indices.sort().values
