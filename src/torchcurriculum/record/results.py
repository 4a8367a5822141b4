"""Results of runs from their records: the best epoch, and means, spreads and paired differences over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .memory import Record

__all__ = ["FURTHER", "METRICS", "MOMENTS", "Summary", "best_epoch", "summarise", "t_quantile"]

METRICS = {"T-ACC": "test_acc", "E-Prop†": "test_eprop"}
FURTHER = {"E-Prop": "test_eprop_e", "ECE": "test_ece"}  # E-Prop at the training's own threshold e
MOMENTS = ("best", "last")


@dataclass(frozen=True)
class Summary:
    """One metric of one method at one moment, over its seeds; NaN where the records lack it.

    Attributes:
        method: The method's name.
        moment: ``"best"``: at the best-validation epoch; ``"last"``: at the last evaluated epoch.
        metric: ``"T-ACC"``, ``"E-Prop†"``, or one of ``FURTHER``.
        n: Seeds that have a value.
        mean: Their mean.
        std: Their standard deviation with n - 1 in the denominator; NaN for a single seed.
        pairs: Seeds for which the baseline has a value, too.
        difference: Mean difference to the baseline over these pairs.
        low: Lower end of the difference's 95 % t-interval; NaN for fewer than two pairs.
        high: Upper end.
    """

    method: str
    moment: str
    metric: str
    n: int
    mean: float
    std: float
    pairs: int
    difference: float
    low: float
    high: float


def summarise(
    runs: Mapping[str, Sequence[Record]], baseline: str = "vanilla", metrics: Mapping[str, str] = METRICS
) -> list[Summary]:
    """T-ACC and E-Prop† of every method at the best-validation and at the last epoch, mean and spread over seeds.

    Differences are paired by the seeds in the records' meta data; where there are none, the i-th record of a method
    is paired with the i-th of the baseline. Values are as in the records: shares between 0 and 1.

    Args:
        runs: Records by method, one for each seed.
        baseline: The method to compare with; without it differences are NaN.
        metrics: Columns of the records by the name of their metric.

    Returns:
        A row for every moment, method and metric, in this order.

    Example:
        >>> def record(accuracy):
        ...     one = Record(2)
        ...     one.append({"epoch": 1, "valid_acc": accuracy, "test_acc": accuracy})
        ...     return one
        >>> runs = {"vanilla": [record(0.5), record(0.7)], "apw-e": [record(0.6), record(0.9)]}
        >>> row = summarise(runs)[2]                            # differences 0.1 and 0.2
        >>> row.method, row.metric, row.n, round(row.mean, 4), round(row.difference, 4)
        ('apw-e', 'T-ACC', 2, 0.75, 0.15)
        >>> round(row.low, 4), round(row.high, 4)               # 0.15 -+ 12.7062 * 0.05
        (-0.4853, 0.7853)
    """
    rows = []
    for moment in MOMENTS:
        for method, records in runs.items():
            for metric, column in metrics.items():
                values = _values(records, column, moment)
                reference = _values(_partners(records, runs.get(baseline, ())), column, moment)
                mean, std, n, _ = _moments(values)
                difference, _, pairs, half = _moments(values - reference if method != baseline else values[:0])
                low, high = difference - half, difference + half
                rows.append(Summary(method, moment, metric, n, mean, std, pairs, difference, low, high))
    return rows


def best_epoch(record: Record) -> int | None:
    """Position of the first epoch with the highest ``valid_acc``; None where no epoch has one.

    Example:
        >>> record = Record(1)
        >>> for accuracy in (0.5, 0.8, 0.8):
        ...     record.append({"valid_acc": accuracy})
        >>> best_epoch(record)
        1
    """
    valid = record.column("valid_acc")
    return int(np.nanargmax(valid)) if np.isfinite(valid).any() else None


def t_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's t: half the width of a 95 % interval, in standard errors.

    With theta = atan(t / sqrt(v)), the probability of |T| <= t is a finite sum of cosines for every whole v; it grows
    with theta, so bisection finds the quantile.

    Args:
        freedom: Degrees of freedom v, at least 1.

    Example:
        >>> [round(t_quantile(v), 3) for v in (1, 2, 4, 9)]
        [12.706, 4.303, 2.776, 2.262]
    """
    if freedom < 1:
        raise ValueError(f"a t-interval needs at least one degree of freedom (two values), got {freedom}")
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < 0.95 else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _within(theta: float, freedom: int) -> float:
    """P(|T| <= sqrt(v) tan(theta)) for v degrees of freedom."""
    odd = freedom % 2
    term = total = (math.cos(theta) if odd else 1.0) if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= math.cos(theta) ** 2 * (k - 1) / k
        total += term
    return (theta + math.sin(theta) * total) * 2 / math.pi if odd else math.sin(theta) * total


def _partners(records: Sequence[Record], others: Sequence[Record]) -> list[Record | None]:
    """For each record, the one of ``others`` with the same seed, or the same position if records have no seeds."""
    keyed = {_key(other, place): other for place, other in enumerate(others)}
    return [keyed.get(_key(record, place)) for place, record in enumerate(records)]


def _key(record: Record, place: int) -> tuple[str, int]:
    seed = record.meta.get("seed")
    return ("seed", seed) if isinstance(seed, int) else ("place", place)


def _values(records: Sequence[Record | None], column: str, moment: str) -> np.ndarray:
    """(S,) one value per seed, NaN where a record has none."""
    return np.array([_value(record, column, moment) for record in records], dtype=float)


def _value(record: Record | None, column: str, moment: str) -> float:
    if record is None:
        return math.nan
    values = record.column(column)
    if moment == "best":
        epoch = best_epoch(record)
        return math.nan if epoch is None else float(values[epoch])
    known = np.flatnonzero(np.isfinite(values))
    return float(values[known[-1]]) if len(known) else math.nan


def _moments(values: np.ndarray) -> tuple[float, float, int, float]:
    """Mean, standard deviation, count, and half the width of the mean's 95 % interval, of the finite values."""
    values = values[np.isfinite(values)]
    n = len(values)
    if n < 2:
        return (float(values[0]) if n else math.nan), math.nan, n, math.nan
    with np.errstate(all="ignore"):  # values of a damaged record may overflow
        std = float(values.std(ddof=1))
        return float(values.mean()), std, n, t_quantile(n - 1) * std / math.sqrt(n)
