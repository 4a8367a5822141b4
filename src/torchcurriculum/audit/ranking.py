r"""Ranks the training samples whose labels are most likely wrong, from the record of one run.

**Which epochs speak.** A network learns what most samples agree on before it memorises the rest. In between, the losses
form two populations. Each epoch is asked for them by the fit behind ``threshold="auto"``: two normal distributions over
the log-odds of the labels. An epoch counts by the square of their contrast D sqrt(w (1 - w)), the variance between the
populations over that within, if a neighbouring epoch agrees. Where no two epochs show two populations, an epoch counts
by the square of the variance of the labels' probability over the samples: that is small before a network has learnt
anything, and again when it has learnt everything by heart.

**Two opinions.** The mean loss over the run, weighted so, says how long a label stayed improbable; the mean
probabilities (where the record holds them, see ``Predictions``) say whether there was a better one. Both are log-odds.
Where there are two populations, each becomes the log-odds of belonging to the lower one, and the score is their mean: a
logarithmic pool, because the two are no independent witnesses. The share of wrong labels is the mean of the two shares
of the lower population, and its interval holds both with their sampling errors. An opinion that is one population has
no part in this.

**When no epoch shows it.** Mistakes that people make are between classes that look alike, and their losses in an epoch
form no population of their own. Then the mean probabilities p of the labels are asked: if a share rho of labels were
drawn from other classes, a label would be wrong with odds rho (1 - p) / ((1 - rho) (C - 1) p), and rho is their fixed
point (expectation-maximisation). It is 0 on clean data. From 5 % on, and if the margins form two populations, there are
two.

**Easiness.** The accumulated performance g_K and m_K of the theory were tried in the same place and rank worse: alpha
changes its sign with the phase, and a flag knows less than a loss (docs/results/audit.md). The accumulated easiness is
shown beside the score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..functional.apw import RHO_CLIP
from ..functional.noise import LOSS_RANGE, ROWS, STEPS, Populations, fit_populations, label_log_odds
from ..functional.rapw import right_odds
from ..record import Record, RecordError
from .health import doubts_of_findings, doubts_of_losses, doubts_of_probabilities
from .outside import judge_outside
from .result import Audit

__all__ = ["audit"]

BINS = 1024  # of log-odds; a fit to them costs the same for a thousand rows and for a million
DRAWS = 200  # of the bootstrap
BLOCK = 2**14  # rows at a time where there are C numbers for each
DOUBTED = 0.05  # of the labels, from which on probabilities say that some are wrong; chosen on digits and CIFAR-10N
FLOOR = 1e-2  # of a probability in a ratio: float16 and a network's last per cent say nothing


def audit(
    run: Record | Any,
    pred_probs: Any = None,
    *,
    classes: Sequence[object] | None = None,
    names: Sequence[object] | None = None,
) -> Audit:
    """The rows by how likely their label is wrong, from the record of a run, or from labels and probabilities.

    Args:
        run: The record of a run with ``samples=True``, whose arrays ``labels``, ``predicted``, ``mean_probabilities``
            and ``clean`` are used where present; or the labels, (N,).
        pred_probs: With labels, (N, C) out-of-sample probabilities: of any model that did not see the row, such as
            those of cross-validation.
        classes: With labels, the names of the columns of ``pred_probs``; needed where labels are not numbers.
        names: With labels, what people call the samples.

    Returns:
        The ranking, the labels called wrong and the estimate of their share; ``health`` says why it calls none.

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
        return judge_outside(run, pred_probs, classes, names)
    for name, value in {"pred_probs": pred_probs, "classes": classes, "names": names}.items():
        if value is not None:
            raise ValueError(f"{name} goes with labels; a Record has its own")
    return _judge_record(run)


def _judge_record(record: Record) -> Audit:
    weights, visible = _epoch_weights(record)
    loss, easy = _over_epochs(record, weights)
    seen = np.isfinite(loss)
    labels, clean = record.labels("labels"), record.labels("clean")
    opinions = [_log_odds(np.where(seen, loss, 0.0))]
    if (second := _margins(record, labels)) is not None:
        opinions.append(second)
    fits = [_fit(values[seen]) for values in opinions]
    visible = visible and bool(fits[0].real)
    if not visible and second is not None and fits[1].real:
        visible = _wrong_by_probabilities(record, labels) >= DOUBTED
    see_two = [(fit, values) for fit, values in zip(fits, opinions, strict=True) if visible and fit.real]
    scores = [fit.log_odds(torch.from_numpy(values)).numpy() for fit, values in see_two]
    score = np.where(seen, np.mean(scores or [-values for values in opinions], axis=0), -np.inf)
    with np.errstate(over="ignore"):
        quality = np.where(np.isfinite(score), 1 / (1 + np.exp(score)), np.nan)
    share = float(np.mean([float(fit.share) for fit, _ in see_two])) if visible else 0.0
    low, high = _interval([values[seen] for _, values in see_two]) if visible else (0.0, 1.0)
    health = _doubts(record, labels, int(seen.sum()))
    if not health and not visible:
        health = ["The losses show one group: either all labels are right, or wrong ones look like the rest."]
    if not health and labels is not None and labels.dtype.kind in "iu":
        health = doubts_of_findings(quality[seen] < 0.5, labels[seen], share, int(labels.max()) + 1)
    if health:
        quality, share, low, high = np.full(record.n, np.nan), 0.0, 0.0, 1.0
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
        easy=easy,
        given=labels,
        suggested=_suggest(record, labels, issue),
        wrong=None if labels is None or clean is None else labels != clean,
        names=_names(record),
    )


