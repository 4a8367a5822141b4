"""The nouns of the library: `Batch`, `Pair`, `Task`, `Epoch`, `Step`, `Method`.

The whole loop, on one page (``shell/steps.py`` and ``curriculum.py`` run exactly this)::

    for number in 1, 2, ...:                       # one epoch
        rows = method.plan(Epoch(number, ...))     # which rows now; None means all
        for batch in shuffled(rows):               # Batch(x, y, index), which knows its epoch
            batch  = method.view(model, batch)     # how they look
            logits = forward(model, batch.x)
            losses = loss_fn(logits, batch.y)      # (B,)
            step   = Step(model, batch, logits, losses)
            loss   = method.loss(step)             # step.reduce(method.weigh(step)), a scalar
            last[batch.index] = losses             # stored at no extra cost
        record.append(method.report())
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from . import checks, distributed
from .distributed import derive, evaluating, total, world_size

__all__ = ["Batch", "Epoch", "Forward", "LossFunction", "Method", "Pair", "Step", "Task", "checks", "distributed"]

Forward = Callable[[nn.Module, Any], Any]
LossFunction = Callable[[Any, Any], Tensor]


@dataclass(frozen=True)
class Task:
    """How a model meets a batch: ``forward(model, x) -> outputs``, ``loss_fn(outputs, y) -> (B,)``.

    ``rows(index) -> Batch`` returns any rows of the training set without augmentation, for methods that hold some out.
    ``nan_strategy`` says what to do about losses that are not finite.
    """

    forward: Forward
    loss_fn: LossFunction
    rows: Callable[[Tensor], Batch] | None = None
    nan_strategy: checks.NanStrategy = "error"

    def losses(self, model: nn.Module, batch: Batch) -> tuple[Any, Tensor]:
        """Outputs of the model and the (B,) losses, with gradients; of a mixed batch, the mixture of its two losses."""
        logits = self.forward(model, batch.x)
        return logits, self.losses_of(logits, batch)

    def losses_of(self, logits: Any, batch: Batch) -> Tensor:
        """(B,) losses of given outputs."""
        losses = checks.check_sample_losses(checks.losses_of(self.loss_fn, logits, batch.y), batch.index.shape[0])
        if batch.pair is not None:
            share = batch.pair.share.to(losses.dtype)
            others = checks.check_sample_losses(checks.losses_of(self.loss_fn, logits, batch.pair.y), losses.shape[0])
            losses = share * losses + (1 - share) * others
        return losses


@dataclass(frozen=True)
class Pair:
    """The second half of a mixed batch: ``share`` of row i, ``1 - share`` of its partner."""

    y: Any
    index: Tensor
    share: Tensor


@dataclass(frozen=True)
class Batch:
    """A batch of training rows.

    Args:
        x: Whatever the model takes: a tensor, a dict of tensors, a graph batch.
        y: Whatever the loss function takes as its target.
        index: (B,) int64 rows of the training set; B may be 0 on one of several ranks.
        pair: Set when ``x`` is a mixture of these rows with others.
        task: The forward and loss functions, for methods that run their own pass.
        seed: A function of (seed, epoch, step, rank): the source of a method's randomness.
        epoch: The number of the epoch, from 1; ``step`` is that of the batch in it, from 0.
    """

    x: Any
    y: Any
    index: Tensor
    pair: Pair | None = None
    task: Task | None = field(default=None, repr=False)
    seed: int = 0
    epoch: int = 1
    step: int = 0

    def with_(self, **changes: Any) -> Batch:
        """A copy with some fields replaced."""
        return replace(self, **changes)

    def generator(self, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
        """A fresh generator for ``purpose``; the global generators are never touched."""
        return torch.Generator(device=device).manual_seed(derive(self.seed, purpose))


class Epoch:
    """What a method can use to plan an epoch.

    ``last``, ``losses``, ``easy`` and ``measure`` are functions, called only when needed. ``whole`` means that every
    row's weight must be up to date after the plan, because rows are drawn by weight.
    """

    def __init__(
        self,
        number: int,
        n: int,
        last: Tensor | Callable[[], Tensor],
        losses: Callable[[], Tensor],
        easy: Callable[[Tensor], Tensor] | None = None,
        measure: Callable[..., Tensor] | None = None,
        model: nn.Module | None = None,
        seed: int = 0,
        whole: bool = False,
    ) -> None:
        self.number, self.n, self.model, self.seed, self.whole = number, n, model, seed, whole
        self._last, self._losses, self._easy, self._measure = last, losses, easy, measure
        self._measured: list[Tensor] = []  # shared with copies, so that two methods share one pass

    def with_(self, **changes: Any) -> Epoch:
        """A copy with ``number``, ``seed`` or ``whole`` replaced."""
        made = copy.copy(self)
        vars(made).update(changes)
        return made

    @property
    def last(self) -> Tensor:
        """(N,) losses seen while training, +inf for rows never seen."""
        if not isinstance(self._last, Tensor):
            self._last = self._last()
        return self._last

    def losses(self) -> Tensor:
        """(N,) losses at the start of this epoch, from a measuring pass that runs at most once and only on request."""
        if not self._measured:
            self._measured.append(self._losses())
        return self._measured[0]

    def easy(self, threshold: Tensor | float) -> Tensor:
        """(N,) bool: is the loss at most ``threshold``, beta_k of Eq. 1 as one bit per row."""
        if self._easy is not None:
            return self._easy(torch.as_tensor(threshold))
        losses = self.losses()
        return losses <= torch.as_tensor(threshold).to(losses)

    def measure(self, function: Callable[[nn.Module, Batch], Tensor], model: nn.Module | None = None) -> Tensor:
        """``function(model, batch) -> (B, ...)`` over every row in order, in evaluation mode, without gradients."""
        if self._measure is None:
            raise RuntimeError("this epoch cannot run a measuring pass; use Curriculum, which can")
        return self._measure(function, self.model if model is None else model)

    def generator(self, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
        """A fresh generator for ``purpose``, the same on every rank and after a resume."""
        return torch.Generator(device=device).manual_seed(derive(self.seed, self.number, purpose))


class Step:
    """One forward pass, before its losses become a scalar.

    Losses and outputs that were not given are computed on first use, in evaluation mode and without gradients.
    ``model`` is None if the loop passes only losses.
    """

    def __init__(
        self,
        model: nn.Module | None,
        batch: Batch,
        logits: Any = None,
        losses: Tensor | None = None,
    ) -> None:
        self.batch, self.index, self.epoch = batch, batch.index, batch.epoch
        self._model, self._logits, self._losses = model, logits, losses
        self.used: list[Tensor] = []  # the weights last passed to ``reduce``; shared with copies of the step

    def with_(self, batch: Batch | None = None, losses: Tensor | None = None) -> Step:
        """A copy with another batch or other losses."""
        made = copy.copy(self)
        if batch is not None:
            made.batch, made.index, made.epoch = batch, batch.index, batch.epoch
        made._losses = self._losses if losses is None else losses
        return made

    @property
    def model(self) -> nn.Module:
        """The model."""
        return self._model if self._model is not None else self._refuse("the model")

    @property
    def logits(self) -> Any:
        """The model's outputs."""
        if self._logits is None:
            self._measure("the model's outputs")
        return self._logits

    @property
    def losses(self) -> Tensor:
        """(B,) losses."""
        return self._measure("losses") if self._losses is None else self._losses

    def total(self, x: Tensor) -> Tensor:
        """The sum of ``x`` over ranks."""
        return total(x)

    def size(self) -> Tensor:
        """Rows in the global batch, a scalar tensor."""
        return total(torch.full((), float(len(self.index)), dtype=torch.float64, device=self.index.device))

    def uniform(self) -> Tensor:
        """(B,) equal weights that sum to one over the global batch: the average loss."""
        index = self.index
        if world_size() > 1:
            return (1 / self.size()).expand(index.shape)
        return torch.full(index.shape, 1 / max(1, index.shape[0]), dtype=torch.float64, device=index.device)

    def normalise(self, log_weights: Tensor) -> Tensor:
        """(B,) weights that sum to one over the global batch, from log-weights of any scale."""
        return distributed.normalise(log_weights)[0]

    def reduce(self, weights: Tensor) -> Tensor:
        """The scalar loss sum_i w_i L_i, times the number of ranks because data parallelism averages gradients."""
        losses = checks.at_least_float32(self.losses)
        if not isinstance(weights, Tensor) or weights.shape != losses.shape:
            got = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
            raise ValueError(f"weights must be a tensor of shape ({len(losses)},), one per loss, got {got}")
        weights = weights.to(losses.dtype)
        if weights.requires_grad:
            weights = weights.detach()
        self.used[:] = [weights]
        loss = torch.dot(weights, losses)
        checks.check_weights(loss, weights, self.index)
        return loss * world_size() if world_size() > 1 else loss

    def _measure(self, what: str) -> Tensor:
        if self._model is None or self.batch.task is None:
            self._refuse(what)
        with evaluating(self.model), torch.no_grad():
            self._logits, losses = self.batch.task.losses(self.model, self.batch)  # type: ignore[union-attr]
        self._losses = losses if self._losses is None else self._losses
        return self._losses

    def _refuse(self, what: str) -> Any:
        raise TypeError(f"the method needs {what}, which this loop does not provide; use Curriculum.loss(model, batch)")


