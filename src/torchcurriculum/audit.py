"""Ranks the training samples whose labels are most likely wrong, from the record of one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .record import Record, RecordError

__all__ = ["Audit", "audit"]


@dataclass(frozen=True)
class Audit:
    """Samples by how likely their label is wrong.

    Attributes:
        order: (N,) rows, the most suspicious first.
        score: (N,) the score of each row; larger is more suspicious.
        given: (N,) the labels that were trained on, or None.
        suggested: (N,) the network's own labels, or None.
        wrong: (N,) whether the label is really wrong, where that is known, or None.
    """

    order: np.ndarray
    score: np.ndarray
    given: np.ndarray | None
    suggested: np.ndarray | None
    wrong: np.ndarray | None

    def precision(self, top: int) -> float | None:
        """The share of really wrong labels among the ``top`` most suspicious; None where the truth is not known."""
        return None if self.wrong is None else float(self.wrong[self.order[:top]].mean())

    def auroc(self) -> float | None:
        """The probability that a wrong label gets a higher score than a right one; None where it is not known."""
        if self.wrong is None or self.wrong.all() or not self.wrong.any():
            return None
        _, inverse, counts = np.unique(self.score, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
        bad = int(self.wrong.sum())
        good = len(self.wrong) - bad
        return float((ranks[self.wrong].sum() - bad * (bad + 1) / 2) / (bad * good))

    def rows(self, top: int) -> list[dict[str, Any]]:
        """The ``top`` most suspicious as plain dicts."""
        columns = {"given": self.given, "suggested": self.suggested, "wrong": self.wrong}
        return [
            {
                "row": int(row),
                "score": float(self.score[row]),
                **{name: None if values is None else values[row].item() for name, values in columns.items()},
            }
            for row in self.order[:top]
        ]


def audit(record: Record) -> Audit:
    """The rows of a record by their mean loss over all epochs, the highest first.

    A network learns what most samples agree on before it memorises the rest, so the loss of a wrong label stays high
    for longer. One late snapshot forgets that; the mean over the run does not.

    Args:
        record: Of a run with ``samples=True``. Arrays ``labels``, ``predicted`` and ``clean`` are used where present.

    Returns:
        The ranking.

    Example:
        >>> record = Record(3)
        >>> record.append({"epoch": 1}, losses=np.array([0.1, 3.0, 0.2]))
        >>> record.append({"epoch": 2}, losses=np.array([0.1, 0.2, 0.3]))
        >>> audit(record).order.tolist()
        [1, 2, 0]
    """
    losses = record.history("losses")
    if not np.isfinite(losses).any():
        raise RecordError("this record holds no finite losses to rank by")
    losses = np.where(np.isfinite(losses), losses, np.nan)
    seen = np.isfinite(losses).any(axis=0)
    score = np.full(record.n, -np.inf)
    score[seen] = np.nanmean(losses[:, seen], axis=0, dtype=np.float64)
    labels, clean = record.labels("labels"), record.labels("clean")
    wrong = labels != clean if labels is not None and clean is not None else None
    return Audit(np.argsort(-score, kind="stable"), score, labels, record.labels("predicted"), wrong)
