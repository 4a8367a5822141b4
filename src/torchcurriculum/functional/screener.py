"""ScreenerNet (Kim and Choi, 2018): the objective of the net that weights samples."""

from __future__ import annotations

from torch import Tensor

__all__ = ["screener_objective"]


def screener_objective(weights: Tensor, losses: Tensor, margin: float) -> Tensor:
    r"""The screener's objective of each sample: :math:`(1 - w)^2 L + w^2 \max(M - L, 0)`.

    Its best weight is :math:`L / (L + \max(M - L, 0))`: 1 for losses above the margin M, L / M below.

    Args:
        weights: (B,) weights w in [0, 1].
        losses: (B,) losses L >= 0 of the model, without gradients.
        margin: M > 0.

    Returns:
        (B,) objectives.

    Example:
        >>> import torch
        >>> screener_objective(torch.tensor([0.5, 0.25]), torch.tensor([2.0, 0.25]), margin=1.0)   # 2/4; 9/64 + 3/64
        tensor([0.5000, 0.1875])
    """
    return (1 - weights) ** 2 * losses + weights**2 * (margin - losses).clamp_min(0)
