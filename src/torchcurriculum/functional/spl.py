"""Self-paced learning: the closed-form weights of its regularisers, and the penalties of SPLD and SPCL."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from .pacing import rank_within

__all__ = ["Scheme", "curriculum_penalty", "diversity_bonus", "self_paced_weights", "spread"]

Scheme = Literal["hard", "linear", "logarithmic", "mixture", "root-mixture", "polynomial"]
LOGARITHMIC_CAP = 0.9


def self_paced_weights(
    losses: Tensor, threshold: Tensor | float, scheme: Scheme = "hard", power: float = 3.0, ratio: float = 0.5
) -> Tensor:
    r"""v*, the weights that minimise :math:`\sum_i v_i L_i + f(v; \lambda)` over [0, 1], for each regulariser f.

    With x = L / lambda, and zero wherever x >= 1 (``"hard"`` keeps x = 1, so that a quantile of the losses keeps
    exactly that share):

    - ``"hard"``: 1.
    - ``"linear"``: 1 - x.
    - ``"logarithmic"``: log(L + zeta) / log(zeta), zeta = 1 - lambda. Its paper needs 0 < lambda < 1; above 0.9 losses
      are measured in the unit that brings lambda to 0.9, so no logarithm is ever taken of a number below 0.1.
    - ``"mixture"``: min(1, zeta / L - zeta / lambda) with zeta = lambda lambda_2 / (lambda - lambda_2),
      lambda_2 = ``ratio`` lambda: full weight up to lambda_2.
    - ``"root-mixture"``: min(1, gamma (1 / sqrt(L) - 1 / sqrt(lambda))), gamma such that the weight is full up to
      ``ratio`` lambda.
    - ``"polynomial"``: (1 - x)^(1 / (t - 1)) with t = ``power``; t = 2 is linear, t -> infinity is hard.

    Args:
        losses: Non-negative losses of any shape; NaN gets no weight.
        threshold: The age parameter lambda >= 0; infinity gives full weight to all.
        scheme: The regulariser.
        power: t > 1 of ``"polynomial"``.
        ratio: In (0, 1), for the two mixtures.

    Returns:
        Weights in [0, 1], like ``losses``.

    Example:
        >>> losses = torch.tensor([0.0, 0.5, 1.0, 2.0, 9.0])
        >>> self_paced_weights(losses, 2.0, "linear")
        tensor([1.0000, 0.7500, 0.5000, 0.0000, 0.0000])
        >>> self_paced_weights(losses, 2.0, "polynomial")        # square roots of the linear ones
        tensor([1.0000, 0.8660, 0.7071, 0.0000, 0.0000])
        >>> self_paced_weights(losses, 2.0, "logarithmic")       # log(0.325) / log(0.1), ...
        tensor([1.0000, 0.4881, 0.2596, 0.0000, 0.0000])

    Reference:
        Kumar et al., Self-Paced Learning for Latent Variable Models, NeurIPS 2010 (hard).
        Jiang et al., Easy Samples First, ACM MM 2014 (linear, logarithmic, mixture).
        Zhao et al., Self-Paced Learning for Matrix Factorization, AAAI 2015 (root-mixture).
        Gong et al., Decomposition-Based Evolutionary Multiobjective Optimization to Self-Paced Learning, IEEE TEVC
        2018 (polynomial).
    """
    refuse_bad_scheme(scheme, power, ratio)
    age = torch.as_tensor(threshold).to(losses).clamp_min(torch.finfo(losses.dtype).tiny)
    x = (losses / age).nan_to_num(nan=2.0)
    if scheme == "hard":
        return (x <= 1).to(losses.dtype)
    inside = (1 - x).clamp_min(0)
    if scheme == "linear":
        return inside
    if scheme == "polynomial":
        return inside ** (1 / (power - 1))
    if scheme == "logarithmic":
        scale = age.clamp(1e-6, LOGARITHMIC_CAP)
        return torch.log1p(-scale * inside) / torch.log1p(-scale)
    exponent = 1.0 if scheme == "mixture" else 0.5
    return ((x**-exponent - 1) / (ratio**-exponent - 1)).clamp(0, 1)


def refuse_bad_scheme(scheme: str, power: float, ratio: float) -> None:
    """Refuses knobs that ``self_paced_weights`` cannot use."""
    if scheme not in get_args(Scheme):
        raise ValueError(f"scheme must be one of {', '.join(map(repr, get_args(Scheme)))}, got {scheme!r}")
    if not power > 1:
        raise ValueError(f"the polynomial regulariser needs power > 1, got {power!r}; 2 is linear")
    if not 0 < ratio < 1:
        raise ValueError(f"ratio must lie between 0 and 1, got {ratio!r}")


def diversity_bonus(losses: Tensor, groups: Tensor, gamma: Tensor | float) -> Tensor:
    r"""What SPLD subtracts from each loss: :math:`\gamma / (\sqrt i + \sqrt{i-1})` for the i-th easiest row of its
    group.

    A row is selected if :math:`L < \lambda + \gamma / (\sqrt i + \sqrt{i-1})` (Algorithm 1 of the paper), so the first
    rows of every group enter early, and each further one gains less.

    Args:
        losses: (N,) losses.
        groups: (N,) int64 group numbers.
        gamma: Strength of the diversity term, in units of the loss.

    Returns:
        (N,) bonuses, like ``losses``.

    Example:
        >>> diversity_bonus(torch.tensor([0.1, 0.2, 0.9]), torch.tensor([0, 0, 1]), 1.0)   # 1, 1 / (sqrt 2 + 1), 1
        tensor([1.0000, 0.4142, 1.0000])

    Reference:
        Jiang et al., Self-Paced Learning with Diversity, NeurIPS 2014.
    """
    place = rank_within(losses, groups)[0].to(losses.dtype)
    return gamma / ((place + 1).sqrt() + place.sqrt())


def curriculum_penalty(ranks: Tensor, mu: Tensor | float) -> Tensor:
    r"""What SPCL adds to each loss for its rank in a given curriculum: :math:`\mu a_i`, a_i in [0, 1].

    SPCL restricts the weights to a curriculum region :math:`a^\top v \le c` with a growing along the given order.
    With the constraint's multiplier mu, the solution is the self-paced weight of :math:`L_i + \mu a_i`; mu replaces c;
    a larger mu trusts the given order more.

    Args:
        ranks: (N,) ranks in the given order, from 0.
        mu: The multiplier, in units of the loss.

    Returns:
        (N,) float64 penalties.

    Example:
        >>> curriculum_penalty(torch.tensor([2, 0, 1]), 1.0)
        tensor([1.0000, 0.0000, 0.5000], dtype=torch.float64)

    Reference:
        Jiang et al., Self-Paced Curriculum Learning, AAAI 2015.
    """
    return mu * ranks.double() / max(1, len(ranks) - 1)


def spread(losses: Tensor) -> Tensor:
    """The standard deviation of the finite losses: the unit in which SPLD's gamma and SPCL's mu are given.

    Args:
        losses: (N,) losses, +inf for rows never seen.

    Returns:
        A scalar; 0 if fewer than two losses are finite.

    Example:
        >>> spread(torch.tensor([1.0, 3.0, torch.inf]))
        tensor(1.)
    """
    known = losses[losses.isfinite()]
    return known.std(correction=0) if len(known) > 1 else losses.new_zeros(())
