"""The nouns of the library: `Batch`, `Epoch`, `Step`, `Method`. Imports torch only.

The whole loop, on one page (``curriculum.py`` runs exactly this)::

    for number in 1, 2, ...:                       # one epoch
        rows = method.plan(Epoch(number, ...))     # which rows now; None means all
        for batch in shuffled(rows):               # Batch(x, y, index)
            batch  = method.view(model, batch)     # how they look
            logits = forward(model, batch.x)
            losses = loss_fn(logits, batch.y)      # (B,)
            step   = Step(model, batch, logits, losses)
            loss   = method.loss(step)             # step.reduce(method.weigh(step)), a scalar
            last[batch.index] = losses             # on the side, free
        record.append(method.report())
"""

from __future__ import annotations

import copy
import hashlib
import math
import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

__all__ = [
    "Batch",
    "Epoch",
    "Method",
    "NanStrategy",
    "Pair",
    "Step",
    "Task",
    "at_least_float32",
    "check_index",
    "check_losses",
    "derive",
    "evaluating",
    "normalise",
    "ranks",
    "total",
    "uncompiled",
    "unwrapped",
]

NanStrategy = Literal["error", "warn", "ignore"]
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
NAN_LOSS = 1e4  # what a loss that is not finite counts as where the user chose to go on: a very hard sample
Forward = Callable[[nn.Module, Any], Any]
LossFunction = Callable[[Any, Any], Tensor]


def derive(*parts: int | str) -> int:
    """A 63-bit seed that is a pure function of ``parts``: what makes resuming need no generator state.

    Example:
        >>> derive(0, "order", 3) == derive(0, "order", 3) != derive(0, "order", 4)
        True
    """
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def at_least_float32(outputs: Any) -> Any:
    """Half-precision outputs as float32: their losses would have two or three digits.

    Under autocast, too, where cross-entropy rounds before it returns float32.
    """
    half = isinstance(outputs, Tensor) and outputs.dtype in (torch.float16, torch.bfloat16)
    return outputs.float() if half else outputs


def ranks() -> int:
    """How many processes train together: 1 unless ``torch.distributed`` is running."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def total(x: Tensor) -> Tensor:
    """The sum of ``x`` over all ranks; ``x`` itself in a single process."""
    if ranks() == 1:
        return x
    x = x.detach().clone()
    dist.all_reduce(x)
    return x


def uncompiled(model: nn.Module) -> nn.Module:
    """What ``torch.compile`` was given, or the model itself."""
    return getattr(model, "_orig_mod", model)


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's own module inside a wrapper for data parallelism, whose passes would make ranks wait for each other.

    A module of the user's that merely has a part called ``module`` is itself.
    """
    inner = uncompiled(model)
    wrappers = (nn.parallel.DistributedDataParallel, nn.DataParallel)
    return inner.module if isinstance(inner, wrappers) else model


def check_losses(losses: Tensor, index: Tensor | None, strategy: NanStrategy) -> tuple[Tensor, Tensor | None]:
    """Refuses, reports or silences losses that are not finite, and names their rows.

    Args:
        losses: (B,) losses.
        index: (B,) their rows; None when losses are those of all rows in order.
        strategy: ``"error"`` raises; ``"warn"`` warns and goes on; ``"ignore"`` goes on.

    Returns:
        The losses, with those that are not finite replaced by a large number, and a (B,) mask of the finite ones
        (None when all are).
    """
    if losses.dtype not in FLOATS:
        raise TypeError(f"losses must be floating-point numbers of 16 bits or more, got {losses.dtype}")
    if _all_finite(losses):
        return losses, None
    finite = losses.isfinite()
    bad = (~finite).nonzero().flatten().cpu()
    rows = bad if index is None else index.cpu()[bad]
    message = f"{len(rows)} of {len(losses)} losses are NaN or infinite, at rows {rows[:8].tolist()}"
    message += ", ..." if len(rows) > 8 else ""
    if strategy == "error":
        raise ValueError(f"{message}. Mend the data or the learning rate, or pass nan_strategy='warn' or 'ignore'.")
    if strategy == "warn":
        warnings.warn(f"{message}; they count as hard and get no weight in a batch", stacklevel=3)
    return torch.where(finite, losses, NAN_LOSS), finite


