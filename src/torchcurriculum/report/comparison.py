"""The comparison of methods: the answer in a sentence or two, and tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..record.results import METRICS, Summary
from .html import escape, missing, table

__all__ = ["EPROP", "answer", "comparison"]

MOMENT_WORDS = {"best": "At the best-validation epoch", "last": "At the last evaluated epoch"}
EPROP = "E-Prop† is the share of test samples whose label gets a probability of one half or more."
COLUMNS = {"T-ACC": "Accuracy"}  # other names of metrics in a table


def answer(rows: Sequence[Summary]) -> list[str]:
    """Which method tests best, and whether it or another differs clearly from vanilla; nothing without results.

    Example:
        >>> nan = math.nan
        >>> answer([
        ...     Summary("vanilla", "best", "T-ACC", 5, 0.80, 0.01, 0, nan, nan, nan),
        ...     Summary("apw-e", "best", "T-ACC", 5, 0.85, 0.01, 5, 0.05, 0.02, 0.08),
        ... ])   # doctest: +NORMALIZE_WHITESPACE
        ['apw-e has the highest test accuracy, 85.0 %; vanilla has 80.0 %.',
         'Better than vanilla beyond chance (95 % interval): apw-e +2.00 to +8.00 points.']
    """
    known = [row for row in rows if row.metric == "T-ACC" and row.n]
    mine = [row for row in known if row.moment == "best"] or known
    if len(mine) < 2:
        return []
    best = max(mine, key=lambda row: (row.mean, row.method == "vanilla"))
    base = next((row for row in mine if row.method == "vanilla"), None)
    against = f"; vanilla has {100 * base.mean:.1f} %" if base is not None and best is not base else ""
    said = [f"{best.method} has the highest test accuracy, {100 * best.mean:.1f} %{against}."]
    compared = [row for row in mine if row.pairs]
    if any(row.pairs < 2 for row in compared):
        said.append("Some methods share one seed only with vanilla, so their difference may be chance.")
    sides = {
        "Better": [row for row in compared if row.low > 0],
        "Worse": [row for row in compared if row.high < 0],
    }
    for word, clear in sides.items():
        spans = "; ".join(f"{row.method} {_signed(row.low)} to {_signed(row.high)} points" for row in clear)
        said += [f"{word} than vanilla beyond chance (95 % interval): {spans}."] if clear else []
    if any(row.pairs > 1 for row in compared) and not any(sides.values()):
        said.append("No difference from vanilla is clear: every 95 % interval over seeds includes zero.")
    return said


def comparison(rows: Sequence[Summary]) -> str:
    """A table for each moment, or a sentence about what is missing."""
    if not rows:
        return missing("There are no records to compare.")
    parts = [f"<p>Test results in per cent, mean and ± standard deviation over seeds. {EPROP}</p>\n"]
    if not any(math.isfinite(row.difference) for row in rows):
        parts.append(missing("Differences need records of vanilla and of another method with test results."))
    elif not any(math.isfinite(row.low) for row in rows):
        parts.append(missing("An interval for the differences needs two seeds or more."))
    for moment, words in MOMENT_WORDS.items():
        some = [row for row in rows if row.moment == moment]
        if any(row.n for row in some):
            parts.append(_table(words, some))
        else:
            needs = "valid_acc and test_acc or test_eprop" if moment == "best" else "test_acc or test_eprop"
            parts.append(missing(f"{words}: the records hold no {needs}."))
    return "".join(parts)


def _table(words: str, rows: Sequence[Summary]) -> str:
    differences = any(math.isfinite(row.difference) for row in rows)
    seeds = len({row.n for row in rows if row.n}) > 1  # otherwise the head of the page says it
    head = ["Method", "Seeds"] if seeds else ["Method"]
    for metric in METRICS:
        head += [COLUMNS.get(metric, metric), "−\u00a0vanilla"] if differences else [COLUMNS.get(metric, metric)]
    best = _highest(rows)
    lines = []
    for method in dict.fromkeys(row.method for row in rows):
        mine = {row.metric: row for row in rows if row.method == method}
        cells = [str(max(row.n for row in mine.values()))] if seeds else []
        for metric, row in mine.items():
            text = _mean(row)
            cells.append(f"<strong>{text}</strong>" if row.mean == best.get(metric) else text)
            cells += [_difference(row)] if differences else []
        lines.append((escape(method), cells))
    caption = f"{words}; the highest mean is bold." if best else f"{words}."
    if differences:
        caption += " Differences are paired by seed; below each is its 95 % t-interval."
    return table(caption, head, lines)


def _highest(rows: Sequence[Summary]) -> dict[str, float]:
    """The highest mean of each metric that more than one method has."""
    means = {metric: [row.mean for row in rows if row.metric == metric and row.n] for metric in METRICS}
    return {metric: max(values) for metric, values in means.items() if len(values) > 1}


def _mean(row: Summary) -> str:
    if not row.n:
        return "–"
    spread = f'<span class="small">±\u00a0{100 * row.std:.2f}</span>' if math.isfinite(row.std) else ""
    return f"{100 * row.mean:.2f}{spread}"


def _difference(row: Summary) -> str:
    if not row.pairs:
        return "–"
    if not math.isfinite(row.low):
        return _signed(row.difference)
    return f'{_signed(row.difference)}<span class="small">{_signed(row.low)} to {_signed(row.high)}</span>'


def _signed(value: float) -> str:
    return f"{100 * value:+.2f}".replace("-", "−")
