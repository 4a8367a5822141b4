"""Imbalanced classes: weights by the effective number of samples, margins and priors."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

__all__ = ["class_margins", "effective_weights", "log_priors", "margin_loss"]


def effective_weights(counts: Tensor, beta: float) -> Tensor:
    r"""Class weights :math:`\propto (1 - \beta) / (1 - \beta^{n_c})`, the inverse effective numbers; their mean is one.

    Args:
        counts: (C,) rows of each class, at least 1.
        beta: In [0, 1); 0 gives equal weights, towards 1 they become the inverse counts.

    Returns:
        (C,) float64 weights.

    Example:
        >>> effective_weights(torch.tensor([1, 2]), 0.5)                 # 1 and 2/3, over their mean
        tensor([1.2000, 0.8000], dtype=torch.float64)

    Reference:
        Cui et al., Class-Balanced Loss Based on Effective Number of Samples, CVPR 2019.
    """
    weights = (1 - beta) / (1 - beta ** counts.double())
    return weights / weights.mean()


def class_margins(counts: Tensor, largest: float) -> Tensor:
    r"""Margins :math:`\Delta_c \propto n_c^{-1/4}` of LDAM, scaled so that the rarest class has the ``largest``.

    Args:
        counts: (C,) rows of each class, at least 1.
        largest: The margin of the rarest class.

    Returns:
        (C,) float64 margins.

    Example:
        >>> class_margins(torch.tensor([16, 1]), 0.5)
        tensor([0.2500, 0.5000], dtype=torch.float64)

    Reference:
        Cao et al., Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss, NeurIPS 2019.
    """
    margins = counts.double() ** -0.25
    return margins * (largest / margins.max())


def margin_loss(logits: Tensor, labels: Tensor, margins: Tensor, scale: float) -> Tensor:
    r"""Cross-entropy of :math:`s (z - \Delta_y e_y)`: the label's own logit must win by a margin.

    Args:
        logits: (B, C) outputs z.
        labels: (B,) labels y.
        margins: (C,) Delta.
        scale: s > 0.

    Returns:
        (B,) losses.

    Example:
        >>> margin_loss(torch.tensor([[0.5, 0.0]]), torch.tensor([0]), torch.tensor([0.5, 0.1]), 1.0)    # level: log 2
        tensor([0.6931])
    """
    taken = F.one_hot(labels, logits.shape[1]) * margins.to(logits)
    return F.cross_entropy(scale * (logits - taken), labels, reduction="none")


def log_priors(counts: Tensor) -> Tensor:
    r"""The logarithm of each class's share, which logit adjustment adds to the logits.

    Args:
        counts: (C,) rows of each class, at least 1.

    Returns:
        (C,) float64.

    Example:
        >>> log_priors(torch.tensor([3, 1])).exp()
        tensor([0.7500, 0.2500], dtype=torch.float64)

    Reference:
        Menon et al., Long-Tail Learning via Logit Adjustment, ICLR 2021.
    """
    return (counts.double() / counts.sum()).log()
