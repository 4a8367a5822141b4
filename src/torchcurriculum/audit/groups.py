"""Two groups of labels in the mean predictions of a run: those that the network accepted, and the others.

The margin g in [-1, 1] of a row is the mean probability of its label minus that of the best other class. A network
accepts nearly all right labels sooner or later, so their margins gather near 1 and become rare below. Wrong labels that
it did not memorise gather near -1. So wrong labels show as a valley between two groups; clean labels have no valley,
even for hard rows.

The valley also tells how far the groups overlap: at g = 0 each has about half of its density v. Right labels become
rarer evenly from there to -1; wrong ones reach up to 1, because people's mistakes are plausible labels. The tails hold
0.25 v and 0.45 v in all, with v the density over the range. Labels drawn at random are not plausible: the network
seldom accepts them, and their tail holds 0.1 v. The first two numbers were chosen on CIFAR-10N and CIFAR-100N, the last
on CIFAR-10 with random labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["Groups", "find_groups"]

BINS = 20  # of the histogram of margins; neighbours are averaged
DEPTH = 0.7  # largest height of a valley, as a share of the left peak
SIGMAS = 3.0  # standard errors between the valley and the peak
RIGHT_TAIL, WRONG_TAIL = 0.25, 0.45  # shares of the valley's density
EVEN_TAIL = 0.1  # in place of WRONG_TAIL if wrong labels fall on all other classes alike
SPAN = 1.0  # further uncertainty of the share, as a share of the valley's density
HELD_OUT = 0.1  # assumed number of held-out rows as a share of the rows, for their sampling error


@dataclass(frozen=True)
class Groups:
    """The share of wrong labels and its interval, and each row's probability that its label is right."""

    share: float
    low: float
    high: float
    quality: np.ndarray


def find_groups(margins: np.ndarray, held_out: float = 0.0, uneven: float = 1.0) -> Groups | None:
    """The two groups of margins, or None if there is only one.

    Args:
        margins: (N,) in [-1, 1].
        held_out: Share of held-out rows whose label is not the predicted one. If it is larger than that of the rows
            themselves, labels may have been memorised: the difference is added to the interval, and half of it to the
            share.
        uneven: How wrong labels fall, in [0, 1]: 0 if on all other classes alike, 1 if on few, as those of people do.

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
    tail = EVEN_TAIL + (WRONG_TAIL - EVEN_TAIL) * uneven
    share = against + (tail - RIGHT_TAIL) * density + learnt / 2
    error = 2 * math.sqrt((share * (1 - share) + 1 / n) / n)
    low = max(0.0, share - learnt / 2 - WRONG_TAIL * density - error)
    high = share + max(learnt / 2, SPAN * density / 2) + error
    if learnt:
        high = max(high, held_out + 2 * math.sqrt(held_out * (1 - held_out) / (HELD_OUT * n)))
    quality = _quality(margins, smooth, valley, tail, learnt / 2 / max(1 - against, 1e-9))
    return Groups(min(share, 1.0), low, min(high, 1.0), quality)


def _quality(margins: np.ndarray, smooth: np.ndarray, valley: float, tail: float, learnt: float) -> np.ndarray:
    """(N,) one minus the probability of the wrong group, by the tails at the row's margin."""
    middles = np.linspace(-1, 1, BINS + 1)[:-1] + 1 / BINS
    all_rows = np.maximum(np.maximum(smooth, valley), 1e-9)
    right = np.where(
        middles < 0, 2 * RIGHT_TAIL * valley * (1 + middles) / all_rows, 1 - tail * valley / all_rows - learnt
    )
    quality: np.ndarray = np.interp(margins, middles, np.maximum.accumulate(right.clip(0, 1)))
    return quality
