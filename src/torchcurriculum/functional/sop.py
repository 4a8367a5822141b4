"""SOP (Liu et al., 2022): predictions plus a sparse term per row that absorbs wrong labels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["overparametrised_losses"]

CLIP = 1e-4  # the authors' smallest probability


def overparametrised_losses(logits: Tensor, targets: Tensor, u: Tensor, v: Tensor) -> Tensor:
    r"""The loss of each row: cross-entropy of :math:`p + s` and the squared distance of :math:`\hat y + s` to y.

    :math:`s = u^2 \odot y - v^2 \odot (1 - y)` models the error of the label, each square at most 1;
    :math:`\hat y` is the predicted class, one-hot. In the cross-entropy, p + s is kept above 1e-4 and divided by its
    sum, and v has no gradient; in the distance the network has none.

    Args:
        logits: (B, C) outputs; p is the softmax of them.
        targets: (B, C) one-hot labels y.
        u: (B, 1) for the label.
        v: (B, C) for the other classes.

    Returns:
        (B,) losses.

    Example:
        >>> y, zero = torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2)
        >>> overparametrised_losses(torch.tensor([[1.0, 1.0]]), y, zero[:, :1], zero)  # log 2, and the argmax is right
        tensor([0.6931])
        >>> overparametrised_losses(torch.tensor([[1.0, 1.0]]), y, torch.ones(1, 1), zero)       # -log 3/4, and 1
        tensor([1.2877])

    Reference:
        Liu et al., Robust Training under Label Noise by Over-parameterization, ICML 2022.
    """
    for_label = (u**2 * targets).clamp(0, 1)
    for_others = (v**2 * (1 - targets)).clamp(0, 1)
    p = (F.softmax(logits, 1) + for_label - for_others.detach()).clamp_min(CLIP)
    p = F.normalize(p, p=1, dim=1, eps=CLIP).clamp(CLIP, 1)
    predicted = F.one_hot(logits.argmax(1), logits.shape[1]).to(targets.dtype)
    distance = ((predicted + for_label - for_others - targets) ** 2).sum(1)
    return distance - (targets * torch.log(p)).sum(1)
