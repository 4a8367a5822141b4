"""The audit of labels by probabilities from outside: anybody's networks that did not see the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..record import Record
from .channel import BLOCK, fit_channel
from .health import doubts_of_findings, doubts_of_probabilities
from .result import Audit

__all__ = ["judge_outside"]

SIGMAS = 2.0  # of the share's sampling error
TINY = 1e-9


def judge_outside(
    labels: Any, probabilities: Any, classes: Sequence[object] | None = None, names: Sequence[object] | None = None
) -> Audit:
    """The audit behind ``audit(labels, pred_probs)``."""
    shares = _checked(probabilities)
    given = _numbers(labels, shares.shape, classes)
    n, count = shares.shape
    called = None if classes is None else [str(one) for one in classes]
    mine = shares[np.arange(n), given].astype(np.float64)
    health = doubts_of_probabilities(shares.argmax(axis=1), given, count)
    quality, suggested, likely = np.full(n, np.nan), shares.argmax(axis=1), shares.max(axis=1).astype(np.float64)
    share, low, high = 0.0, 0.0, 1.0
    score = -np.log(np.clip(mine, TINY, 1))
    if not health:
        quality, suggested, likely, disagreed = _posterior(shares, given)
        share, low, high = _interval(quality, disagreed)
        health = doubts_of_findings(quality < 0.5, given, share, count, called)
        score = -_log_odds(quality) + TINY * score
    if health:
        quality, share, low, high = np.full(n, np.nan), 0.0, 0.0, 1.0
    issue = (quality < 0.5) & (low > 0)
    return Audit(
        order=np.argsort(-score, kind="stable"),
        score=score,
        quality=quality,
        issue=issue,
        share=share,
        share_low=low,
        share_high=high,
        health=health,
        easy=(mine >= 0.5).astype(np.float64),
        given=given,
        suggested=suggested,
        suggestion_probability=likely,
        names=_named(names, n),
        classes=called,
    )


def _posterior(shares: np.ndarray, given: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Quality, suggestion and its probability, and whether the network disagrees, for every row."""
    channel = fit_channel(shares, given)
    n = len(given)
    quality, suggested, likely, disagreed = np.empty(n), np.empty(n, np.int64), np.empty(n), np.empty(n, bool)
    for start in range(0, n, BLOCK):
        part = slice(start, start + BLOCK)
        some, mine = shares[part], given[part]
        rows = np.arange(len(mine))
        disagreed[part] = channel.true_shares(some).argmax(axis=1) != mine
        posterior = channel.posterior(some, mine)
        quality[part] = posterior[rows, mine]
        posterior[rows, mine] = np.where(quality[part] < 0.5, -1.0, quality[part])
        suggested[part] = posterior.argmax(axis=1)
        likely[part] = posterior[rows, suggested[part]]
    return quality, suggested, likely, disagreed


def _interval(quality: np.ndarray, disagreed: np.ndarray) -> tuple[float, float, float]:
    """The share of wrong labels and its interval.

    The network disagrees with some labels that are right, a share h of all. Where it is sure of them, they look wrong;
    and labels that it is unsure of may be wrong after all. So the share may be off by h in either direction.
    """
    n = len(quality)
    share = float((1 - quality).mean())
    own = max(0.0, float(disagreed.mean()) - share)
    error = SIGMAS * math.sqrt((share * (1 - share) + 1 / n) / n)
    return share, max(0.0, share - own - error), min(1.0, share + own + error)


def _log_odds(quality: np.ndarray) -> np.ndarray:
    clipped = np.clip(quality, TINY, 1 - TINY)
    odds: np.ndarray = np.log(clipped / (1 - clipped))
    return odds


def _checked(probabilities: Any) -> np.ndarray:
    shares = np.asarray(probabilities)
    if shares.ndim != 2 or shares.shape[1] < 2 or not len(shares) or shares.dtype.kind not in "fiu":
        raise ValueError(
            f"pred_probs must be numbers of shape (N, C) with a column for each of at least two classes, got "
            f"{shares.dtype} of shape {shares.shape}"
        )
    if not np.isfinite(shares).all() or shares.min() < 0:
        raise ValueError("pred_probs must be finite and at least 0; pass probabilities, not logits")
    totals = shares.sum(axis=1, dtype=np.float64)
    if abs(totals - 1).max() > 0.05:
        raise ValueError(f"the rows of pred_probs must sum to 1, got sums up to {totals.max():.3g}; pass probabilities")
    return shares


def _numbers(labels: Any, shape: tuple[int, ...], classes: Sequence[object] | None) -> np.ndarray:
    """(N,) labels as columns of the probabilities."""
    given = np.asarray(labels)
    n, count = shape
    if given.shape != (n,):
        raise ValueError(f"labels must be one for each of the {n} rows of pred_probs, got shape {given.shape}")
    if classes is not None and len(classes) != count:
        raise ValueError(f"classes must name the {count} columns of pred_probs, got {len(classes)} names")
    if given.dtype.kind in "iu":
        if given.min() < 0 or given.max() >= count:
            raise ValueError(f"labels must lie in range({count}), got {given.min()} to {given.max()}")
        return given.astype(np.int64)
    if classes is None:
        raise ValueError(f"labels of type {given.dtype} need classes: the names of the columns of pred_probs")
    places = {str(name): place for place, name in enumerate(classes)}
    missing = sorted({str(label) for label in given} - set(places))
    if missing:
        raise ValueError(f"the label {missing[0]!r} is not among the classes {list(places)[:10]}")
    return np.array([places[str(label)] for label in given], dtype=np.int64)


def _named(names: Sequence[object] | None, n: int) -> np.ndarray | None:
    if names is None:
        return None
    record = Record(n)
    record.name_samples([str(name) for name in names])
    return record.arrays["names"]
