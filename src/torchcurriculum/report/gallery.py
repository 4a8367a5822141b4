"""The hardest and the most suspicious samples: what they look like, their given and their suggested label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..record import Record
from .html import escape, missing
from .samples import Samples, class_names, label_name
from .svg import picture

__all__ = ["gallery"]

EXCERPT = 220  # letters of a text on a card


def gallery(method: str, record: Record, shown: Samples) -> str:
    """Both lists of one record."""
    names, found = class_names(record), shown.found
    parts = [f"<p>{escape(method)}, first seed. {escape(found.summary())}</p>\n"]
    if shown.note:
        parts.append(missing(shown.note))
    suspicious = f"The {len(shown.suspicious)} most suspicious"
    if found.wrong is not None and len(shown.suspicious):
        wrong = int(found.wrong[shown.suspicious].sum())
        suspicious += f": {wrong} of them are wrong in truth"
    words = "Labels are shown as given → suggested, with the probability that the given one is wrong."
    parts.append(f"<h3>{escape(suspicious)}</h3>\n<p>{words}</p>\n{_cards(shown, shown.suspicious, names)}")
    if len(shown.hardest):
        agrees = found.given is not None and found.suggested is not None
        words = "Rarely easy, and yet the network has come to agree with their labels." if agrees else "Rarely easy."
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
    wrong = 1 - float(found.quality[row])
    details = f"{wrong:.0%}"
    if found.wrong is not None:
        details += ", is wrong" if found.wrong[row] else ", is right"
    kind = ' class="text"' if text is not None else ""
    words = f'<span class="small">{escape(details)}</span><span class="small">row {row}</span>'
    if name is not None and name != text:
        words += f'<span class="small">{escape(name)}</span>'
    return f"<li{kind}>{''.join(parts)}<b>{label}</b>{words}</li>"
