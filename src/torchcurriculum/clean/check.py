"""Whether corrected labels help: the same training before and after, on the same split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .folds import VOTERS, fold_numbers, train_folds
from .userdata import UserData, Watch

__all__ = ["FixCheck", "check_fix"]


@dataclass(frozen=True)
class FixCheck:
    """Held-out accuracy before and after a fix, over the rows that it leaves unchanged.

    Attributes:
        rows: How many these are.
        before: Accuracy of classifiers trained on the given labels.
        after: Accuracy of classifiers trained on the corrected ones.
        only_before: Rows that only the former get right.
        only_after: Rows that only the latter get right.
    """

    rows: int
    before: float
    after: float
    only_before: int
    only_after: int

    def summary(self) -> str:
        """A summary in a few lines."""
        return (
            f"held-out accuracy on the {self.rows:,} rows whose labels stay: {self.before:.1%} before, "
            f"{self.after:.1%} after\n(same split; {self.only_after:,} rows are right only after, "
            f"{self.only_before:,} only before)"
        )


def check_fix(
    data: UserData,
    changes: Mapping[int, str | None],
    folds: int = 5,
    seed: int = 0,
    watch: Watch = lambda what, done, total: None,
) -> FixCheck:
    """Trains with the given and with the corrected labels, and tests both on held-out rows.

    Rows whose labels change are only trained on, since the two disagree about their right label. So a fix is not
    rewarded for agreeing with itself.

    Args:
        data: The user's data.
        changes: New labels by row, None for a row that is dropped.
        folds: Number of folds.
        seed: Random seed.
        watch: Called as ``watch(what, done, total)``.
    """
    place = {name: number for number, name in enumerate(data.classes)}
    held = fold_numbers(data.labels, data.features, folds, seed)
    after, kept = data.labels.copy(), np.ones(len(data), bool)
    for number, row in enumerate(data.rows.tolist()):
        if row in changes:
            kept[number] = changes[row] in place  # a new class has too few rows to learn
            after[number] = place.get(changes[row] or "", after[number])
    same = ~np.isin(data.rows, list(changes))
    right = []
    for labels, rows in ((data.labels, np.ones(len(data), bool)), (after, kept)):
        x, y, parts = (np.ascontiguousarray(values[rows]) for values in (data.features, labels, held))
        found = train_folds(x, y, len(place), folds, kinds=VOTERS[data.kind], seed=seed, watch=watch, held=parts)
        right.append((found.probabilities.argmax(1) == y)[same[rows]])
    before, later = right
    only_before, only_after = int((before & ~later).sum()), int((later & ~before).sum())
    return FixCheck(int(same.sum()), float(before.mean()), float(later.mean()), only_before, only_after)