VERBS = ("plan", "view", "weigh", "loss", "report")


class Method(checks.Guarded, distributed.RowState):
    """A curriculum: which samples to learn from now, how they look, and how much they count.

    Subclasses override only the verbs they need; the base class trains on all rows with the average loss. State lives
    in buffers, so PyTorch saves and moves it; per-row state is declared with ``add_rows``.
    """

    needs_classes = False  # True if targets must be one whole number per row

    def __init__(self) -> None:
        super().__init__()
        own = [name for name in dir(type(self)) if name not in dir(Method) and callable(getattr(type(self), name))]
        if own and not any(getattr(type(self), verb) is not getattr(Method, verb) for verb in VERBS):
            raise TypeError(
                f"{type(self).__name__} overrides none of {', '.join(VERBS)}, so it would change nothing; it has "
                f"{', '.join(own)}, which nobody calls"
            )

    def plan(self, epoch: Epoch) -> Tensor | None:
        """Rows to visit in this epoch, int64 and each at most once; None means all."""
        return None

    @checks.forwards
    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """The batch as the model will see it; on one of several ranks it may have no rows."""
        return batch

    def weigh(self, step: Step) -> Tensor:
        """(B,) weights; the loss is their sum with the losses. The default is the average."""
        return step.uniform()

    def loss(self, step: Step) -> Tensor:
        """The scalar to call ``backward`` on."""
        return step.reduce(self.weigh(step))

    def report(self) -> Mapping[str, Any]:
        """Scalars of the epoch for the record."""
        return {}
