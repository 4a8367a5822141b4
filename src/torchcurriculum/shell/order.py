"""`Order`: which rows make the batches of an epoch, and which of them are this rank's."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..distributed import derive, rank, world_size

__all__ = ["Order", "check_plan"]


class Order:
    """The batches of an epoch as a function of (seed, epoch, rank): a resumed run needs no generator state.

    The rows are shuffled if ``shuffle`` is set and cut into batches of ``batch_size``. A single row that would be left
    over joins the batch before it, because batch norm cannot take a batch of one. With ``packs``, packs are shuffled
    and ``batch_size`` of them make a batch.

    Args:
        n: Rows of the training set.
        batch_size: Rows of the global batch.
        drop_last: Drop the last rows if they do not fill a batch.
        seed: The curriculum's.
        shuffle: Whether rows are shuffled; if not, they come in the order of the plan.

    Attributes:
        packs: (N,) the pack of each row, or None.

    Example:
        >>> order = Order(5, batch_size=2, drop_last=False, seed=0)
        >>> order.begin(1, None)
        >>> [len(rows) for rows in order.batches()]
        [2, 3]
    """

    def __init__(self, n: int, batch_size: int, drop_last: bool, seed: int, shuffle: bool = True) -> None:
        self.n, self.batch_size, self.drop_last, self.seed, self.shuffle = n, batch_size, drop_last, seed, shuffle
        self.packs: Tensor | None = None
        self.begin(0, None)

    def begin(self, number: int, rows: Tensor | None) -> None:
        """Begins an epoch over these rows; None means all."""
        self.number, self.rows = number, rows
        self._batches: list[Tensor] | None = None
        self._mine: tuple[int, list[Tensor]] = (0, [])  # the world size, and this rank's batches

    def batches(self) -> list[Tensor]:
        """The rows of every global batch."""
        if self._batches is None:
            self._batches = self._cut()
        return self._batches

    def local_batches(self) -> list[Tensor]:
        """This rank's rows of every batch; a rank may have none in the last one."""
        ranks, batches = world_size(), self.batches()
        if ranks == 1:
            return batches
        if self._mine[0] != ranks or len(self._mine[1]) != len(batches):
            self._mine = ranks, [self._share(batch) for batch in batches]
        return self._mine[1]

    def leave_out(self, step: int, kept: Tensor) -> None:
        """Keeps only some of this rank's rows of a batch, by their places in it."""
        mine = self.local_batches()
        mine[step] = mine[step][kept]

    def padded(self) -> list[Tensor]:
        """The rows this rank reads: its own, or two others as padding where it has none."""
        return [rows if len(rows) else self.batches()[0][:2] for rows in self.local_batches()]

    def seed_for(self, purpose: str) -> Callable[[int], int]:
        """``seed(position)``, the seed of a batch of this epoch on this rank."""
        return lambda position: derive(self.seed, self.number, position, rank(), purpose)

    def _share(self, batch: Tensor) -> Tensor:
        """This rank's rows: every W-th.

        If a short last batch would leave a rank with a single row, which batch norm cannot take, fewer ranks share it.
        """
        ranks = world_size()
        if len(batch) < 2 * ranks <= self.batch_size:
            ranks = max(1, len(batch) // 2)
        return batch[rank() :: ranks] if rank() < ranks else batch[:0]

    def _cut(self) -> list[Tensor]:
        rows = torch.arange(self.n) if self.rows is None else self.rows
        generator = torch.Generator().manual_seed(derive(self.seed, "order", self.number))
        if self.packs is not None:
            return self._cut_packs(rows, self.packs, generator)
        if self.shuffle:
            rows = rows[torch.randperm(len(rows), generator=generator)]
        batches = list(rows.split(self.batch_size))
        if self.drop_last and len(batches) > 1 and len(batches[-1]) < self.batch_size:
            batches.pop()
        if len(batches) > 1 and len(batches[-1]) == 1 < self.batch_size:
            batches[-2:] = [torch.cat(batches[-2:])]
        return batches

    def _cut_packs(self, rows: Tensor, packs: Tensor, generator: torch.Generator) -> list[Tensor]:
        place = torch.randperm(int(packs.max()) + 1, generator=generator)[packs[rows]]
        order = place.argsort(stable=True)
        sizes = place[order].unique_consecutive(return_counts=True)[1].split(self.batch_size)
        if self.drop_last and len(sizes) > 1 and len(sizes[-1]) < self.batch_size:
            sizes = sizes[:-1]
        counts = [int(size.sum()) for size in sizes]
        return list(rows[order][: sum(counts)].split(counts))


def check_plan(rows: Tensor | None, n: int, name: str, number: int) -> Tensor | None:
    """The planned rows, on the host; raises an error if they are not distinct rows of the set."""
    if rows is None:
        return None
    if not isinstance(rows, Tensor):
        raise TypeError(f"{name}.plan must return a tensor of rows, or None for all, got {type(rows).__name__}")
    if rows.dtype == torch.bool:
        raise TypeError(f"{name}.plan returned a mask, but must return row numbers; return mask.nonzero().flatten()")
    rows = rows.detach().cpu().to(torch.int64).flatten()
    if not len(rows):
        raise ValueError(f"{name} planned no rows for epoch {number}; an epoch needs at least one")
    if rows.min() < 0 or rows.max() >= n or len(rows.unique()) != len(rows):
        raise ValueError(f"{name} planned rows twice or outside range({n}) for epoch {number}")
    return rows
