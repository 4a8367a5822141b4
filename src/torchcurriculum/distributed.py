"""Sums, shares and per-row state across ranks; everything is the identity in a single process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

__all__ = [
    "RowState",
    "Sharded",
    "derive",
    "evaluating",
    "gather_batch",
    "gather_flags",
    "gather_rows",
    "is_first",
    "merge_rows",
    "normalise",
    "order_statistics",
    "rank",
    "same_buffers",
    "share",
    "total",
    "uncompiled",
    "unwrapped",
    "world_size",
]


def world_size() -> int:
    """The number of processes: 1 unless ``torch.distributed`` is initialised."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """This process's number, from 0."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def is_first() -> bool:
    """Whether this process is the one that writes files and prints."""
    return rank() == 0


def total(x: Tensor) -> Tensor:
    """The sum of ``x`` over all ranks; ``x`` itself in a single process."""
    if world_size() == 1:
        return x
    x = x.detach().clone()
    dist.all_reduce(x)
    return x


def normalise(log_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weights of the *global* batch that sum to one over all ranks, from this rank's log-weights.

    Args:
        log_weights: (B,) unnormalised log-weights of this rank's rows; B may be zero.

    Returns:
        The weights (B,) and the logarithm of their normaliser (a scalar, the same on every rank).

    Example:
        >>> normalise(torch.tensor([0.0, 0.0, 0.0, 0.0]))[0]
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    # Shifted by the largest value, so that equal log-weights give 1/B exactly and nothing under- or overflows.
    if world_size() == 1:
        if not len(log_weights):
            return log_weights.exp(), log_weights.new_full((), -torch.inf)
        top = log_weights.max()
        raw = (log_weights - top).exp()
        scale = raw.sum()
        return raw / scale, top + scale.log()
    low = log_weights.new_full((1,), -torch.inf)
    here = torch.cat([log_weights, low]).max()
    table = log_weights.new_zeros(world_size(), 2)
    here_or_zero = torch.where(here.isfinite(), here, torch.zeros_like(here))
    table[rank(), 0] = here_or_zero
    table[rank(), 1] = (log_weights - here_or_zero).exp().sum()
    table = total(table)
    filled = table[:, 1] > 0
    top = torch.where(filled, table[:, 0], low).max()
    scale = torch.where(filled, table[:, 1] * (table[:, 0] - top).exp(), 0.0).sum()
    return (log_weights - top).exp() / scale, top + scale.log()


def merge_rows(values: Tensor, written: Tensor) -> Tensor:
    """(n, ...) rows, each from the rank that wrote it; rows that no rank wrote are unchanged.

    Args:
        values: (n, ...) floating-point rows of this rank.
        written: (n,) bool: the rows that this rank wrote since the last synchronisation.

    Returns:
        The same on every rank; for a row that several ranks wrote, the mean.
    """
    if world_size() == 1:
        return values
    mine = written.view(-1, *[1] * (values.ndim - 1))
    writers = total(mine.to(values.dtype))
    newest = total(torch.where(mine, values, torch.zeros_like(values))) / writers.clamp_min(1)
    return torch.where(writers > 0, newest, values)


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


def gather_batch(values: Tensor, index: Tensor) -> Tensor:
    """The values of a batch's rows on all ranks, in the order of the rows.

    Args:
        values: (B,) float64 values of this rank's rows; B may be zero.
        index: (B,) its rows.

    Example:
        >>> gather_batch(torch.tensor([3.0, 1.0]), torch.tensor([8, 2]))
        tensor([1., 3.])
    """
    if world_size() > 1:
        sizes = values.new_zeros(world_size(), dtype=torch.int64)
        sizes[rank()] = len(values)
        ends = total(sizes).cumsum(0).tolist()
        table = values.new_zeros(ends[-1], 2, dtype=torch.float64)
        table[ends[rank()] - len(values) : ends[rank()]] = torch.stack([index.double(), values.double()], 1)
        index, values = total(table).unbind(1)
    return values[index.argsort()]


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
    ordered, positions = part.sort().values.double(), positions.to(part.device)
    if world_size() == 1:
        return ordered[positions]
    keys = _ordered_bits(ordered + 0.0)  # gives -0.0 and 0.0 the same bits
    found = torch.full_like(positions, torch.iinfo(torch.int64).min)
    parts = torch.arange(1, 256, device=part.device)
    for width in (1 << shift for shift in range(56, -1, -8)):
        lasts = found[:, None] + parts * width - 1
        below = torch.searchsorted(keys, lasts, right=True, out_int32=True)
        dist.all_reduce(below)
        found = found + (below <= positions[:, None]).sum(1) * width
    return _ordered_bits(found.view(torch.float64)).view(torch.float64)


def _ordered_bits(values: Tensor) -> Tensor:
    """The bits of float64 as int64 that sort like the values; its own inverse, viewed as float64."""
    bits = values.view(torch.int64)
    return torch.where(bits < 0, bits ^ torch.iinfo(torch.int64).max, bits)


class Sharded:
    """(n,) values, each up to date on one rank only; ranks communicate only when needed.

    Args:
        values: (n,) this rank's values, valid in the rows of ``held``.
        held: (n,) bool, each row on one rank only; None if each rank holds its ``share`` of rows.

    Example:
        >>> losses = Sharded(torch.tensor([0.1, 0.9]))
        >>> losses.at_most(torch.tensor(0.5)), losses.whole()
        (tensor([ True, False]), tensor([0.1000, 0.9000]))
    """

    def __init__(self, values: Tensor, held: Tensor | None = None) -> None:
        self.values, self._held = values, held

    @property
    def held(self) -> Tensor:
        """(n,) bool: the rows that this rank holds."""
        if self._held is None:  # computed late, since torch.distributed may be initialised after construction
            rows = torch.arange(len(self.values), device=self.values.device)
            mine = share(len(rows))
            self._held = (rows >= mine.start) & (rows < mine.stop)
        return self._held

    def here(self) -> Tensor:
        """The values that this rank holds."""
        return self.values if world_size() == 1 else self.values[self.held]

    def whole(self) -> Tensor:
        """All rows, on every rank; exchanges n values."""
        if world_size() > 1:
            self.values = torch.where(self.held, self.values, 0.0)
            dist.all_reduce(self.values)
        return self.values

    def at_most(self, threshold: Tensor) -> Tensor:
        """(n,) bool: the rows whose value is at most ``threshold``; exchanges one bit per row."""
        flags = self.values <= threshold.to(self.values)
        return flags if world_size() == 1 else gather_flags(flags & self.held)

    def rewritten(self, rows: Tensor, mine: Tensor) -> None:
        """Declares that ranks have new values for ``rows``, and this rank those of ``mine``."""
        self.held[rows.to(self.held.device)] = False
        self.held[mine.to(self.held.device)] = True

    def clone(self) -> Sharded:
        """An independent copy."""
        return Sharded(self.values.clone(), None if self._held is None else self._held.clone())

    def to(self, device: torch.device) -> Sharded:
        """The same on another device."""
        return Sharded(self.values.to(device), None if self._held is None else self._held.to(device))


def derive(*parts: int | str) -> int:
    """A 63-bit seed that is a pure function of ``parts``, so that resuming needs no generator state.

    Example:
        >>> derive(0, "order", 3) == derive(0, "order", 3) != derive(0, "order", 4)
        True
    """
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


class evaluating:
    """Puts every module into evaluation mode and restores the modes afterwards."""

    def __init__(self, model: nn.Module) -> None:
        self._modules = [(module, module.training) for module in model.modules()]

    def __enter__(self) -> None:
        for module, _ in self._modules:
            module.training = False

    def __exit__(self, *_: object) -> None:
        for module, training in self._modules:
            module.training = training


def uncompiled(model: nn.Module) -> nn.Module:
    """The original of a compiled module, or the model itself."""
    return getattr(model, "_orig_mod", model)


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's module inside a data-parallel wrapper, whose passes would synchronise ranks.

    A module that merely has an attribute ``module`` is returned unchanged.
    """
    inner = uncompiled(model)
    wrappers = (nn.parallel.DistributedDataParallel, nn.DataParallel)
    return inner.module if isinstance(inner, wrappers) else model


@contextmanager
def same_buffers(net: nn.Module) -> Iterator[None]:
    """Gives every rank the first rank's buffers inside the block, since batch statistics differ between ranks."""
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


SMALL = 1 << 16  # values of a buffer that a step may write; larger ones are written only by plan


class RowState(nn.Module):
    """A module with state for each row of the training set, equal on all ranks after each synchronisation.

    Each step writes only the rows of its batch, and a row comes from the rank that visited it last.
    """

    _row_state: tuple[str, ...] = ()
    _written: Tensor | None = None  # (N,) bool: the rows that this rank visited since the last synchronisation

    def add_rows(self, name: str, values: Tensor) -> None:
        """Declares per-row state: a buffer (N, ...) of which a step writes only the rows of its batch.

        Args:
            name: The buffer's name.
            values: (N, ...) floating-point values at the start.
        """
        if not values.is_floating_point():
            raise TypeError(f"add_rows needs floating-point values, which ranks can merge; {name} has {values.dtype}")
        self.register_buffer(name, values)
        self._row_state = (*self._row_state, name)

    def grow_rows(self, n: int) -> None:
        """Makes room for ``n`` rows when new ones appear during training; refused by methods over a fixed set.

        A method whose rows are independent overrides this and calls ``add_room``.
        """
        for part in self.children():
            if isinstance(part, RowState):
                part.grow_rows(n)
        if hasattr(self, "n") or self._row_state:
            name = type(self).__name__
            raise TypeError(f"{name} needs a fixed training set, which a stream does not have")

    def add_room(self, name: str, n: int, fill: float) -> None:
        """Makes a per-row buffer ``n`` rows long; new rows hold ``fill``."""
        values = getattr(self, name)
        if len(values) < n:
            setattr(self, name, torch.cat([values, values.new_full((n - len(values), *values.shape[1:]), fill)]))

    def visited(self, index: Tensor) -> None:
        """Marks these rows as visited by this rank; called by the code that runs the step."""
        if world_size() == 1:
            return
        for part in self._parts():
            if part._written is None:
                n = len(getattr(part, part._row_state[0]))
                part._written = torch.zeros(n, dtype=torch.bool, device=index.device)
            part._written.index_fill_(0, index, True)

    def agree(self) -> None:
        """Sends rows visited since the last synchronisation to all ranks. All ranks must call it."""
        if world_size() == 1:
            return
        for part in self._parts():
            if part._written is None:  # then on all ranks, since all take every step
                continue
            for name in part._row_state:
                values = getattr(part, name)
                values.copy_(merge_rows(values, part._written.to(values.device)))
            part._written = None

    @contextmanager
    def on_trial(self, index: Tensor) -> Iterator[None]:
        """Undoes at the end of the block what a step over these rows wrote; needs per-row state to be declared."""
        parts = [part for part in self.modules() if isinstance(part, RowState)]
        rows = [(getattr(part, name), index) for part in parts for name in part._row_state]
        declared = {id(values) for values, _ in rows}
        held = [(values, values[where].clone()) for values, where in rows]
        others = [buffer for buffer in self.buffers() if id(buffer) not in declared and buffer.numel() <= SMALL]
        kept = [(buffer, buffer.clone()) for buffer in others]
        try:
            yield
        finally:
            for values, before in held:
                values[index] = before
            for buffer, before in kept:
                buffer.copy_(before)

    def _parts(self) -> Iterator[RowState]:
        """This module and its submodules with per-row state."""
        for part in self.modules():
            if isinstance(part, RowState) and part._row_state and len(getattr(part, part._row_state[0])):
                yield part
