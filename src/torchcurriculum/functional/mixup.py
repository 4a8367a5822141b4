"""Mixing: mixup (Zhang et al., 2018), CutMix (Yun et al., 2019) and the three readings of M-APW (Appendix A.4)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

__all__ = ["READINGS", "Reading", "beta_sample", "box_masks", "mixing_share", "pair_share"]

Reading = Literal["weights", "labels", "beta"]
READINGS: tuple[Reading, ...] = ("weights", "labels", "beta")


def beta_sample(a: Tensor, b: Tensor, generator: torch.Generator) -> Tensor:
    """Independent draws from Beta(a, b), one per element, from ``generator``.

    Args:
        a: Positive shapes.
        b: Positive shapes, like ``a``.
        generator: On the device of ``a``.

    Returns:
        Draws in [0, 1], like ``a``.
    """
    # X ~ Gamma(a), Y ~ Gamma(b), X / (X + Y) ~ Beta(a, b). Tiny shapes underflow to 0 / 0, whose limit is a coin toss.
    x = torch._standard_gamma(a, generator=generator)
    y = torch._standard_gamma(b, generator=generator)
    coin = torch.rand(a.shape, generator=generator, dtype=a.dtype, device=a.device) < a / (a + b)
    return torch.where(x + y > 0, x / (x + y), coin.to(a.dtype))


def box_masks(share: Tensor, centre: Tensor, height: int, width: int) -> Tensor:
    r"""Boxes of the share 1 - lambda of an image, clipped at its edges (CutMix).

    A box has the sides :math:`\lfloor H \sqrt{1-\lambda} \rfloor` and :math:`\lfloor W \sqrt{1-\lambda} \rfloor`; half
    of each, rounded down, lies on either side of the centre, as in the authors' code.

    Args:
        share: (B,) lambda, the share of the image that is to stay.
        centre: (B, 2) int64 row and column of the centre.
        height: H.
        width: W.

    Returns:
        (B, H, W) bool, true inside the box.

    Example:
        >>> box_masks(torch.tensor([0.75]), torch.tensor([[0, 2]]), 4, 4)[0].int()   # 2 x 2 around (0, 2)
        tensor([[0, 1, 1, 0],
                [0, 0, 0, 0],
                [0, 0, 0, 0],
                [0, 0, 0, 0]], dtype=torch.int32)
    """
    root = (1 - share).clamp_min(0).sqrt()
    sides = []
    for place, size in enumerate((height, width)):
        half = (size * root).floor().long() // 2
        at, cells = centre[:, place, None], torch.arange(size, device=share.device)
        sides.append((cells >= at - half[:, None]) & (cells < at + half[:, None]))
    return sides[0][:, :, None] & sides[1][:, None, :]


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
        reading: One of the three.
        alpha: mixup's alpha.
        generator: Source of the draws, on the device of ``share``.

    Returns:
        (B,) shares of the inputs and (B,) shares of the labels.
    """
    if reading == "weights":
        return share, share
    # Gamma draws need positive shapes: a pair whose share is below 1e-6 is one-sided in practice.
    centre = share.clamp(1e-6, 1 - 1e-6) if reading == "beta" else torch.full_like(share, 0.5)
    drawn = beta_sample(2 * alpha * centre, 2 * alpha * (1 - centre), generator)
    return (drawn, drawn) if reading == "beta" else (drawn, share)