def _all_finite(losses: Tensor) -> bool:
    """One read and nothing written: both ends are finite, and a NaN would be at both."""
    if not losses.numel():
        return True
    low, high = torch.aminmax(losses.detach())
    return math.isfinite(float(low)) and math.isfinite(float(high))


def check_index(index: Tensor, n: int, size: int) -> None:
    """Refuses an index that is no (B,) int64 tensor of different rows below ``n``.

    Values are looked at only when the index is in host memory, where a loader puts it: looking at a device's memory
    would make every step wait.
    """
    if not isinstance(index, Tensor):
        raise TypeError(f"index must be an int64 tensor of shape ({size},), got {type(index).__name__}")
    if index.dtype != torch.int64 or index.shape != (size,):
        raise ValueError(f"index must be int64 of shape ({size},), got {index.dtype} of shape {tuple(index.shape)}")
    if index.device.type != "cpu" or size == 0 or torch.compiler.is_compiling():
        return
    ordered = index.sort().values
    if ordered[0] < 0 or ordered[-1] >= n:
        wrong = index[(index < 0) | (index >= n)]
        raise IndexError(f"rows {wrong[:8].tolist()} are outside of the training set, which has {n} rows")
    if size > 1 and bool((ordered[1:] == ordered[:-1]).any()):
        twice = ordered[1:][ordered[1:] == ordered[:-1]].unique()
        raise ValueError(f"rows {twice[:8].tolist()} stand in this batch more than once; each row has one weight")


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
    if ranks() == 1:
        if not len(log_weights):
            return log_weights.exp(), log_weights.new_full((), -torch.inf)
        top = log_weights.max()
        raw = (log_weights - top).exp()
        scale = raw.sum()
        return raw / scale, top + scale.log()
    low = log_weights.new_full((1,), -torch.inf)
    here = torch.cat([log_weights, low]).max()
    table = log_weights.new_zeros(ranks(), 2)
    here_or_zero = torch.where(here.isfinite(), here, torch.zeros_like(here))
    table[dist.get_rank(), 0] = here_or_zero
    table[dist.get_rank(), 1] = (log_weights - here_or_zero).exp().sum()
    table = total(table)
    filled = table[:, 1] > 0
    top = torch.where(filled, table[:, 0], low).max()
    scale = torch.where(filled, table[:, 1] * (table[:, 0] - top).exp(), 0.0).sum()
    return (log_weights - top).exp() / scale, top + scale.log()


@dataclass(frozen=True)
class Task:
    """How a model meets a batch: the user's forward function, per-sample loss function and data.

    Args:
        forward: ``forward(model, x) -> outputs``.
        loss_fn: ``loss_fn(outputs, y) -> (B,)``.
        rows: ``rows(index) -> Batch``: any rows of the training set as they are, for methods that hold some out.
    """

    forward: Forward
    loss_fn: LossFunction
    rows: Callable[[Tensor], Batch] | None = None

    def losses(self, model: nn.Module, batch: Batch) -> tuple[Any, Tensor]:
        """Outputs of the model and the (B,) losses, with gradients; of a mixed batch, the mixture of its two losses."""
        logits = self.forward(model, batch.x)
        losses = self.check(self.loss_fn(logits, batch.y), batch)
        if batch.pair is not None:
            share = batch.pair.share.to(losses.dtype)
            losses = share * losses + (1 - share) * self.check(self.loss_fn(logits, batch.pair.y), batch)
        return logits, losses

    def check(self, losses: Any, batch: Batch) -> Tensor:
        """``losses`` if there is one for each row of ``batch``; an error that says what to do if not."""
        size = len(batch.index)
        if not isinstance(losses, Tensor) or losses.shape != (size,):
            shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise ValueError(
                f"loss_fn must return one loss per sample, shape ({size},), but returned {shape}. If it reduces, "
                "pass reduction='none'; if it keeps positions (tokens, pixels), average them per sample."
            )
        return losses


@dataclass(frozen=True)
class Pair:
    """The second half of a mixed batch: ``share`` of row i, ``1 - share`` of its partner."""

    y: Any
    index: Tensor
    share: Tensor


