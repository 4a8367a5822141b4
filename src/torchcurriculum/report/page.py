"""The report: one HTML file that needs nothing else, made from records."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from ..record import Record
from .figures import curves, phases, sample_map, weights
from .series import Missing
from .style import STYLE
from .svg import picture
from .table import METRICS, Summary, summarise

__all__ = ["write_report"]

MOST_AUDITED = 100
MOMENT_WORDS = {"best": "At the best-validation epoch", "last": "At the last evaluated epoch"}
PHASES_WORDS = (
    "ρ is the weight that lies on hard samples. While it is high, easy samples gain weight (the early phase, shaded, "
    "α below zero); afterwards hard ones do (the later phase, α above zero)."
)
WEIGHTS_WORDS = "The weight w of each sample times their number N: 1 is the weight it would have in plain training."
MAP_WORDS = (
    "Samples by the course of their loss: at the bottom left those that are learnt early and stay so, at the top those "
    "that are hardly learnt at all, among them many with a wrong label."
)
Runs = Mapping[str, Sequence[Record]]
Drawing = Callable[[str, Sequence[Record], str], tuple[str, str]]


def write_report(
    runs: Runs,
    path: str | Path,
    *,
    title: str,
    table_html_or_rows: str | Sequence[Summary] | None = None,
    audits: Sequence[Mapping[str, Any]] | None = None,
) -> Path:
    """Writes the page: comparison, curves, phases, weights, data maps and the labels most likely wrong.

    What the records do not hold is said in a sentence where it would stand.

    Args:
        runs: Records by method, one for each seed, seeds in the same order for every method.
        path: The file to write; missing folders are made.
        title: The page's heading.
        table_html_or_rows: Rows of the comparison instead of ``summarise(runs)``, or HTML that is put in as it stands.
        audits: Rows with ``row``, ``given``, ``suggested``, ``score`` and, where known, ``wrong`` (bool) and
            ``picture`` ((H, W) or (H, W, 3)), the most suspicious first.

    Returns:
        The path of the file.

    Example:
        >>> import tempfile
        >>> record = Record(2)
        >>> record.append({"epoch": 1, "valid_acc": 0.5, "test_acc": 0.5})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_report({"vanilla": [record]}, f"{folder}/report.html", title="One run").name
        'report.html'
    """
    runs = {method: list(records) for method, records in runs.items() if records}
    numbers = (f"f{number}" for number in count(1))
    if isinstance(table_html_or_rows, str):
        comparison = table_html_or_rows
    else:
        comparison = _comparison(summarise(runs) if table_html_or_rows is None else table_html_or_rows)
    sections = {
        "Comparison": comparison,
        "Test curves": _curves(runs, numbers),
        "Phases of training": _phases(runs, numbers),
        "Weights": _each(WEIGHTS_WORDS, runs, weights, numbers),
        "Data map": _each(MAP_WORDS, runs, sample_map, numbers),
        "Labels most likely wrong": _audit(audits),
    }
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(_page(title, _lede(runs), sections), encoding="utf-8")
    os.replace(temporary, path)  # a reader sees the old page or the new one, never half of it
    return path


def _page(title: str, lede: str, sections: Mapping[str, str]) -> str:
    anchors = {name: name.lower().replace(" ", "-") for name in sections}
    links = "".join(f'<li><a href="#{anchor}">{escape(name)}</a></li>' for name, anchor in anchors.items())
    body = "\n".join(
        f'<section aria-labelledby="{anchors[name]}"><h2 id="{anchors[name]}">{escape(name)}</h2>\n{content}</section>'
        for name, content in sections.items()
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header><h1>{escape(title)}</h1>
<p class="lede">{lede}</p>
<nav aria-label="Sections"><ul>{links}</ul></nav></header>
<main id="content">
{body}
</main>
<footer>Made by torchcurriculum from the records of these runs, and from nothing else.</footer>
</body>
</html>
"""


