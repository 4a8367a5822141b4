"""The report: one HTML file that needs nothing else, made from records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path

import numpy as np

from ..audit import Audit
from ..record import Record, Summary, best_epoch, summarise
from ..record.files import overwrite
from .comparison import comparison
from .figures import curves, phases, sample_map, weight_groups, weights
from .gallery import gallery, samples
from .html import escape, figure, frame, missing, tiles
from .series import Missing, first_later
from .theory_panel import THEORY_WORDS, theory_panel

__all__ = ["too_large", "write_report"]

PHASES_WORDS = (
    "ρ is the weight that lies on hard samples. While it is high, easy samples gain weight (the early phase, shaded, "
    "α below zero); afterwards hard ones do (the later phase, α above zero)."
)
WEIGHTS_WORDS = "The weight w of each sample times their number N: 1 is the weight it would have in plain training."
MAP_WORDS = (
    "Samples by the course of their loss: at the bottom left those that are learnt early and stay so, at the top those "
    "that are hardly learnt at all, among them many with a wrong label."
)
MOST = 5 * 10**8  # losses (rows times epochs) of a record whose samples are looked at: 2 GB
MANY = 10**7  # rows of it: an audit takes a few hundred bytes for each
Runs = Mapping[str, Sequence[Record]]
Drawing = Callable[[str, Sequence[Record], str], tuple[str, str]]


def write_report(
    runs: Runs,
    path: str | Path,
    *,
    title: str,
    rows: Sequence[Summary] | None = None,
    problems: Sequence[str] = (),
) -> Path:
    """Writes the page: results, curves, phases, weights, data maps, the theory, and the samples to look at.

    What the records do not hold is said in a sentence where it would stand. A run may still be going.

    Args:
        runs: Records by method, one for each seed, seeds in the same order for every method.
        path: The file to write; missing folders are made.
        title: The page's heading.
        rows: Rows of the comparison instead of ``summarise(runs)``.
        problems: What could not be read of the records, a sentence each.

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
    runs, problems = _of_bounded_size(runs, problems)
    numbers = (f"f{number}" for number in count(1))
    found, gallery_part = _samples(runs)
    several = sum(map(len, runs.values())) != 1 or rows is not None
    results = {"Test curves": _curves(runs, numbers)}
    if several:
        results = {"Comparison": comparison(summarise(runs) if rows is None else rows)} | results
    course = {"Phases of training": _phases(runs, numbers)}
    sections = {
        **({"What could not be read": "".join(map(missing, problems))} if problems else {}),
        **(results | course if several else course | results),
        "Weights": _each(WEIGHTS_WORDS, runs, _weights(numbers), numbers),
        "Data map": _each(MAP_WORDS, runs, _drawn(sample_map), numbers),
        "Samples to look at": gallery_part,
        "Theory": _each(THEORY_WORDS, _adaptive(runs), theory_panel, numbers),
    }
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with overwrite(path, errors="replace") as file:
        file.write(frame(title, _lede(runs, found), sections))
    return path


def too_large(record: Record) -> str | None:
    """Why a command does not look at a record's samples, or None: its time and memory are bounded."""
    rows, epochs = record.n, len(record.epochs)
    if rows <= MANY and rows * epochs <= MOST:
        return None
    size = f"{record.source or 'a record'} holds {rows:,} rows and {epochs:,} epochs"
    return f"{size}, and this command looks at {MANY:,} rows and {MOST:,} losses at most"


def _of_bounded_size(runs: Runs, problems: Sequence[str]) -> tuple[dict[str, list[Record]], list[str]]:
    kept: dict[str, list[Record]] = {}
    said = list(problems)
    for method, records in runs.items():
        for record in records:
            reason = too_large(record)
            kept.setdefault(method, []).append(record if reason is None else record.without_samples())
            sentence = f"{reason}, so its samples are not shown"
            said += [sentence] if reason is not None and sentence not in said else []
    return kept, said


# ---------------------------------------------------------------------- the head


def _lede(runs: Runs, found: Audit | None) -> str:
    records = [record for several in runs.values() for record in several]
    if not records:
        return '<p class="lede">There are no records to report on.</p>'
    parts = [
        _count([len(runs)], "method"),
        _count([len(several) for several in runs.values()], "seed") + (" each" if len(runs) > 1 else ""),
        _count([len(record.epochs) for record in records], "epoch"),
        _count([record.n for record in records], "training row"),
    ]
    if len(records) == 1:
        parts[:2] = [str(next(iter(runs)))]
    words = f'<p class="lede">{escape(", ".join(parts))}. {_going(records)}</p>'
    return words + (tiles(_glance(records[0], found)) if len(records) == 1 else "")


def _count(values: Sequence[int], noun: str) -> str:
    low, high = min(values), max(values)
    number = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{number} {noun}{'' if high == 1 else 's'}"


