"""Passes over all N rows: fused Triton kernels on CUDA where Triton works, else the functions of `functional`."""

from __future__ import annotations

import warnings

from torch import Tensor

from ..functional import apw as reference

__all__ = ["fused", "masses", "shift_"]

_broken: list[str] = []  # why Triton is not asked again, once it has failed


def fused(log_weights: Tensor) -> bool:
    """Whether the kernels take these log-weights: on CUDA, in one piece, with Triton at hand."""
    if not log_weights.is_cuda or not log_weights.is_contiguous() or _broken:
        return False
    from . import apw

    return apw.triton is not None


def masses(log_weights: Tensor, easy: Tensor) -> Tensor:
    """``functional.apw.masses``, fused where possible."""
    if fused(log_weights):
        from . import apw

        try:
            return apw.masses(log_weights, easy)
        except Exception as error:  # no compiler at hand, a driver too old: whatever Triton dislikes about a machine
            _broken.append(repr(error))
            words = "Triton cannot compile here, so passes over all rows take several times as long"
            warnings.warn(f"{words}: {error!r:.300}", stacklevel=2)
    return reference.masses(log_weights, easy)


def shift_(log_weights: Tensor, easy: Tensor, for_easy: Tensor, for_hard: Tensor) -> Tensor:
    """``functional.apw.shift_``, fused where possible."""
    if fused(log_weights):
        from . import apw

        return apw.shift_(log_weights, easy, for_easy, for_hard)
    return reference.shift_(log_weights, easy, for_easy, for_hard)
