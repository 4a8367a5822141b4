"""Which samples to show people: those whose labels are most likely wrong, and the hardest of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..record import Record, RecordError
from .ranking import audit
from .result import Audit

__all__ = ["HARDEST", "SUSPICIOUS", "choose", "label_name", "one_line", "printable", "telling_rows"]

SUSPICIOUS, HARDEST = 48, 16
WIDTH = 80  # letters of a sample's name in a terminal


def telling_rows(record: Record) -> np.ndarray:
    """Rows that a report will show, to keep previews of; empty if the record has no usable losses."""
    try:
        return np.concatenate(choose(audit(record)))
    except RecordError:
        return np.zeros(0, dtype=np.int64)


def choose(found: Audit) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose labels are most likely wrong, and rows that were rarely easy although their labels seem right."""
    seen = np.isfinite(found.score)
    suspicious = found.order[: min(SUSPICIOUS, int(seen.sum()))]
    right = seen & ~found.issue
    if found.given is not None and found.suggested is not None:
        right &= found.given == found.suggested
    right[suspicious] = False
    rest = np.flatnonzero(right)
    # The rarely easy first; among equals, the more suspicious.
    order = np.lexsort((-found.score[rest], found.easy[rest]))
    return suspicious, rest[order[:HARDEST]]


def one_line(row: Mapping[str, Any], classes: list[str] | None, text: str | None = None) -> str:
    """A row of an audit for a terminal: given and suggested label, whether it is wrong if known, and its name.

    Example:
        >>> one_line({"given": 0, "suggested": 1, "wrong": True, "name": "7.png"}, ["cat", "dog"])
        'cat -> dog  (wrong)  7.png'
    """
    given, suggested = (label_name(row[key], classes) for key in ("given", "suggested"))
    truth = "" if row["wrong"] is None else "  (wrong)" if row["wrong"] else "  (right)"
    called = (text or row["name"] or "")[:WIDTH]
    return printable(f"{given[:WIDTH]} -> {suggested[:WIDTH]}{truth}  {called}").replace("\n", " ").rstrip()


def printable(text: str) -> str:
    """Text for a terminal: control characters other than line ends become spaces, so that escapes have no effect.

    Example:
        >>> printable("a\\x1b[31mb")
        'a [31mb'
    """
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text)


def label_name(label: object, names: list[str] | None) -> str:
    """A label for people: its name, or its number.

    Example:
        >>> label_name(1, ["cat", "dog"]), label_name(7, ["cat", "dog"]), label_name(None, None)
        ('dog', '7', '–')
    """
    if label is None:
        return "–"
    if names is not None and isinstance(label, int | np.integer) and 0 <= label < len(names):
        return names[int(label)]
    return str(label)
