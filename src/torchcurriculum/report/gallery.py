"""The hardest and the most suspicious samples, with pictures or texts, given and suggested labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..audit import Audit, audit, class_names, label_name
from ..audit.samples import choose
from ..record import Previews, Record, RecordError
from .html import escape, missing
from .series import MissingData
from .svg import picture

__all__ = ["Samples", "gallery", "samples"]

EXCERPT = 220  # letters of a text on a card


@dataclass(frozen=True)
class Samples:
    """The samples to show, and the audit they come from.

    Attributes:
        found: The audit.
        suspicious: Rows whose labels are most likely wrong, the most suspicious first.
        hardest: Rows that were rarely easy although their labels seem right, the hardest first.
        previews: Their pictures and texts, or None.
        note: A sentence about previews that are missing or damaged, or "".
    """

    found: Audit
    suspicious: np.ndarray
    hardest: np.ndarray
    previews: Previews | None
    note: str


def samples(record: Record) -> Samples:
    """The audit of a record, and the samples to show.

    Raises:
        MissingData: If the record has no per-sample losses.
    """
    try:
        found = audit(record)
    except RecordError as reason:
        raise MissingData(f"The labels cannot be judged: {reason}.") from reason
    place, previews, note = record.folder or record.source, None, ""
    try:
        previews = None if place is None else Previews.load(place)
    except ValueError as error:
        note = f"No pictures or texts are shown: {error}."
    if previews is None and found.names is None and not note:
        note = "The record holds no pictures or texts of its samples, so rows are shown by their numbers."
    return Samples(found, *choose(found), previews, note)


def gallery(method: str, record: Record, shown: Samples) -> str:
    """Both lists of one record."""
    names, found = class_names(record), shown.found
    parts = [f"<p>By the losses of {escape(method)}, first seed.</p>\n"]
    if shown.note:
        parts.append(missing(shown.note))
    suspicious = f"The {len(shown.suspicious)} most suspicious"
    if found.wrong is not None and len(shown.suspicious):
        wrong = int(found.wrong[shown.suspicious].sum())
        suspicious += f": {wrong} of them really are wrong"
    words = "Given label → suggested label"
    words += "." if found.health else ", and the probability that the given one is wrong."
    parts.append(f"<h3>{escape(suspicious)}</h3>\n<p>{words}</p>\n{_cards(shown, shown.suspicious, names)}")
    if len(shown.hardest):
        agrees = found.given is not None and found.suggested is not None
        words = "Rarely easy, but in the end the network agrees with their labels." if agrees else "Rarely easy."
        parts.append(f"<h3>The hardest of the others</h3>\n<p>{words}</p>\n{_cards(shown, shown.hardest, names)}")
    return "".join(parts)


def _cards(shown: Samples, rows: Sequence[int] | np.ndarray, names: list[str] | None) -> str:
    return '<ol class="gallery">' + "".join(_card(shown, int(row), names) for row in rows) + "</ol>\n"


def _card(shown: Samples, row: int, names: list[str] | None) -> str:
    found, previews = shown.found, shown.previews
    given = label_name(None if found.given is None else found.given[row], names)
    suggested = label_name(None if found.suggested is None else found.suggested[row], names)
    image = None if previews is None else previews.picture(row)
    name, text = found.name(row), None if previews is None else previews.text(row)
    if image is None and text is None:
        text = name
    parts = []
    if image is not None:
        alt = escape(f"Row {row}, given the label {given}")
        parts.append(f'<img src="{picture(image)}" alt="{alt}">')
    if text is not None:
        parts.append(f"<q>{escape(text[:EXCERPT] + ('…' if len(text) > EXCERPT else ''))}</q>")
    alone = found.suggested is None or given == suggested
    label = escape(given) if alone else f"{escape(given)} → {escape(suggested)}"
    told = [] if np.isnan(found.quality[row]) else [f"{1 - float(found.quality[row]):.0%}"]
    if found.wrong is not None:
        told.append("is wrong" if found.wrong[row] else "is right")
    details = ", ".join(told)
    kind = ' class="text"' if text is not None else ""
    words = f'<span class="small">{escape(details)}</span><span class="small">row {row}</span>'
    if name is not None and name != text:
        words += f'<span class="small">{escape(name)}</span>'
    return f"<li{kind}>{''.join(parts)}<b>{label}</b>{words}</li>"
