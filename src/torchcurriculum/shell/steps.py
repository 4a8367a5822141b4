"""`Steps`: the only way from a batch to its scalar loss."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import fast
from ..core import Batch, Method, Step, Task, checks
from ..data.batches import none_of
from ..distributed import Sharded, total, world_size

__all__ = ["Steps", "call", "cross_entropy"]


def call(model: nn.Module, x: Any) -> Any:
    """The usual forward function."""
    return model(x)


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """The usual loss function: (B,) cross-entropies, in float32 also where the outputs are half."""
    return F.cross_entropy(checks.at_least_float32(logits), y, reduction="none")


setattr(cross_entropy, "is_cross_entropy", True)  # noqa: B010  so that a kernel may take its place


class Steps:
    """View, forward, losses, weights, scalar: the loop of ``core.py``, and the note of each row's loss.

    Args:
        method: The method.
        task: The user's forward and loss functions.
        last: (N,) where the losses of the rows are noted.
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

    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """The batch as the method wants it; a rank without rows is asked as well, because ranks may exchange there."""
        if batch.index.shape[0]:
            return self.method.view(model, batch)
        self.method.view(model, batch.with_(x=none_of(batch.x), y=none_of(batch.y)))
        return batch

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The scalar of a batch that looks as the method wants it."""
        logits = self.task.forward(model, batch.x)
        if not batch.index.shape[0]:  # padding, so that gradients are exchanged, of no rows
            losses = self.task.loss_fn(logits, batch.y)[:0]
            return self._scalar(Step(model, batch, logits[:0] if isinstance(logits, Tensor) else logits, losses))
        loss = self._fast(batch, logits)
        if loss is not None:
            return self._share(loss, batch)
        losses = self.task.losses_of(logits, batch)
        return self._scalar(Step(model, batch, logits, *self._checked(losses, batch.index)))

    def reduce(self, losses: Tensor, batch: Batch) -> Tensor:
        """The scalar of losses that the caller has computed."""
        losses = losses if len(batch.index) else losses[:0]
        checks.check_sample_losses(losses, len(batch.index))
        loss = self._fast(batch, None, losses) if len(losses) else None
        if loss is not None:
            return self._share(loss, batch)
        return self._scalar(Step(None, batch, None, *self._checked(losses, batch.index)))

    def accumulate(self, batches: list[Batch], sizes: Tensor) -> None:
        """Says that these batches make one optimizer step.

        Args:
            batches: This rank's parts, of which only the rows are known.
            sizes: Rows of the global batches.
        """
        shares = sizes.double() / sizes.sum()
        try:
            together = self._weights(torch.cat([batch.index for batch in batches]), batches[0])
            apart = [self._weights(batch.index, batch).sum() for batch in batches]
            parts = [part.sum() for part in together.split([len(batch.index) for batch in batches])]
            of_all, of_own = total(torch.stack([torch.stack(parts), torch.stack(apart)]))
            shares = torch.where(of_own > 0, of_all / of_own, 0.0)
        except _LossesAsked:
            pass
        self.shares = {batch.step: share for batch, share in zip(batches, shares, strict=True)}

    def _weights(self, rows: Tensor, like: Batch) -> Tensor:
        """The weights of a batch of these rows, by a method that does not look at losses."""
        return self.method.weigh(_RowsOnly(None, like.with_(index=rows))).double()

    def _fast(self, batch: Batch, logits: object, losses: Tensor | None = None) -> Tensor | None:
        """The same scalar from one kernel; None where there is none for this method, batch or device."""
        source = logits if losses is None else losses
        if not isinstance(source, Tensor) or not source.is_cuda or batch.pair is not None:
            return None
        if world_size() > 1 or self.nan_strategy != "error":
            return None
        return fast.loss(self.method, self.task, batch, logits, losses, self.last.values)

    def _scalar(self, step: Step) -> Tensor:
        loss = self.method.loss(step)
        self._note(step)
        self.method.visited(step.index)
        return self._share(loss, step.batch) if self.shares else loss

    def _share(self, loss: Tensor, batch: Batch) -> Tensor:
        share = self.shares.get(batch.step)
        return loss if share is None else loss * share.to(loss)

    def _checked(self, losses: Tensor, index: Tensor) -> tuple[Tensor, Tensor | None]:
        # On an accelerator a look at the losses would make every step wait; the end of the epoch looks for all.
        if losses.device.type == "cpu" or self.nan_strategy != "error":
            return checks.check_losses(losses, index, self.nan_strategy)
        return losses, None

    def _note(self, step: Step) -> None:
        if step.batch.pair is not None:
            if self.measure == "running":
                raise ValueError(
                    "measure='running' takes the losses seen while training, and this method trains on mixtures of "
                    "rows, whose losses belong to no row. Use measure='pass'."
                )
            return
        losses, last = step.losses.detach(), self.last.values
        losses = losses if losses.dtype == last.dtype else losses.to(last.dtype)
        if losses.device.type != "cpu":  # nobody has looked at them
            losses = losses.nan_to_num(math.nan, math.nan, math.nan)
        last.index_copy_(0, step.index, losses)


class _LossesAsked(Exception):
    """The method weighs by losses or outputs."""


class _RowsOnly(Step):
    """A step of which only the rows are known yet."""

    def _measure(self, what: str) -> Tensor:
        raise _LossesAsked

    def _refuse(self, what: str) -> Tensor:
        raise _LossesAsked
