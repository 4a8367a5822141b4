"""`Curriculum`, the facade: measures, samples, weights, records and resumes inside the user's own loop."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from . import distributed
from .core import Batch, Forward, LossFunction, Method, Task, checks
from .data.batches import unpack
from .data.identity import fingerprint, known_targets, length_of
from .distributed import Sharded, derive, total
from .named import MethodLike, make_method
from .record import Record
from .shell import summary
from .shell.hosting import Hosting
from .shell.measuring import Measurer, device_of, versions
from .shell.order import Order, check_plan
from .shell.reader import BatchReader
from .shell.state import FORMAT, SETTINGS, Progress, cloned, compare_ranks, refuse_foreign, set_knobs
from .shell.steps import Steps, call, cross_entropy

__all__ = ["Curriculum"]


class Curriculum(Hosting):
    """Runs a method over a training set, one epoch at a time, inside the user's own loop.

    The order of the rows is a function of (seed, epoch), so a resumed run needs no generator state, and the global
    generators are never touched. Under ``torch.distributed`` every rank gets its part of each global batch, and one
    process and many give the same parameters.

    Args:
        method: A name, a class, a function ``(n, epochs) -> method``, or a ``Method`` over as many rows as the set has.
        train_set: A map-style dataset; batches are (x, y) pairs, dicts with ``labels`` or objects with ``.y``.
        loss_fn: ``loss_fn(outputs, y) -> (B,)``, one loss per sample. By default cross-entropy, in float32 or better.
        epochs: Epochs of the run, for the schedule of a method given by name or class.
        method_options: Options of such a method, by name.
        batch_size: Rows of the *global* batch, over all ranks.
        seed: The order of the rows and all draws of the method are a function of it.
        shuffle: False keeps the order of the plan, or of the training set where all rows are planned.
        measure: ``"pass"`` measures all losses in a separate pass at the start of an epoch, if the method asks for them
            (as in the paper); ``"running"`` uses those last seen in training, at no cost.
        measure_set: The same rows without augmentation, for the measuring pass.
        measure_batch_size: Batch size of that pass; by default ``batch_size`` on a CPU and four times that elsewhere.
        forward: ``forward(model, x) -> outputs``, by default ``model(x)``.
        unpack: ``unpack(batch) -> (x, y)`` for batches of another form.
        collate_fn: As in ``DataLoader``.
        workers: Loader processes, for a set that is read row by row (one with ``batch`` is read at once).
        pin_memory: As in ``DataLoader``.
        persistent_workers: Keep the loader processes from one epoch to the next.
        loader_options: More of ``DataLoader``, by name, such as ``prefetch_factor`` and ``multiprocessing_context``.
        drop_last: Drop the last rows if they do not fill a batch. If False, a single last row joins another batch.
        record: A ``Record``, a folder to write one to, or None to keep it in memory.
        overwrite: Whether to replace an existing record when no loaded state resumes it.
        samples: Keep every sample's loss and easiness of every epoch in the record (theory and audit need them).
        nan_strategy: What to do about losses that are not finite: ``"error"``, ``"warn"`` or ``"ignore"``.

    Example:
        >>> from torchcurriculum import APW, Arrays, Curriculum
        >>> x = torch.tensor([[-1.0], [-0.5], [0.5], [1.0]])
        >>> data = Arrays(x, (x[:, 0] > 0).long())
        >>> model, method = nn.Linear(1, 2), APW(len(data), q=5)
        >>> optimizer = torch.optim.SGD(model.parameters(), 0.5)
        >>> curriculum = Curriculum(method, data, batch_size=2, seed=0)
        >>> for _ in range(5):
        ...     for batch in curriculum.epoch(model):
        ...         loss = curriculum.loss(model, batch)
        ...         optimizer.zero_grad()
        ...         loss.backward()
        ...         optimizer.step()
        >>> len(curriculum.record.epochs), curriculum.record.epochs[-1]["phase"]
        (5, 'later')
    """

    def __init__(
        self,
        method: MethodLike,
        train_set: Any,
        loss_fn: LossFunction = cross_entropy,
        *,
        epochs: int | None = None,
        method_options: Mapping[str, Any] | None = None,
        batch_size: int = 128,
        seed: int = 0,
        shuffle: bool = True,
        measure: Literal["pass", "running"] = "pass",
        measure_set: Any = None,
        measure_batch_size: int | None = None,
        forward: Forward = call,
        unpack: Callable[[Any], tuple[Any, Any]] = unpack,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        workers: int = 0,
        pin_memory: bool = False,
        persistent_workers: bool = True,
        loader_options: Mapping[str, Any] | None = None,
        drop_last: bool = False,
        record: Record | str | Path | None = None,
        overwrite: bool = False,
        samples: bool = False,
        nan_strategy: checks.NanStrategy = "error",
    ) -> None:
        self.n = length_of(train_set, "train_set")
        method = make_method(method, self.n, epochs, method_options)
        rows = getattr(method, "n", self.n)
        if rows != self.n:
            raise ValueError(f"the method was made for {rows} rows and the training set has {self.n}")
        checks.one_of("measure", measure, ("pass", "running"))
        checks.one_of("nan_strategy", nan_strategy, get_args(checks.NanStrategy))
        batch_size, seed = checks.whole("batch_size", batch_size), checks.whole("seed", seed, None)
        measure_set = train_set if measure_set is None else measure_set
        if length_of(measure_set, "measure_set") != self.n:
            raise ValueError(f"measure_set has {len(measure_set)} rows and train_set {self.n}; they must be equal")
        checks.check_task(method, loss_fn, known_targets(train_set, unpack, collate_fn))
        self.method, self.train_set, self.seed = method, train_set, seed
        self.batch_size, self.shuffle = batch_size, shuffle
        self.measure, self.drop_last, self.samples, self.nan_strategy = measure, drop_last, samples, nan_strategy
        self.task = Task(forward, loss_fn, self._fetch_rows, nan_strategy)
        self._device, self._unpack, self._started, self._compared = torch.device("cpu"), unpack, 0.0, False
        self._reader = BatchReader(train_set, collate_fn, workers, pin_memory, loader_options, persistent_workers)
        measured = BatchReader(measure_set, collate_fn, workers, pin_memory, loader_options)
        self._measurer = Measurer(self.n, measured, unpack, self.task, batch_size, measure_batch_size)
        self._measured: Sharded | None = None
        self._order = Order(self.n, batch_size, drop_last, seed, shuffle)
        self._progress = Progress()
        self._steps = Steps(method, self.task, Sharded(torch.full((self.n,), math.inf)), measure, nan_strategy)
        self.overwrite, self._owns_record = overwrite, not isinstance(record, Record)
        self.record = self._make_record(record)

    # ------------------------------------------------------------------ the loop

    def epoch(self, model: nn.Module) -> Iterator[Batch]:
        """One epoch: measures, plans, and yields its batches on the model's device.

        After ``load_state_dict`` of a state taken inside an epoch, resumes with that epoch's next batch.
        """
        self.start(model)
        mine, number = self.batches(), self.number
        index = torch.cat(mine).to(self._device)  # one transfer for the epoch
        first = sum(map(len, mine[: self.steps_done]))
        skipped, before = 0, versions(model)
        for step, raw in enumerate(self.read(), self.steps_done):
            last = first + len(mine[step])
            yield self.batch(raw, index[first:last], step)
            if self.number != number:
                raise ValueError(f"epoch {self.number} began before epoch {number} was read to its end")
            skipped += self.steps_done <= step
            self.done(step)  # even if the user skipped the loss of this batch
            first = last
        if skipped == len(mine) and versions(model) != before:
            self._warn_of_no_effect()
        self.finish()

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The scalar loss of a batch, ready for ``backward``; also stores the loss of each row.

        A state taken after this call counts the batch as done.
        """
        return self.viewed_loss(model, self.view(model, batch))

    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """The batch as the method transforms it for the model: the first half of ``loss``."""
        return self._steps.view(model, batch)

    def viewed_loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The scalar loss of a batch from ``view``: the second half of ``loss``, which a captured step repeats."""
        loss = self._steps.loss(model, batch)
        self.done(batch.step)
        return loss

    def start(self, model: nn.Module) -> None:
        """Begins an epoch, or resumes the one that a loaded state was taken in: measures and plans."""
        if self.is_open and not self._progress.resumed:
            self.finish()  # the user left the epoch before its end
        self._device = device_of(model)
        self._follow(self._device)
        if not self._compared:
            compare_ranks(self._said(), self._device)
            self._compared = True
        self._started = time.perf_counter()
        if not self.is_open:
            self._begin(model)
        self._progress.resumed = False

    def progress(self) -> tuple[int, int]:
        """The epochs done, and the batches done of the next; ends an epoch whose batches are all done."""
        if self.is_open and self.steps_done == len(self.batches()):
            self.finish()
        return (self.number - 1, self.steps_done) if self.is_open else (self.number, 0)

    def finish(self) -> None:
        """Ends the epoch: synchronises the ranks and adds a row to the record. Does nothing if no epoch is open."""
        if not self.is_open:
            return
        self._progress.end()
        self._agree()
        last = self._steps.last
        if self.nan_strategy == "error" and int(total(last.here().isnan().sum())):
            whole = last.whole()
            for rows in (*self._order.batches(), torch.arange(self.n)):  # later batches are bad because of the first
                checks.check_losses(torch.where(whole.isinf(), 0.0, whole)[rows], rows, "error")
        self._append_row()
        self._order.begin(self.number, self.rows)  # drops the batches of the epoch

    # ------------------------------------------------------------------ inside

    def _begin(self, model: nn.Module) -> None:
        if (now := len(self.train_set)) != self.n:
            raise ValueError(f"the training set had {self.n} rows and now has {now}; it must not change")
        if self.number == 0:
            self._begin_record()
        self._progress.begin()
        self._measured, self._steps.shares = None, {}
        self._order.begin(self.number, None)
        draws, last = self._order.seed_for("measure"), self._steps.last

        def measured() -> Sharded:
            if self._measured is None:  # kept for the record
                running = self.measure == "running"
                self._measured = last.clone() if running else self._measurer.losses(model, draws, self.nan_strategy)
            return self._measured

        rows = self.method.plan(self._measurer.epoch(self.number, model, last, measured, self.seed, draws))
        self._order.begin(self.number, check_plan(rows, self.n, type(self.method).__name__, self.number))

    def _warn_of_no_effect(self) -> None:
        kind = type(self.method)
        if any(getattr(kind, verb) is not getattr(Method, verb) for verb in ("view", "weigh", "loss")):
            warnings.warn(
                f"the model was trained for epoch {self.number} without curriculum.loss, so {kind.__name__} weighted "
                "nothing; train on loss = curriculum.loss(model, batch)",
                stacklevel=3,
            )

    def _fetch_rows(self, index: Tensor) -> Batch:
        """Any rows of the measuring set, planned or not, for ``Task.rows``."""
        return self._measurer.rows(index, self._device, derive(self.seed, self.number, self.steps_done, "rows"))

    def _agree(self) -> None:
        """Exchanges per-row state between ranks."""
        self.method.agree()
        done = self._order.batches()[: self.steps_done] if distributed.world_size() > 1 else []
        if done:
            self._steps.last.rewritten(torch.cat(done), torch.cat(self.batches()[: self.steps_done]))

    def _said(self) -> dict[str, Any]:
        """The settings that must match between ranks, and between a saved state and the run that resumes it."""
        held = {name: getattr(self, name) for name in SETTINGS}
        knobs, kind = self.method.arguments, type(self.method).__name__
        return {**held, "labels": fingerprint(self.train_set), "method_class": kind, "knobs": knobs}

    def _make_record(self, record: Record | str | Path | None) -> Record:
        if isinstance(record, Record):
            return record
        meta = {"method": type(self.method).__name__, "seed": self.seed, "batch_size": self.batch_size}
        return Record.open(self.n, meta, record if distributed.is_first() else None, self.overwrite)

    def _begin_record(self) -> None:
        """Clears an earlier run's record if the user allows it; otherwise raises an error."""
        if not self.record.epochs and not (self._owns_record and self.record.arrays):
            return
        if not self.overwrite:
            raise ValueError(
                f"{self.record.folder or 'the record'} holds {len(self.record.epochs)} epochs of an earlier run; load "
                "its state to resume it, pass overwrite=True to replace it, or give another folder"
            )
        self.record.clear() if self._owns_record else self.record.rewind(0)

    def _append_row(self) -> None:
        losses = self._steps.last if self._measured is None else self._measured
        rows = self.n if self.rows is None else len(self.rows)
        row = summary.row(self.number, self.steps_done, rows, self.method, losses)
        row["measure"] = "running" if self._measured is None else self.measure  # the source of the row's losses
        row["seconds"] = time.perf_counter() - self._started
        histories = summary.histories(losses, row.get("threshold", math.log(2))) if self.samples else {}
        self.record.append(row, **histories)
        self._keep_arrays(self.record)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume from any step: tensors, numbers and strings only. All ranks must call it."""
        self._agree() if self.is_open else self.method.agree()
        self.record.sync()
        measured = None if self._measured is None else self._measured.whole()
        return {
            "format": FORMAT,
            **self._said(),
            **self._progress.state_dict(),
            **cloned({"rows": self.rows, "last": self._steps.last.whole(), "measured": measured}),
            "method": cloned(self.method.state_dict()),
            "epochs": [dict(row) for row in self.record.epochs],
            "outputs": {} if self._steps.outputs is None else cloned(self._steps.outputs.state_dict()),
        }

    def load_state_dict(self, state: Mapping[str, Any], knobs: Literal["same", "given", "state"] = "same") -> None:
        """Restores a state; the next ``epoch`` resumes after the last batch done. All ranks must call it.

        Args:
            state: From ``state_dict``.
            knobs: What to do if the state was made with other knobs of the method, ``measure`` or ``drop_last``:
                ``"same"`` refuses and names them, ``"given"`` keeps those given now, ``"state"`` takes the state's.

        Raises:
            ValueError: If the state is incomplete, or of another format, method or training set; nothing is changed
                then.
        """
        checks.one_of("knobs", knobs, ("same", "given", "state"))
        other = refuse_foreign(state, self._said(), knobs)
        self.method.agree()  # or earlier writes would be merged into the loaded state
        self.method.load_state_dict(state["method"])
        set_knobs(self, other, state if knobs == "state" else self._said())
        self._progress.load_state_dict(state)
        self._order.drop_last, self._steps.measure, self._steps.shares = self.drop_last, self.measure, {}
        self._order.begin(self.number, state["rows"])
        last, measured, self._started = self._steps.last.values, state["measured"], time.perf_counter()
        self._steps.last = Sharded(last.copy_(state["last"]))  # in place: a captured step writes to this buffer
        self._measured = None if measured is None else Sharded(measured.clone().to(last.device))
        if self._steps.outputs is not None:
            self._steps.outputs.load_state_dict(state.get("outputs") or {})
        self.record.restore(state["epochs"])
        if self.samples and state["epochs"] and distributed.is_first() and not self.record.has("losses"):
            where = self.record.folder or "in memory"
            warnings.warn(
                f"the record {where} lacks epochs of the state; per-sample values are lost. Give a folder (record=), "
                "and the same one in the run that resumes",
                stacklevel=2,
            )

    def _follow(self, device: torch.device) -> None:
        if self._steps.last.values.device != device:
            self._steps.last = self._steps.last.to(device)
            self._measured = None if self._measured is None else self._measured.to(device)
            self.method.to(device)