def _planned(record: Record) -> int | None:
    recipe = record.meta.get("recipe")
    epochs = recipe.get("epochs") if isinstance(recipe, dict) else None
    return epochs if isinstance(epochs, int) else None


def _going(records: Sequence[Record]) -> str:
    """A word about runs that have not come to their end."""
    going = [r for r in records if (planned := _planned(r)) is not None and len(r.epochs) < planned]
    if not going:
        return ""
    if len(records) == 1:
        return f"Not finished: {len(records[0].epochs)} of {_planned(records[0])} epochs so far."
    return f"{len(going)} of {len(records)} runs are not finished."


def _glance(record: Record, found: Audit | None) -> dict[str, tuple[str, str]]:
    """The figures of a single run that a reader looks for first; those that it does not have are left out."""
    values: dict[str, tuple[str, str]] = {}
    best = best_epoch(record)
    for name, column in {"Test accuracy": "test_acc", "Test E-Prop†": "test_eprop"}.items():
        numbers = record.column(column)
        known = np.flatnonzero(np.isfinite(numbers))
        if len(known):
            place = best if best is not None and best in known else int(known[-1])
            words = f"epoch {place + 1}, best validation" if place == best else f"epoch {place + 1}"
            values[name] = (f"{100 * numbers[place]:.1f} %", words)
    firsts = first_later([record])
    if _finite(record, "rho"):
        words = "easy samples first, hard ones from here" if firsts else "the early phase has not ended"
        values["Later phase"] = (f"epoch {firsts[0]}" if firsts else "not yet", words)
    ess = record.column("ess")
    if len(ess) and math.isfinite(ess[-1]):
        values["Effective samples"] = (f"{100 * ess[-1]:.0f} %", "of the training set, by weight")
    if found is not None:
        words = found.health[0] if found.health else f"{found.share_low:.1%} to {found.share_high:.1%}, estimated"
        values["Wrong labels"] = ("none seen" if found.health else f"{100 * found.share:.1f} %", words)
    return values


# ---------------------------------------------------------------------- sections


def _curves(runs: Runs, numbers: Iterator[str]) -> str:
    parts = []
    for name, words in {"test_acc": "Test accuracy", "test_eprop": "Test E-Prop†"}.items():
        try:
            parts.append(figure(*curves(runs, name, words, next(numbers))))
        except Missing as reason:
            parts.append(missing(str(reason)))
    parts.append('<p class="small">E-Prop† is the share of test samples with a loss of at most log 2.</p>\n')
    return "".join(parts)


def _adaptive(runs: Runs) -> Runs:
    return {method: several for method, several in runs.items() if any(_finite(r, "rho") for r in several)}


def _phases(runs: Runs, numbers: Iterator[str]) -> str:
    adaptive = _adaptive(runs)
    if not adaptive:
        return missing("No record holds the training difficulty rho: none of these methods adapts its weights by it.")
    return _each(PHASES_WORDS, adaptive, _drawn(phases), numbers)


def _finite(record: Record, name: str) -> bool:
    return any(math.isfinite(value) for value in record.column(name))


def _drawn(draw: Drawing) -> Callable[[str, Sequence[Record], str], str]:
    return lambda method, records, key: figure(*draw(method, records, key))


def _weights(numbers: Iterator[str]) -> Callable[[str, Sequence[Record], str], str]:
    def content(method: str, records: Sequence[Record], key: str) -> str:
        fan = figure(*weights(method, records, key))
        try:
            return fan + figure(*weight_groups(method, records, next(numbers)))
        except Missing as reason:
            return fan + missing(str(reason))

    return content


def _each(intro: str, runs: Runs, content: Callable[[str, Sequence[Record], str], str], numbers: Iterator[str]) -> str:
    """A part for every method that has the data; what the others lack is said once for all of them."""
    if not runs:
        return missing("There are no records to show here.")
    parts, lacking = list[str](), dict[str, list[str]]()
    for method, records in runs.items():
        try:
            part = content(method, records, next(numbers))
            parts.append((f"<h3>{escape(method)}</h3>\n" if len(runs) > 1 else "") + part)
        except Missing as reason:
            lacking.setdefault(str(reason), []).append(method)
    if parts:
        parts.insert(0, f"<p>{escape(intro)}</p>\n")
    return "".join(parts + [missing(f"{', '.join(methods)}: {reason}") for reason, methods in lacking.items()])


def _samples(runs: Runs) -> tuple[Audit | None, str]:
    """The audit and samples of one record: the first of APW's that can be judged, or else of any method."""
    reasons = []
    for method in sorted(runs, key=lambda name: "apw" not in name.lower()):
        try:
            shown = samples(runs[method][0])
            return shown.found, gallery(method, runs[method][0], shown)
        except Missing as reason:
            reasons.append(f"{method}: {reason}")
    return None, "".join(map(missing, reasons)) or missing("There are no records to show.")
