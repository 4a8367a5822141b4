"""``indexed(loader)``: row numbers with each batch of any unmodified map-style DataLoader."""

from __future__ import annotations

import copy
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, default_collate, default_convert

from .batches import TARGETS, finite_rows, take, unpack

__all__ = ["indexed"]


class _Recorder:
    """A (batch) sampler that records what it yields. Samplers run in the main process, also with workers."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self.handed_out: deque[Any] = deque()

    def __iter__(self) -> Iterator[Any]:
        queue: deque[Any] = deque()
        self.handed_out = queue
        for rows in self.sampler:
            rows = list(rows) if isinstance(rows, tuple | list) or hasattr(rows, "__iter__") else rows
            queue.append(rows)
            yield rows

    def __len__(self) -> int:
        return len(self.sampler)

    def __getattr__(self, name: str) -> Any:  # set_epoch, batch_size, ... of the user's own sampler
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["sampler"], name)


# One shadow for each loader, so that persistent workers stay alive from epoch to epoch.
_SHADOWS: weakref.WeakKeyDictionary[DataLoader[Any], tuple[DataLoader[Any], _Recorder, Any]] = (
    weakref.WeakKeyDictionary()
)


class indexed:
    """Iterates over ``loader`` and yields ``(index, batch)``: the (B,) int64 rows of each batch, and the batch.

    Batches are exactly those of the loader; dataset, collate function, workers, ``drop_last`` and sampler stay the
    user's own. Works with shuffling, subsets (rows of the subset), batch samplers, any number of workers and any form
    of batch, and patches nothing. The collate function must keep the order of its samples: one that sorts them is
    refused as soon as the targets show it; without targets it cannot be detected.

    Args:
        loader: A ``DataLoader`` over a map-style dataset.
        finite: Drop rows whose floating-point numbers are not all finite, and batches without finite rows. For
            batches of tensors, or of dicts, tuples and lists of them.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> loader = DataLoader([10.0, 11.0, 12.0], batch_size=2)
        >>> [(index.tolist(), batch.tolist()) for index, batch in indexed(loader)]
        [([0, 1], [10.0, 11.0]), ([2], [12.0])]
    """

    def __init__(self, loader: DataLoader[Any], finite: bool = False) -> None:
        if not isinstance(loader, DataLoader):
            raise TypeError(f"indexed needs a torch DataLoader, got {type(loader).__name__}")
        if isinstance(loader.dataset, IterableDataset):
            raise TypeError(
                f"{type(loader.dataset).__name__} is an iterable dataset: its samples have no row numbers to hold "
                "weights for. Give it __len__ and __getitem__, or use an id of each sample: streamed(loader, id=...)."
            )
        if loader.num_workers > 0 and not getattr(loader, "in_order", True):
            raise ValueError("this loader has in_order=False, so its batches cannot be matched with their rows")
        self.loader, self.finite = loader, finite

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[tuple[Tensor, Any]]:
        return _Indexed(*_shadow(self.loader), self.finite)


class _Indexed:
    """One loop over a loader. Like the loader's own, it continues after a batch that raised an exception."""

    def __init__(self, shadow: DataLoader[Any], recorder: _Recorder, finite: bool) -> None:
        self.shadow, self.recorder, self.finite = shadow, recorder, finite
        self.batches: Iterator[Any] | None = None  # made late, because two loops must not share a queue
        self.queue: deque[Any] | None = None

    def __iter__(self) -> _Indexed:
        return self

    def __next__(self) -> tuple[Tensor, Any]:
        self.batches = iter(self.shadow) if self.batches is None else self.batches
        while True:
            try:
                batch = next(self.batches)
            except StopIteration:
                raise
            except Exception:
                self._rows()
                raise
            index = _as_index(self._rows())
            good = finite_rows(batch, len(index)) if self.finite else None
            if good is None or bool(good.all()):
                return index, batch
            if bool(good.any()):
                kept = good.nonzero().flatten()
                return index[kept], take(batch, kept, len(index))

    def _rows(self) -> Any:
        """The rows of the next batch, even if it failed; None if the sampler failed."""
        # The sampler's iterator exists once the first batch is here; a later loop makes another queue.
        self.queue = self.recorder.handed_out if self.queue is None else self.queue
        return self.queue.popleft() if self.queue else None


class InOrder:
    """Wraps a collate function and checks by the targets that it keeps the order of its samples."""

    def __init__(self, collate: Any) -> None:
        self.collate = collate

    def __call__(self, samples: Any) -> Any:
        batch = self.collate(samples)
        if isinstance(samples, list):
            before, after = _targets(samples), _target(batch)
            if before is not None and isinstance(after, Tensor) and before.shape == after.shape:
                _refuse_permuted(before, after.to(before))
        return batch


def _refuse_permuted(before: Tensor, after: Tensor) -> None:
    if not torch.equal(before, after) and torch.equal(before.sort().values, after.sort().values):
        raise ValueError(
            "the collate function changes the order of its samples, so row numbers would not match; "
            "sort inside the model, or yield a row number with each sample and use that"
        )


def _targets(samples: list[Any]) -> Tensor | None:
    """(B,) the targets of samples, if each is a number."""
    found = [_target(sample) for sample in samples]
    single = all(isinstance(value, int | float) or (isinstance(value, Tensor) and value.ndim == 0) for value in found)
    return torch.tensor([float(value) for value in found]) if single and found else None


def _target(sample: Any) -> Any:
    if isinstance(sample, Mapping) and sum(name in sample for name in TARGETS) > 1:
        return None  # a collate function may take the other one
    try:
        return unpack(sample)[1]
    except (TypeError, ValueError):
        return None


def _shadow(loader: DataLoader[Any]) -> tuple[DataLoader[Any], _Recorder]:
    """A shallow copy of the loader with a recording batch sampler; the user's loader is not changed."""
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    sampler = getattr(loader, name)
    made = _SHADOWS.get(loader)
    if made is None or made[1].sampler is not sampler or made[2] is not loader.collate_fn:
        shadow, recorder = copy.copy(loader), _Recorder(sampler)
        vars(shadow)[name] = recorder  # DataLoader forbids plain assignment after its construction
        if loader.collate_fn not in (default_collate, default_convert):
            vars(shadow)["collate_fn"] = InOrder(loader.collate_fn)
        vars(shadow)["_iterator"] = None
        made = _SHADOWS[loader] = shadow, recorder, loader.collate_fn
    return made[0], made[1]


def _as_index(rows: Any) -> Tensor:
    if rows is None:
        raise TypeError(
            "this loader does not use its own sampler, as those of Accelerate; pass the one it was made from"
        )
    index = torch.as_tensor(rows)
    if index.dtype.is_floating_point or index.dtype.is_complex or index.dtype == torch.bool:
        raise TypeError(f"the sampler yields {index.dtype}, not row numbers")
    return index.to(torch.int64).reshape(-1)
