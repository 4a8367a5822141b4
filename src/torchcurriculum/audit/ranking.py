r"""Ranks the training samples whose labels are most likely wrong, from the record of one run.

**Weights of the epochs.** A network learns what most samples agree on before it memorises the rest. In between, the
losses form two populations, which the fit behind ``threshold="auto"`` finds: two normal distributions over the log-odds
of the labels. An epoch counts by the square of their contrast D sqrt(w (1 - w)), the variance between the populations
over that within, if a neighbouring epoch agrees. If no two epochs show two populations, epochs count by the square of
the variance of the labels' probability over the samples, which is small before a network has learnt anything, and again
when it has memorised everything.

**Score.** The weighted mean loss tells how long a label stayed improbable; the mean probabilities (if the record has
them, see ``Predictions``) tell whether another label was better. Both are log-odds, and the score is their mean, since
the two are not independent.

**Labels called wrong.** Labels are called wrong, and their share is estimated, if the margins of the mean probabilities
form two groups (``groups``) and the run is healthy (``health``). Losses alone can only rank: they do not distinguish
wrong labels from hard ones.

**Easiness.** The accumulated performance g_K and m_K of the theory rank worse: alpha changes its sign with the phase,
and a flag holds less than a loss. The accumulated easiness is shown beside the score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..functional.noise import LOSS_RANGE, ROWS, Populations, fit_populations, label_log_odds
from ..functional.rapw import unevenness
from ..record import Record, RecordError
from .groups import find_groups
from .health import (
    ONE_GROUP,
    doubts_of_findings,
    doubts_of_losses,
    doubts_of_probabilities,
    doubts_of_refused_rows,
    without_whole_classes,
)
from .outside import judge_outside
from .result import Audit, called_wrong, class_names
from .scores import ranked_by

__all__ = ["audit"]

BINS = 1024  # of log-odds, so that the cost of a fit does not depend on the number of rows
BLOCK = 2**14  # rows at a time, with C numbers each
CONTRADICTED = -0.5  # margin of a label that the network clearly contradicts
FLOOR = 1e-2  # added to the probabilities of a ratio; smaller differences are not informative


def audit(
    run: Record | Any,
    pred_probs: Any = None,
    *,
    features: Any = None,
    views: Sequence[Any] | None = None,
    classes: Sequence[object] | None = None,
    names: Sequence[object] | None = None,
    score: str | None = None,
) -> Audit:
    """The rows by how likely their label is wrong, from the record of a run, or from labels and probabilities.

    Args:
        run: The record of a run with ``samples=True``, whose arrays ``labels``, ``predicted``, ``mean_probabilities``
            and ``clean`` are used where present; or the labels, (N,).
        pred_probs: With labels, (N, C) out-of-sample probabilities: of any model that did not see the row, such as
            those of cross-validation.
        features: With labels, (N, ...) numbers that the rows were predicted from, or an embedding. With them the audit
            notices that a network missed a region: its suspects lie among rows of the same label.
        views: With labels, (N, C) out-of-sample probabilities of models that saw only a part of the columns each, such
            as one half and the other. A natural exception contradicts some columns, a wrong label all of them. So only
            labels that all views contradict are called wrong. An empty list means that the columns cannot be split, and
            nothing is called wrong.
        classes: With labels, the names of the columns of ``pred_probs``; needed where labels are not numbers.
        names: With labels, readable names of the samples.
        score: With a record, ranks by its ``"aum"``, ``"el2n"``, ``"forgetting"``, ``"grand"`` or ``"vog"`` (see
            ``scores.difficulty``); the labels called wrong stay the same.

    Returns:
        The ranking, the labels called wrong and the estimate of their share; ``health`` says why there are none.

    Example:
        >>> record = Record(3)
        >>> for losses in ([1.1, 1.1, 1.1], [0.1, 3.0, 0.2], [0.1, 0.2, 0.3]):
        ...     record.append({}, losses=np.array(losses))
        >>> found = audit(record)
        >>> found.order.tolist(), found.health
        ([1, 2, 0], ['There are too few rows to judge by: 3, and 200 are needed.'])
        >>> audit(["a", "b", "b"], [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]], classes=["a", "b"]).order.tolist()
        [1, 2, 0]
    """
    if not isinstance(run, Record):
        if pred_probs is None:
            raise ValueError("audit needs a Record, or labels and pred_probs; there are no pred_probs")
        if score is not None:
            raise ValueError(f"score={score!r} goes with a Record; labels and pred_probs have no scores of a run")
        return judge_outside(run, pred_probs, features, views, classes, names)
    for name, value in {
        "pred_probs": pred_probs,
        "features": features,
        "views": views,
        "classes": classes,
        "names": names,
    }.items():
        if value is not None:
            raise ValueError(f"{name} goes with labels; a Record has its own")
    found = _judge_record(run)
    return found if score is None else ranked_by(found, run, score)


def _judge_record(record: Record) -> Audit:
    loss, easy = _over_epochs(record, _epoch_weights(record))
    seen = np.isfinite(loss)
    labels, clean = record.labels("labels"), record.labels("clean")
    opinions, margins = [_log_odds(np.where(seen, loss, 0.0))], None
    if (both := _margins(record, labels)) is not None:
        margins, ratios = both
        opinions.append(ratios)
    score = np.where(seen, -np.mean(opinions, axis=0), -np.inf)
    health, groups = _doubts(record, labels, seen), None
    if not health and margins is not None and labels is not None:
        held_out = _held_out(record)
        uneven = _unevenness(record.arrays["mean_probabilities"][seen], labels[seen], margins[seen])
        groups = find_groups(margins[seen], 0.0 if held_out is None else 1 - held_out, uneven)
        health = [ONE_GROUP]
        if groups is not None:
            count, against = record.arrays["mean_probabilities"].shape[1], float((margins[seen] < 0).mean())
            suspects, names = groups.quality < 0.5, class_names(record)
            health = doubts_of_findings(suspects, labels[seen], groups.share, against, count, names)
            health += doubts_of_refused_rows(record.epochs[-1].get("at_odds"), groups.share, int(seen.sum()))
    quality = np.full(record.n, np.nan)
    if groups is None or labels is None or health:
        share, low, high = 0.0, 0.0, 1.0
    else:
        quality[seen], low = without_whole_classes(groups.quality, groups.low, labels[seen], count)
        share, high = groups.share, groups.high
    issue = called_wrong(quality, share, low)
    suggested, likely = _suggest(record, labels, issue, quality)
    return Audit(
        order=np.argsort(-score, kind="stable"),
        score=score,
        quality=quality,
        issue=issue,
        share=share,
        share_low=low,
        share_high=high,
        health=health,
        easy=easy,
        given=labels,
        suggested=suggested,
        suggestion_probability=likely,
        wrong=None if labels is None or clean is None else labels != clean,
        names=_names(record),
        classes=class_names(record),
    )


def _doubts(record: Record, labels: np.ndarray | None, seen: np.ndarray) -> list[str]:
    """Why the run cannot be used, as sentences."""
    if (known := int(seen.sum())) < ROWS:
        return [f"There are too few rows to judge by: {known}, and {ROWS} are needed."]
    numbered = labels is not None and labels.dtype.kind in "iu"
    classes = int(labels.max()) + 1 if labels is not None and numbered else 2
    if doubts := doubts_of_losses(record.rows("losses"), classes):
        return doubts
    shares = record.arrays.get("mean_probabilities")
    if labels is None or shares is None:
        return ["The record holds losses only: they rank labels, but do not tell wrong ones from hard ones."]
    return doubts_of_probabilities(shares[seen].argmax(axis=1), labels[seen], shares.shape[1], _held_out(record))


def _held_out(record: Record) -> float | None:
    """The share of held-out rows that the network got right in its best epoch, or None if it is not recorded."""
    known = np.array([row["valid_acc"] for row in record.epochs if isinstance(row.get("valid_acc"), float)])
    known = known[(known >= 0) & (known <= 1)]
    return float(known.max()) if len(known) else None


def _names(record: Record) -> np.ndarray | None:
    names = record.arrays.get("names")
    if names is not None and (names.ndim != 1 or names.dtype.kind != "S"):
        raise RecordError(f"'names' must be as Record.name_samples makes them, got {names.dtype} {names.shape}")
    return names


def _epoch_weights(record: Record) -> np.ndarray:
    """(K,) the weight of each epoch."""
    contrast, variance = [], []
    for losses in record.rows("losses"):
        finite = losses[np.isfinite(losses)]
        enough = len(finite) >= ROWS
        contrast.append(float(_fit(_log_odds(finite)).contrast) if enough else 0.0)
        with np.errstate(over="ignore"):  # a damaged record may overflow
            variance.append(float(np.exp(-finite.astype(np.float64).clip(*LOSS_RANGE)).var()) if len(finite) else 0.0)
    if len(contrast) > 1:
        # The first epoch is that of an untrained network, or of one that changes from row to row.
        contrast[0] = variance[0] = 0.0
    now = np.array(contrast)
    around = np.maximum(np.append(now[1:], 0.0), np.insert(now[:-1], 0, 0.0))
    agreed = np.minimum(now, around)
    if agreed.any():
        return agreed**2
    weights = np.array(variance) ** 2
    return weights if weights.any() else np.ones(len(weights))


def _over_epochs(record: Record, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N,) each: the weighted mean loss, infinite if none was measured, and the weighted share of easy epochs."""
    total, easy, weight = np.zeros(record.n), np.zeros(record.n), np.zeros(record.n)
    for share, losses in zip(weights, record.rows("losses"), strict=True):
        known = np.isfinite(losses)
        total += share * np.where(known, losses, 0.0)
        easy += share * (losses <= math.log(2))
        weight += share * known
    if not weight.any():
        raise RecordError("this record holds no finite losses to rank by")
    some = weight > 0
    weight[~some] = 1.0
    return np.where(some, total / weight, np.inf), easy / weight


