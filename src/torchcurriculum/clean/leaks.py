"""Columns that give the label away, behind which every wrong label hides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .columns import SAMPLE, ColumnUse, cell_texts

__all__ = ["is_copy", "notes_on_columns"]

COPY = 0.995  # share of rows from which on a column is a copy of the label
BY_WHOM = re.compile(r"annotat|label+er|label+ed.?by|rater(?![a-z])|worker.?id|batch.?(?:id|n)|^batch$", re.IGNORECASE)
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


def notes_on_columns(
    taken: Mapping[str, ColumnUse], labels: np.ndarray, classes: Sequence[str], features: np.ndarray, groups: np.ndarray
) -> list[str]:
    """A sentence for each column that alone predicts nearly every label, by its values, ranges of them, or its text.

    And for each that is named like the people or the batches that labels come from.

    Args:
        taken: The use of each column, by its name.
        labels: (N,) int64.
        classes: Their names.
        features: (N, D).
        groups: (D,) the column of each feature, counted from 1.
    """
    notes, step = [], max(1, len(labels) // SAMPLE)
    for place, (name, one) in enumerate(taken.items(), 1):
        held = features[:, groups == place]
        if BY_WHOM.search(name) and one.texts is None and held.shape[1]:
            notes.append(f"{name} seems to say who gave a label; mistakes that follow it are missed: --drop {name!r}")
        if one.texts is not None:
            told = _named_in(one.texts()[::step], labels[::step], classes)
        elif not held.shape[1]:
            continue
        else:
            told = _told(one, held, labels, step)
        if told:
            notes.append(
                f"{name} alone predicts nearly every label; if it was derived from the label, drop it: --drop {name!r}"
            )
    return notes


def _told(one: ColumnUse, held: np.ndarray, labels: np.ndarray, step: int) -> bool:
    """Whether the values of a column, or ranges of them, predict nearly every label."""
    from sklearn.tree import DecisionTreeClassifier

    ranges = DecisionTreeClassifier(max_leaf_nodes=int(labels.max()) + 1, random_state=0)
    values = one.kind == "category"
    codes = held.argmax(1) if values else ranges.fit(held[::step], labels[::step]).apply(held)
    wrong = len(labels) - _counts(codes, labels).max(1).sum()
    return bool(wrong <= min((1 - COPY) * len(labels), RARE * (len(labels) - np.bincount(labels).max())))


def _named_in(texts: Sequence[str], labels: np.ndarray, classes: Sequence[str]) -> bool:
    """Whether nearly every text holds the name of its class, and of no other."""
    places = {name.lower(): place for place, name in enumerate(classes)}
    names = "|".join(re.escape(name) for name in sorted(places, key=len, reverse=True))
    form = re.compile(rf"(?<!\w)(?:{names})(?!\w)")
    found = [{places[name] for name in form.findall(text.lower())} for text in texts]
    right = sum(held == {label} for held, label in zip(found, labels.tolist(), strict=True))
    return right >= COPY * len(labels)


def _counts(codes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(values, classes) how many rows have each value and each label."""
    classes = labels.max() + 1
    return np.bincount(codes * classes + labels, minlength=(codes.max() + 1) * classes).reshape(-1, classes)
