"""Which samples a page shows: those whose labels are most likely wrong, and the hardest of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..audit import Audit, audit
from ..previews import Previews
from ..record import Record, RecordError
from .series import Missing

__all__ = ["HARDEST", "SUSPICIOUS", "Samples", "class_names", "label_name", "one_line", "samples", "telling_rows"]

SUSPICIOUS, HARDEST = 48, 16
WIDTH = 80  # letters of what a sample is called, in a terminal


@dataclass(frozen=True)
class Samples:
    """What is shown of single samples.

    Attributes:
        found: The audit.
        suspicious: Rows whose labels are most likely wrong, the most suspicious first.
        hardest: Rows that were rarely easy though their labels seem right, the hardest first.
        previews: What they look like, or None.
        note: A sentence about previews that are missing or damaged, or "".
    """

    found: Audit
    suspicious: np.ndarray
    hardest: np.ndarray
    previews: Previews | None
    note: str


def telling_rows(record: Record) -> np.ndarray:
    """Rows that a report will show: those to keep previews of. None where the record holds no losses to judge by."""
    try:
        found = audit(record)
    except RecordError:
        return np.zeros(0, dtype=np.int64)
    return np.concatenate([*_chosen(found)])


def samples(record: Record) -> Samples:
    """The audit of a record, and the samples to show.

    Raises:
        Missing: Where the record holds no losses of single samples.
    """
    try:
        found = audit(record)
    except RecordError as reason:
        raise Missing(f"The labels cannot be judged: {reason}.") from reason
    place, previews, note = record.folder or record.source, None, ""
    try:
        previews = None if place is None else Previews.load(place)
    except ValueError as error:
        note = f"No pictures or texts are shown: {error}."
    if previews is None and found.names is None and not note:
        note = "The record holds no pictures or texts of its samples, so rows are shown by their numbers."
    return Samples(found, *_chosen(found), previews, note)


def _chosen(found: Audit) -> tuple[np.ndarray, np.ndarray]:
    seen = np.isfinite(found.score)
    suspicious = found.order[: min(SUSPICIOUS, int(seen.sum()))]
    right = seen & ~found.issue
    if found.given is not None and found.suggested is not None:
        right &= found.given == found.suggested
    right[suspicious] = False
    rest = np.flatnonzero(right)
    # By how seldom a row was easy, and of equals the more suspicious first.
    order = np.lexsort((-found.score[rest], found.easy[rest]))
    return suspicious, rest[order[:HARDEST]]


def class_names(record: Record) -> list[str] | None:
    """The names of the classes, where the run said them (``meta["classes"]``)."""
    names = record.meta.get("classes")
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def one_line(row: Mapping[str, Any], classes: list[str] | None, text: str | None = None) -> str:
    """A row of an audit for a terminal: given and suggested label, the truth where it is known, and what it is called.

    Example:
        >>> one_line({"given": 0, "suggested": 1, "wrong": True, "name": "7.png"}, ["cat", "dog"])
        'cat -> dog  (wrong)  7.png'
    """
    given, suggested = (label_name(row[key], classes) for key in ("given", "suggested"))
    truth = "" if row["wrong"] is None else "  (wrong)" if row["wrong"] else "  (right)"
    called = "".join(letter if letter.isprintable() else " " for letter in (text or row["name"] or "")[:WIDTH])
    return f"{given} -> {suggested}{truth}  {called}".rstrip()


def label_name(label: object, names: list[str] | None) -> str:
    """A label for people: its name, or its number.

    Example:
        >>> label_name(1, ["cat", "dog"]), label_name(7, ["cat", "dog"]), label_name(None, None)
        ('dog', '7', '–')
    """
    if label is None:
        return "–"
    known = names is not None and isinstance(label, int | np.integer) and 0 <= label < len(names)
    return names[int(label)] if names is not None and known else str(label)  # type: ignore[call-overload]
