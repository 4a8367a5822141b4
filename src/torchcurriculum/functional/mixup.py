"""Mixing coefficients: standard mixup (Zhang et al., 2018) and the three readings of M-APW (APW, Appendix A.4)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

__all__ = ["READINGS", "Reading", "beta_sample", "mixing_share", "pair_share"]

Reading = Literal["weights", "labels", "beta"]
READINGS: tuple[Reading, ...] = ("weights", "labels", "beta")


def beta_sample(a: Tensor, b: Tensor, generator: torch.Generator) -> Tensor:
    """Independent draws from Beta(a, b), one for each element, from ``generator`` alone.

    Args:
        a: Positive shapes.
        b: Positive shapes, like ``a``.
        generator: On the device of ``a``.

    Returns:
        Draws in [0, 1], like ``a``.
    """
    # X ~ Gamma(a), Y ~ Gamma(b), X / (X + Y) ~ Beta(a, b). Tiny shapes underflow to 0 / 0: that limit is a coin toss.
    x = torch._standard_gamma(a, generator=generator)
    y = torch._standard_gamma(b, generator=generator)
    coin = torch.rand(a.shape, generator=generator, dtype=a.dtype, device=a.device) < a / (a + b)
    return torch.where(x + y > 0, x / (x + y), coin.to(a.dtype))


def pair_share(weights: Tensor, partners: Tensor) -> Tensor:
    """w_i / (w_i + w_j): the normalised weight of the first sample of each pair, from log-weights.

    Args:
        weights: (B,) log-weights of the samples.
        partners: (B,) log-weights of their partners.

    Returns:
        (B,) shares in [0, 1].

    Example:
        >>> pair_share(torch.tensor([0.0, 1.0]).log(), torch.tensor([1.0, 1.0]).log())
        tensor([0.0000, 0.5000])
    """
    return torch.sigmoid(weights - partners)


def mixing_share(share: Tensor, reading: Reading, alpha: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """lambda for the inputs and lambda for the labels, from c = w_i / (w_i + w_j).

    ``"weights"``: both are c. ``"labels"``: inputs by Beta(alpha, alpha), labels by c.
    ``"beta"``: both are one draw of Beta(2 alpha c, 2 alpha (1 - c)), whose mean is c; plain mixup when c = 1/2.

    Args:
        share: (B,) normalised weights c of the first samples.
        reading: Which of the three.
        alpha: mixup's alpha.
        generator: Source of the draws, on the device of ``share``.

    Returns:
        (B,) shares of the inputs and (B,) shares of the labels.
    """
    if reading == "weights":
        return share, share
    # Gamma draws need positive shapes: a pair whose weights differ by more than 1e-6 is one-sided for all purposes.
    centre = share.clamp(1e-6, 1 - 1e-6) if reading == "beta" else torch.full_like(share, 0.5)
    drawn = beta_sample(2 * alpha * centre, 2 * alpha * (1 - centre), generator)
    return (drawn, drawn) if reading == "beta" else (drawn, share)
