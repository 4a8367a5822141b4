"""A user's data after reading: labels, features, and the name and preview of each row."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

__all__ = ["FEWEST", "Column", "UserData", "named_counts", "number_classes"]

FEWEST = 5  # rows of a class; fewer cannot be judged
NAMED = 8  # classes that are named with their rows
LISTED = 40  # columns that are described one by one
Watch = Callable[[str, int, int], None]  # task, done, total


class Column(NamedTuple):
    """How a column is used: ``taken`` is "label", "id", "number", ..., or "left out"; ``why`` is the reason."""

    name: str
    taken: str
    why: str


@dataclass(frozen=True)
class UserData:
    """Data after reading.

    Attributes:
        kind: ``"table"``, ``"pictures"`` or ``"text"``.
        path: The file or folder.
        labels: (N,) int64, the given classes.
        classes: Their names in the data.
        ids: The name of each row: the value of the id column, ``line 17``, or a path in the folder.
        features: (N, D) float32, computed without the labels.
        groups: (D,) which column of ``columns`` each feature comes from; 0 for pictures and text.
        rows: (N,) the position of each row in the data, from 0 without header and blank lines; in a folder, in the
            sorted list of its files.
        columns: How each column is used.
        skipped: (id, reason) of rows and files that are not used.
        notes: Sentences for the reader.
        layout: ``label``, ``id``, ``separator`` and ``encoding`` of a table, where they apply.
        shown: ``shown(row)``, the preview of a row; see ``show``.
    """

    kind: Literal["table", "pictures", "text"]
    path: Path
    labels: np.ndarray
    classes: list[str]
    ids: list[str]
    features: np.ndarray
    groups: np.ndarray
    rows: np.ndarray
    columns: list[Column] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    layout: Mapping[str, str | None] = field(default_factory=dict)
    shown: Callable[[int], Mapping[str, Any]] = lambda row: {}

    def __len__(self) -> int:
        return len(self.labels)

    def show(self, row: int) -> Mapping[str, Any]:
        """The preview of a row: ``values`` (column to text), ``text``, or ``picture`` (bytes of a small JPEG)."""
        return self.shown(row)

    def message(self) -> str:
        """A summary of how the data was read."""
        where = f" in the column {self.layout['label']!r} (--label)" if self.layout.get("label") else ""
        lines = [f"{self.path}: {len(self):,} rows, {len(self.classes)} classes{where}"]
        lines[0] += "" if not self.skipped else f"; {len(self.skipped):,} left out"
        width = min(30, max((len(one.name) for one in self.columns), default=0))
        lines += [f"  {one.name[:30]:<{width}}  {one.taken:<8}  {one.why}".rstrip() for one in self.columns[:LISTED]]
        if more := Counter(one.taken for one in self.columns[LISTED:]):
            kinds = ", ".join(f"{taken} {count}" for taken, count in more.most_common())
            lines.append(f"  and {sum(more.values())} more columns: {kinds}")
        lines += self.notes
        reasons = Counter(reason for _, reason in self.skipped)
        for reason, count in reasons.most_common(5):
            first = [name for name, why in self.skipped if why == reason][:3]
            lines.append(f"left out, {reason}: {', '.join(first)}{f' and {count - 3:,} more' if count > 3 else ''}")
        if len(reasons) > 5:
            others = sum(count for _, count in reasons.most_common()[5:])
            lines.append(f"left out for other reasons: {others}")
        return "\n".join(lines)


def named_counts(labels: np.ndarray, classes: list[str]) -> str:
    """The classes with their rows, the largest first."""
    counts = [(" ".join(classes[code].split())[:30], count) for code, count in Counter(labels.tolist()).most_common()]
    more = f" and {len(counts) - NAMED:,} more" if len(counts) > NAMED else ""
    return ", ".join(f"{name!r} {count:,}" for name, count in counts[:NAMED]) + more


def _spelling(name: str) -> str:
    """The same for names that differ only in case, spaces, forms of a letter or digits such as 1 and 1.0."""
    plain = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
    with suppress(ValueError):
        return str(float(plain))
    return plain


def number_classes(given: Sequence[str], where: str) -> tuple[np.ndarray, list[str], np.ndarray, list[str]]:
    """Numbers the classes in sorted order; those with fewer than ``FEWEST`` rows cannot be judged.

    Args:
        given: The class of each row.
        where: Name of the data, for errors.

    Returns:
        (N,) int64 numbers, -1 for the rows of classes that are too small; the names of the others; (N,) bool, whether
        the row is kept; and sentences about names that differ only in spelling.

    Example:
        >>> y, classes, kept, notes = number_classes(["b"] * 5 + ["a"] * 6 + ["rare"], "x.csv")
        >>> classes, y[[0, 5, 11]].tolist(), int(kept.sum())
        (['a', 'b'], [1, 0, -1], 11)
    """
    names, codes, counts = np.unique(
        np.asarray(given, dtype=object).astype(str), return_inverse=True, return_counts=True
    )
    large = counts >= FEWEST
    if large.sum() < 2:
        raise ValueError(
            f"{where} cannot be learnt from: it has {len(names)} classes in {len(given):,} rows, and "
            f"{int(large.sum())} of them with {FEWEST} rows or more; at least two such classes are needed"
        )
    numbers = np.where(large, np.cumsum(large) - 1, -1)
    labels = numbers[codes].astype(np.int64)
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(_spelling(str(name)), []).append(str(name))
    notes = [
        f"the classes {' and '.join(map(repr, held))} are treated as different"
        for held in alike.values()
        if len(held) > 1
    ]
    return labels, [str(name) for name in names[large]], labels >= 0, notes
