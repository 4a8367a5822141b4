"""What an audit found, and how right it is where the truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..record import Record

__all__ = ["Audit", "called_wrong", "class_names"]

FALSELY = 0.07  # of the labels called wrong, at the most, that are expected to be right


def called_wrong(
    quality: np.ndarray, share: float, low: float, views: Sequence[tuple[np.ndarray, float]] = ()
) -> np.ndarray:
    """(N,) bool, the labels called wrong: the most suspicious, while at most 7 % of them are expected to be right.

    Expected cautiously: as if only ``low`` of the labels were wrong, not ``share``. So the odds of each label are moved
    by the ratio of the two. Nothing is called where ``low`` is 0, and little where the interval is wide. With views,
    each of them must hold the label for wrong, too, and it is no worse than the geometric mean of what they say.

    Args:
        quality: (N,) the probability that the label is right; NaN where nothing is known.
        share: Estimated share of wrong labels.
        low: The lower end of its interval.
        views: Quality and share by fewer columns each.

    Example:
        >>> quality = np.array([0.01, 0.2, 0.9, 0.02])
        >>> called_wrong(quality, 0.2, 0.15).tolist(), called_wrong(quality, 0.2, 0.02).tolist()
        ([True, False, False, True], [False, False, False, False])
        >>> called_wrong(quality, 0.2, 0.15, [(np.array([0.01, 0.2, 0.9, 0.9]), 0.2)] * 2).tolist()
        [True, False, False, False]
    """
    called = np.zeros(len(quality), bool)
    if low > 0:
        cautious = _moved(quality, share, low)
        if views:
            by_view = np.array([_moved(one, of, low) for one, of in views])
            pooled = np.maximum(cautious, by_view.prod(axis=0) ** (1 / len(views)))
            cautious = np.where(by_view.max(axis=0) < 0.5, pooled, 1.0)
        order = np.argsort(cautious)  # NaN comes last
        expected = np.cumsum(cautious[order]) / np.arange(1, len(order) + 1)
        called[order] = (expected <= FALSELY) & (cautious[order] < 0.5)
    return called


def _moved(quality: np.ndarray, share: float, low: float) -> np.ndarray:
    odds = low * (1 - share) / (share * (1 - low)) if share > low else 1.0
    moved: np.ndarray = quality / (quality + (1 - quality) * odds)
    return moved


def class_names(record: Record) -> list[str] | None:
    """The names of the classes, where the run said them (``meta["classes"]``)."""
    names = record.meta.get("classes")
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


@dataclass(frozen=True)
class Audit:
    """Samples by how likely their label is wrong.

    Attributes:
        order: (N,) rows, the most suspicious first; rows of which nothing is known come last.
        score: (N,) what they are ordered by; larger is more suspicious, -inf where nothing is known.
        quality: (N,) in [0, 1], the probability that the label is right; NaN where nothing is known.
        issue: (N,) bool, whether the label is called wrong, see ``called_wrong``; none where the audit does not speak.
        share: Estimated share of wrong labels; 0 where the audit does not speak.
        share_low: Where the share begins at the least, with its sampling error and that of the model (95 %).
        share_high: Where it ends at the most. The interval is (0, 1) where the audit does not speak.
        health: Why the audit does not speak, in whole sentences; empty where it does.
        easy: (N,) accumulated easiness: share of the epochs, by what they count, in which the row was easy.
        given: (N,) the labels that were trained on, or None.
        suggested: (N,) the most probable true labels, or None; never the given one where the label is called wrong.
        suggestion_probability: (N,) how probable the suggested label is, or None.
        wrong: (N,) whether the label is really wrong, where that is known, or None.
        names: (N,) what people call the samples, as bytes in UTF-8, or None.
        classes: What people call the classes, or None.
    """

    order: np.ndarray
    score: np.ndarray
    quality: np.ndarray
    issue: np.ndarray
    share: float
    share_low: float
    share_high: float
    health: list[str]
    easy: np.ndarray
    given: np.ndarray | None
    suggested: np.ndarray | None
    suggestion_probability: np.ndarray | None = None
    wrong: np.ndarray | None = None
    names: np.ndarray | None = None
    classes: list[str] | None = None

    def name(self, row: int) -> str | None:
        """What people call a sample, where the run said it (``Record.name_samples``)."""
        return None if self.names is None else bytes(self.names[row]).decode("utf-8", "ignore")

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
        columns["suggestion_probability"] = self.suggestion_probability
        return [
            {
                "row": int(row),
                "name": self.name(row),
                "score": float(self.score[row]),
                "quality": float(self.quality[row]),
                "issue": bool(self.issue[row]),
                "easy": float(self.easy[row]),
                **{name: None if values is None else values[row].item() for name, values in columns.items()},
            }
            for row in self.order[:top]
        ]

    def summary(self) -> str:
        """What was found, in a sentence or two."""
        if self.health:
            return f"No label is called wrong. {self.health[0]}"
        between = f"between {self.share_low:.1%} and {self.share_high:.1%}"
        if not self.share_low:
            return f"No label is called wrong: {between} of them are, so all may be right. The ranking stands."
        if not self.issue.any():
            return f"No label is called wrong: {between} of them are, but not one of them surely. The ranking stands."
        return (
            f"About {self.share:.1%} of the labels are wrong ({between}); "
            f"{int(self.issue.sum()):,} of {len(self.score):,} are called wrong."
        )
