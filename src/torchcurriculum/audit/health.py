"""Whether an audit can call labels wrong: problems of a run or of probabilities, as sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

__all__ = [
    "ONE_GROUP",
    "doubts_of_findings",
    "doubts_of_losses",
    "doubts_of_probabilities",
    "doubts_of_refused_rows",
    "without_whole_classes",
]

ONE_GROUP = "The labels show one group: either nearly all are right, or wrong ones look like the rest."
FEWEST_ROWS = 100  # in all
FEWEST_OF_A_CLASS = 10  # on average; with fewer, a wrong label looks like a rare kind
FEWEST_EPOCHS = 3  # the first is not informative
KNOWING = 0.1  # least kappa, the agreement of predictions and labels beyond chance
SIGMAS = 4.0  # standard errors by which that agreement must exceed chance
WHOLE_CLASS = 0.75  # share of suspect labels of a class above which the network is more likely wrong
OF_A_CLASS = 5  # rows of a class from which on this is checked
FEW_ROWS = 0.05  # of all rows: with fewer in such classes, the others can still be judged
MANY_ROWS = 10_000  # of a run: with fewer, a network is often too weak for its set
FADING, FADING_OF_MANY = 0.6, 0.15  # what the surest rows contradict, least share of what is estimated
LARGEST_SHARE = 0.5  # of labels that are wrong or not predicted
BEYOND_CHANCE = 3.0  # mean loss of a diverged run over log C, if the median is high, too
FAR_BEYOND = 30.0  # the same for any median; labels that a method rejects have losses of several log C


def doubts_of_losses(rows: Iterator[np.ndarray], classes: int) -> list[str]:
    """Why a run's losses cannot be used, as sentences: it diverged, learnt nothing, or was too short.

    Args:
        rows: (N,) losses of each epoch; rows never measured are infinite or NaN.
        classes: C.
    """
    means, medians, lost = [], [], []
    chance = math.log(max(classes, 2))
    for losses in rows:
        known = losses[np.isfinite(losses)]
        lost.append(bool(len(losses)) and not len(known))
        means.append(float(known.astype(np.float64).mean()) if len(known) else math.nan)
        medians.append(float(np.median(known)) if len(known) else math.nan)
    if len(means) < FEWEST_EPOCHS:
        return [f"The run is too short to judge by: {len(means)} epochs, and at least {FEWEST_EPOCHS} are needed."]
    tail = slice(-max(1, len(means) // 4), None)
    if any(lost[tail]):
        return ["The run diverged: its last losses are not finite. Train with a lower learning rate."]
    worst, middle = float(np.nanmean(means[tail])), float(np.nanmedian(medians[tail]))
    if worst > FAR_BEYOND * chance or (worst > BEYOND_CHANCE * chance and middle > 0.5 * chance):
        return [
            f"The run diverged: its mean loss ended at {worst:.3g}, and guessing has {chance:.2g}. "
            "Train with a lower learning rate."
        ]
    if middle > 0.98 * chance:
        return [
            f"The network learnt nothing: half of the losses are above {middle:.3g}, and guessing has {chance:.2g}."
        ]
    return []


def doubts_of_probabilities(
    predicted: np.ndarray, labels: np.ndarray, classes: int, held_out: float | None = None
) -> list[str]:
    """Why predictions cannot be used, as sentences: too few rows, one class, or hardly better than chance.

    Args:
        predicted: (N,) the most probable class of every row.
        labels: (N,) the given ones.
        classes: C.
        held_out: Share of held-out rows whose label is the predicted one, where known.
    """
    n, counts = len(labels), np.bincount(labels, minlength=classes)
    seen = int((counts > 0).sum())
    if seen < 2:
        return ["All rows have the same label, so nothing tells a wrong one."]
    if n < FEWEST_ROWS or n < FEWEST_OF_A_CLASS * seen:
        return [
            f"There are too few rows to judge by: {n:,} rows of {seen:,} classes, and {FEWEST_ROWS} in all and "
            f"{FEWEST_OF_A_CLASS} of a class are needed."
        ]
    agreed = float((predicted == labels).mean())
    chance = float((counts / n) @ (np.bincount(predicted, minlength=classes) / n))
    beyond = (agreed - chance) / max(1 - chance, 1e-12)
    if beyond < KNOWING or agreed - chance < SIGMAS * math.sqrt(max(chance * (1 - chance), 1e-12) / n):
        return [
            f"The predictions are hardly better than chance: they agree with {agreed:.1%} of the labels, and guessing "
            f"would with {chance:.1%}."
        ]
    largest = float(counts.max()) / n
    if held_out is not None and held_out < largest + KNOWING * (1 - largest):
        return [
            f"The network is hardly better than chance on held-out rows: {held_out:.1%} of them are as labelled, and "
            f"{largest:.1%} of the labels are of one class."
        ]
    return []


def doubts_of_refused_rows(at_odds: object, share: float, rows: int) -> list[str]:
    """Why two groups may be hard rows and easy ones: the method refused rows that a network had not learnt yet.

    Wrong labels are found among easy rows, too; right labels of hard rows are not contradicted where the network is
    surest. People's mistakes are mostly on hard rows: on CIFAR-10N 0.29, 0.10 and 0.03 of the surest tenth's labels are
    wrong (a Simple-CNN after five epochs), of 0.40, 0.17 and 0.09 in all. So large sets are only silent where hardly
    any are.

    Args:
        at_odds: RAPW's ``at_odds``; what is not a number is unknown.
        share: The estimated share of wrong labels.
        rows: Rows of the run.

    Example:
        >>> doubts_of_refused_rows(0.19, 0.22, 1000), len(doubts_of_refused_rows(0.02, 0.15, 1000))
        ([], 1)
    """
    least = FADING if rows < MANY_ROWS else FADING_OF_MANY
    if not isinstance(at_odds, float) or at_odds >= least * share:
        return []
    return [
        f"Hard rows look like wrong labels here: where the network was surest it contradicted {at_odds:.1%} of the "
        f"labels, and {share:.1%} look wrong. Audit a run of vanilla, or out-of-fold probabilities."
    ]


def _whole_classes(suspect: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """(M,) the classes of which nearly all labels are suspect: the network has more likely not learnt them."""
    counts = np.bincount(labels, minlength=classes)
    wrong = np.bincount(labels, weights=suspect, minlength=classes)
    return np.flatnonzero((counts >= OF_A_CLASS) & (wrong > WHOLE_CLASS * counts))


def without_whole_classes(
    quality: np.ndarray, low: float, labels: np.ndarray, classes: int
) -> tuple[np.ndarray, float]:
    """The quality, NaN for labels of classes that the network has not learnt, and the least share without them.

    Args:
        quality: (N,) the probability that each label is right.
        low: The least share of wrong labels.
        labels: (N,) the given ones.
        classes: C.

    Example:
        >>> labels = np.repeat([0, 1], 10)
        >>> quality, low = without_whole_classes(np.where(labels == 1, 0.1, 0.9), 0.6, labels, 2)
        >>> np.isnan(quality).sum(), round(low, 2)
        (np.int64(10), 0.1)
    """
    suspect = quality < 0.5
    unlearnt = np.isin(labels, _whole_classes(suspect, labels, classes))
    return np.where(unlearnt, np.nan, quality), max(0.0, low - float((unlearnt & suspect).mean()))


def doubts_of_findings(
    suspect: np.ndarray,
    labels: np.ndarray,
    share: float,
    against: float,
    classes: int,
    names: Sequence[str] | None = None,
) -> list[str]:
    """Why findings are not credible, as sentences: nearly a whole class, or most labels, are suspect."""
    whole = _whole_classes(suspect, labels, classes)
    if np.isin(labels, whole).mean() > FEW_ROWS:
        one = int(whole[0])
        called = one if names is None or one >= len(names) else repr(str(names[one]))
        rows = labels == one
        return [
            f"Nearly all labels of class {called} look wrong ({int(suspect[rows].sum())} of {int(rows.sum())}), so the "
            "network has more likely not learnt that class."
        ]
    if against > LARGEST_SHARE or share > LARGEST_SHARE:
        return [
            f"The network agrees with {1 - against:.0%} of the labels only, so it is more likely wrong than they are."
        ]
    return []