def _doubts(record: Record, labels: np.ndarray | None, known: int) -> list[str]:
    if known < ROWS:
        return [f"There are too few rows to judge by: {known}, and {ROWS} are needed."]
    classes = 2 if labels is None or labels.dtype.kind not in "iu" else int(labels.max()) + 1
    if doubts := doubts_of_losses(record.rows("losses"), classes):
        return doubts
    shares = record.arrays.get("mean_probabilities")
    if labels is None or shares is None:
        return []
    return doubts_of_probabilities(shares.argmax(axis=1), labels, shares.shape[1])


def _names(record: Record) -> np.ndarray | None:
    names = record.arrays.get("names")
    if names is not None and (names.ndim != 1 or names.dtype.kind != "S"):
        raise RecordError(f"'names' must be as Record.name_samples makes them, got {names.dtype} {names.shape}")
    return names


def _epoch_weights(record: Record) -> tuple[np.ndarray, bool]:
    """(K,) what each epoch counts, and whether two in a row show two populations."""
    contrast, variance = [], []
    for losses in record.rows("losses"):
        finite = losses[np.isfinite(losses)]
        enough = len(finite) >= ROWS
        contrast.append(float(_fit(_log_odds(finite)).contrast) if enough else 0.0)
        with np.errstate(over="ignore"):  # of a damaged record
            variance.append(float(np.exp(-finite.astype(np.float64).clip(*LOSS_RANGE)).var()) if len(finite) else 0.0)
    if len(contrast) > 1:
        # Of an untrained network or, where losses are those seen in training, of one that changes from row to row.
        contrast[0] = variance[0] = 0.0
    now = np.array(contrast)
    around = np.maximum(np.append(now[1:], 0.0), np.insert(now[:-1], 0, 0.0))
    agreed = np.minimum(now, around)
    if agreed.any():
        return agreed**2, True
    weights = np.array(variance) ** 2
    return (weights if weights.any() else np.ones(len(weights))), False


def _over_epochs(record: Record, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N,) each: the weighted mean loss, infinite where none was measured, and the weighted share of easy epochs."""
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


def _margins(record: Record, labels: np.ndarray | None) -> np.ndarray | None:
    """(N,) log of the given label's mean probability over that of the best other one; None where it is not known."""
    shares = record.arrays.get("mean_probabilities")
    if shares is None or labels is None:
        return None
    if shares.ndim != 2 or shares.shape[1] < 2 or shares.dtype.kind != "f" or labels.dtype.kind not in "iu":
        raise RecordError(f"'mean_probabilities' must be floats of shape ({record.n}, C), got {shares.shape}")
    if not np.isfinite(shares).all() or labels.min() < 0 or labels.max() >= shares.shape[1]:
        raise RecordError(f"'mean_probabilities' must be finite, with a column for every label; got {shares.shape}")
    margins = np.empty(record.n)
    for start in range(0, record.n, BLOCK):
        some, given = shares[start : start + BLOCK].astype(np.float64).clip(0), labels[start : start + BLOCK]
        rows = np.arange(len(some))
        mine = some[rows, given]
        some[rows, given] = -1
        margins[start : start + BLOCK] = np.log((mine + FLOOR) / (some.max(axis=1) + FLOOR))
    return margins


def _wrong_by_probabilities(record: Record, labels: np.ndarray | None) -> float:
    """The share of wrong labels at which the mean probabilities of the given ones agree with it; 0 on clean data."""
    assert labels is not None
    shares = record.arrays["mean_probabilities"]
    p = shares[np.arange(record.n), labels].astype(np.float64).clip(FLOOR**3, 1)
    losses, rho = -torch.from_numpy(p).log(), 0.5
    for _ in range(STEPS):  # RAPW does one such step an epoch
        wrong = torch.sigmoid(-right_odds(losses, rho, shares.shape[1]))
        rho = float(wrong.mean().clamp(RHO_CLIP, 1 - RHO_CLIP))
    return rho


def _suggest(record: Record, labels: np.ndarray | None, issue: np.ndarray) -> np.ndarray | None:
    """(N,) what the network says; where that is a label called wrong, its next best."""
    predicted, shares = record.labels("predicted"), record.arrays.get("mean_probabilities")
    if predicted is None or labels is None or shares is None:
        return predicted
    predicted, again = predicted.copy(), np.flatnonzero(issue & (predicted == labels))
    others = shares[again].astype(np.float32)
    others[np.arange(len(again)), labels[again]] = -1
    predicted[again] = others.argmax(axis=1)
    return predicted


def _fit(values: np.ndarray) -> Populations:
    return fit_populations(*_counted(values))


def _counted(values: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """The middles of equal bins, and how many values lie in each."""
    counts, edges = np.histogram(values, BINS)
    return torch.from_numpy((edges[1:] + edges[:-1]) / 2), torch.from_numpy(counts.astype(np.float64))


def _interval(opinions: list[np.ndarray]) -> tuple[float, float]:
    """From the lowest to the highest of 95 % of each opinion's shares in samples drawn anew from the rows."""
    ends = []
    for values in opinions:
        middles, counts = _counted(values)
        drawn = np.random.default_rng(0).multinomial(len(values), counts.numpy() / len(values), DRAWS)
        shares = fit_populations(middles, torch.from_numpy(drawn.astype(np.float64))).share.numpy()
        ends.append(np.quantile(shares, [0.025, 0.975]))
    return float(np.min(ends)), float(np.max(ends))