@dataclass(frozen=True)
class Batch:
    """Rows of the training set on their way through one step.

    Args:
        x: Whatever the model takes: a tensor, a dict of tensors, a graph batch.
        y: Whatever the loss function takes as its target.
        index: (B,) int64 rows of the training set.
        pair: Set when ``x`` is a mixture of these rows with others.
        task: The forward and loss functions, for methods that need a pass of their own.
        seed: A number that is a function of (seed, epoch, step, rank): the source of a method's randomness.
    """

    x: Any
    y: Any
    index: Tensor
    pair: Pair | None = None
    task: Task | None = field(default=None, repr=False)
    seed: int = 0

    def with_(self, **changes: Any) -> Batch:
        """A copy with some fields replaced."""
        return replace(self, **changes)

    def generator(self, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
        """A fresh generator for ``purpose``; the global generators are never touched."""
        return torch.Generator(device=device).manual_seed(derive(self.seed, purpose))

    def losses(self, model: nn.Module) -> Tensor:
        """(B,) losses of the rows as they are, without gradients, in evaluation mode: one extra forward pass."""
        if self.task is None:
            raise RuntimeError("this batch carries no task; pass Batch(..., task=Task(forward, loss_fn))")
        with evaluating(model), torch.no_grad():
            return self.task.losses(model, self)[1]


class Epoch:
    """What a method may know when it plans an epoch.

    Args:
        number: The epoch k, counted from 1 as in the paper.
        n: Rows of the training set.
        last: (N,) losses seen while training, +inf for rows never seen, or a function that gives them. Free in one
            process; ranks exchange them only if somebody asks.
        losses: A measuring pass, called at most once and only if somebody asks.
        easy: ``easy(threshold)`` -> (N,) bool; ranks exchange one bit per row.
        measure: ``measure(function, model)`` applies ``function(model, batch) -> (B, ...)`` to every row, in order.
        model: The model, as the user passed it.
        seed: The curriculum's seed.
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
    ) -> None:
        self.number, self.n, self.model, self.seed = number, n, model, seed
        self._last = last
        self._losses, self._easy, self._measure = losses, easy, measure
        self._cache: Tensor | None = None

    @property
    def last(self) -> Tensor:
        """(N,) losses seen while training, +inf for rows never seen."""
        if not isinstance(self._last, Tensor):
            self._last = self._last()
        return self._last

    def losses(self) -> Tensor:
        """(N,) losses at the start of this epoch: a fresh measuring pass, paid once and only by who asks."""
        if self._cache is None:
            self._cache = self._losses()
        return self._cache

    def easy(self, threshold: Tensor | float) -> Tensor:
        """(N,) bool: is the loss at most ``threshold``, beta_k of Eq. 1 as one bit per row."""
        if self._easy is not None:
            return self._easy(torch.as_tensor(threshold))
        losses = self.losses()
        return losses <= torch.as_tensor(threshold).to(losses)

    def measure(self, function: Callable[[nn.Module, Batch], Tensor], model: nn.Module | None = None) -> Tensor:
        """``function(model, batch) -> (B, ...)`` over every row in order, in evaluation mode, without gradients."""
        if self._measure is None:
            raise RuntimeError("this epoch cannot run a pass of its own; use Curriculum, which can")
        return self._measure(function, self.model if model is None else model)

    def generator(self, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
        """A fresh generator for ``purpose``, the same on every rank and after a resume."""
        return torch.Generator(device=device).manual_seed(derive(self.seed, self.number, purpose))


@dataclass(frozen=True)
class Step:
    """One forward pass, before its losses become a scalar."""

    model: nn.Module
    batch: Batch
    logits: Any
    losses: Tensor
    valid: Tensor | None = None

    @property
    def index(self) -> Tensor:
        """(B,) rows of the training set."""
        return self.batch.index

    def total(self, x: Tensor) -> Tensor:
        """The sum of ``x`` over ranks."""
        return total(x)

    def size(self) -> Tensor:
        """Rows in the global batch, a scalar tensor."""
        return total(torch.full((), len(self.losses), dtype=torch.float64, device=self.losses.device))

    def uniform(self) -> Tensor:
        """(B,) equal weights that sum to one over the global batch: the average loss."""
        if ranks() == 1:
            size = len(self.losses)
            return torch.full((size,), 1 / max(size, 1), dtype=torch.float64, device=self.losses.device)
        return normalise(torch.zeros(len(self.losses), dtype=torch.float64, device=self.losses.device))[0]

    def reduce(self, weights: Tensor) -> Tensor:
        """The scalar loss sum_i w_i L_i, scaled by the ranks because data parallelism averages gradients."""
        losses = at_least_float32(self.losses)
        self._check(weights)
        weights = weights.detach().to(losses.dtype)
        if self.valid is not None:
            weights = weights * self.valid
        loss = (weights * losses).sum()
        return loss * ranks() if ranks() > 1 else loss

    def _check(self, weights: Tensor) -> None:
        """Refuses weights that would make every parameter NaN; on an accelerator a look would make the step wait."""
        if weights.shape != self.losses.shape:
            raise ValueError(
                f"there must be one weight for each of {len(self.losses)} losses, got {tuple(weights.shape)}"
            )
        if weights.device.type != "cpu" or torch.compiler.is_compiling() or _all_finite(weights):
            return
        rows = self.index[(~weights.isfinite()).to(self.index.device)]
        raise ValueError(f"the method's weights of rows {rows[:8].tolist()} are NaN or infinite")


class Method(nn.Module):
    """A curriculum: which samples to learn from now, how they look, and how much they count.

    State lives in buffers, so ``state_dict``, ``.to()`` and checkpoints are PyTorch's own. Subclasses are final and
    override only the verbs they need; this class as it stands trains on everything with the average loss.

    Attributes:
        weighs_by_loss: Whether ``weigh`` looks at the losses of the batch (wrappers then pay for them).
        views: Whether ``view`` changes the batch.
        view_exchanges: Whether ``view`` makes ranks exchange something. Then a rank without rows in a batch is asked,
            too, with no rows, or the others would wait for it.
    """

    weighs_by_loss: bool = True
    views: bool = False
    view_exchanges: bool = False

    def plan(self, epoch: Epoch) -> Tensor | None:
        """Rows to visit in this epoch, int64 and each at most once; None means all."""
        return None

    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """The batch as the model shall see it."""
        return batch

    def weigh(self, step: Step) -> Tensor:
        """(B,) weights; the loss is their sum with the losses. The default is the average."""
        return step.uniform()

    def loss(self, step: Step) -> Tensor:
        """The scalar to call ``backward`` on."""
        return step.reduce(self.weigh(step))

    def fused(self, batch: Batch, logits: Any) -> tuple[Any, ...] | None:
        """The kernel of ``kernels.heads`` that is worth the same as ``loss``, and what it reads; None if there is none.

        Asked in a single process, for whole batches on an accelerator. The kernel also notes the batch's losses.
        """
        return None

    def plan_whole(self, epoch: Epoch) -> Tensor | None:
        """``plan`` for a wrapper that samples from ``weights``: every row's weight must be current afterwards."""
        return self.plan(epoch)

    def graph_key(self) -> Hashable | None:
        """Names the kernels that ``loss`` runs: while it stays the same, a captured step (CUDA graph) may be replayed.

        None, the default, says that a step must run as it is: it draws numbers, keeps something outside of buffers or
        looks at values on the host.
        """
        return None

    def sync(self) -> None:
        """Makes the ranks agree on per-row state that a step wrote for its own rows only."""

    def report(self) -> Mapping[str, Any]:
        """Scalars of the epoch for the record."""
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """PyTorch's own, but all or nothing: a state that does not fit raises and changes nothing."""
        before = copy.deepcopy(self.state_dict())
        try:
            for name in [name for name in before if name.endswith("_extra_state") and name in state_dict]:
                value, known = state_dict[name], before[name]  # PyTorch hands these on unseen
                if not isinstance(value, Tensor) or (value.dtype, value.ndim) != (known.dtype, known.ndim):
                    raise TypeError(f"{name} is no {known.dtype} tensor of {known.ndim} dimensions")
            return super().load_state_dict(state_dict, strict, assign)
        except Exception as error:
            super().load_state_dict(before)
            if isinstance(error, RuntimeError):  # PyTorch's own sentence
                raise
            raise ValueError(f"the state does not fit this {type(self).__name__}: {error!r}") from error


class evaluating:
    """Puts every module into evaluation mode and back exactly as found."""

    def __init__(self, model: nn.Module) -> None:
        self._modules = [(module, module.training) for module in model.modules()]

    def __enter__(self) -> None:
        for module, _ in self._modules:
            module.training = False

    def __exit__(self, *_: object) -> None:
        for module, training in self._modules:
            module.training = training
