"""Columns that give the label away, behind which every wrong label hides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .columns import SAMPLE, ColumnUse, cell_texts

__all__ = ["is_copy", "telling_alone"]

COPY = 0.995  # share of rows from which on a column is a copy of the label
RARE = 0.1  # most of the rows outside of the largest class that it may get wrong


def is_copy(cells: Any, labels: np.ndarray) -> bool:
    """Whether a column is a copy of the label: one value per class and one class per value.

    Args:
        cells: A pandas Series.
        labels: (N,) int64.

    Example:
        >>> import pandas
        >>> cells = pandas.Series(["0", "1"] * 20)
        >>> is_copy(cells, np.arange(40) % 2), is_copy(cells, np.arange(40) % 3)
        (True, False)
    """
    if len(set(cell_texts(cells.iloc[:SAMPLE]))) > labels.max() + 1:  # spares most columns a look at every cell
        return False
    codes = np.unique(np.array(cell_texts(cells), dtype=str), return_inverse=True)[1]
    if codes.max() != labels.max():
        return False
    table = _counts(codes, labels)
    return len(set(table.argmax(1).tolist())) == len(table) and bool(table.max(1).sum() >= COPY * len(labels))


def telling_alone(
    taken: Mapping[str, ColumnUse], labels: np.ndarray, features: np.ndarray, groups: np.ndarray
) -> list[str]:
    """A sentence for each column that alone, by its values or by ranges of them, predicts nearly every label.

    Args:
        taken: The use of each column, by its name.
        labels: (N,) int64.
        features: (N, D).
        groups: (D,) the column of each feature, counted from 1.
    """
    from sklearn.tree import DecisionTreeClassifier

    notes, step, most = [], max(1, len(labels) // SAMPLE), np.bincount(labels).max()
    for place, (name, one) in enumerate(taken.items(), 1):
        held = features[:, groups == place]
        if one.texts is not None or not held.shape[1]:
            continue
        ranges = DecisionTreeClassifier(max_leaf_nodes=int(labels.max()) + 1, random_state=0)
        values = one.kind == "category"
        codes = held.argmax(1) if values else ranges.fit(held[::step], labels[::step]).apply(held)
        wrong = len(labels) - _counts(codes, labels).max(1).sum()
        if wrong <= min((1 - COPY) * len(labels), RARE * (len(labels) - most)):
            notes.append(
                f"{name} alone predicts nearly every label; if it was derived from the label, drop it: --drop {name!r}"
            )
    return notes


def _counts(codes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(values, classes) how many rows have each value and each label."""
    classes = labels.max() + 1
    return np.bincount(codes * classes + labels, minlength=(codes.max() + 1) * classes).reshape(-1, classes)
