"""Triton kernels on CUDA where Triton works, else plain torch: passes over all rows, and steps."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ..functional import apw as reference

__all__ = ["fused", "masses", "shift_", "step"]

_broken: list[str] = []  # why Triton is not asked again, once it has failed


def fused(log_weights: Tensor) -> bool:
    """Whether the kernels take these log-weights: on CUDA, in one piece, with Triton at hand."""
    if not log_weights.is_cuda or not log_weights.is_contiguous() or _broken:
        return False
    from . import apw

    return apw.triton is not None


def masses(log_weights: Tensor, easy: Tensor) -> Tensor:
    """``functional.apw.masses``, fused where possible."""
    found = None
    if fused(log_weights):
        from . import apw

        found = _asked(apw.masses, log_weights, easy)
    return reference.masses(log_weights, easy) if found is None else found


def shift_(log_weights: Tensor, easy: Tensor, for_easy: Tensor, for_hard: Tensor) -> Tensor:
    """``functional.apw.shift_``, fused where possible."""
    found = None
    if fused(log_weights):
        from . import apw

        found = _asked(apw.shift_, log_weights, easy, for_easy, for_hard)
    return reference.shift_(log_weights, easy, for_easy, for_hard) if found is None else found


def step(source: Any, y: Any, seen: Tensor, index: Tensor, head: tuple[Any, ...]) -> Tensor | None:
    """The scalar loss of a batch by one of ``heads.HEADS``, with its losses noted in ``seen``; None if it cannot be.

    Args:
        source: (B,) losses, or with ``y`` the (B, C) logits whose cross-entropy they are.
        y: (B,) labels, or None with losses.
        seen: (N,) where losses are noted.
        index: (B,) rows of the batch.
        head: The head's name and what it reads, from ``Method.fused``.
    """
    if not isinstance(source, Tensor) or not source.is_cuda or _broken or torch.compiler.is_compiling():
        return None
    name, *state = head
    readable = _are_losses(source) if y is None else _are_logits(source, y)
    here = all(tensor.device == source.device for tensor in _tensors(y, seen, index, *state))
    if not readable or not here or index.shape != source.shape[:1]:
        return None
    from . import heads

    if heads.triton is None or not heads.fits(source):
        return None
    return _asked(heads.HEADS[name], source, y, seen, index.contiguous(), *state)


def _are_losses(source: Tensor) -> bool:
    return source.ndim == 1 and source.dtype in (torch.float32, torch.float64)


def _are_logits(source: Tensor, y: Any) -> bool:
    """Whether cross-entropy would take them as the scores of classes."""
    labels = isinstance(y, Tensor) and y.dtype == torch.int64 and source.ndim == 2 and y.shape == source.shape[:1]
    return labels and source.is_floating_point()


def _tensors(*values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | dict):
            yield from value.values() if isinstance(value, dict) else value


def _asked(kernel: Callable[..., Tensor], *arguments: Any) -> Tensor | None:
    """What a kernel gives; None, and no kernel is asked again, if Triton dislikes this machine.

    That is no compiler at hand, or a driver too old; it shows before a kernel has written anything.
    """
    try:
        return kernel(*arguments)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        _broken.append(repr(error))
        words = "Triton cannot compile here, so a curriculum costs more than it has to"
        warnings.warn(f"{words}: {error!r:.300}", stacklevel=3)
        return None
