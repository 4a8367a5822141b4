"""APW beyond its paper: a graded easiness that is a probability, and an error threshold that follows training."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["graded_easiness", "moving_threshold", "remember", "right_odds", "trust"]

SMALLEST_LOSS = 1e-6  # a probability of 1 would have infinite odds
LARGEST_LOSS = 50.0
KNOWING = 0.2  # two classes, 40 % of the labels wrong: what a perfect network agrees with beyond guessing


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


def graded_easiness(losses: Tensor, rho: Tensor | float, classes: Tensor | float) -> Tensor:
    """beta in (-1, 1): twice the probability that the label is right, minus one; 0 at ``moving_threshold``.

    Where Eq. 1 of the paper says +1 or -1, this says by how much: it is tanh of half the log-odds.

    Example:
        >>> graded_easiness(torch.tensor([2.0]).log(), rho=0.4, classes=10)      # 2 * 13.5 / 14.5 - 1
        tensor([0.8621], dtype=torch.float64)
    """
    return torch.tanh(right_odds(losses, rho, classes) / 2)


def moving_threshold(rho: Tensor | float, classes: Tensor | float) -> Tensor:
    """e, the loss at which a label is as likely right as wrong: log(1 + (C - 1)(1 - rho) / rho).

    It is log C, the loss of guessing, at rho = 1/2, and rises as rho falls: hard samples are let in later.

    Example:
        >>> moving_threshold(0.5, 10).exp(), moving_threshold(0.4, 10).exp()
        (tensor(10.0000, dtype=torch.float64), tensor(14.5000, dtype=torch.float64))
    """
    rho = torch.as_tensor(rho, dtype=torch.float64)
    return torch.log1p((classes - 1) * (1 - rho) / rho)


def remember(memory: Tensor, losses: Tensor, decay: Tensor | float) -> Tensor:
    """The exponential mean of losses: ``decay`` of the old value; a first loss is taken as it is.

    Args:
        memory: Remembered losses, NaN where there is none yet.
        losses: New losses; where they are not finite, the memory stays.
        decay: In [0, 1).

    Example:
        >>> remember(torch.tensor([1.0, float("nan"), 4.0]), torch.tensor([3.0, 3.0, float("inf")]), decay=0.5)
        tensor([2., 3., 4.])
    """
    mixed = torch.where(memory.isnan(), losses, (decay * memory + (1 - decay) * losses).to(losses.dtype))
    return torch.where(losses.isfinite(), mixed, memory)


def trust(losses: Tensor, classes: Tensor | float) -> Tensor:
    """How far losses may be believed, in [0, 1]: 0 if they are no better than guessing, 1 if they are by one fifth.

    With p the mean probability of the labels, it is (p - 1/C) / (1 - 1/C) over 0.2, cut to [0, 1].

    Args:
        losses: (M,) cross-entropies that are known.
        classes: C, at least 2.

    Example:
        >>> trust(torch.tensor([2.0, 2.5]).log(), classes=2)        # p is 0.45 in the mean, below 1/2
        tensor(0., dtype=torch.float64)
        >>> trust(torch.tensor([1.6, 2.5]).log(), classes=2).round(decimals=6)      # 0.5125: 0.0125 / 0.5 / 0.2
        tensor(0.1250, dtype=torch.float64)
    """
    guess = 1 / torch.as_tensor(classes, dtype=torch.float64, device=losses.device)
    agreed = (-losses.double()).exp().mean()
    return ((agreed - guess) / (1 - guess) / KNOWING).clamp(0, 1)
