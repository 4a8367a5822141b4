"""What the figures show, taken from records as plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..record import Record

__all__ = [
    "DataMap",
    "Missing",
    "Spread",
    "data_map",
    "early_epochs",
    "first_later",
    "label_weights",
    "quantiles",
    "spread",
    "stack",
]

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)  # of the record's weight_quantiles
EASY, HARD = 2 / 3, 1 / 3


class Missing(ValueError):
    """A figure's data are not in the records; the message is the sentence that the page shows instead."""


@dataclass(frozen=True)
class Spread:
    """Values over epochs: mean, least and greatest over seeds, at the epochs that have a value."""

    epochs: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def stack(records: Sequence[Record], name: str) -> np.ndarray:
    """(S, K) a scalar over epochs for every seed, NaN where a record lacks it or is shorter."""
    columns = [record.column(name) for record in records]
    table = np.full((len(columns), max(map(len, columns), default=0)), np.nan)
    for row, column in zip(table, columns, strict=True):
        row[: len(column)] = column
    return table


def spread(table: np.ndarray) -> Spread:
    """Mean, least and greatest of each column of an (S, K) table; columns without a value are left out.

    Example:
        >>> spread(np.array([[1.0, np.nan, 4.0], [3.0, np.nan, np.nan]])).mean
        array([2., 4.])
    """
    known = np.isfinite(table)
    some = known.any(axis=0)
    table, known = table[:, some], known[:, some]
    mean = np.where(known, table, 0.0).sum(axis=0) / known.sum(axis=0)
    low = np.where(known, table, np.inf).min(axis=0, initial=np.inf)
    high = np.where(known, table, -np.inf).max(axis=0, initial=-np.inf)
    return Spread(np.flatnonzero(some) + 1, mean, low, high)


def early_epochs(records: Sequence[Record]) -> np.ndarray:
    """(K,) bool: whether more than half of the seeds are in the early phase."""
    table = np.zeros((2, max((len(record.epochs) for record in records), default=0)))
    for record in records:
        for epoch, row in enumerate(record.epochs):
            table[0, epoch] += row.get("phase") == "early"
            table[1, epoch] += row.get("phase") in ("early", "later")
    return table[0] > table[1] / 2


def first_later(records: Sequence[Record]) -> list[int]:
    """The first epoch (from 1) of the later phase, for each seed that reaches it."""
    firsts = []
    for record in records:
        later = [epoch for epoch, row in enumerate(record.epochs, start=1) if row.get("phase") == "later"]
        firsts += later[:1]
    return firsts


def quantiles(records: Sequence[Record]) -> tuple[np.ndarray, np.ndarray]:
    """Epochs (from 1) and the (K, 7) quantiles of N w in them, each the median over seeds."""
    by_epoch: dict[int, list[list[float]]] = {}
    for record in records:
        for epoch, row in enumerate(record.epochs, start=1):
            if len(row.get("weight_quantiles") or ()) == len(QUANTILES):
                by_epoch.setdefault(epoch, []).append(row["weight_quantiles"])
    if not by_epoch:
        raise Missing("The records hold no quantiles of the weights: this method keeps no weight for each sample.")
    epochs = sorted(by_epoch)
    return np.array(epochs), np.array([np.median(by_epoch[epoch], axis=0) for epoch in epochs])


def label_weights(record: Record) -> tuple[np.ndarray, np.ndarray]:
    """(K,) mean of N w over rows with a right and with a wrong given label, from Eq. 4 applied to alpha and beta.

    E-weighting is a function of alpha_k and of which samples are easy; I- and EI-weighting are not. Where the record
    holds quantiles of the weights they are compared, so that weights which cannot be rebuilt are not shown.

    Raises:
        Missing: Where the record does not hold enough, or its own quantiles disagree.
    """
    right, alpha = _right(record), record.column("alpha")
    easy = record.history("easy") if record.has("easy") else np.zeros((0, record.n), dtype=bool)
    if len(easy) != len(alpha) or not np.isfinite(alpha).all():
        raise Missing("The mean weights of right and wrong labels need alpha and the easy samples of every epoch.")
    means = np.empty((2, len(alpha)))
    log_weights = np.zeros(record.n)
    places = np.round(np.array(QUANTILES) * (record.n - 1)).astype(int)
    for epoch, row in enumerate(record.epochs):
        log_weights -= alpha[epoch] * np.where(easy[epoch], 1.0, -1.0)
        log_weights -= log_weights.max()
        log_weights -= np.log(np.exp(log_weights).mean())
        recorded = row.get("weight_quantiles")
        rebuilt = np.sort(np.exp(log_weights))[places]
        if recorded is not None and not np.allclose(rebuilt, recorded, rtol=1e-3, atol=1e-12):
            raise Missing("The weights of single samples do not follow from alpha and the easy samples (Eq. 4) here.")
        means[:, epoch] = np.exp(log_weights[right]).mean(), np.exp(log_weights[~right]).mean()
    return means[0], means[1]


def _right(record: Record) -> np.ndarray:
    """(N,) bool: whether the given label is the true one; both kinds must be there."""
    if not {"labels", "clean"} <= set(record.arrays):
        raise Missing("The records do not say which labels are wrong, so their weights are not compared.")
    right = np.asarray(record.arrays["labels"] == record.arrays["clean"])
    if right.all() or not right.any():
        raise Missing(f"All given labels are {'right' if right.all() else 'wrong'}, so there is nothing to compare.")
    return right


@dataclass(frozen=True)
class DataMap:
    """Samples by the course of their loss.

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
        Missing: Where the record holds no losses of single samples.
    """
    if not (record.has("losses") and record.has("easy")):
        raise Missing("The records hold no losses of single samples; run with samples=True to keep them.")
    losses, easy = record.history("losses"), record.history("easy")
    known = np.isfinite(losses)
    count = known.sum(axis=0)
    seen = count > 0
    losses, known, count = np.where(known, losses, 0.0)[:, seen], known[:, seen], count[seen]
    mean = losses.sum(axis=0, dtype=float) / count
    std = np.sqrt((np.where(known, losses - mean, 0.0) ** 2).sum(axis=0) / count)
    share = easy[:, seen].mean(axis=0)
    group = np.where(share > EASY, 0, np.where(share < HARD, 2, 1))
    try:
        right = _right(record)[seen]
    except Missing:
        right = None
    return DataMap(mean, std, group, right)
