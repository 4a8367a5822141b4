"""Per-sample losses that are robust to wrong labels: the equations, for logits (B, C) and targets (B, C)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "bootstrapped_cross_entropy",
    "estimate_transition",
    "focal_loss",
    "forward_corrected",
    "generalised_cross_entropy",
    "symmetric_cross_entropy",
]

CLIP = 1e-7  # least probability, from the authors of symmetric cross-entropy and of the forward correction


def generalised_cross_entropy(logits: Tensor, targets: Tensor, q: float) -> Tensor:
    r"""L_q: :math:`\sum_c y_c (1 - p_c^q) / q`, between cross-entropy (q -> 0) and the mean absolute error (q = 1).

    Args:
        logits: (B, C) outputs.
        targets: (B, C) labels as probabilities y.
        q: In (0, 1].

    Returns:
        (B,) losses.

    Example:
        >>> y = torch.tensor([[1.0, 0.0]])
        >>> generalised_cross_entropy(torch.zeros(1, 2), y, 0.5)         # 2 (1 - sqrt(1/2))
        tensor([0.5858])

    Reference:
        Zhang and Sabuncu, Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy Labels, NeurIPS
        2018.
    """
    return (targets * -torch.expm1(q * F.log_softmax(logits, 1))).sum(1) / q


def symmetric_cross_entropy(logits: Tensor, targets: Tensor, alpha: float, beta: float, floor: float = 1e-4) -> Tensor:
    r""":math:`\alpha H(y, p) + \beta H(p, y)`: cross-entropy and the reverse one, whose log 0 is log ``floor``.

    Args:
        logits: (B, C) outputs.
        targets: (B, C) labels as probabilities y.
        alpha: Weight of the cross-entropy.
        beta: Weight of the reverse cross-entropy.
        floor: The value that replaces a zero of y. The authors' code has 1e-4; the A = -4 of the paper is exp(-4).

    Returns:
        (B,) losses.

    Example:
        >>> y = torch.tensor([[1.0, 0.0]])
        >>> symmetric_cross_entropy(torch.zeros(1, 2), y, 1.0, 0.0)      # log 2
        tensor([0.6931])
        >>> symmetric_cross_entropy(torch.zeros(1, 2), y, 0.0, 1.0)      # half of log 1e4
        tensor([4.6052])

    Reference:
        Wang et al., Symmetric Cross Entropy for Robust Learning with Noisy Labels, ICCV 2019.
    """
    reverse = -(F.softmax(logits, 1).clamp(CLIP, 1) * targets.clamp(floor, 1).log()).sum(1)
    return alpha * F.cross_entropy(logits, targets, reduction="none") + beta * reverse


def bootstrapped_cross_entropy(logits: Tensor, targets: Tensor, beta: float, hard: bool) -> Tensor:
    r""":math:`-\sum_c (\beta y_c + (1-\beta) z_c) \log p_c`, z the prediction p itself or, if ``hard``, its argmax.

    Args:
        logits: (B, C) outputs.
        targets: (B, C) labels as probabilities y.
        beta: Trust in the labels, in [0, 1]; 1 is cross-entropy.
        hard: Whether z is only the most probable class. The soft z has a gradient.

    Returns:
        (B,) losses.

    Example:
        >>> logits, y = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
        >>> bootstrapped_cross_entropy(logits, y, 0.8, hard=True)        # 0.8 log(1 + e) + 0.2 log(1 + 1/e)
        tensor([1.1133])

    Reference:
        Reed et al., Training Deep Neural Networks on Noisy Labels with Bootstrapping, 2014.
    """
    log_p = F.log_softmax(logits, 1)
    own = F.one_hot(log_p.argmax(1), log_p.shape[1]).to(log_p.dtype) if hard else log_p.exp()
    return -((beta * targets + (1 - beta) * own) * log_p).sum(1)


def focal_loss(logits: Tensor, targets: Tensor, gamma: float) -> Tensor:
    r""":math:`-\sum_c y_c (1 - p_c)^\gamma \log p_c`: confident samples count less.

    Args:
        logits: (B, C) outputs.
        targets: (B, C) labels as probabilities y.
        gamma: >= 0; 0 is cross-entropy.

    Returns:
        (B,) losses.

    Example:
        >>> focal_loss(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]), 2.0)             # log 2 / 4
        tensor([0.1733])

    Reference:
        Lin et al., Focal Loss for Dense Object Detection, ICCV 2017.
    """
    log_p = F.log_softmax(logits, 1)
    unsure = -torch.expm1(log_p)
    # At p = 1 the slope of a power below one is infinite.
    return -(targets * unsure.clamp_min(torch.finfo(unsure.dtype).eps) ** gamma * log_p).sum(1)


def forward_corrected(logits: Tensor, targets: Tensor, transition: Tensor) -> Tensor:
    r"""Cross-entropy with the corrupted predictions: :math:`-\sum_c y_c \log (p T)_c`.

    Args:
        logits: (B, C) outputs; p is the softmax of them, the probabilities of the true classes.
        targets: (B, C) given labels as probabilities y.
        transition: (C, C) T, the probability that a row of class i is given label j.

    Returns:
        (B,) losses.

    Example:
        >>> T = torch.tensor([[0.8, 0.2], [0.0, 1.0]])
        >>> forward_corrected(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]), T)        # -log 0.4
        tensor([0.9163])

    Reference:
        Patrini et al., Making Deep Neural Networks Robust to Label Noise: A Loss Correction Approach, CVPR 2017.
    """
    p = F.softmax(logits, 1).clamp(CLIP, 1 - CLIP)
    return -(targets * (p @ transition.to(p)).log()).sum(1)


def estimate_transition(probabilities: Tensor, quantile: float = 1.0) -> Tensor:
    r"""T from a network fitted to the given labels: row i is its prediction for an anchor of class i.

    The anchor of class i is the row with the highest predicted probability of i. With many classes this is an outlier;
    ``quantile`` < 1 then skips rows at and above this quantile.

    Args:
        probabilities: (N, C) predicted probabilities, ideally of held-out rows, by a network that has not memorised its
            labels.
        quantile: In (0, 1]; the authors take 0.97 for CIFAR-100.

    Returns:
        (C, C) T, whose rows sum to one.

    Example:
        >>> estimate_transition(torch.tensor([[0.75, 0.25], [0.5, 0.5], [0.125, 0.875]]))
        tensor([[0.7500, 0.2500],
                [0.1250, 0.8750]])
    """
    if not isinstance(probabilities, Tensor) or probabilities.ndim != 2 or not probabilities.is_floating_point():
        shape = tuple(probabilities.shape) if isinstance(probabilities, Tensor) else type(probabilities).__name__
        raise ValueError(f"probabilities must be a tensor (N, C) of floating-point numbers, got {shape}")
    sums = probabilities.sum(1)
    if not bool((probabilities >= 0).all()) or not bool((sums - 1).abs().max() < 1e-3):
        raise ValueError("probabilities must be >= 0 and sum to one in each row; pass model(x).softmax(1)")
    if not 0 < quantile <= 1:
        raise ValueError(f"quantile must be a number in (0, 1], got {quantile!r}")
    known = probabilities
    if quantile < 1:
        bound = torch.quantile(probabilities.double(), quantile, 0, interpolation="higher").to(probabilities)
        known = torch.where(probabilities < bound, probabilities, 0.0)
    found = probabilities[known.argmax(0)]
    return found / found.sum(1, keepdim=True)
