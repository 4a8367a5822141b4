"""SuperLoss (Castells et al., 2020): the confidence of a sample in closed form, and the Lambert W function it needs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["confidence", "lambert_w"]

# 1/e as the sum of two doubles: near the branch point, x + 1/e must not be rounded to the precision of 1/e.
INVERSE_E = 0.36787944117144233
INVERSE_E_REST = -1.2428753672788363e-17
# W(x) = sum_k SERIES[k] p^k with p = sqrt(2 (e x + 1)) (Corless et al., 1996, Eq. 4.22).
SERIES = (
    -1.0,
    1.0,
    -1 / 3,
    11 / 72,
    -43 / 540,
    769 / 17280,
    -221 / 8505,
    680863 / 43545600,
    -1963 / 204120,
    226287557 / 37623398400,
)
NEAR_BRANCH = 0.02  # below this p the series is exact to float64, and Halley's iteration is not
HALLEY_STEPS = 3


def lambert_w(x: Tensor) -> Tensor:
    r"""The principal branch of Lambert's W: the w >= -1 with :math:`w e^w = x`, for x >= -1/e.

    The inside is float64 whatever the precision of ``x``. Near the branch point -1/e a power series is used, elsewhere
    a fixed number of Halley iterations from a start that is right at both ends; nothing waits for the device.

    Args:
        x: Values of any shape; those below -1/e count as -1/e, where W is exactly -1.

    Returns:
        W(x) in float64.

    Example:
        >>> lambert_w(torch.tensor([-1 / math.e, 0.0, math.e], dtype=torch.float64))
        tensor([-1.,  0.,  1.], dtype=torch.float64)

    Reference:
        Corless et al., On the Lambert W Function, Advances in Computational Mathematics 1996.
    """
    x = x.double()
    above = (x + INVERSE_E + INVERSE_E_REST).clamp_min(0)
    p = torch.sqrt(2 * math.e * above)
    series = torch.full_like(p, SERIES[-1])
    for coefficient in reversed(SERIES[:-1]):
        series = series * p + coefficient
    w = _start(x, p)
    for _ in range(HALLEY_STEPS):
        w = _halley(w, x)
    return torch.where(p < NEAR_BRANCH, series, w)


def _start(x: Tensor, p: Tensor) -> Tensor:
    """Three terms of the series below 0, log(1 + x) up to e, two terms of the asymptotic expansion above."""
    log = torch.log(x.clamp_min(math.e))
    large = log - torch.log(log)
    middle = torch.log1p(x.clamp_min(0))
    # Floored because Halley's iteration divides by w + 1; rows near the branch point take the series.
    small = (-1 + p - p * p / 3).clamp_min(-0.99)
    return torch.where(x < 0, small, torch.where(x < math.e, middle, large))


def _halley(w: Tensor, x: Tensor) -> Tensor:
    # f = w - x exp(-w) has the same zero as w exp(w) - x and cannot overflow.
    scaled = x * torch.exp(-w)
    residual = w - scaled
    slope = 1 + scaled
    return w - residual / (slope + residual * scaled / (2 * slope))


def confidence(losses: Tensor, tau: Tensor | float, lam: float) -> Tensor:
    r"""sigma*: the confidence that minimises :math:`(l - \tau)\sigma + \lambda (\log\sigma)^2`, in closed form.

    :math:`\sigma^* = \exp(-W(\tfrac12 \max(-\tfrac2e, \beta)))` with :math:`\beta = (l - \tau) / \lambda`: at most e
    for easy samples, 1 at :math:`l = \tau`, towards 0 for hard ones.

    Args:
        losses: Losses l of any shape.
        tau: The threshold between easy and hard.
        lam: The strength lambda > 0; larger is gentler, and ``math.inf`` gives 1 everywhere.

    Returns:
        Confidences in float64, without a gradient: the regulariser does not depend on the model, so the gradient of
        the paper's loss is sigma* times that of l.

    Example:
        >>> confidence(torch.tensor([0.0, 2.0, 2.0 + 2 * math.e]), tau=2.0, lam=1.0)   # W(-1/e), W(0), W(e): -1, 0, 1
        tensor([2.7183, 1.0000, 0.3679], dtype=torch.float64)
    """
    beta = (losses.detach().double() - tau) / lam
    return torch.exp(-lambert_w(beta.clamp_min(-2 * INVERSE_E) / 2))
