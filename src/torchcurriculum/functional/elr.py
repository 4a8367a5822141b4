"""Early-learning regularisation (Liu et al., 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["early_learning_penalty", "early_learning_target"]

CLIP = 1e-4  # the authors' code keeps probabilities this far from 0 and 1


def early_learning_target(logits: Tensor) -> Tensor:
    r"""The input of the running target t: probabilities, clipped away from 0 and 1 and renormalised.

    Args:
        logits: (B, C) outputs.

    Returns:
        (B, C) probabilities.

    Example:
        >>> early_learning_target(torch.tensor([[0.0, 100.0]]))
        tensor([[1.0000e-04, 9.9990e-01]])
    """
    p = torch.softmax(logits, 1).clamp(CLIP, 1 - CLIP)
    return p / p.sum(1, keepdim=True)


def early_learning_penalty(logits: Tensor, targets: Tensor) -> Tensor:
    r"""The regulariser :math:`\log(1 - \langle p, t \rangle)` of each row.

    It falls as the prediction p approaches the target t, bounded only by the clipping.

    Args:
        logits: (B, C) outputs.
        targets: (B, C) running means of earlier predictions.

    Returns:
        (B,) penalties, below zero.

    Example:
        >>> early_learning_penalty(torch.zeros(1, 2), torch.tensor([[0.3, 0.7]]))      # log(1 - 1/2)
        tensor([-0.6931])

    Reference:
        Liu et al., Early-Learning Regularization Prevents Memorization of Noisy Labels, NeurIPS 2020.
    """
    p = torch.softmax(logits, 1).clamp(CLIP, 1 - CLIP)
    return torch.log1p(-(targets * p).sum(1))