def _lede(runs: Runs) -> str:
    records = [record for several in runs.values() for record in several]
    if not records:
        return "There are no records to report on."
    parts = [
        _count([len(runs)], "method"),
        _count([len(several) for several in runs.values()], "seed") + (" each" if len(runs) > 1 else ""),
        _count([len(record.epochs) for record in records], "epoch"),
        _count([record.n for record in records], "training row"),
    ]
    return ", ".join(parts) + "."


def _count(values: Sequence[int], noun: str) -> str:
    low, high = min(values), max(values)
    number = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{number} {noun}{'' if high == 1 else 's'}"


def _missing(sentence: str) -> str:
    return f'<p class="missing">{escape(sentence)}</p>\n'


# ---------------------------------------------------------------------- the comparison


def _comparison(rows: Sequence[Summary]) -> str:
    if not rows:
        return _missing("There are no records to compare.")
    parts = [
        "<p>T-ACC is the accuracy on the test set; E-Prop† is the share of its samples with a loss of at most log 2, "
        "that is, given a probability of one half or more. Numbers are per cent, mean ± standard deviation over "
        "seeds.</p>\n"
    ]
    if not any(math.isfinite(row.difference) for row in rows):
        parts.append(_missing("Differences need records of vanilla and of another method with test results."))
    elif not any(math.isfinite(row.low) for row in rows):
        parts.append(_missing("An interval for the differences needs two seeds or more."))
    for moment, words in MOMENT_WORDS.items():
        some = [row for row in rows if row.moment == moment]
        if any(row.n for row in some):
            parts.append(_comparison_table(words, some))
        else:
            needs = "valid_acc and test_acc or test_eprop" if moment == "best" else "test_acc or test_eprop"
            parts.append(_missing(f"{words}: nothing to show, since the records hold no {needs}."))
    return "".join(parts)


def _comparison_table(words: str, rows: Sequence[Summary]) -> str:
    differences = any(math.isfinite(row.difference) for row in rows)
    head = ["Method", "Seeds"]
    for metric in METRICS:
        head += [metric, f"{metric} − vanilla"] if differences else [metric]
    best = _highest(rows)
    lines = []
    for method in dict.fromkeys(row.method for row in rows):
        mine = {row.metric: row for row in rows if row.method == method}
        cells = [str(max(row.n for row in mine.values()))]
        for metric, row in mine.items():
            text = _mean(row)
            cells.append(f"<strong>{text}</strong>" if row.mean == best.get(metric) else text)
            cells += [_difference(row)] if differences else []
        lines.append((escape(method), cells))
    caption = f"{words}; the highest mean is bold." if best else f"{words}."
    if differences:
        caption += " Differences are paired by seed, with the 95 % t-interval of their mean below."
    return _table(caption, head, lines)


def _highest(rows: Sequence[Summary]) -> dict[str, float]:
    """The highest mean of each metric that more than one method has."""
    means = {metric: [row.mean for row in rows if row.metric == metric and row.n] for metric in METRICS}
    return {metric: max(values) for metric, values in means.items() if len(values) > 1}


def _mean(row: Summary) -> str:
    if not row.n:
        return "–"
    return f"{100 * row.mean:.2f}" + (f" ± {100 * row.std:.2f}" if math.isfinite(row.std) else "")


def _difference(row: Summary) -> str:
    if not row.pairs:
        return "–"
    if not math.isfinite(row.low):
        return _signed(row.difference)
    return f'{_signed(row.difference)}<span class="small">{_signed(row.low)} to {_signed(row.high)}</span>'


def _signed(value: float) -> str:
    return f"{100 * value:+.2f}".replace("-", "−")


