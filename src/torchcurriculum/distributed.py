"""Shares and sums over ranks, on whatever started ``torch.distributed``; everything is the identity in one process."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["gather_flags", "gather_rows", "is_first", "rank", "share", "world_size"]


def world_size() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """This process's number, from 0."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def is_first() -> bool:
    """Whether this process is the one that writes files and talks."""
    return rank() == 0


def share(n: int) -> range:
    """The contiguous rows of ``range(n)`` that this rank measures; shares start at multiples of eight rows.

    Example:
        >>> share(10)
        range(0, 10)
    """
    blocks = -(-n // 8)
    bounds = [8 * (blocks * part // world_size()) for part in (rank(), rank() + 1)]
    return range(min(bounds[0], n), min(bounds[1], n))


def gather_rows(part: Tensor, n: int) -> Tensor:
    """All rows in order, from each rank's ``share(n)`` of them.

    Args:
        part: (len(share(n)), ...) this rank's rows.
        n: Rows in all.

    Returns:
        (n, ...) rows, the same on every rank.
    """
    if world_size() == 1:
        return part
    # gloo's all_gather refuses uneven shares, so each rank adds its rows to zeros.
    rows = share(n)
    whole = part.new_zeros(n, *part.shape[1:])
    whole[rows.start : rows.stop] = part
    dist.all_reduce(whole)
    return whole


def gather_flags(part: Tensor, n: int) -> Tensor:
    """``gather_rows`` for booleans: ranks exchange one bit per row."""
    if world_size() == 1:
        return part
    bits = 2 ** torch.arange(8, device=part.device)
    padded = torch.zeros(8 * -(-len(part) // 8), dtype=torch.int64, device=part.device)
    padded[: len(part)] = part
    mine = (padded.view(-1, 8) * bits).sum(1).to(torch.uint8)
    whole = torch.zeros(-(-n // 8), dtype=torch.uint8, device=part.device)
    start = share(n).start // 8
    whole[start : start + len(mine)] = mine
    dist.all_reduce(whole)
    return ((whole[:, None].int() & bits) > 0).flatten()[:n]
