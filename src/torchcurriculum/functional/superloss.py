"""SuperLoss (Castells et al., 2020): the confidence of a sample in closed form, and the Lambert W function it needs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["confidence", "lambert_w", "log_confidence"]

# 1/e as the sum of two doubles: near the branch point, x + 1/e must not be rounded to the precision of 1/e.
INVERSE_E = 0.36787944117144233
INVERSE_E_REST = -1.2428753672788363e-17
CELLS = 1 << 14  # of the table: its cubic pieces are exact to float64
LARGEST = math.log1p(math.log1p(1e153))  # end of the table; larger values are clipped
_TABLES: dict[torch.device, Tensor] = {}


def lambert_w(x: Tensor) -> Tensor:
    r"""The principal branch of Lambert's W: the w >= -1 with :math:`w e^w = x`, for x >= -1/e.

    Exact to float64 for any precision of ``x``, by cubic interpolation in a table, which needs a third of the
    operations of an iteration. Does not synchronise with the device.

    Args:
        x: Values of any shape; those below -1/e count as -1/e, where W is exactly -1.

    Returns:
        W(x) in float64.

    Example:
        >>> lambert_w(torch.tensor([-1 / math.e, 0.0, math.e], dtype=torch.float64)).round(decimals=12) + 0
        tensor([-1.,  0.,  1.], dtype=torch.float64)

    Reference:
        Corless et al., On the Lambert W Function, Advances in Computational Mathematics 1996.
    """
    above = x.double().add(INVERSE_E).add_(INVERSE_E_REST).clamp_min_(0)
    # W is smooth in p = sqrt(2 (e x + 1)), also at the branch point, and the logarithms make equal steps small enough.
    place = above.mul_(2 * math.e).sqrt_().log1p_().log1p_().mul_(CELLS / LARGEST).clamp_max_(CELLS)
    cell = place.long().clamp_(0, CELLS - 1)  # NaN stays NaN
    constant, first, second, third = _table(place.device)[:, cell]
    inside = place.sub_(cell)
    return third.mul(inside).add_(second).mul_(inside).add_(first).mul_(inside).add_(constant)


def _table(device: torch.device) -> Tensor:
    """(4, CELLS) coefficients of the cubic in each cell, made once for each device."""
    if device not in _TABLES:
        _TABLES[device] = _coefficients().to(device)
    return _TABLES[device]


def _coefficients() -> Tensor:
    """(4, CELLS) from W and its slope at the two ends of each cell."""
    place = torch.arange(CELLS + 1, dtype=torch.float64) * (LARGEST / CELLS)
    p = place.expm1().expm1()
    w = _values(p)
    # dW/dp = p exp(-1 - W) / (1 + W), which is 1 at the branch point; then the two logarithms.
    slope = torch.where(p > 0, p * torch.exp(-1 - w) / (1 + w), 1.0)
    slope *= (LARGEST / CELLS) * place.exp() * (1 + p)
    rise = w.diff()
    second, third = 3 * rise - 2 * slope[:-1] - slope[1:], slope[:-1] + slope[1:] - 2 * rise
    return torch.stack([w[:-1], slope[:-1], second, third])


def _values(p: Tensor) -> Tensor:
    """W at x = (p^2 / 2 - 1) / e.

    Up to p = 2, Newton's iteration for u = W + 1 in u exp(u) - expm1(u) = p^2 / 2, which is exact also at the branch
    point; above, in w + log(w) = log(x).
    """
    near, far = p.clamp_max(2), p.clamp_min(2)
    u = near - near * near / 3 + 11 / 72 * near**3
    log_x = torch.log(far * far / 2 - 1) - 1
    w = torch.log1p(log_x.exp().clamp_max(math.e)) + (log_x - 1).clamp_min(0)
    for _ in range(8):
        slope = (u * u.exp()).clamp_min(1e-300)
        u = u - (u * u.exp() - u.expm1() - near * near / 2) / slope
        w = w * (1 + log_x - w.log()) / (1 + w)
    return torch.where(p <= 2, u - 1, w)


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
    return log_confidence(losses, tau, lam).exp_()


def log_confidence(losses: Tensor, tau: Tensor | float, lam: float) -> Tensor:
    """The logarithm of ``confidence``, which is -W."""
    half = (losses.detach().double() - tau).div_(2 * lam).clamp_min_(-INVERSE_E)
    return lambert_w(half).neg_()