def _log_odds(losses: np.ndarray) -> np.ndarray:
    return label_log_odds(torch.from_numpy(np.ascontiguousarray(losses))).numpy()


def _margins(record: Record, labels: np.ndarray | None) -> tuple[np.ndarray, np.ndarray] | None:
    """(N,) each: the given label's mean probability minus the best other one, and the log of their ratio."""
    shares = record.arrays.get("mean_probabilities")
    if shares is None or labels is None:
        return None
    if shares.ndim != 2 or shares.shape[1] < 2 or shares.dtype.kind != "f" or labels.dtype.kind not in "iu":
        raise RecordError(f"'mean_probabilities' must be floats of shape ({record.n}, C), got {shares.shape}")
    if not np.isfinite(shares).all() or labels.min() < 0 or labels.max() >= shares.shape[1]:
        raise RecordError(f"'mean_probabilities' must be finite, with a column for every label; got {shares.shape}")
    margins, ratios = np.empty(record.n), np.empty(record.n)
    for start in range(0, record.n, BLOCK):
        some, given = shares[start : start + BLOCK].astype(np.float64).clip(0), labels[start : start + BLOCK]
        rows = np.arange(len(some))
        mine = some[rows, given]
        some[rows, given] = -1
        other = some.max(axis=1)
        margins[start : start + BLOCK] = (mine - other).clip(-1, 1)
        ratios[start : start + BLOCK] = np.log((mine + FLOOR) / (other + FLOOR))
    return margins, ratios


