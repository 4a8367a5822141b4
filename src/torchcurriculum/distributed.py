"""Shares and sums over ranks, on whatever started ``torch.distributed``; everything is the identity in one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

__all__ = [
    "Spread",
    "gather_flags",
    "gather_rows",
    "is_first",
    "one_model",
    "order_statistics",
    "rank",
    "share",
    "world_size",
]


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
    """The contiguous rows of ``range(n)`` that this rank measures.

    Example:
        >>> share(10)
        range(0, 10)
    """
    return range(n * rank() // world_size(), n * (rank() + 1) // world_size())


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


def gather_flags(mine: Tensor) -> Tensor:
    """(n,) bool: the rows that any rank flags. No two ranks flag the same row, so one bit per row is exchanged."""
    if world_size() == 1:
        return mine
    bits = torch.tensor([1 << place for place in range(8)], dtype=torch.uint8, device=mine.device)
    padded = torch.zeros(8 * -(-len(mine) // 8), dtype=torch.uint8, device=mine.device)
    padded[: len(mine)] = mine
    packed = (padded.view(-1, 8) * bits).sum(1, dtype=torch.uint8)
    dist.all_reduce(packed)
    return ((packed[:, None] & bits) > 0).flatten()[: len(mine)]


def order_statistics(part: Tensor, positions: Tensor) -> Tensor:
    """The values at ``positions`` of all ranks' numbers in ascending order, found without exchanging the numbers.

    Finds eight of the 64 bits of each value at a time, so ranks exchange 8 times 255 counts for each position.

    Args:
        part: Any number of finite values of this rank.
        positions: (P,) int64 places, from 0, on every rank the same.

    Returns:
        (P,) float64 values, the same on every rank.

    Example:
        >>> order_statistics(torch.tensor([3.0, -1.0, 2.0]), torch.tensor([0, 2]))
        tensor([-1.,  3.], dtype=torch.float64)
    """
    ordered, positions = part.double().sort().values, positions.to(part.device)
    if world_size() == 1:
        return ordered[positions]
    keys = _ordered_bits(ordered + 0.0)  # which makes -0.0 and 0.0 the same bits
    found = torch.full_like(positions, torch.iinfo(torch.int64).min)
    parts = torch.arange(1, 256, device=part.device)
    for width in (1 << shift for shift in range(56, -1, -8)):
        lasts = found[:, None] + parts * width - 1
        below = torch.searchsorted(keys, lasts, right=True, out_int32=True)
        dist.all_reduce(below)
        found = found + (below <= positions[:, None]).sum(1) * width
    return _ordered_bits(found.view(torch.float64)).view(torch.float64)


def _ordered_bits(values: Tensor) -> Tensor:
    """The bits of float64 as int64 in the order of the values; its own inverse, seen as float64."""
    bits = values.view(torch.int64)
    return torch.where(bits < 0, bits ^ torch.iinfo(torch.int64).max, bits)


class Spread:
    """(n,) values of which each row is up to date on one rank; ranks talk only when somebody asks for more.

    Args:
        values: (n,) this rank's values, right in the rows that ``held`` says.
        held: (n,) bool, each row on one rank only; None if each rank holds its ``share`` of rows.

    Example:
        >>> losses = Spread(torch.tensor([0.1, 0.9]))
        >>> losses.at_most(torch.tensor(0.5)), losses.whole()
        (tensor([ True, False]), tensor([0.1000, 0.9000]))
    """

    def __init__(self, values: Tensor, held: Tensor | None = None) -> None:
        self.values, self._held = values, held

    @property
    def held(self) -> Tensor:
        """(n,) bool: the rows that this rank holds."""
        if self._held is None:  # not before somebody asks: the ranks may meet after this was made
            rows = torch.arange(len(self.values), device=self.values.device)
            mine = share(len(rows))
            self._held = (rows >= mine.start) & (rows < mine.stop)
        return self._held

    def here(self) -> Tensor:
        """The values that this rank holds."""
        return self.values if world_size() == 1 else self.values[self.held]

    def whole(self) -> Tensor:
        """All rows, on every rank: an exchange of n values."""
        if world_size() > 1:
            self.values = torch.where(self.held, self.values, 0.0)
            dist.all_reduce(self.values)
        return self.values

    def at_most(self, threshold: Tensor) -> Tensor:
        """(n,) bool: the rows whose value is at most ``threshold``: an exchange of one bit per row."""
        flags = self.values <= threshold.to(self.values)
        return flags if world_size() == 1 else gather_flags(flags & self.held)

    def rewritten(self, rows: Tensor, mine: Tensor) -> None:
        """Says that ranks have new values for ``rows``, and this one those of ``mine``."""
        self.held[rows.to(self.held.device)] = False
        self.held[mine.to(self.held.device)] = True

    def clone(self) -> Spread:
        """A copy that later values do not reach."""
        return Spread(self.values.clone(), None if self._held is None else self._held.clone())

    def to(self, device: torch.device) -> Spread:
        """The same on another device."""
        return Spread(self.values.to(device), None if self._held is None else self._held.to(device))


@contextmanager
def one_model(net: nn.Module) -> Iterator[None]:
    """Lends every rank the first one's buffers: batch statistics differ between ranks until their next exchange."""
    if world_size() == 1:
        yield
        return
    mine = [buffer.clone() for buffer in net.buffers()]
    for buffer in net.buffers():
        dist.broadcast(buffer, 0)
    try:
        yield
    finally:
        for buffer, own in zip(net.buffers(), mine, strict=True):
            buffer.copy_(own)
