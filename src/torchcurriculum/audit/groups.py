"""Two groups of labels in a run's own memory: those that the network accepted, and those that it did not.

The margin g in [-1, 1] of a row is the remembered probability of its label less that of the best other one. A network
that has seen the labels accepts nearly all right ones, sooner or later: their margins pile up towards 1 and thin out
below. Wrong labels that it did not learn by heart pile up towards -1. So with wrong labels there is a valley between
two groups, and without them there is none, however hard the rows are.

The valley also says how far the groups reach into each other: at g = 0 either has about half of its density v. Right
labels thin out evenly from there to -1, wrong ones reach on to 1 (people's mistakes are labels that look plausible):
0.25 v and 0.45 v in all, for v the density over the range. This was chosen on memories of CIFAR-10N and CIFAR-100N.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["Groups", "find_groups"]

BINS = 20  # of margins, of which neighbours are averaged
DEPTH = 0.7  # of the left group's peak: a valley must be as low as this
SIGMAS = 3.0  # by which it must be below the peak, and 2 of the share's sampling error
RIGHT_TAIL, WRONG_TAIL = 0.25, 0.45  # of the valley's density
SPAN = 1.0  # of the valley's density over the range, by which the share may be off beside that
HELD_OUT = 0.1  # of as many rows, for the sampling error of held-out rows


@dataclass(frozen=True)
class Groups:
    """The share of wrong labels and its interval, and each row's probability that its label is right."""

    share: float
    low: float
    high: float
    quality: np.ndarray


def find_groups(margins: np.ndarray, held_out: float = 0.0) -> Groups | None:
    """The two groups of margins; None where there is one.

    Args:
        margins: (N,) in [-1, 1].
        held_out: Share of held-out rows whose label is not the predicted one. Where it is larger than that of the rows
            themselves, labels may have been learnt by heart: the difference is added to the interval, and half of it to
            the share.

    Example:
        >>> margins = np.concatenate([np.full(300, -0.8), np.linspace(0.3, 1.0, 700)])
        >>> groups = find_groups(margins)
        >>> round(groups.share, 3), groups.low < 0.3 < groups.high, groups.quality[0], groups.quality[-1]
        (0.3, True, np.float64(0.0), np.float64(1.0))
        >>> find_groups(np.linspace(-1, 1, 1000) ** 2) is None      # all accepted
        True
    """
    n, half = len(margins), BINS // 2
    counts = np.histogram(margins, BINS, (-1.0, 1.0))[0].astype(np.float64)
    padded = np.concatenate([counts[:1], counts, counts[-1:]])
    smooth = (padded[:-2] + padded[1:-1] + padded[2:]) / 3
    left = int(smooth[: half - 1].argmax())
    right = half + int(smooth[half:].argmax())
    peak, valley = smooth[left], float(smooth[left : right + 1].min())
    if valley > DEPTH * peak or peak - valley < SIGMAS * math.sqrt((peak + valley) / 3) or peak < 1:
        return None
    against = float((margins < 0).mean())
    density = valley * BINS / 2 / n  # over the whole of one side
    learnt = max(0.0, held_out - against)
    share = against + (WRONG_TAIL - RIGHT_TAIL) * density + learnt / 2
    error = 2 * math.sqrt((share * (1 - share) + 1 / n) / n)
    low = max(0.0, against - RIGHT_TAIL * density - error)
    high = share + max(learnt / 2, SPAN * density / 2) + error
    if learnt:
        high = max(high, held_out + 2 * math.sqrt(held_out * (1 - held_out) / (HELD_OUT * n)))
    return Groups(
        min(share, 1.0), low, min(high, 1.0), _quality(margins, smooth, valley, learnt / 2 / max(1 - against, 1e-9))
    )


def _quality(margins: np.ndarray, smooth: np.ndarray, valley: float, learnt: float) -> np.ndarray:
    """(N,) one less the probability of the wrong group, by the tails at the row's margin."""
    middles = np.linspace(-1, 1, BINS + 1)[:-1] + 1 / BINS
    all_rows = np.maximum(np.maximum(smooth, valley), 1e-9)
    right = np.where(
        middles < 0, 2 * RIGHT_TAIL * valley * (1 + middles) / all_rows, 1 - WRONG_TAIL * valley / all_rows - learnt
    )
    quality: np.ndarray = np.interp(margins, middles, np.maximum.accumulate(right.clip(0, 1)))
    return quality
