"""Adaptive curriculum learning (Kong et al., 2021): the student's difficulties and the teacher's divergence."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .precision import at_least_float32

__all__ = ["adapt", "distillation", "geometric_pace"]


def geometric_pace(step: int, n: int, start: float, factor: float, interval: int) -> int:
    """The number of easiest rows in use after ``step`` epochs: n min(1, p q^floor(step / r)).

    Args:
        step: Epochs since the curriculum began, from 0.
        n: Rows of the training set.
        start: p in (0, 1].
        factor: q >= 1.
        interval: r, in epochs.

    Returns:
        At least one row.

    Example:
        >>> [geometric_pace(step, 100, 0.1, 2.0, 15) for step in (0, 14, 15, 30, 60)]
        [10, 10, 20, 40, 100]
    """
    # The small number keeps 0.29 * 100 = 28.999999999999996 from rounding to 28; the cap prevents overflow.
    power = min(step // interval, math.ceil(-math.log(start) / math.log(factor))) if factor > 1 else 0
    return max(1, math.floor(n * min(1.0, start * factor**power) + 1e-9))


def adapt(difficulty: Tensor, losses: Tensor, rate: float) -> Tensor:
    """d <- (1 - alpha) d + alpha L, with L the current losses of the student.

    A row with unknown loss (infinite: never seen) keeps its difficulty; one without a difficulty gets its loss.

    Args:
        difficulty: (N,) d.
        losses: (N,) L.
        rate: alpha in [0, 1].

    Returns:
        (N,) new difficulties.

    Example:
        >>> adapt(torch.tensor([1.0, 2.0]), torch.tensor([3.0, torch.inf]), 0.7)
        tensor([2.4000, 2.0000])
    """
    moved = torch.where(losses.isfinite(), (1 - rate) * difficulty + rate * losses, difficulty)
    return torch.where(difficulty.isfinite(), moved, losses)


def distillation(logits: Tensor, teacher: Tensor) -> Tensor:
    """KL(teacher || student) = sum_c t_c (log t_c - log s_c), from the logits of both.

    Args:
        logits: (B, C) logits of the student.
        teacher: (B, C) logits of the teacher.

    Returns:
        (B,) divergences >= 0, at least float32.

    Example:
        >>> half, quarter = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
        >>> distillation(quarter, half)              # (log 2 + log(2/3)) / 2
        tensor([0.1438])
    """
    logits = at_least_float32(logits)
    teacher = teacher.to(logits.dtype).log_softmax(1)
    return (teacher.exp() * (teacher - logits.log_softmax(1))).sum(1)
