"""Fused kernels and captured steps: the only room that knows CUDA.

One table lists the fast methods, keyed by the exact class of the method that is active in a step. So a subclass, whose
verbs may differ, takes the plain path, and methods do not depend on this room.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core import Batch, Method, Task
from ..functional import apw as apw_equations

__all__ = ["TABLE", "Fast", "active", "graph_key", "is_cross_entropy", "loss"]

Head = tuple[Any, ...]
_broken: list[str] = []  # why Triton failed, so that it is not tried again


@dataclass(frozen=True)
class Fast:
    """The fast path of a method's step.

    Args:
        key: ``key(method)``: while it stays the same, a captured step (CUDA graph) may be replayed.
        head: ``head(method, batch, logits)``: the kernel of ``heads`` that computes the same as ``loss``, and its
            arguments; None if there is none.
    """

    key: Callable[[Any], Hashable]
    head: Callable[[Any, Batch, Any], Head | None] | None = None


def _apw(method: Any, batch: Batch, logits: Any) -> Head:
    return "apw", method.log_weights, None if method.weighting == "E" else (method.threshold, method.alpha)


def _superloss(method: Any, batch: Batch, logits: Any) -> Head:
    method.resolve_tau(logits, batch.y)
    if method.rule is None:
        return "superloss", method.tau, method.strength
    share = None if method.rule == "average" else 1 - method.smoothing
    return "superloss", method.tau, method.strength, method.seen, share


def _memory(*tensors: Tensor) -> Hashable:
    """Tensors that are made anew once the number of classes is known."""
    return tuple((tensor.data_ptr(), tensor.shape) for tensor in tensors)


TABLE: dict[str, Fast] = {
    "torchcurriculum.methods.vanilla.Vanilla": Fast(lambda method: "average"),
    "torchcurriculum.methods.mixup.Mixup": Fast(lambda method: "average"),  # its random draws are part of view
    "torchcurriculum.methods.infobatch.InfoBatch": Fast(lambda method: "infobatch"),
    "torchcurriculum.methods.apw.APW": Fast(lambda method: ("apw", method.weighting), _apw),
    "torchcurriculum.methods.superloss.SuperLoss": Fast(lambda method: ("superloss", method.rule), _superloss),
    "torchcurriculum.methods.elr.ELR": Fast(lambda method: _memory(method.predictions)),
    "torchcurriculum.methods.rapw.RAPW": Fast(lambda method: _memory(method.predictions, method.means, method.usual)),
}


def active(method: Method, epoch: int) -> tuple[Method, Fast | None]:
    """The method inside wrappers whose loss is used in an epoch, and its fast path.

    There is none if a wrapper does more with the loss than forward it, since a kernel would skip that.
    """
    inner = getattr(method, "active", None)
    found = method if inner is None else inner(epoch)
    parts: list[Any] = [] if inner is None else [part for part in method.modules() if hasattr(part, "active")]
    if not all(getattr(type(part).loss, "forwards", False) for part in parts):
        return found, None
    kind = type(found)
    return found, TABLE.get(f"{kind.__module__}.{kind.__qualname__}")


def graph_key(method: Method, epoch: int) -> Hashable | None:
    """The key of a captured step: while it is the same, the step may be replayed; None if it may not."""
    method, known = active(method, epoch)
    return None if known is None else (id(method), known.key(method))


def loss(method: Method, task: Task, batch: Batch, logits: Any, losses: Tensor | None, seen: Tensor) -> Tensor | None:
    """The scalar loss of a batch in one kernel, with its losses stored in ``seen``; None if that is not possible.

    Args:
        method: The method, whose active part decides.
        task: The loss function, which the kernel replaces if it is plain cross-entropy.
        batch: The batch.
        logits: (B, C) outputs, or None with losses.
        losses: (B,) given losses, or None.
        seen: (N,) buffer for the losses.
    """
    method, known = active(method, batch.epoch)
    head = None if known is None or known.head is None else known.head(method, batch, logits)
    if head is None or torch.compiler.is_compiling():
        return None
    if losses is None and is_cross_entropy(task.loss_fn) and _are_logits(logits, batch.y):
        source, y = logits, batch.y
    else:
        source, y = task.losses_of(logits, batch) if losses is None else losses, None
    return _kernel(source, y, seen, batch.index, head)


def is_cross_entropy(loss_fn: Any) -> bool:
    """Whether a loss function is plain cross-entropy per sample, in any common form.

    Example:
        >>> is_cross_entropy(nn.CrossEntropyLoss(reduction="none")), is_cross_entropy(nn.MSELoss(reduction="none"))
        (True, False)
    """
    if isinstance(loss_fn, functools.partial):
        return loss_fn.func is F.cross_entropy and not loss_fn.args and loss_fn.keywords == {"reduction": "none"}
    criterion = getattr(loss_fn, "criterion", loss_fn)  # of ``per_sample``
    if type(criterion) is nn.CrossEntropyLoss:
        plain = criterion.weight is None and criterion.label_smoothing == 0 and criterion.ignore_index == -100
        return plain and criterion.reduction == "none"
    return getattr(loss_fn, "is_cross_entropy", False) is True


def _kernel(source: Any, y: Tensor | None, seen: Tensor, index: Tensor, head: Head) -> Tensor | None:
    """The scalar from (B,) losses or, with ``y``, from (B, C) logits."""
    name, *state = head
    if not isinstance(source, Tensor) or not source.is_cuda:
        return None
    if y is None and (source.ndim != 1 or source.dtype not in (torch.float32, torch.float64)):
        return None
    here = all(tensor.device == source.device for tensor in _tensors(y, seen, index, *state))
    if not here or index.shape != source.shape[:1]:
        return None
    from . import heads

    if _broken or heads.triton is None or not heads.fits(source):
        return None
    return _try(heads.HEADS[name], source, y, seen, index.contiguous(), *state)


def _are_logits(source: Tensor, y: Any) -> bool:
    """Whether cross-entropy accepts them as class scores."""
    labels = isinstance(y, Tensor) and y.dtype == torch.int64 and source.ndim == 2 and y.shape == source.shape[:1]
    return labels and source.is_floating_point()


def _tensors(*values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | dict):
            yield from value.values() if isinstance(value, dict) else value


def _try(kernel: Callable[..., Tensor], *arguments: Any) -> Tensor | None:
    """The result of a kernel; None if Triton does not work on this machine, and then no kernel is tried again.

    A missing compiler or an old driver fails before a kernel has written anything.
    """
    try:
        return kernel(*arguments)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        _broken.append(repr(error))
        warnings.warn(f"Triton cannot compile here, so slower plain torch is used: {error!r:.300}", stacklevel=3)
        return None


def _epoch_kernel(name: str) -> Callable[..., Tensor | None]:
    """A pass over all rows of APW's epoch as a kernel; None if that is not possible."""

    def run(log_weights: Tensor, *arguments: Tensor) -> Tensor | None:
        if not log_weights.is_contiguous() or _broken:
            return None
        from . import apw_epoch

        return None if apw_epoch.triton is None else _try(getattr(apw_epoch, name), log_weights, *arguments)

    return run


apw_equations.KERNELS["cuda"] = {name: _epoch_kernel(name) for name in ("masses", "shift_")}