def _unevenness(shares: np.ndarray, labels: np.ndarray, margins: np.ndarray) -> float:
    """How wrong labels fall on the other classes, by the labels that the network clearly contradicts."""
    classes, sure = shares.shape[1], margins < CONTRADICTED
    if classes == 2:  # there is one other class
        return 1.0
    pairs = np.zeros((classes, classes))
    np.add.at(pairs, (shares[sure].argmax(axis=1), labels[sure]), 1.0)
    return float(unevenness(torch.from_numpy(pairs)))


def _suggest(
    record: Record, labels: np.ndarray | None, issue: np.ndarray, quality: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """(N,) each: the predicted label, or the next best if it is called wrong, and its probability."""
    predicted, shares = record.labels("predicted"), record.arrays.get("mean_probabilities")
    if predicted is None or labels is None or shares is None:
        return predicted, None
    if predicted.dtype.kind not in "iu" or predicted.min() < 0 or predicted.max() >= shares.shape[1]:
        raise RecordError(f"'predicted' must be whole numbers in range({shares.shape[1]}), got {predicted.dtype}")
    predicted, likely = predicted.copy(), np.empty(record.n)
    for start in range(0, record.n, BLOCK):
        part = slice(start, start + BLOCK)
        others, given = shares[part].astype(np.float64), labels[part]
        rows = np.arange(len(given))
        others[rows, given] = 0.0
        again = issue[part] & (predicted[part] == given)
        predicted[part] = np.where(again, others.argmax(axis=1), predicted[part])
        share = others[rows, predicted[part]] / np.maximum(others.sum(axis=1), 1e-9)
        likely[part] = np.where(predicted[part] == given, quality[part], (1 - quality[part]) * share)
    return predicted, likely


def _fit(values: np.ndarray) -> Populations:
    """Two populations, fitted to a histogram."""
    counts, edges = np.histogram(values, BINS)
    return fit_populations(torch.from_numpy((edges[1:] + edges[:-1]) / 2), torch.from_numpy(counts.astype(np.float64)))
