"""What an audit found, and how right it is where the truth is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Audit"]


@dataclass(frozen=True)
class Audit:
    """Samples by how likely their label is wrong.

    Attributes:
        order: (N,) rows, the most suspicious first; rows whose loss was never measured come last.
        score: (N,) log-odds that the label is wrong; larger is more suspicious, -inf where nothing is known.
        issue: (N,) bool, whether the label is called wrong. Only where there are two populations.
        rate: Estimated share of wrong labels, from losses and mean probabilities; 0 where there is one population.
        interval: From the lowest to the highest share that they say, with their sampling errors (bootstrap, 95 %). It
            is too narrow where both mistake hard samples for wrong ones. With one population it is (0, 1).
        doubted: Share of rows whose label had a probability below one half, by the weighted mean of their losses.
        visible: Whether losses or mean probabilities formed two populations, so that there is an estimate.
        easy: (N,) accumulated easiness: share of the epochs, by what they count, in which the row was easy.
        given: (N,) the labels that were trained on, or None.
        suggested: (N,) the network's own labels, or None; never the given one where the label is called wrong.
        wrong: (N,) whether the label is really wrong, where that is known, or None.
        names: (N,) what people call the samples, as bytes in UTF-8, or None.
    """

    order: np.ndarray
    score: np.ndarray
    issue: np.ndarray
    rate: float
    interval: tuple[float, float]
    doubted: float
    visible: bool
    easy: np.ndarray
    given: np.ndarray | None
    suggested: np.ndarray | None
    wrong: np.ndarray | None
    names: np.ndarray | None = None

    def name(self, row: int) -> str | None:
        """What people call a sample, where the run said it (``Record.name_samples``)."""
        return None if self.names is None else bytes(self.names[row]).decode("utf-8", "ignore")

    @property
    def quality(self) -> np.ndarray:
        """(N,) in [0, 1]: the probability that the label is right; NaN where nothing is known."""
        with np.errstate(over="ignore"):
            return np.where(np.isfinite(self.score), 1 / (1 + np.exp(self.score)), np.nan)

    def precision(self, top: int) -> float | None:
        """The share of really wrong labels among the ``top`` most suspicious; None where the truth is not known."""
        return None if self.wrong is None or top < 1 else float(self.wrong[self.order[:top]].mean())

    def false_alarms(self) -> int | None:
        """How many right labels are called wrong; None where the truth is not known."""
        return None if self.wrong is None else int((self.issue & ~self.wrong).sum())

    def auroc(self) -> float | None:
        """The probability that a wrong label gets a higher score than a right one; None where it is not known."""
        if self.wrong is None or self.wrong.all() or not self.wrong.any():
            return None
        _, inverse, counts = np.unique(self.score, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
        bad = int(self.wrong.sum())
        good = len(self.wrong) - bad
        return float((ranks[self.wrong].sum() - bad * (bad + 1) / 2) / (bad * good))

    def average_precision(self) -> float | None:
        """The mean, over the wrong labels, of the precision among those ranked at least as high; None if not known."""
        if self.wrong is None or not self.wrong.any():
            return None
        found = self.wrong[self.order]
        precision = np.cumsum(found) / np.arange(1, len(found) + 1)
        return float(precision[found].mean())

    def rows(self, top: int) -> list[dict[str, Any]]:
        """The ``top`` most suspicious as plain dicts."""
        columns = {"given": self.given, "suggested": self.suggested, "wrong": self.wrong}
        quality = self.quality
        return [
            {
                "row": int(row),
                "name": self.name(row),
                "score": float(self.score[row]),
                "quality": float(quality[row]),
                "issue": bool(self.issue[row]),
                "easy": float(self.easy[row]),
                **{name: None if values is None else values[row].item() for name, values in columns.items()},
            }
            for row in self.order[:top]
        ]

    def summary(self) -> str:
        """What was found, in a sentence or two."""
        low, high = self.interval
        if not self.visible:
            return (
                "The losses form one population: no label is called wrong. Either the labels are clean, or their "
                f"errors look like the rest (the network doubted {self.doubted:.1%} of the labels). The ranking stands."
            )
        return (
            f"About {self.rate:.1%} of the labels are wrong (between {low:.1%} and {high:.1%}); "
            f"{int(self.issue.sum()):,} of {len(self.score):,} are called wrong."
        )
