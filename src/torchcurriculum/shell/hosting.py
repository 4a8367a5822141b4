"""`Hosting`: the half of `Curriculum` that is called by trainers with their own loop."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ..core import Batch, Method, Task
from ..data.batches import finite_rows, take, to_device, zeros_of
from ..distributed import derive, rank
from ..record import Record
from .measuring import Measurer
from .order import Order
from .outputs import Outputs
from .reader import BatchReader
from .state import Progress
from .steps import Steps

__all__ = ["Hosting"]


class Hosting:
    """Batches one at a time, losses that the caller has computed, accumulation, a loader."""

    method: Method
    task: Task
    seed: int
    _device: torch.device
    _unpack: Callable[[Any], tuple[Any, Any]]
    _reader: BatchReader
    _measurer: Measurer
    _order: Order
    _progress: Progress
    _steps: Steps
    _reduced: Batch | None = None  # the batch of the last ``reduce``

    @property
    def number(self) -> int:
        """The epoch, from 1; 0 before the first."""
        return self._progress.number

    @property
    def steps_done(self) -> int:
        """Batches of this epoch that are done."""
        return self._progress.steps

    @property
    def is_open(self) -> bool:
        """Whether an epoch has begun and not ended."""
        return self._progress.open

    @property
    def rows(self) -> Tensor | None:
        """The rows planned for this epoch; None means all."""
        return self._order.rows

    @property
    def packs(self) -> int | None:
        """A checksum of the numbers given to ``pack``; None without packs."""
        held = self._order.packs
        return None if held is None else zlib.crc32(held.numpy().tobytes())

    def pack(self, packs: Tensor) -> None:
        """Keeps rows together that share a sequence; call it before the first epoch.

        A batch then has ``batch_size`` packs, without the rows that are not planned, and each row its own weight.

        Args:
            packs: (N,) the number of the pack of each row, from 0.
        """
        packs = packs.cpu()
        if packs.shape != (self._order.n,) or packs.dtype != torch.int64 or int(packs.min()) < 0:
            raise ValueError(f"packs must be {self._order.n} whole numbers from 0, got {packs.dtype} {packs.shape}")
        if self.number or not self._order.shuffle:
            raise ValueError("packs are shuffled from the first epoch on; call pack before it, with shuffle=True")
        self._order.packs = packs
        self._order.begin(0, None)

    @property
    def last(self) -> Tensor:
        """(N,) the losses last seen while training, +inf for rows never seen. All ranks must ask."""
        return self._steps.last.whole()

    def batches(self) -> list[Tensor]:
        """This rank's rows of every batch of the epoch; the first ``steps_done`` of them are done.

        If there are fewer rows than ranks, a rank may have none in the last batch. It must still run a step, or the
        others would wait: on any rows, which ``loss`` and ``reduce`` treat as padding.
        """
        return self._order.local_batches()

    def loader(self) -> DataLoader[Any]:
        """A loader of the epoch's batches for a trainer that needs one; always the same object, to keep its workers.

        Its batches come in the order of ``batches``, from the first, with padding where this rank has no rows. Before
        the first ``start`` they are those of an epoch over all rows, for trainers that count steps in advance.
        """
        return self._reader.loader(self._order.padded(), self._order.seed_for("augment"))

    def accumulate(self, batches: int) -> None:
        """Declares that the next ``batches`` batches make one optimizer step; ``loss`` and ``reduce`` return its parts.

        If the method's weights do not depend on the losses (vanilla, E-weighting), the sum is the loss of one large
        batch, its weights normalised over all its rows. A method that weights by loss sees one batch at a time; each
        counts by its number of rows. All ranks must call it.
        """
        first, self._steps.shares = self.steps_done, {}
        sizes = [len(rows) for rows in self._order.batches()[first : first + batches]]
        if len(sizes) > 1:
            mine = enumerate(self.batches()[first : first + batches], first)
            parts = [self._batch(None, None, rows.to(self._device), step) for step, rows in mine]
            self._steps.accumulate(parts, torch.tensor(sizes, device=self._device))

    @property
    def accumulates(self) -> bool:
        """Whether the next batch is part of a larger one."""
        return self.steps_done in self._steps.shares

    def read(self) -> Iterator[Any]:
        """This rank's remaining raw batches, as the data set and the collate function make them.

        The random draws of transforms depend only on (seed, epoch, batch, rank), as in ``epoch``.
        """
        return self._reader.read(self._order.padded(), self._order.seed_for("augment"), self.steps_done)

    def read_finite(self) -> Iterator[Any]:
        """``read`` for a trainer that passes only losses: drops rows that are not finite, unless they are an error.

        A zero weight would not help, since NaN times zero is NaN. A batch without finite rows becomes padding.
        """
        for step, raw in enumerate(self.read(), self.steps_done):
            size = len(self.batches()[step])
            finite = None if self._steps.nan_strategy == "error" or not size else finite_rows(raw, size)
            if finite is not None and not bool(finite.all()):
                kept = finite.nonzero().flatten().cpu()
                self._order.leave_out(step, kept)
                raw = take(raw, kept, size) if len(kept) else zeros_of(raw)
            yield raw

    def batch(self, raw: Any, index: Tensor | None = None, step: int | None = None) -> Batch:
        """A batch of the epoch on the model's device, ready for ``loss``.

        Args:
            raw: The loader's output for the rows of this batch.
            index: Its rows; None if batches come in the order of ``batches``.
            step: Its number; None if it is the next one.
        """
        step = self.steps_done if step is None else step
        x, y = self._unpack(raw)
        rows = self.batches()[step] if index is None else index
        return self._batch(to_device(x, self._device), to_device(y, self._device), rows.to(self._device), step)

    def reduce(
        self,
        losses: Tensor,
        index: Tensor | None = None,
        step: int | None = None,
        outputs: Any = None,
        y: Any = None,
        again: bool = False,
    ) -> Tensor:
        """The weighted scalar of losses that the caller has computed; stores them as ``loss`` does.

        Args:
            losses: (B,) losses of the batch, with gradients.
            index: (B,) its rows; None if batches come in the order of ``batches``.
            step: Its number; None if it is the next one.
            outputs: The model's outputs, for methods that use them.
            y: The targets, likewise.
            again: Whether these are new losses of the last call's batch, as in a closure: it keeps its weights.

        Raises:
            TypeError: If the method needs more than it is given: the batch to change, the model, outputs.
        """
        if self.method.changes_batches:
            name = type(self.method).__name__
            raise TypeError(f"{name} changes the batch before the model sees it; use loss(model, batch) in the loop")
        step = self.steps_done if step is None else step
        if not again or self._reduced is None:
            rows = self.batches()[step] if index is None else index
            self._reduced = self._batch(None, y, rows.to(losses.device), step)
        loss = self._steps.reduce(losses, self._reduced, outputs)
        self.done(step)
        return loss

    def change_measured(self, change: Callable[[Any], Any]) -> None:
        """Changes every raw batch of a measuring pass by ``change``, as the trainer has changed those of training."""
        unpack = self._measurer.unpack
        self._measurer.unpack = lambda batch: unpack(change(batch))

    def keep_outputs(self) -> None:
        """Keeps the predictions for every row, so that an audit of the record can suggest labels."""
        self._steps.outputs = Outputs(self._order.n)

    def _keep_arrays(self, record: Record) -> None:
        """Writes the predictions of ``keep_outputs`` to the record."""
        arrays = {} if self._steps.outputs is None else self._steps.outputs.arrays()
        for name, values in arrays.items():
            record.set_array(name, values)

    def done(self, step: int) -> None:
        """Counts a batch as done, by its number; ``loss`` and ``reduce`` do this, a replayed step cannot."""
        self._progress.done(step)

    def _batch(self, x: Any, y: Any, rows: Tensor, step: int) -> Batch:
        seed = derive(self.seed, self.number, step, rank())
        return Batch(x, y, rows, None, self.task, seed, self.number, step)
