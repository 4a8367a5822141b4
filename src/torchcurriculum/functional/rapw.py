"""RAPW's equations: what a memory of predictions and the given labels say together about the right ones."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["believed", "channel", "remember", "right_odds", "sharpen", "trust"]

SMALLEST_LOSS = 1e-6  # a probability of 1 would have infinite odds
LARGEST_LOSS = 50.0
RAREST = 0.2  # a class counts as at least this share of an even one, so that an empty one does not win everything
PRIOR_ROWS = 10.0  # of a channel that errs alike in all classes, for classes with few rows
KNOWING = 0.2  # two classes, 40 % of the labels wrong: what a perfect network agrees with beyond guessing


def remember(memory: Tensor, predictions: Tensor, seen: Tensor, decay: float) -> Tensor:
    """The mean of a row's predictions, from some time on an exponential one.

    Args:
        memory: (B, C) remembered predictions.
        predictions: (B, C) probabilities now.
        seen: (B,) how many predictions are remembered; a first one is taken as it is.
        decay: The largest share of the old memory, in [0, 1).

    Example:
        >>> old, new = torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0]])
        >>> remember(old, new, torch.tensor([1.0]), 0.8), remember(old, new, torch.tensor([9.0]), 0.8)
        (tensor([[0.7500, 0.2500]]), tensor([[0.6000, 0.4000]]))
    """
    keep = (seen / (seen + 1)).clamp_max(decay)[:, None].to(predictions.dtype)
    return keep * memory + (1 - keep) * predictions


def sharpen(memory: Tensor, means: Tensor, power: float) -> Tensor:
    """(B, C) the memory to a power, divided by each class's mean, so that no class gains by being common.

    Args:
        memory: (B, C) remembered predictions.
        means: (C,) their mean over all rows.
        power: At least 1; a network that was trained on wrong labels is less sure than it may be.

    Example:
        >>> sharpen(torch.tensor([[0.8, 0.2]]), torch.tensor([0.5, 0.5]), 2.0)      # 64 : 4
        tensor([[0.9412, 0.0588]])
    """
    sharp = memory**power / means.clamp_min(RAREST / memory.shape[1])
    return sharp / sharp.sum(1, keepdim=True).clamp_min(1e-30)


def channel(counts: Tensor) -> Tensor:
    """(C, C) the probability of label j for a row of class k.

    Args:
        counts: (C, C) sums, over the rows with label j, of their sharpened memory of class k.

    Example:
        >>> channel(torch.tensor([[60.0, 40.0], [0.0, 0.0]]))      # no row of the second class: the prior alone
        tensor([[0.6000, 0.4000],
                [0.4000, 0.6000]])
    """
    classes = counts.shape[0]
    right = counts.diagonal().sum() / counts.sum().clamp_min(1e-30)
    prior = ((1 - right) / (classes - 1)).expand(classes, classes).clone()
    prior.diagonal().copy_(right.expand(classes))
    return (counts + PRIOR_ROWS * prior) / (counts.sum(1, keepdim=True) + PRIOR_ROWS)


def believed(sharp: Tensor, labels: Tensor, table: Tensor, trust: Tensor | float = 1.0) -> Tensor:
    """(B, C) the probability of each class given the memory and the label, by Bayes' rule.

    Args:
        sharp: (B, C) sharpened memories.
        labels: (B,) given labels.
        table: (C, C) the channel from classes to labels.
        trust: How far the memory is believed, in [0, 1]; 0 is the given label.

    Example:
        >>> table = torch.tensor([[0.6, 0.4], [0.4, 0.6]])
        >>> believed(torch.tensor([[0.9, 0.1]]), torch.tensor([1]), table)          # 0.9 * 0.4 : 0.1 * 0.6
        tensor([[0.8571, 0.1429]])
    """
    joint = sharp * table.T[labels]
    joint = joint / joint.sum(1, keepdim=True).clamp_min(1e-30)
    given = torch.zeros_like(joint).scatter_(1, labels[:, None], 1.0)
    return joint * trust + given * (1 - trust)


def trust(right: Tensor, classes: int) -> Tensor:
    """How far a memory may be believed, in [0, 1]: 0 if it is no better than guessing, 1 if it is by one fifth.

    Args:
        right: The mean probability that the sharpened memories give the labels.
        classes: C, at least 2.

    Example:
        >>> trust(torch.tensor(0.55), 2), trust(torch.tensor(0.4), 2)
        (tensor(0.5000), tensor(0.))
    """
    return ((right - 1 / classes) / (1 - 1 / classes) / KNOWING).clamp(0, 1)


def right_odds(losses: Tensor, rho: Tensor | float, classes: Tensor | float) -> Tensor:
    r"""Log-odds that a label is right, where a share rho of labels was drawn anew from the other C - 1 classes.

    With p = exp(-loss), the probability that the model gives the label: :math:`\log\frac{(1-\rho)(C-1)p}{\rho(1-p)}`.

    Args:
        losses: Cross-entropies of any shape; NaN where nothing is known, whose odds are those of rho alone.
        rho: The share of wrong labels, in (0, 1).
        classes: C, at least 2.

    Returns:
        Log-odds in float64.

    Example:
        >>> right_odds(torch.tensor([2.0]).log(), rho=0.4, classes=10).exp()     # p = 1/2: 0.6 * 9 / 0.4
        tensor([13.5000], dtype=torch.float64)
    """
    losses = losses.double()
    rho, classes = (torch.as_tensor(value, dtype=torch.float64, device=losses.device) for value in (rho, classes))
    prior = torch.log((1 - rho) / rho)
    known = losses.clamp(SMALLEST_LOSS, LARGEST_LOSS)
    evidence = torch.log(classes - 1) - known - torch.log(-torch.expm1(-known))
    return prior + torch.where(losses.isnan(), torch.zeros_like(evidence), evidence)
