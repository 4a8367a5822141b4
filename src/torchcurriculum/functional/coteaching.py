"""Co-teaching (Han et al., 2018) and JoCoR (Wei et al., 2020): the share of rows to forget, and the joint loss."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["forget_rate", "joint_losses"]


def forget_rate(epoch: int, rate: float, gradual: int) -> float:
    r"""1 - R(T): the share of a batch that is dropped in epoch T, :math:`\tau \min(T / T_k, 1)`.

    Args:
        epoch: T, from 1.
        rate: tau, the final share, that of wrong labels.
        gradual: T_k, the epochs until it is reached.

    Returns:
        The share.

    Example:
        >>> [round(forget_rate(epoch, 0.4, 10), 2) for epoch in (1, 5, 10, 200)]
        [0.04, 0.2, 0.4, 0.4]

    Reference:
        Han et al., Co-teaching: Robust Training of Deep Neural Networks with Extremely Noisy Labels, NeurIPS 2018.
    """
    return rate * min(epoch / gradual, 1.0)


def joint_losses(losses: Tensor, other_losses: Tensor, logits: Tensor, other_logits: Tensor, lam: float) -> Tensor:
    r"""JoCoR's loss of each row: :math:`(1-\lambda)(L_1 + L_2) + \lambda (KL(p_1 \| p_2) + KL(p_2 \| p_1))`.

    Args:
        losses: (B,) supervised losses of one network.
        other_losses: (B,) those of the other.
        logits: (B, C) outputs of one network.
        other_logits: (B, C) those of the other.
        lam: lambda in [0, 1], the weight of agreement.

    Returns:
        (B,) losses.

    Example:
        >>> same = torch.tensor([[1.0, 0.0]])
        >>> joint_losses(torch.tensor([2.0]), torch.tensor([4.0]), same, same, 0.5)    # no disagreement
        tensor([3.])

    Reference:
        Wei et al., Combating Noisy Labels by Agreement: A Joint Training Method with Co-Regularization, CVPR 2020.
    """
    log_p, log_q = torch.log_softmax(logits, 1), torch.log_softmax(other_logits, 1)
    apart = F.kl_div(log_p, log_q, reduction="none", log_target=True)
    apart = apart + F.kl_div(log_q, log_p, reduction="none", log_target=True)
    return (1 - lam) * (losses + other_losses) + lam * apart.sum(1)
