"""Which rows of a batch or of an epoch to train on: RHO-LOSS, Selective-Backprop and importance sampling."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["draws", "percentile", "row_uniform", "selection_probability", "variance_reduction"]

STRIDE = 0x9E3779B97F4A7C15 - 2**64  # the steps of splitmix64, as signed numbers
MIXERS = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64))


def row_uniform(index: Tensor, salt: Tensor | int) -> Tensor:
    """(B,) float64 in [0, 1): a random number per row that depends only on the row and ``salt``.

    So a draw does not depend on the batch, rank or device. The hash is splitmix64.

    Args:
        index: (B,) int64 rows.
        salt: A 63-bit number, a new one for every draw of all rows.

    Example:
        >>> row_uniform(torch.tensor([0, 1, 2]), 7)
        tensor([0.3898, 0.0168, 0.9008], dtype=torch.float64)
    """
    bits = (index + 1) * STRIDE + salt
    for shift, factor in MIXERS:
        bits = (bits ^ _right(bits, shift)) * factor
    return _right(bits ^ _right(bits, 31), 11).double() / 2**53


def _right(bits: Tensor, shift: int) -> Tensor:
    """A logical right shift, which fills with zeros."""
    return (bits >> shift) & ((1 << (64 - shift)) - 1)


def percentile(losses: Tensor, history: Tensor, known: Tensor | int) -> Tensor:
    """(B,) CDF_R of Selective-Backprop: the share of the last R losses that are smaller.

    Args:
        losses: (B,) losses.
        history: (R,) losses, +inf where there are fewer than R.
        known: Their number.

    Example:
        >>> percentile(torch.tensor([0.5, 3.0]), torch.tensor([torch.inf, 0.1, 0.5, 3.0, 0.2]), 4)
        tensor([0.5000, 0.7500], dtype=torch.float64)
    """
    ordered = history.sort().values
    return torch.searchsorted(ordered, losses.to(ordered.dtype).contiguous()).double() / known


def selection_probability(cdf: Tensor, beta: float) -> Tensor:
    r"""(B,) the probability :math:`CDF_R(L)^\beta` that Selective-Backprop trains on a row; 1 for beta = 0.

    Example:
        >>> selection_probability(torch.tensor([0.0, 0.5, 1.0]), 2)
        tensor([0.0000, 0.2500, 1.0000])
    """
    return cdf**beta


def draws(scores: Tensor, size: float, random: Tensor) -> tuple[Tensor, Tensor]:
    r"""How often each row is drawn, and the weight of a draw, for an unbiased average (importance sampling).

    With :math:`p_i = s_i / \sum_j s_j`, row i is drawn :math:`\lfloor M p_i + u_i \rfloor` times, M p_i in expectation,
    and a draw counts :math:`1 / (N p_i)`: the expected average of the draws is the average over all rows.

    Args:
        scores: (N,) scores >= 0; if all are zero, rows are equally likely.
        size: M, the number of draws in expectation.
        random: (N,) numbers in [0, 1).

    Returns:
        (N,) whole numbers as float64, and (N,) float64, 0 for rows that cannot be drawn.

    Example:
        >>> times, factor = draws(torch.tensor([1.0, 3.0]), 2, torch.tensor([0.4, 0.6]))        # p = 1/4, 3/4
        >>> times, factor
        (tensor([0., 2.], dtype=torch.float64), tensor([2.0000, 0.6667], dtype=torch.float64))
    """
    p = _shares(scores)
    factor = torch.where(p > 0, 1 / (len(p) * p.clamp_min(torch.finfo(torch.float64).tiny)), 0.0)
    return (size * p + random.to(p)).floor(), factor


def variance_reduction(scores: Tensor) -> Tensor:
    r"""tau, the factor by which plain sampling needs a larger batch to be as exact as sampling by scores.

    .. math:: \frac1\tau = \sqrt{1 - \frac{\sum_i (p_i - u)^2}{\sum_i p_i^2}}, \quad u = \frac1N

    which is :math:`\tau = \sqrt{N \sum_i p_i^2}`: 1 for equal scores, :math:`\sqrt N` if one row has all.

    Args:
        scores: (N,) scores of zero and more.

    Example:
        >>> variance_reduction(torch.tensor([1.0, 1.0])).item(), variance_reduction(torch.tensor([0.0, 1.0])).item()
        (1.0, 1.4142135623730951)
    """
    p = _shares(scores)
    return (len(p) * p.square().sum()).sqrt()


def _shares(scores: Tensor) -> Tensor:
    """Scores over their sum; equal where that is zero."""
    scores = scores.double()
    total = scores.sum()
    return torch.where(total > 0, scores / total, torch.full_like(scores, 1 / max(1, len(scores))))
