"""`Curriculum`, the one stateful shell: it measures, samples, weighs, records and resumes; the loop is the user's."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from . import distributed, kernels, summary
from .core import (
    Batch,
    Epoch,
    Forward,
    LossFunction,
    Method,
    NanStrategy,
    Step,
    Task,
    at_least_float32,
    check_losses,
    derive,
    total,
)
from .data.batches import none_of, to_device, unpack
from .data.feed import Feed
from .data.identity import fingerprint, length_of
from .distributed import Spread
from .measuring import Measurer, device_of
from .record import Record

__all__ = ["Curriculum"]

STATE_FORMAT = 1


def _per_sample_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(at_least_float32(logits), y, reduction="none")


def _call(model: nn.Module, x: Any) -> Any:
    return model(x)


class Curriculum:
    """Runs a method over a training set, one epoch at a time, inside the user's own loop.

    The order of the rows is a function of (seed, epoch), so a resumed run needs no generator state, and the global
    generators are never touched. Under ``torch.distributed`` every rank gets its part of each global batch, and one
    process and many give the same parameters.

    Args:
        method: A ``Method`` over as many rows as the set has.
        train_set: A map-style dataset; batches are (x, y) pairs, dicts with ``labels`` or objects with ``.y``.
        loss_fn: ``loss_fn(outputs, y) -> (B,)``, one loss per sample. Cross-entropy by default, in float32 also where
            the outputs are half.
        batch_size: Rows of the *global* batch, over all ranks.
        seed: The order of the rows and all draws of the method are a function of it.
        measure: ``"pass"`` measures all losses with a pass of its own at the start of an epoch, when the method asks
            for them (the paper); ``"running"`` takes those last seen while training, at no cost.
        measure_set: The same rows without augmentation, for the measuring pass.
        measure_batch_size: Rows at a time in the measuring pass; by default ``batch_size`` on a CPU, where larger ones
            are slower, and four times that elsewhere.
        forward: ``forward(model, x) -> outputs``, by default ``model(x)``.
        unpack: ``unpack(batch) -> (x, y)`` for batches of another form.
        collate_fn: As in ``DataLoader``.
        workers: Loader processes, for a set that is read row by row (one with ``batch`` is read at once).
        pin_memory: As in ``DataLoader``.
        persistent_workers: Keep the loader processes from one epoch to the next.
        drop_last: Leave out the last rows of an epoch if they do not fill a batch.
        record: A ``Record``, a folder to write one to, or None to keep it in memory.
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
        method: Method,
        train_set: Any,
        loss_fn: LossFunction = _per_sample_cross_entropy,
        *,
        batch_size: int = 128,
        seed: int = 0,
        measure: Literal["pass", "running"] = "pass",
        measure_set: Any = None,
        measure_batch_size: int | None = None,
        forward: Forward = _call,
        unpack: Callable[[Any], tuple[Any, Any]] = unpack,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        workers: int = 0,
        pin_memory: bool = False,
        persistent_workers: bool = True,
        drop_last: bool = False,
        record: Record | str | Path | None = None,
        samples: bool = False,
        nan_strategy: NanStrategy = "error",
    ) -> None:
        self.n = length_of(train_set, "train_set")
        rows = getattr(method, "n", self.n)
        if rows != self.n:
            raise ValueError(f"the method was made for {rows} rows and the training set has {self.n}")
        if measure not in ("pass", "running"):
            raise ValueError(f"measure must be 'pass' or 'running', got {measure!r}")
        if measure_set is not None and length_of(measure_set, "measure_set") != self.n:
            raise ValueError(f"measure_set has {len(measure_set)} rows and train_set {self.n}; they must be the same")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size!r}")
        self.method, self.train_set, self.seed, self.batch_size = method, train_set, seed, batch_size
        self.measure, self.drop_last, self.samples, self.nan_strategy = measure, drop_last, samples, nan_strategy
        self.task = Task(forward, loss_fn, self._fetch_rows)
        self._device = torch.device("cpu")
        self._unpack = unpack
        self._feed = Feed(train_set, collate_fn, workers, pin_memory, persistent_workers)
        measured = Feed(train_set if measure_set is None else measure_set, collate_fn, workers, pin_memory)
        self._measurer = Measurer(self.n, measured, unpack, self.task, batch_size, measure_batch_size)
        self._last = Spread(torch.full((self.n,), math.inf))
        self.number, self.steps_done = 0, 0
        self._open = self._resumed = False
        self._rows: Tensor | None = None
        self._ordered: list[Tensor] | None = None
        self._mine: tuple[list[Tensor], list[Tensor]] | None = None  # of which order, and what of it is this rank's
        self._position, self._started = 0, 0.0
        self._measured: Spread | None = None
        self._shares: dict[int, Tensor] = {}
        self.record = self._make_record(record)

    # ------------------------------------------------------------------ the loop

    def epoch(self, model: nn.Module) -> Iterator[Batch]:
        """One epoch: measures, plans, and yields its batches on the model's device.

        After ``load_state_dict`` of a state taken inside an epoch, goes on with that epoch's next batch.
        """
        self.start(model)
        mine = self.batches()
        index = torch.cat(mine).to(self._device)  # one transfer for the epoch
        first = sum(map(len, mine[: self.steps_done]))
        for position, raw in enumerate(self.read(), self.steps_done):
            last = first + len(mine[position])
            yield self.batch(raw, index[first:last])
            self.steps_done, first = position + 1, last
        self.finish()

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The scalar loss of a batch, ready for ``backward``; also notes the losses of its rows.

        A state taken after this call counts the batch as done.
        """
        if not len(batch.index):
            return self._loss(self._empty_step(model, batch))
        return self.viewed_loss(model, self.method.view(model, batch))

    def viewed_loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """``loss`` of a batch that already looks as the method wants it: what a captured step repeats."""
        if self.task.loss_fn is not _per_sample_cross_entropy or batch.pair is not None:
            logits, losses = self.task.losses(model, batch)
        else:
            logits = self.task.forward(model, batch.x)
            labelled = isinstance(batch.y, Tensor) and self.nan_strategy == "error"
            fused = self._fused(batch, logits, logits, batch.y) if labelled else None
            if fused is not None:
                return self._counted(fused)
            losses = self.task.check(self.task.loss_fn(logits, batch.y), batch)
        return self._loss(Step(model, batch, logits, *self._checked(losses, batch.index)))

    def _loss(self, step: Step) -> Tensor:
        loss = self._fused(step.batch, step.logits, step.losses) if step.valid is None else None
        if loss is None:
            loss = self.method.loss(step)
            if self.measure == "running" or step.batch.pair is None:
                self._note(step)
        return self._counted(loss)

    def _fused(self, batch: Batch, logits: Any, source: Any, y: Any = None) -> Tensor | None:
        """The loss in one kernel, from losses or, with ``y``, from logits; None where that cannot be."""
        alone = batch.pair is None and distributed.world_size() == 1
        if not alone or not isinstance(source, Tensor) or not source.is_cuda:
            return None
        head = self.method.fused(batch, logits)
        return None if head is None else kernels.step(source, y, self._last.values, batch.index, head)

    def _counted(self, loss: Tensor) -> Tensor:
        """A batch's part in its optimizer step; the batch is done."""
        if self._position in self._shares:
            loss = loss * self._shares[self._position].to(loss)
        self.count_step()
        return loss

    def count_step(self) -> None:
        """Counts the batch in hand as done; ``loss`` does so by itself, a replayed step cannot."""
        self.steps_done = self._position + 1

    # ------------------------------------------------------------------ for a trainer that has a loop of its own

    def start(self, model: nn.Module) -> None:
        """Begins an epoch, or goes on with the one that a loaded state was taken in: measures and plans."""
        if self._open and not self._resumed:
            self.finish()  # the user left the epoch before its end
        self._device = device_of(model)
        self._follow(self._device)
        if not self._open:
            self._begin(model)
        self._resumed, self._started = False, time.perf_counter()

    def batches(self) -> list[Tensor]:
        """This rank's rows of every batch of the epoch; the first ``steps_done`` of them are done.

        Where there are fewer rows than ranks, a rank may have none in the last batch. It must train on something
        then, or the others would wait: on any rows, which ``loss`` and ``reduce`` take for padding.
        """
        ordered = self._order()
        if distributed.world_size() == 1:
            return ordered
        if self._mine is None or self._mine[0] is not ordered:
            self._mine = ordered, [batch[distributed.rank() :: distributed.world_size()] for batch in ordered]
        return self._mine[1]

    def loader(self) -> DataLoader[Any]:
        """A loader of the batches of the epoch, for a trainer that wants one: always the same, so that workers stay.

        Its batches come in the order of ``batches``, from the first, with padding where this rank has no rows. Before
        the first ``start`` they are those of an epoch over everything, for trainers that count steps beforehand.
        """
        return self._feed.loader(self._fetched(self.batches()), self._seed("augment"))

    def accumulate(self, batches: int) -> None:
        """Says that the next ``batches`` batches make one optimizer step: ``loss`` and ``reduce`` give its parts.

        The sum is the loss of one large batch, its weights normalised over all rows of it, if the method weighs rows
        whatever their losses (vanilla, E-weighting). A method that weighs by loss sees one batch at a time; each then
        counts by the number of its rows. All ranks must call it.
        """
        first = self.steps_done
        mine = self.batches()[first : first + batches]
        self._shares = {}
        if len(mine) < 2:
            return
        sizes = torch.tensor([len(rows) for rows in self._order()[first : first + len(mine)]], device=self._device)
        shares = sizes.double() / sizes.sum()
        if not self.method.weighs_by_loss:
            together = self._weights(torch.cat(mine)).split([len(rows) for rows in mine])
            apart = [self._weights(rows) for rows in mine]
            of_all, of_own = total(torch.stack([torch.stack([w.sum() for w in part]) for part in (together, apart)]))
            shares = torch.where(of_own > 0, of_all / of_own, 0.0)
        self._shares = dict(enumerate(shares, first))

    @property
    def accumulates(self) -> bool:
        """Whether the next batch is a part of a larger one."""
        return self.steps_done in self._shares

    def read(self) -> Iterator[Any]:
        """The raw batches of this rank that are not done yet, as the data set and the collate function make them.

        What their transforms draw is a function of (seed, epoch, batch, rank), as in ``epoch``.
        """
        return self._feed.read(self._fetched(self.batches()), self._seed("augment"), self.steps_done)

    def batch(self, raw: Any, index: Tensor | None = None) -> Batch:
        """The next batch of the epoch on the model's device, ready for ``loss``.

        Args:
            raw: What a loader gave for the rows of this batch.
            index: Its rows; None if batches come in the order of ``batches``.
        """
        x, y = self._unpack(raw)
        seed = derive(self.seed, self.number, self.steps_done, distributed.rank())
        self._position = self.steps_done
        rows = self.batches()[self._position] if index is None else index
        device = self._device
        return Batch(to_device(x, device), to_device(y, device), rows.to(device), task=self.task, seed=seed)

    def reduce(self, losses: Tensor, index: Tensor | None = None) -> Tensor:
        """The weighted scalar of losses that the caller has computed; notes them as ``loss`` does.

        Args:
            losses: (B,) losses of the next batch, with gradients.
            index: (B,) its rows; None if batches come in the order of ``batches``.

        Raises:
            TypeError: If the method looks at more than losses: it changes the batch, or wants the model's outputs.
        """
        name = type(self.method).__name__
        words = f"{name} needs the model and the batch, not losses alone; use loss(model, batch(raw)) in the loop"
        if any(getattr(part, "views", False) for part in self.method.modules()):
            raise TypeError(words)
        self._position = self.steps_done
        rows = self.batches()[self._position] if index is None else index
        rows = rows.to(losses.device)
        losses = losses if len(rows) else losses[:0]
        batch = Batch(None, None, rows, task=self.task, seed=derive(self.seed, self.number, self._position))
        step = Step(None, batch, None, *self._checked(self.task.check(losses, batch), rows))  # type: ignore[arg-type]
        try:
            return self._loss(step)
        except (AttributeError, TypeError) as error:
            raise TypeError(words) from error

    def progress(self) -> tuple[int, int]:
        """How many epochs are done, and how many batches of the one after; ends an epoch of which all are done."""
        if self._open and self.steps_done == len(self.batches()):
            self.finish()
        return (self.number - 1, self.steps_done) if self._open else (self.number, 0)

    def finish(self) -> None:
        """Ends the epoch: ranks agree, and a row is added to the record."""
        self._open = False
        self.method.sync()
        self._settle()
        if self.nan_strategy == "error" and int(total(self._last.here().isnan().sum())):
            whole = self._last.whole()
            check_losses(torch.where(whole.isinf(), 0.0, whole), None, "error")
        self._append_row()
        self._ordered = self._mine = None

    # ------------------------------------------------------------------ a step

    def _weights(self, rows: Tensor) -> Tensor:
        """The weights of a batch of these rows, by a method that does not look at losses."""
        losses = torch.zeros(len(rows), dtype=torch.float64, device=self._device)
        batch = Batch(None, None, rows.to(self._device), task=self.task)
        return self.method.weigh(Step(None, batch, None, losses)).double()  # type: ignore[arg-type]

    def _checked(self, losses: Tensor, index: Tensor) -> tuple[Tensor, Tensor | None]:
        # On an accelerator a look at the losses would make every step wait; the end of the epoch looks for all.
        if losses.device.type == "cpu" or self.nan_strategy != "error":
            return check_losses(losses, index, self.nan_strategy)
        return losses, None

    def _empty_step(self, model: nn.Module, batch: Batch) -> Step:
        """For a rank without rows in this batch: a pass over padding, so that gradients are exchanged, of no rows."""
        if any(getattr(part, "view_exchanges", False) for part in self.method.modules()):
            self.method.view(model, batch.with_(x=none_of(batch.x), y=none_of(batch.y)))
        logits = self.task.forward(model, batch.x)
        losses = self.task.loss_fn(logits, batch.y)
        return Step(model, batch, logits[:0] if isinstance(logits, Tensor) else logits, losses[:0])

    def _note(self, step: Step) -> None:
        if step.batch.pair is not None:
            raise ValueError(
                "measure='running' takes the losses seen while training, and this method trains on mixtures of rows, "
                "whose losses belong to no row. Use measure='pass'."
            )
        losses = step.losses.detach().to(self._last.values.dtype)
        self._last.values.index_copy_(0, step.index, losses.nan_to_num(math.nan, math.nan, math.nan))

    # ------------------------------------------------------------------ an epoch's beginning and end

    def _begin(self, model: nn.Module) -> None:
        self._started = time.perf_counter()
        if len(self.train_set) != self.n:
            words = "something is kept for every row, so the set must stay the same"
            raise ValueError(f"the training set had {self.n} rows and has {len(self.train_set)} now; {words}")
        self.number += 1
        if self.number == 1:
            self.record.rewind(0)  # a folder may hold an earlier run; only a loaded state goes on with it
        self._measured = None
        rows = self.method.plan(self._epoch(model))
        self._rows = None if rows is None else self._check_rows(rows)
        self.steps_done, self._position, self._open, self._ordered, self._shares = 0, 0, True, None, {}

    def _check_rows(self, rows: Tensor) -> Tensor:
        rows = rows.detach().cpu().to(torch.int64).flatten()
        name = type(self.method).__name__
        if not len(rows):
            raise ValueError(f"{name} planned no rows for epoch {self.number}; an epoch needs at least one")
        if rows.min() < 0 or rows.max() >= self.n or len(rows.unique()) != len(rows):
            raise ValueError(f"{name} planned rows twice or outside of range({self.n}) for epoch {self.number}")
        return rows

    def _order(self) -> list[Tensor]:
        """The rows of the global batches of this epoch."""
        if self._ordered is None:
            self._ordered = self._new_order()
        return self._ordered

    def _new_order(self) -> list[Tensor]:
        rows = torch.arange(self.n) if self._rows is None else self._rows
        generator = torch.Generator().manual_seed(derive(self.seed, "order", self.number))
        order = rows[torch.randperm(len(rows), generator=generator)]
        batches = list(order.split(self.batch_size))
        if self.drop_last and len(batches) > 1 and len(batches[-1]) < self.batch_size:
            batches.pop()
        if len(batches) > 1 and len(batches[-1]) == 1 < self.batch_size:
            # How many rows there are is the plan's doing, not the user's, and batch norm cannot take a single one.
            batches[-2:] = [torch.cat(batches[-2:])]
        return batches

    def _fetched(self, mine: list[Tensor]) -> list[Tensor]:
        """The rows to read for these batches: padding where this rank has none."""
        return [rows if len(rows) else self._order()[0][:2] for rows in mine]

    def _seed(self, purpose: str) -> Callable[[int], int]:
        return lambda position: derive(self.seed, self.number, position, distributed.rank(), purpose)

    def _settle(self) -> None:
        """Notes which rank has the newest loss of each row that this epoch has visited."""
        done = self._order()[: self.steps_done] if distributed.world_size() > 1 else []
        if done:
            mine = [batch[distributed.rank() :: distributed.world_size()] for batch in done]
            self._last.rewritten(torch.cat(done), torch.cat(mine))

    # ------------------------------------------------------------------ measuring

    def _epoch(self, model: nn.Module) -> Epoch:
        def measured() -> Spread:
            if self._measured is None:  # kept, since the record shows what drove the epoch
                running = self.measure == "running"
                self._measured = (
                    self._last.clone() if running else self._measurer.losses(model, seed, self.nan_strategy)
                )
            return self._measured

        def losses() -> Tensor:
            return measured().whole()

        def easy(threshold: Tensor) -> Tensor:
            return measured().at_most(threshold)

        def measure(function: Callable[[nn.Module, Batch], Tensor], net: nn.Module) -> Tensor:
            return self._measurer.all(function, net, seed)

        seed = self._seed("measure")
        return Epoch(self.number, self.n, self._last.whole, losses, easy, measure, model, self.seed)

    def _fetch_rows(self, index: Tensor) -> Batch:
        """Rows of the measuring set, whatever the plan, for methods that ask through ``Task.rows``."""
        return self._measurer.rows(index, self._device, derive(self.seed, self.number, self._position, "rows"))

    # ------------------------------------------------------------------ record and state

    def _make_record(self, record: Record | str | Path | None) -> Record:
        if isinstance(record, Record):
            return record
        meta = {"method": type(self.method).__name__, "seed": self.seed, "batch_size": self.batch_size}
        return Record.open(self.n, meta, record if distributed.is_first() else None)

    def _append_row(self) -> None:
        losses = self._last if self._measured is None else self._measured
        row: dict[str, Any] = {"epoch": self.number, "steps": self.steps_done}
        row["rows"] = self.n if self._rows is None else len(self._rows)
        row.update({name: _plain(value) for name, value in self.method.report().items()})
        row.update(summary.of_losses(losses.here()))
        weights = getattr(self.method, "weights", None)
        if isinstance(weights, Tensor):
            row.update(summary.of_weights(weights))
        row["seconds"] = time.perf_counter() - self._started
        histories = {}
        if self.samples:
            whole = losses.whole()
            threshold = torch.tensor(row.get("threshold", math.log(2)))
            histories["losses"] = whole.float().cpu().numpy()
            histories["easy"] = (whole <= threshold.to(whole)).cpu().numpy()
        self.record.append(row, **histories)

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs, from any step: tensors, numbers and strings only. All ranks must call it."""
        self.method.sync()
        if self._open:
            self._settle()
        self.record.sync()
        return {
            "format": STATE_FORMAT,
            "n": self.n,
            "labels": fingerprint(self.train_set),
            "method_class": type(self.method).__name__,
            "seed": self.seed,
            "batch_size": self.batch_size,
            "epoch": self.number,
            "step": self.steps_done,
            "open": self._open,
            "rows": None if self._rows is None else self._rows.clone(),
            "last": self._last.whole().clone(),
            "measured": None if self._measured is None else self._measured.whole().clone(),
            "method": {name: value.clone() for name, value in self.method.state_dict().items()},
            "epochs": [dict(row) for row in self.record.epochs],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back a state; the next ``epoch`` goes on after the last batch that was done. All ranks must call it.

        Raises:
            ValueError: If the state is of another format, method or training set; nothing is changed then.
        """
        self._refuse_foreign(state)
        self.method.sync()  # or what ranks wrote before would be merged into what they load
        self.method.load_state_dict(state["method"])
        self.number, self.steps_done = state["epoch"], state["step"]
        self._open = self._resumed = state["open"]
        self._rows, self._ordered, self._shares = state["rows"], None, {}
        self._started = time.perf_counter()
        device, measured = self._last.values.device, state["measured"]
        self._last = Spread(self._last.values.copy_(state["last"]))  # in place, where a captured step writes
        self._measured = None if measured is None else Spread(measured.clone().to(device))
        self.record.restore(state["epochs"])
        if self.samples and state["epochs"] and self.record.folder is not None and not self.record.has("losses"):
            words = f"the record in {self.record.folder} lacks epochs that the state has"
            warnings.warn(f"{words}; their rows are put back, the values of each sample are lost", stacklevel=2)

    def _refuse_foreign(self, state: Mapping[str, Any]) -> None:
        if state.get("format") != STATE_FORMAT:
            raise ValueError(f"the state has format {state.get('format')!r}; this version reads {STATE_FORMAT}")
        if state["method_class"] != type(self.method).__name__:
            raise ValueError(
                f"the state is of {state['method_class']}, and this method is {type(self.method).__name__}"
            )
        if state["n"] != self.n:
            raise ValueError(f"the state is of a training set of {state['n']} rows, and this one has {self.n}")
        labels = fingerprint(self.train_set)
        if None not in (state["labels"], labels) and state["labels"] != labels:
            raise ValueError("the state is of a training set with other labels")
        if state["open"] and (state["seed"], state["batch_size"]) != (self.seed, self.batch_size):
            raise ValueError(
                f"the state was taken inside an epoch with seed {state['seed']} and batch_size {state['batch_size']}; "
                f"with seed {self.seed} and batch_size {self.batch_size} that epoch cannot go on"
            )

    def _follow(self, device: torch.device) -> None:
        if self._last.values.device != device:
            self._last = self._last.to(device)
            self._measured = None if self._measured is None else self._measured.to(device)
            self.method.to(device)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value
