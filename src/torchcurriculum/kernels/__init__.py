"""Fused Triton kernels on CUDA where Triton works, else plain torch: passes over all N rows, and steps of a batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..functional import apw as reference

__all__ = ["cross_entropy", "fused", "masses", "shift_", "step"]

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


def step(name: str, losses: Tensor, seen: Tensor, index: Tensor, *state: Any) -> Tensor | None:
    """The scalar loss of a batch by ``heads.name``, with its losses noted in ``seen``; None if it cannot be."""
    if not losses.is_cuda or losses.dtype not in (torch.float32, torch.float64) or _broken:
        return None
    if seen.device != losses.device or index.device != losses.device or torch.compiler.is_compiling():
        return None
    from . import heads

    if heads.triton is None or not 0 < len(losses) <= heads.LARGEST:
        return None
    return _asked(getattr(heads, name), losses, seen, index.contiguous(), *state)


def cross_entropy(logits: Any, y: Any) -> Tensor | None:
    """(B,) losses by ``heads.cross_entropy``; None if it cannot be. Gradients have no gradient of their own."""
    if not isinstance(logits, Tensor) or not logits.is_cuda or logits.ndim != 2 or torch.compiler.is_compiling():
        return None
    if not isinstance(y, Tensor) or y.dtype != torch.int64 or y.shape != logits.shape[:1] or y.device != logits.device:
        return None
    whole = logits.dtype in (torch.float32, torch.float64)
    if _broken or not (whole or (torch.is_autocast_enabled("cuda") and logits.is_floating_point())):
        return None
    from . import heads

    if heads.triton is None or not len(logits) or not 2 <= logits.shape[1] <= heads.MOST_CLASSES:
        return None
    return _asked(heads.cross_entropy, logits, y)


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
