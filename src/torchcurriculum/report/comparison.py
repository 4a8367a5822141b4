"""The comparison of methods as HTML tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..record.results import METRICS, Summary
from .html import escape, missing, table

__all__ = ["comparison"]

MOMENT_WORDS = {"best": "At the best-validation epoch", "last": "At the last evaluated epoch"}


def comparison(rows: Sequence[Summary]) -> str:
    """Tables of both moments; what is missing in them is said above or in their place."""
    if not rows:
        return missing("There are no records to compare.")
    parts = [
        "<p>T-ACC is the accuracy on the test set; E-Prop† is the share of its samples with a loss of at most log 2, "
        "that is, given a probability of one half or more. Numbers are per cent, mean ± standard deviation over "
        "seeds.</p>\n"
    ]
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
            parts.append(missing(f"{words}: nothing to show, since the records hold no {needs}."))
    return "".join(parts)


def _table(words: str, rows: Sequence[Summary]) -> str:
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
    return table(caption, head, lines)


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
