"""RAPW's equations: what a memory of predictions and the given labels say together about the right ones."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "above_guessing",
    "at_odds",
    "believed",
    "channel",
    "doubt",
    "likeliest_power",
    "plausible",
    "sharpen",
    "trust",
    "unevenness",
    "usual_losses",
]

POWERS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
RAREST = 0.2  # a class counts as at least this share of an even one, so that an empty one does not win everything
PRIOR_ROWS = 10.0  # of a channel that errs alike in all classes, for classes with few rows
KNOWING = 0.2  # two classes, 40 % of the labels wrong: what a perfect network agrees with beyond guessing
CLEAR = 0.01  # share of labels that they contradict beyond their own uncertainty, from which on doubt is full
TINY = 1e-30


def sharpen(memory: Tensor, means: Tensor, power: Tensor | float) -> Tensor:
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
    return sharp / sharp.sum(1, keepdim=True).clamp_min(TINY)


def channel(counts: Tensor) -> Tensor:
    """(C, C) the probability of label j for a row of class k.

    Args:
        counts: (C, C) sums, over the rows with label j, of how surely they are of class k.

    Example:
        >>> channel(torch.tensor([[60.0, 40.0], [0.0, 0.0]]))      # no row of the second class: the prior alone
        tensor([[0.6000, 0.4000],
                [0.4000, 0.6000]])
    """
    classes = counts.shape[0]
    right = counts.diagonal().sum() / counts.sum().clamp_min(TINY)
    prior = ((1 - right) / (classes - 1)).expand(classes, classes).clone()
    prior.diagonal().copy_(right.expand(classes))
    return (counts + PRIOR_ROWS * prior) / (counts.sum(1, keepdim=True) + PRIOR_ROWS)


def likeliest_power(memory: Tensor, means: Tensor, labels: Tensor, table: Tensor) -> float:
    """The power, between 1 and 4, under which the given labels are most likely.

    Args:
        memory: (B, C) remembered predictions.
        means: (C,) their mean over all rows.
        labels: (B,) given labels.
        table: (C, C) the channel from classes to labels.

    Example:
        >>> memory, means = torch.tensor([[0.6, 0.4]]).repeat(5, 1), torch.tensor([0.5, 0.5])
        >>> perfect = torch.eye(2)
        >>> likeliest_power(memory, means, torch.tensor([0, 0, 0, 1, 1]), perfect)     # 3 of 5: as sure as it says
        1.0
        >>> likeliest_power(memory, means, torch.tensor([0, 0, 0, 0, 1]), perfect)     # 4 of 5: surer
        3.0
    """
    given = table.T[labels]
    fits = [(sharpen(memory, means, power) * given).sum(1).clamp_min(1e-9).log().mean() for power in POWERS]
    return POWERS[int(torch.stack(fits).argmax())]


def believed(sharp: Tensor, labels: Tensor, table: Tensor) -> Tensor:
    """(B, C) the probability of each class given the memory and the label, by Bayes' rule.

    Args:
        sharp: (B, C) sharpened memories.
        labels: (B,) given labels.
        table: (C, C) the channel from classes to labels.

    Example:
        >>> table = torch.tensor([[0.6, 0.4], [0.4, 0.6]])
        >>> believed(torch.tensor([[0.9, 0.1]]), torch.tensor([1]), table)          # 0.9 * 0.4 : 0.1 * 0.6
        tensor([[0.8571, 0.1429]])
    """
    joint = sharp * table.T[labels]
    return joint / joint.sum(1, keepdim=True).clamp_min(TINY)


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


def unevenness(pairs: Tensor) -> Tensor:
    """How wrong labels fall, in [0, 1]: 0 if on all other classes alike, 1 if on few, as those of people do.

    It is the squared coefficient of variation of a row's wrong labels over the other classes, less what so few labels
    would show by chance, at most 1; the mean over the classes, by their wrong labels. With two classes it is 0.

    Args:
        pairs: (C, C) the number of rows that are believed to be of class k and have label j.

    Example:
        >>> unevenness(torch.tensor([[60.0, 20.0, 20.0], [20.0, 60.0, 20.0], [20.0, 20.0, 60.0]]))
        tensor(0.)
        >>> unevenness(torch.tensor([[60.0, 40.0, 0.0], [0.0, 60.0, 40.0], [40.0, 0.0, 60.0]]))
        tensor(1.)
    """
    wrong = pairs - pairs.diagonal().diag()
    total = wrong.sum(1)
    # how often two wrong labels of a class, drawn without putting back, are the same
    same = (wrong * (wrong - 1)).sum(1) / (total - 1).clamp_min(1)
    return ((len(pairs) - 1) * same.sum() / total.sum().clamp_min(TINY) - 1).clamp(0, 1)


def doubt(sure: Tensor, contradicted: Tensor, surest: float) -> Tensor:
    """How far labels may be doubted at all, in [0, 1]: 0 if the memory is at odds with them for being unsure only.

    Of the rows whose memory is surest, a share is at odds with the label. If that is what their own uncertainty lets
    expect, the rows are hard and the labels right. Doubt begins one standard error above it.

    Args:
        sure: (B,) the largest sharpened probability of each row.
        contradicted: (B,) bool, whether it belongs to another class than the label.
        surest: The share of the rows that decide, in (0, 1].

    Example:
        >>> sure = torch.linspace(0.5, 1.0, 2000)                      # the surest tenth: between 0.95 and 1
        >>> hard = torch.arange(2000) % 40 == 0                        # one in 40, as expected
        >>> wrong = torch.arange(2000) % 10 == 0                       # one in 10
        >>> doubt(sure, hard, 0.1), doubt(sure, wrong, 0.1)
        (tensor(0., dtype=torch.float64), tensor(1., dtype=torch.float64))
    """
    found, expected = at_odds(sure, contradicted, surest)
    error = (found * (1 - found) / max(1, int(surest * len(sure)))).sqrt()
    return ((found - expected - error) / CLEAR).clamp(0, 1)


def at_odds(sure: Tensor, contradicted: Tensor, surest: float) -> tuple[Tensor, Tensor]:
    """The share of the surest rows that contradict their label, and the share that their uncertainty lets expect.

    Args:
        sure: (B,) the largest sharpened probability of each row.
        contradicted: (B,) bool, whether it belongs to another class than the label.
        surest: The share of the rows that decide, in (0, 1].

    Example:
        >>> at_odds(torch.tensor([0.9, 0.5, 0.8, 0.6]), torch.tensor([True, True, False, True]), 0.5)
        (tensor(0.5000, dtype=torch.float64), tensor(0.1500, dtype=torch.float64))
    """
    values, rows = sure.topk(max(1, int(surest * len(sure))))
    return contradicted[rows].double().mean(), 1 - values.double().mean()


def usual_losses(losses: Tensor, labels: Tensor, classes: int) -> Tensor:
    """(C,) float64 the mean loss of the rows with each label; infinite for a label without rows.

    Args:
        losses: (B,) losses of the rows.
        labels: (B,) their labels.
        classes: C.

    Example:
        >>> usual_losses(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 2]), 3)
        tensor([2., inf, 5.], dtype=torch.float64)
    """
    total = torch.zeros(classes, dtype=torch.float64, device=losses.device).index_add_(0, labels, losses.double())
    count = torch.bincount(labels, minlength=classes)
    return torch.where(count > 0, total / count.clamp_min(1), torch.inf)


def plausible(losses: Tensor, usual: Tensor, doubt: Tensor | float = 1.0) -> Tensor:
    """(B,) what rows count before there is a memory to ask: 1 / (1 + d x) for a loss that is x above the usual one.

    Rows are compared with others of the same label, so that a rare or hard class counts as much as others.

    Args:
        losses: (B,) losses of the rows.
        usual: (B,) the mean loss of the rows with the same label.
        doubt: d, in [0, 1].

    Example:
        >>> plausible(torch.tensor([0.5, 2.0, 5.0]), torch.tensor([2.0, 2.0, 2.0]))
        tensor([1.0000, 1.0000, 0.2500])
    """
    return 1 / (1 + doubt * (losses.detach() - usual).clamp_min(0))


def above_guessing(probability: Tensor, classes: int) -> Tensor:
    """How far a label is believed if all that is known is the probability that the network gives it; 1/2 at 1 / C.

    Example:
        >>> above_guessing(torch.tensor([0.1, 0.5]), 10)                            # 1 : 1 and 9 : 1
        tensor([0.5000, 0.9000])
    """
    odds = (classes - 1) * probability
    return odds / (odds + 1 - probability)
