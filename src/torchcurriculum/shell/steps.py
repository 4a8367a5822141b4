"""`Steps`: the only way from a batch to its scalar loss."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import fast
from ..core import Batch, Method, Pair, Step, Task, checks
from ..data.batches import finite_rows, padding_like, take, without_rows, zeros_of
from ..distributed import Sharded, total, unwrapped, world_size
from .outputs import Outputs

__all__ = ["Steps", "call", "cross_entropy"]


def call(model: nn.Module, x: Any) -> Any:
    """The usual forward function."""
    try:
        return model(x)
    except (TypeError, AttributeError) as error:
        if isinstance(x, Mapping):
            raise TypeError(
                f"{type(model).__name__} was called with a dict of {', '.join(map(str, x))} and failed ({error}); pass "
                "forward=lambda model, x: model(**x), or unpack=lambda batch: (x, y) for another input"
            ) from error
        if isinstance(x, tuple):
            raise TypeError(
                f"{type(model).__name__} was called with a tuple of {len(x)}, all of the batch but its last item, and "
                f"failed ({error}); pass forward=lambda model, x: model(*x), or unpack=lambda batch: (x, y) to choose "
                "input and target"
            ) from error
        raise


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """The usual loss function: (B,) cross-entropies, in float32 also where the outputs are half."""
    checks.check_class_targets(logits, y)
    return F.cross_entropy(checks.at_least_float32(logits), y, reduction="none")


setattr(cross_entropy, "is_cross_entropy", True)  # noqa: B010  so that a kernel may take its place


class Steps:
    """View, forward, losses, weights, scalar: the loop of ``core.py``, and the note of each row's loss.

    The loss of a batch may be computed more than once (LBFGS, SAM): it keeps its view and weights, and the method's
    state is updated once.

    Args:
        method: The method.
        task: The user's forward and loss functions.
        last: (N,) buffer for the losses of the rows.
        measure: ``"running"`` if the method reads these losses.
        nan_strategy: What to do about losses that are not finite.
    """

    def __init__(
        self,
        method: Method,
        task: Task,
        last: Sharded,
        measure: Literal["pass", "running"],
        nan_strategy: checks.NanStrategy,
    ) -> None:
        self.method, self.task, self.last, self.measure, self.nan_strategy = method, task, last, measure, nan_strategy
        self.shares: dict[int, Tensor] = {}  # of the batches that make one optimizer step
        self.outputs: Outputs | None = None  # of every row, if they are kept
        self._viewed: tuple[Batch, Batch] | None = None  # the current batch, before and after the view
        self._model = 0  # the identity of its model
        self._weighed: tuple[Batch, Tensor] | None = None  # and its weights

    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """The batch as the method transforms it; called on a rank without rows too, because ranks may communicate."""
        if self._viewed is not None and self._viewed[0] is batch:
            if id(unwrapped(model)) != self._model:
                raise ValueError(
                    "the loss of this batch was computed with another model, and a second one would get the weights "
                    "of the first; make a Curriculum for each model"
                )
            return self._viewed[1]
        kept = batch if self.nan_strategy == "error" else self._without_bad_inputs(batch)
        if kept.index.shape[0]:
            viewed = self.method.view(model, kept)
        else:
            viewed = self.method.view(model, kept.with_(x=without_rows(kept.x), y=without_rows(kept.y)))
            viewed = kept.with_(x=padding_like(viewed.x, kept.x), y=padding_like(viewed.y, kept.y))
        if not isinstance(viewed, Batch):
            name, found = type(self.method).__name__, type(viewed).__name__
            raise TypeError(f"{name}.view must return a Batch, such as batch.with_(x=...), got {found}")
        self._viewed, self._model = (batch, viewed), id(unwrapped(model))
        return viewed

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The scalar loss of a transformed batch."""
        if self.nan_strategy != "error":
            return self._finite_loss(model, batch)
        logits = self.task.forward(model, batch.x)
        if not batch.index.shape[0]:
            return self._scalar(self._padding(model, batch, logits))
        loss = self._fast(batch, logits)
        if loss is not None:
            return self._share(loss, batch)
        losses = self.task.losses_of(logits, batch)
        if losses.device.type == "cpu":  # elsewhere this would synchronise every step; the end of the epoch checks
            checks.check_losses(losses, batch.index, "error")
        return self._scalar(Step(model, batch, logits, losses))

    def reduce(self, losses: Tensor, batch: Batch, outputs: Any = None) -> Tensor:
        """The scalar of losses that the caller has computed."""
        if not batch.index.shape[0]:  # padding
            losses, outputs = losses[:0], outputs[:0] if isinstance(outputs, Tensor) else outputs
        checks.check_sample_losses(losses, batch.index.shape[0])
        if losses.device.type == "cpu" or self.nan_strategy != "error":
            checks.check_losses(losses, batch.index, "error")  # they are in the graph and cannot be removed
        loss = self._fast(batch, outputs, losses) if batch.index.shape[0] else None
        return self._scalar(Step(None, batch, outputs, losses)) if loss is None else self._share(loss, batch)

    def accumulate(self, batches: list[Batch], sizes: Tensor) -> None:
        """Declares that these batches make one optimizer step.

        Args:
            batches: This rank's parts; only their rows are known.
            sizes: Rows of the global batches.
        """
        shares, every = sizes.double() / sizes.sum(), torch.cat([batch.index for batch in batches])
        with suppress(_NeedsLosses), self.method.on_trial(every):
            together = self._weights(every, batches[0])
            apart = [self._weights(batch.index, batch).sum() for batch in batches]
            parts = [part.sum() for part in together.split([len(batch.index) for batch in batches])]
            of_all, of_own = total(torch.stack([torch.stack(parts), torch.stack(apart)]))
            shares = torch.where(of_own > 0, of_all / of_own, 0.0)
        self.shares = {batch.step: share for batch, share in zip(batches, shares, strict=True)}

    def _weights(self, rows: Tensor, like: Batch) -> Tensor:
        """The weights of these rows by a method that does not use losses."""
        return self.method.weigh(_RowsOnly(None, like.with_(index=rows))).double()

    # ------------------------------------------------------------------ from a step to its scalar

    def _fast(self, batch: Batch, logits: object, losses: Tensor | None = None) -> Tensor | None:
        """The same scalar from one fused kernel; None if there is none for this method, batch or device."""
        source = logits if losses is None else losses
        if not isinstance(source, Tensor) or not source.is_cuda or batch.pair is not None:
            return None
        if self._again(batch) or world_size() > 1 or self.nan_strategy != "error":
            return None
        loss = fast.loss(self.method, self.task, batch, logits, losses, self.last.values)
        saved = getattr(getattr(loss, "grad_fn", None), "saved_tensors", ())
        if saved:
            self._weighed = batch, saved[0]
        if loss is not None and self.outputs is not None:
            self.outputs.note(logits, batch.y, batch.index)
        return loss

    def _scalar(self, step: Step) -> Tensor:
        if self._again(step.batch):
            assert self._weighed is not None
            with _weighing(fast.active(self.method, step.epoch)[0], self._weighed[1]):
                return self._share(self.method.loss(step), step.batch)
        loss = self.method.loss(step)
        self._note(step)
        self.method.visited(step.index)
        self._weighed = (step.batch, step.used[0]) if step.used else None
        return self._share(loss, step.batch)

    def _again(self, batch: Batch) -> bool:
        return self._weighed is not None and self._weighed[0] is batch

    def _share(self, loss: Tensor, batch: Batch) -> Tensor:
        share = self.shares.get(batch.step) if self.shares else None
        return loss if share is None else loss * share.to(loss)

    def _note(self, step: Step) -> None:
        mixed = step.batch.pair is not None
        if mixed and self.measure == "running":
            raise ValueError(
                "measure='running' takes the losses seen while training, and this method trains on mixtures of "
                "rows, whose losses belong to no row. Use measure='pass'."
            )
        if self.outputs is not None and not mixed:
            self.outputs.note(step._logits, step.batch.y, step.index)
        losses, last = step.losses.detach(), self.last.values
        losses = losses if losses.dtype == last.dtype else losses.to(last.dtype)
        if mixed:  # stores only non-finite losses, for the check at the end of the epoch
            losses = torch.where(losses.isfinite(), last[step.index], math.nan)
        elif losses.device.type != "cpu":  # not checked yet
            losses = losses.nan_to_num(math.nan, math.nan, math.nan)
        last.index_copy_(0, step.index, losses)

    def _padding(self, model: nn.Module, batch: Batch, logits: Any) -> Step:
        """A step without rows, from a pass over padding, so that gradients are still exchanged."""
        losses = self.task.loss_fn(logits, batch.y)[:0]
        return Step(model, batch, logits[:0] if isinstance(logits, Tensor) else logits, losses)

    # ------------------------------------------------------------------ rows that are not finite

    def _without_bad_inputs(self, batch: Batch) -> Batch:
        """Keeps the rows whose inputs and targets are finite; a zero weight would not help, since 0 * NaN is NaN."""
        size = batch.index.shape[0]
        finite = finite_rows((batch.x, batch.y), size) if size else None
        return batch if finite is None else self._keep(batch, finite, "inputs")

    def _finite_loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss without rows whose losses are not finite: all ranks repeat the pass without them."""
        first = self._viewed[1] if self._viewed is not None else batch
        while True:
            before = [buffer.clone() for buffer in model.buffers()]
            logits = self.task.forward(model, batch.x)
            if batch.index.shape[0]:
                step = Step(model, batch, logits, self.task.losses_of(logits, batch))
            else:
                step = self._padding(model, batch, logits)
            finite = step.losses.detach().isfinite()
            if not int(total((~finite).sum())):
                return self._scalar(step)
            for buffer, value in zip(model.buffers(), before, strict=True):
                buffer.copy_(value)  # undo the statistics of the bad batch
            batch = self._keep(batch, finite, "losses")
            if self._viewed is not None and self._viewed[1] is first:
                first, self._viewed = batch, (self._viewed[0], batch)  # the same rows if it is computed again

    def _keep(self, batch: Batch, finite: Tensor, what: str) -> Batch:
        """The finite rows of a batch; the others count as hard. If there are none, no rows and zero padding."""
        if bool(finite.all()):
            return batch
        size, bad = batch.index.shape[0], batch.index[~finite]
        if self.nan_strategy == "warn":
            named = f"{bad[:8].tolist()}{', ...' if len(bad) > 8 else ''}"
            warnings.warn(f"{what} of rows {named} are NaN or infinite; they are left out of their batch", stacklevel=2)
        self.last.values[bad] = checks.NAN_LOSS
        kept = finite.nonzero().flatten()
        if not len(kept):
            return batch.with_(x=zeros_of(batch.x), y=zeros_of(batch.y), index=batch.index[:0], pair=None)
        rows: dict[str, Any] = {name: take(getattr(batch, name), kept, size) for name in ("x", "y", "index")}
        pair = batch.pair
        if pair is not None:
            rows["pair"] = Pair(*(take(part, kept, size) for part in (pair.y, pair.index, pair.share)))
        return batch.with_(**rows)


@contextmanager
def _weighing(method: Method, weights: Tensor) -> Iterator[None]:
    """Makes ``method.weigh`` return these weights without side effects inside the block."""
    object.__setattr__(method, "weigh", lambda step: weights)
    try:
        yield
    finally:
        object.__delattr__(method, "weigh")


class _NeedsLosses(Exception):
    """The method's weights depend on losses or outputs."""


class _RowsOnly(Step):
    """A step whose losses are not known yet, only its rows."""

    def _measure(self, what: str) -> Tensor:
        raise _NeedsLosses

    def _refuse(self, what: str) -> Tensor:
        raise _NeedsLosses
