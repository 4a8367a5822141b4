"""The numbers behind the figures: plain arrays read from records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..record import Record, RecordError
from ..theory.quantities import softmax, trajectory

__all__ = [
    "Curve",
    "DataMap",
    "MissingData",
    "data_map",
    "divergence",
    "early_epochs",
    "group_weights",
    "label_weights",
    "later_phase_starts",
    "over_seeds",
    "scalar_table",
    "weight_quantiles",
]

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)  # of the record's weight_quantiles
EASY, HARD = 2 / 3, 1 / 3
DIVERGED = 3.0  # a run diverged if its mean loss ends above this multiple of the first
LARGEST = 1e12  # of a scalar; a damaged record may hold numbers that no axis has room for


class MissingData(ValueError):
    """The records lack what a chart needs; the message says what is missing."""


@dataclass(frozen=True)
class Curve:
    """A scalar over epochs: its mean, minimum and maximum over seeds, at the epochs that have a value."""

    epochs: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def from_epoch(self, epoch: int) -> Curve:
        """The part from ``epoch`` on."""
        later = self.epochs >= epoch
        return Curve(self.epochs[later], self.mean[later], self.low[later], self.high[later])


def scalar_table(records: Sequence[Record], name: str) -> np.ndarray:
    """(S, K) a scalar by seed and epoch, NaN where a record lacks it or is shorter."""
    values = _pad([record.column(name) for record in records])
    return np.where(np.abs(values) <= LARGEST, values, np.nan)


def _pad(columns: Sequence[np.ndarray]) -> np.ndarray:
    table = np.full((len(columns), max(map(len, columns), default=0)), np.nan)
    for row, column in zip(table, columns, strict=True):
        row[: len(column)] = column
    return table


def over_seeds(table: np.ndarray) -> Curve:
    """The mean, minimum and maximum of each column of an (S, K) table; columns without a value are left out.

    Example:
        >>> over_seeds(np.array([[1.0, np.nan, 4.0], [3.0, np.nan, np.nan]])).mean
        array([2., 4.])
    """
    table = np.where(np.isfinite(table), table, np.nan)
    some = ~np.isnan(table).all(axis=0)
    table = table[:, some]
    low, high = np.nanmin(table, axis=0, initial=np.inf), np.nanmax(table, axis=0, initial=-np.inf)
    return Curve(np.flatnonzero(some) + 1, np.nanmean(table, axis=0), low, high)


def early_epochs(records: Sequence[Record]) -> np.ndarray:
    """(K,) bool: whether more than half of the seeds are in the early phase."""
    table = np.zeros((2, max((len(record.epochs) for record in records), default=0)))
    for record in records:
        for epoch, row in enumerate(record.epochs):
            table[0, epoch] += row.get("phase") == "early"
            table[1, epoch] += row.get("phase") in ("early", "later")
    return table[0] > table[1] / 2


def later_phase_starts(records: Sequence[Record]) -> list[int]:
    """The first epoch (from 1) of the later phase, for each seed that reaches it."""
    firsts = []
    for record in records:
        later = [epoch for epoch, row in enumerate(record.epochs, start=1) if row.get("phase") == "later"]
        firsts += later[:1]
    return firsts


def divergence(record: Record) -> str | None:
    """How a run diverged, as a clause for the top of the page, or None if it did not.

    The median must rise as well: a method that rejects wrong labels raises their losses, and with them the mean.

    Example:
        >>> record = Record(2)
        >>> for loss in (2.0, 9.0):
        ...     record.append({"loss_mean": loss, "loss_quantiles": [loss] * 7})
        >>> divergence(record)
        'its mean training loss went from 2 to 9'
    """
    if record.epochs and "NaN or infinite" in str(record.meta.get("failed")):
        return f"its losses became NaN or infinite in epoch {len(record.epochs) + 1}"
    means = record.column("loss_mean")
    known = np.flatnonzero(np.isfinite(means))
    if not len(known):
        return None
    if known[-1] < len(means) - 1:
        return f"its losses became NaN or infinite in epoch {known[-1] + 2}"
    first, last = means[known[0]], means[-1]
    begin, end = (_median(record.epochs[place].get("loss_quantiles")) for place in known[[0, -1]])
    if last > DIVERGED * first and end > begin:
        return f"its mean training loss went from {first:.3g} to {last:.3g}"
    return None


def _median(values: Any) -> float:
    numbers = isinstance(values, list) and len(values) == len(QUANTILES) and type(values[3]) in (int, float)
    return values[3] if numbers else np.nan


def weight_quantiles(records: Sequence[Record]) -> tuple[np.ndarray, np.ndarray]:
    """Epochs (from 1) and the (K, 7) quantiles of N w in each, the median over seeds."""
    by_epoch: dict[int, list[list[float]]] = {}
    for record in records:
        for epoch, row in enumerate(record.epochs, start=1):
            if values := _checked_quantiles(row.get("weight_quantiles")):
                by_epoch.setdefault(epoch, []).append(values)
    if not by_epoch:
        raise MissingData("The records hold no weights of samples.")
    epochs = sorted(by_epoch)
    return np.array(epochs), np.array([np.median(by_epoch[epoch], axis=0) for epoch in epochs])


def _checked_quantiles(values: Any) -> list[float] | None:
    """The seven quantiles of a row, or None if they are anything else."""
    numbers = isinstance(values, list) and all(type(v) in (int, float) and 0 <= v <= LARGEST for v in values)
    return values if numbers and len(values) == len(QUANTILES) else None


def label_weights(records: Sequence[Record]) -> dict[str, Curve]:
    """Mean of N w over samples whose given label is ``"right"`` and ``"wrong"``, rebuilt from alpha and beta.

    Raises:
        MissingData: If a record does not say which labels are wrong, or did not use E-weighting with losses measured
            at the start of each epoch: other weights cannot be rebuilt from alpha and beta.
    """
    rights = [_right_labels(record) for record in records]
    means = [_group_means(record, right) for record, right in zip(records, rights, strict=True)]
    return {kind: over_seeds(_pad([mean[place] for mean in means])) for place, kind in enumerate(("right", "wrong"))}


def group_weights(records: Sequence[Record]) -> dict[str, Curve]:
    """Mean of N w over the samples that are ``"easy"`` and ``"hard"`` in each epoch, rebuilt in the same way."""
    means = [_group_means(record, None) for record in records]
    return {kind: over_seeds(_pad([mean[place] for mean in means])) for place, kind in enumerate(("easy", "hard"))}


def _group_means(record: Record, group: np.ndarray | None) -> np.ndarray:
    """(2, K) mean weights of one seed: in a group of samples (by default the easy ones) and in all others."""
    means = np.full((2, len(record.epochs)), np.nan)
    try:
        for epoch, (easy, performance) in enumerate(trajectory(record)):
            weights = record.n * softmax(-performance)
            inside = easy if group is None else group
            for place, rows in enumerate((inside, ~inside)):
                if rows.any():
                    means[place, epoch] = weights[rows].mean()
    except RecordError as reason:
        raise MissingData(f"The mean weights of groups of samples cannot be rebuilt: {reason}") from reason
    recorded = _checked_quantiles(record.epochs[-1].get("weight_quantiles"))
    # A single epoch of I-weighting looks like E-weighting until its end.
    if recorded and not np.allclose([weights.min(), weights.max()], [recorded[0], recorded[-1]], rtol=1e-3):
        raise MissingData("The mean weights of groups of samples cannot be rebuilt: weights changed inside epochs.")
    return means


def _right_labels(record: Record) -> np.ndarray:
    """(N,) bool: whether the given label is the true one; raises unless some are right and some are wrong."""
    labels, clean = record.labels("labels"), record.labels("clean")
    if labels is None or clean is None:
        raise MissingData("The records do not say which labels are wrong, so their weights are not compared.")
    right = np.asarray(labels == clean)
    if right.all() or not right.any():
        kind = "right" if right.all() else "wrong"
        raise MissingData(f"All given labels are {kind}, so there is nothing to compare.")
    return right


@dataclass(frozen=True)
class DataMap:
    """Samples placed by how their loss developed.

    Attributes:
        mean: (M,) mean loss of a sample over the epochs.
        std: (M,) standard deviation of its loss.
        group: (M,) 0 where a sample was easy in more than two thirds of the epochs, 2 in fewer than one third, else 1.
        right: (M,) whether its given label is right; None where this is unknown.
    """

    mean: np.ndarray
    std: np.ndarray
    group: np.ndarray
    right: np.ndarray | None


def data_map(record: Record) -> DataMap:
    """Mean and standard deviation of every sample's loss; samples whose loss was never measured are left out.

    Raises:
        MissingData: If the record has no per-sample losses.
    """
    if not (record.has("losses") and record.has("easy")):
        raise MissingData("The records hold no losses of single samples; run with samples=True to keep them.")
    if len(record.epochs) < 2:
        raise MissingData("The run has fewer than two epochs, so no loss could vary.")
    # Epoch by epoch, and the deviations from the mean in a second pass: a sum of squares would lose digits.
    count, total, often = np.zeros(record.n), np.zeros(record.n), np.zeros(record.n)
    for losses, easy in zip(record.rows("losses"), record.rows("easy"), strict=True):
        known = np.isfinite(losses)
        count += known
        total += np.where(known, losses, 0.0)
        often += easy
    seen = count > 0
    if not seen.any():
        raise MissingData("No loss of a single sample was measured.")
    mean, squares = total / np.maximum(count, 1), np.zeros(record.n)
    for losses in record.rows("losses"):
        known = np.isfinite(losses)  # casting NaN or infinity would warn
        squares += (np.where(known, losses, 0.0) - np.where(known, mean, 0.0)) ** 2
    share = often[seen] / len(record.epochs)
    try:
        right = _right_labels(record)[seen]
    except MissingData:
        right = None
    group = np.where(share > EASY, 0, np.where(share < HARD, 2, 1))
    return DataMap(mean[seen], np.sqrt(squares[seen] / count[seen]), group, right)
