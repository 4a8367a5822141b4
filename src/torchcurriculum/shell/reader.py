"""`BatchReader`: reads batches of any map-style data set, with random draws that a resumed run repeats."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.random.mtrand import get_bit_generator, set_bit_generator
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from ..data.arrays import Arrays
from ..data.batches import LOADER_OPTIONS, FixedBatches
from ..data.loaders import InOrder

__all__ = ["BatchReader", "untouched_generators"]

# Rows of an in-memory set that are gathered and augmented together; fewer if rows are large. Many on an accelerator, to
# keep it busy; on a CPU as many as fit its caches.
BLOCK_ROWS, CPU_BLOCK_ROWS = 8192, 128
BLOCK_BYTES = 2**28
GENERATORS = threading.RLock()  # one reader at a time uses the global generators, since trainings may run in threads


class BatchReader:
    """Reads many batches at once from ``Arrays``, whole batches from a set with ``batch``, else uses a DataLoader.

    Args:
        data: A map-style data set.
        collate_fn: As in ``DataLoader``.
        workers: Loader processes, for a set that is read row by row.
        pin_memory: As in ``DataLoader``.
        options: More of ``DataLoader``: ``prefetch_factor``, ``multiprocessing_context``, ...
        persistent: Whether the workers stay for the next epoch.
    """

    def __init__(
        self,
        data: Any,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        workers: int = 0,
        pin_memory: bool = False,
        options: Mapping[str, Any] | None = None,
        persistent: bool = False,
    ) -> None:
        if foreign := [name for name in options or () if name not in LOADER_OPTIONS]:
            raise TypeError(f"loader_options may be {', '.join(LOADER_OPTIONS)}, got {', '.join(foreign)}")
        self.data, self._collate = data, collate_fn and InOrder(collate_fn)
        self._options: dict[str, Any] = {
            **(options or {}),
            "num_workers": workers,
            "pin_memory": pin_memory,
            "persistent_workers": persistent and workers > 0,
        }
        self._plan = FixedBatches()
        self._loader: DataLoader[Any] | None = None

    def read(
        self, batches: list[Tensor], seed: Callable[[int], int], start: int = 0, draws: bool = True
    ) -> Iterator[Any]:
        """Yields the raw batches from number ``start`` on.

        Args:
            batches: The rows of every batch.
            seed: ``seed(number)``, the seed for the transforms of a batch.
            start: The first batch to read.
            draws: Whether a set in memory is augmented.
        """
        if isinstance(self.data, Arrays) and _hands_out_batches(self.data):
            yield from self._blocks(self.data, batches, seed, start, draws)
        elif _hands_out_batches(self.data):
            for number in range(start, len(batches)):
                generator = (torch.Generator().manual_seed(seed(number)),) if draws else ()
                yield self.data.batch(batches[number], *generator)
        else:
            yield from self.loader(batches, seed, start)

    def loader(self, batches: list[Tensor], seed: Callable[[int], int], start: int = 0) -> DataLoader[Any]:
        """A loader over the batches from number ``start`` on; always the same object, with new batches set in it."""
        numbered = range(start, len(batches))
        self._plan.batches = [torch.cat([torch.tensor([seed(number)]), batches[number]]) for number in numbered]
        return self._make_loader()

    def rows(self, index: Tensor, seed: int) -> Any:
        """The raw batch of some rows, read in this process."""
        if _hands_out_batches(self.data):
            return self.data.batch(index.cpu())
        return _Reader(self.data, self._collate).__getitems__([seed, *index.tolist()])

    def _blocks(
        self, data: Arrays, batches: list[Tensor], seed: Callable[[int], int], start: int, draws: bool
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Gathers and augments a block of batches together, so that the host keeps up with an accelerator."""
        row_bytes = max(1, 4 * data.x[:1].nbytes)  # images grow fourfold when they become floats
        most = CPU_BLOCK_ROWS if data.x.device.type == "cpu" else BLOCK_ROWS
        rows = max(1, min(most, BLOCK_BYTES // row_bytes))
        length = max(1, rows // max(1, len(batches[0]))) if batches else 1
        for first in range(start - start % length, len(batches), length):
            block = batches[first : first + length]
            generator = torch.Generator(device=data.x.device).manual_seed(seed(first)) if draws else None
            x, y = data.batch(torch.cat(block).to(data.x.device), generator)
            sizes = [len(batch) for batch in block]
            yield from list(zip(x.split(sizes), y.split(sizes), strict=True))[max(0, start - first) :]

    def _make_loader(self) -> DataLoader[Any]:
        if self._loader is None:
            # The dataset wrapper collates. A separate generator, because a loader draws a seed for its workers.
            options = {**self._options, "collate_fn": _as_it_is, "generator": torch.Generator()}
            self._loader = DataLoader(_Reader(self.data, self._collate), batch_sampler=self._plan, **options)
        return self._loader


class _Reader(Dataset[Any]):
    """Reads a batch under generators seeded for it.

    A dataset's transforms and a collate function draw from the global generators. Seeding them here makes the draws the
    same with any number of workers and after a resume. The user's generators are restored.
    """

    def __init__(self, data: Any, collate: Callable[[list[Any]], Any] | None) -> None:
        self.data, self.collate = data, collate or default_collate
        self._bits = np.random.MT19937(0)

    def __len__(self) -> int:
        return len(self.data)

    def __getitems__(self, numbers: list[int]) -> Any:
        """The collated batch of a seed and the rows that follow it."""
        seed, *rows = numbers
        with _seeded_generators(seed, self._bits):
            at_once = getattr(self.data, "__getitems__", None)
            return self.collate(at_once(rows) if at_once else [self.data[row] for row in rows])


def _hands_out_batches(data: Any) -> bool:
    """Whether the data set has ``batch(index)``; ``datasets.Dataset.batch`` does something else.

    A subclass of ``Arrays`` that changes single rows is read row by row.
    """
    kind = type(data)
    if isinstance(data, Arrays) and kind.__getitem__ is not Arrays.__getitem__ and kind.batch is Arrays.batch:
        return False
    return callable(getattr(data, "batch", None)) and not hasattr(data, "column_names")


def _as_it_is(batch: Any) -> Any:
    return batch


@contextmanager
def _seeded_generators(seed: int, bits: np.random.MT19937) -> Iterator[None]:
    """Seeds the global generators inside the block and restores them afterwards.

    NumPy's generator is given ``bits`` as its source meanwhile, which is much faster than saving its state.
    """
    with GENERATORS:
        python, source, cpu = random.getstate(), get_bit_generator(), torch.get_rng_state()
        try:
            set_bit_generator(bits)
            np.random.seed(seed % 2**32)
            random.seed(seed)
            torch.default_generator.manual_seed(seed)
            yield
        finally:
            set_bit_generator(source)
            random.setstate(python)
            torch.set_rng_state(cpu)


@contextmanager
def untouched_generators() -> Iterator[None]:
    """Restores the global generators at the end of the block."""
    with GENERATORS:
        python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            torch.set_rng_state(cpu)
