"""The worst group first: distributionally robust optimisation over groups (Sagawa et al., 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["ascend", "group_means"]


def group_means(losses: Tensor, groups: Tensor, count: int) -> Tensor:
    """(2, G): the sum of the losses of each group in a batch, and its number of rows there.

    Example:
        >>> group_means(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 0, 2]), 3)
        tensor([[3., 0., 4.],
                [2., 0., 1.]], dtype=torch.float64)
    """
    found = torch.zeros(2, count, dtype=torch.float64, device=losses.device)
    return found.index_add_(1, groups, torch.stack([losses.double(), torch.ones_like(losses, dtype=torch.float64)]))


def ascend(log_q: Tensor, losses: Tensor, step_size: float, adjustment: Tensor | float = 0.0) -> Tensor:
    r"""(G,) log q after a step of exponentiated gradient: :math:`q_g \propto q_g e^{\eta (L_g + C/\sqrt{n_g})}`.

    Args:
        log_q: (G,) logarithms of the groups' weights.
        losses: (G,) mean losses of the groups in this batch, 0 for groups without rows in it.
        step_size: eta.
        adjustment: (G,) :math:`C / \sqrt{n_g}`.

    Example:
        >>> ascend(torch.zeros(2), torch.tensor([0.0, 1.0]), 1.0).exp()                         # 1 : e
        tensor([0.2689, 0.7311])
    """
    return torch.log_softmax(log_q + step_size * (losses + adjustment), 0)
