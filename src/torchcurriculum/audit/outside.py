"""The audit of labels by probabilities from outside: anybody's networks that did not see the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..record import Record
from .channel import BLOCK, fit_channel
from .health import doubts_of_findings, doubts_of_probabilities, without_whole_classes
from .result import Audit, called_wrong

__all__ = ["judge_outside"]

SIGMAS = 2.0  # of the share's sampling error
BELOW, ABOVE = 0.5, 1.0  # of the network's own mistakes, by which the share may be off; chosen on simulated cases
DOUBT = (
    0.85  # by which log-odds are multiplied, because a fitted channel is surer than it is right; chosen on them, too
)
TINY = 1e-9
MISSED = (
    "Rows whose labels look wrong lie among rows of the same label, so the network has more likely not learnt them."
)
BORNE_OUT = 0.4  # of the labels that a view is against: so many must be wrong
NEIGHBOURS, ASKED, CROWD = 10, 500, 20_000  # of a suspect; suspects; rows to choose the neighbours from
OUTVOTED = (0.15, 0.4)  # share of suspects with more neighbours of the given label: so many, and more by the noise


def judge_outside(
    labels: Any,
    probabilities: Any,
    features: Any = None,
    views: Sequence[Any] | None = None,
    classes: Sequence[object] | None = None,
    names: Sequence[object] | None = None,
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
    by_views: list[Opinion] = []
    score = -np.log(np.clip(mine, TINY, 1))
    if not health:
        whole = _posterior(shares, given)
        quality, suggested, likely, share, against = whole
        least = share
        if views is not None:
            by_views = [one for view in views if (one := _opinion(_checked(view), given, shares.shape)) is not None]
            least = _without_exceptions(whole, by_views) if views and len(by_views) == len(views) else 0.0
        low, high = _interval(share, against, n, least)
        suspects = quality < 0.5
        health = doubts_of_findings(suspects, given, share, against, count, called)
        if not health and features is not None:
            votes = _as_given(_table(features, n), given, suggested, np.flatnonzero(suspects))
            if votes > OUTVOTED[0] + OUTVOTED[1] * share:
                health = [MISSED]
        score = -_log_odds(quality) + TINY * score
        quality, low = without_whole_classes(quality, low, given, count)
    if health:
        quality, share, low, high = np.full(n, np.nan), 0.0, 0.0, 1.0
    issue = called_wrong(quality, share, low, [(one.quality, one.share) for one in by_views])
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


class Opinion(NamedTuple):
    """What probabilities say of each label, of the share of wrong ones, and of those that they are against."""

    quality: np.ndarray
    suggested: np.ndarray
    likely: np.ndarray
    share: float
    against: float


def _opinion(shares: np.ndarray, given: np.ndarray, shape: tuple[int, ...]) -> Opinion | None:
    """A view's opinion; None where it is hardly better than chance."""
    if shares.shape != shape:
        raise ValueError(f"views must be probabilities of the same shape as pred_probs, {shape}, got {shares.shape}")
    doubts = doubts_of_probabilities(shares.argmax(axis=1), given, shape[1])
    return None if doubts else _posterior(shares, given)


def _without_exceptions(whole: Opinion, views: Sequence[Opinion]) -> float:
    r"""The share of wrong labels s*, without exceptions of nature that are taken for them.

    A view with fewer columns is against more labels, but no more of them are wrong. If it finds more wrong ones all the
    same, it takes a part b of its own mistakes for noise, and so does the whole: :math:`s - s* = b (a - s*)`, where s
    is the share and a that of the labels that the whole is against. b is the slope of s over a. A view that is against
    far more labels than are wrong tells too little to bear the whole out, so that s* may be 0.
    """
    if whole.share < BORNE_OUT * max(one.against for one in views):
        return 0.0
    more = np.array([max(0.0, one.against - whole.against) for one in views])
    found = np.array([one.share - whole.share for one in views])
    slope = max(0.0, float(found @ more) / max(float(more @ more), TINY))
    return 0.0 if slope >= 1 else max(0.0, (whole.share - slope * whole.against) / (1 - slope))


def _posterior(shares: np.ndarray, given: np.ndarray) -> Opinion:
    channel, n = fit_channel(shares, given), len(given)
    quality, likely, wrong, against = np.empty(n), np.empty(n), np.empty(n), np.empty(n, bool)
    suggested = np.empty(n, np.int64)
    for start in range(0, n, BLOCK):
        part = slice(start, start + BLOCK)
        some, mine = shares[part], given[part]
        rows = np.arange(len(mine))
        against[part] = channel.true_shares(some).argmax(axis=1) != mine
        posterior = channel.posterior(some, mine)
        wrong[part] = 1 - posterior[rows, mine]
        posterior **= DOUBT
        posterior /= posterior.sum(axis=1, keepdims=True)
        quality[part] = posterior[rows, mine]
        posterior[rows, mine] = np.where(quality[part] < 0.5, -1.0, quality[part])
        suggested[part] = posterior.argmax(axis=1)
        likely[part] = posterior[rows, suggested[part]]
    return Opinion(quality, suggested, likely, float(wrong.mean()), float(against.mean()))


def _interval(share: float, against: float, n: int, least: float) -> tuple[float, float]:
    """An interval around the share of wrong labels; ``least`` is what the views leave of it.

    The network disagrees with some labels that are right, a share h of all. Where it is too sure, such labels look
    wrong; and labels that it is unsure of may be wrong after all. So the share may be off by much of h, either way.
    """
    own = max(0.0, against - share)
    error = SIGMAS * math.sqrt((share * (1 - share) + 1 / n) / n)
    return max(0.0, min(share - BELOW * own, least) - error), min(1.0, share + ABOVE * own + error)


def _as_given(table: np.ndarray, given: np.ndarray, suggested: np.ndarray, suspects: np.ndarray) -> float:
    """The share of suspects that have more neighbours of the given label than of the suggested one."""
    draw = np.random.default_rng(0)
    asked = draw.permutation(suspects)[:ASKED]
    crowd = np.sort(draw.permutation(len(given))[:CROWD])
    others = table[crowd]
    squares = (others**2).sum(axis=1)
    as_given = 0
    for row in asked:
        distances = squares - 2 * others @ table[row]
        distances[crowd == row] = np.inf
        near = given[crowd[np.argpartition(distances, NEIGHBOURS)[:NEIGHBOURS]]]
        as_given += int((near == given[row]).sum() > (near == suggested[row]).sum())
    return as_given / max(1, len(asked))


def _table(features: Any, n: int) -> np.ndarray:
    """(N, D) features, each with mean 0 and variance 1."""
    table = np.asarray(features, dtype=np.float64)
    if table.shape[:1] != (n,) or not np.isfinite(table).all():
        raise ValueError(f"features must be finite numbers, one row for each of {n} labels, got shape {table.shape}")
    table = table.reshape(n, -1)
    scaled: np.ndarray = (table - table.mean(axis=0)) / np.maximum(table.std(axis=0), TINY)
    return scaled


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
    if len(places) < count:
        twice = next(name for name in places if sum(name == str(other) for other in classes) > 1)
        raise ValueError(f"the class {twice!r} names several columns of pred_probs; rename one, or pass numbers")
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