def _table(caption: str, head: Sequence[str], lines: Sequence[tuple[str, Sequence[str]]], numbers: bool = True) -> str:
    """A table whose first column names the rows; the cells are HTML."""
    kind = ' class="number"' if numbers else ""
    columns = f'<th scope="col">{escape(head[0])}</th>'
    columns += "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name in head[1:])
    body = "".join(
        f'<tr><th scope="row">{name}</th>{"".join(f"<td{kind}>{cell}</td>" for cell in cells)}</tr>\n'
        for name, cells in lines
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption>\n<thead><tr>{columns}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
    )


# ---------------------------------------------------------------------- figures


def _figure(image: str, caption: str) -> str:
    return f'<figure><div class="scroll">{image}</div><figcaption>{escape(caption)}</figcaption></figure>\n'


def _curves(runs: Runs, numbers: Iterator[str]) -> str:
    parts = []
    for name, words in {"test_acc": "Test accuracy", "test_eprop": "Test E-Prop†"}.items():
        try:
            parts.append(_figure(*curves(runs, name, words, next(numbers))))
        except Missing as reason:
            parts.append(_missing(str(reason)))
    return "".join(parts)


def _phases(runs: Runs, numbers: Iterator[str]) -> str:
    adaptive = {method: several for method, several in runs.items() if any(_finite(r, "rho") for r in several)}
    if not adaptive:
        return _missing("No record holds the training difficulty rho: none of these methods adapts its weights by it.")
    return _each(PHASES_WORDS, adaptive, phases, numbers)


def _finite(record: Record, name: str) -> bool:
    return any(math.isfinite(value) for value in record.column(name))


def _each(intro: str, runs: Runs, draw: Drawing, numbers: Iterator[str]) -> str:
    """A figure for every method that has the data; what the others lack is said once for all of them."""
    if not runs:
        return _missing("There are no records to show.")
    parts, lacking = list[str](), dict[str, list[str]]()
    for method, records in runs.items():
        try:
            parts.append(f"<h3>{escape(method)}</h3>\n" + _figure(*draw(method, records, next(numbers))))
        except Missing as reason:
            lacking.setdefault(str(reason), []).append(method)
    if parts:
        parts.insert(0, f"<p>{escape(intro)}</p>\n")
    return "".join(parts + [_missing(f"{', '.join(methods)}: {reason}") for reason, methods in lacking.items()])


# ---------------------------------------------------------------------- the audit


def _audit(audits: Sequence[Mapping[str, Any]] | None) -> str:
    if not audits:
        return _missing("No audit of the labels comes with these runs." if audits is None else "The audit is empty.")
    shown = audits[:MOST_AUDITED]
    pictures = any(entry.get("picture") is not None for entry in shown)
    known = [bool(entry["wrong"]) for entry in shown if entry.get("wrong") is not None]
    head = ["Row", *(["Picture"] if pictures else []), "Given label", "Suggested label", "Score"]
    head += ["In truth"] if known else []
    lines = [(_text(entry.get("row")), _audit_cells(entry, pictures, bool(known))) for entry in shown]
    caption = f"The {len(shown)} most suspicious labels{f' of {len(audits):,}' if len(audits) > len(shown) else ''}."
    if known:
        caption += f" Of the {len(known)} whose truth is known, {sum(known)} are wrong ({sum(known) / len(known):.0%})."
    return _table(caption, head, lines, numbers=False)


def _audit_cells(entry: Mapping[str, Any], pictures: bool, known: bool) -> list[str]:
    cells = []
    if pictures:
        image = entry.get("picture")
        alt = escape(f"Row {entry.get('row')}, given the label {entry.get('given')}")
        cells.append("–" if image is None else f'<img src="{picture(image)}" alt="{alt}">')
    cells += [_text(entry.get(name)) for name in ("given", "suggested", "score")]
    if known:
        cells.append({None: "unknown", True: "wrong", False: "right"}[_flag(entry.get("wrong"))])
    return cells


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _text(value: Any) -> str:
    """Any value as escaped text; numbers with a point get four digits."""
    if value is None:
        return "–"
    return escape(f"{value:#.4g}" if isinstance(value, float | np.floating) else str(value))
