"""Dynamic instance hardness: a running average of each sample's hardness, and probabilities from it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .mixup import beta_sample

__all__ = ["beta_probabilities", "exp_probabilities", "hardness_probabilities", "ucb_probabilities", "update_hardness"]

FLOOR = 1e-6
EXPLORATION = 1e-3  # of UCB, in the authors' code


def update_hardness(hardness: Tensor, instant: Tensor, gamma: float) -> Tensor:
    r"""r_{t+1}(i), Eq. 1: :math:`\gamma a_t(i) + (1-\gamma) r_t(i)`; the first value of a sample is used unchanged.

    Args:
        hardness: (B,) r_t, +inf where unknown.
        instant: (B,) instantaneous hardness a_t, +inf where unknown.
        gamma: In (0, 1], the weight of the new value.

    Returns:
        (B,) r_{t+1}.

    Example:
        >>> update_hardness(torch.tensor([2.0, torch.inf]), torch.tensor([1.0, 1.0]), 0.9)
        tensor([1.1000, 1.0000])
    """
    return torch.where(hardness.isinf(), instant, gamma * instant + (1 - gamma) * hardness)


def hardness_probabilities(hardness: Tensor) -> Tensor:
    """p_{t,i} proportional to r(i) (DIHCL-Rand), float64, summing to one.

    The paper does not cover three cases. Rows of unknown hardness count as the hardest known; negative hardness (a loss
    below zero) is shifted to zero; no row has less than a millionth of the hardest row's probability, so that a draw
    of many rows never runs out of them.

    Args:
        hardness: (N,) r, +inf where unknown.

    Returns:
        (N,) probabilities.

    Example:
        >>> hardness_probabilities(torch.tensor([1.0, 3.0]))
        tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    hardness = hardness.double()
    known = hardness.isfinite()
    lowest = torch.where(known, hardness, 0.0).min().clamp_max(0)
    shifted = torch.where(known, hardness - lowest, 0.0)
    top = shifted.max()
    shifted = torch.where(known, shifted, top).clamp_min(FLOOR * top)
    raw = torch.where(top > 0, shifted, torch.ones_like(shifted))
    return raw / raw.sum()


def exp_probabilities(hardness: Tensor) -> Tensor:
    r"""p_{t,i} proportional to :math:`\exp(\sqrt{2 \log n / n}\, r(i))` (DIHCL-Exp), float64, summing to one.

    Rows of unknown hardness count as the hardest known. No row has less than 1e-300, so that a draw of many rows never
    runs out of them.

    Args:
        hardness: (N,) r, +inf where unknown.

    Returns:
        (N,) probabilities.

    Example:
        >>> exp_probabilities(torch.tensor([0.0, 1.0]))                # e^0 : e^sqrt(log 2)
        tensor([0.3031, 0.6969], dtype=torch.float64)
    """
    hardness = hardness.double()
    known, n = hardness.isfinite(), len(hardness)
    top = torch.where(known, hardness, -math.inf).max()
    scores = torch.where(known, hardness - top, 0.0).nan_to_num(0.0) * math.sqrt(2 * math.log(max(n, 1)) / max(n, 1))
    return scores.clamp_min(-600.0).softmax(0)


def beta_probabilities(hardness: Tensor, generator: torch.Generator) -> Tensor:
    r"""p_{t,i} proportional to a draw of Beta(r(i), 1 - r(i)) (DIHCL-Beta with c = 1), float64, summing to one.

    The mean of a draw is r(i). Rows of unknown hardness draw from Beta(1/2, 1/2). Shapes of at least 1e-6 keep a small
    chance for a row that never flipped.

    Args:
        hardness: (N,) r in [0, 1], a running average of flips; +inf where unknown.
        generator: Source of the draws, on the device of ``hardness``.

    Returns:
        (N,) probabilities.

    Example:
        >>> beta_probabilities(torch.tensor([0.0, 1.0]), torch.Generator().manual_seed(0)).round(decimals=4)
        tensor([0., 1.], dtype=torch.float64)
    """
    known = torch.where(hardness.isfinite(), hardness.double(), 0.5).clamp(FLOOR, 1 - FLOOR)
    return hardness_probabilities(beta_sample(known, 1 - known, generator))


def ucb_probabilities(hardness: Tensor, visits: Tensor, horizon: int, sharpness: float = 20.0) -> Tensor:
    r"""The UCB of the authors' code: :math:`p_i \propto \exp(s\, u_i / \bar u)`, float64, summing to one.

    :math:`u_i = r(i) + 10^{-3}\, \bar r \sqrt{2 \log T} / \sqrt{v_i}`, bars are means over the rows.

    Args:
        hardness: (N,) r, +inf where unknown: such a row counts as the hardest known.
        visits: (N,) how often each row was trained on; none counts as once.
        horizon: T, the epochs of the run.
        sharpness: s, an inverse temperature; the authors' 20 at first, 0.8 times that in each episode, at least 1.

    Returns:
        (N,) probabilities.

    Example:
        >>> ucb_probabilities(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 4.0]), horizon=100, sharpness=1.0)
        tensor([0.2697, 0.7303], dtype=torch.float64)
    """
    hardness = hardness.double()
    known = hardness.isfinite()
    top = torch.where(known, hardness, -math.inf).max()
    filled = torch.where(known, hardness, top if known.any() else torch.ones_like(top))
    bound = EXPLORATION * filled.mean() * math.sqrt(2 * math.log(horizon)) / visits.double().clamp_min(1).sqrt()
    raised = filled + bound
    mean = raised.mean()
    scores = sharpness * raised / torch.where(mean == 0, 1.0, mean)
    return (scores - scores.max()).clamp_min(-600.0).softmax(0)
