"""The report: one self-contained HTML file, made from records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from itertools import count
from pathlib import Path

import numpy as np

from ..audit import Audit
from ..record import Record, best_epoch, summarise
from ..record.files import overwrite
from .comparison import EPROP, answer, comparison
from .figures import Chart, adaptation, curves, sample_map, weight_groups, weights
from .gallery import gallery, samples
from .html import alert, escape, figure, frame, missing, tiles
from .series import MissingData, divergence, later_phase_starts
from .theory_panel import THEORY_WORDS, theory_panel

__all__ = ["data_names", "too_large", "write_report"]

ADAPTATION_WORDS = "What the method measured in each epoch, and by which it set its weights."
WEIGHTS_WORDS = "A weight of 1 is the weight of a sample in plain training."
MAP_WORDS = (
    "Each sample by its losses over all epochs. Bottom left: learnt early. Top: hardly learnt at all, often because "
    "the label is wrong."
)
CURVES = {"test_acc": "Test accuracy", "test_eprop": "Test E-Prop†"}
MOST = 5 * 10**8  # losses (rows times epochs) of a record whose samples are read: 2 GB
MANY = 10**7  # its rows; an audit takes a few hundred bytes for each
Runs = Mapping[str, Sequence[Record]]
Content = Callable[[str, Sequence[Record], str], str]


def write_report(
    runs: Runs, path: str | Path, *, title: str, problems: Sequence[str] = (), day: date | None = None
) -> Path:
    """Writes the page: the answer, results, samples to look at, weights, and the theory where it applies.

    A chart is drawn if the records hold its data. A run may still be active.

    Args:
        runs: Records by method, one for each seed, seeds in the same order for every method.
        path: The file to write; missing folders are made.
        title: The name of the data; the heading is this and the day.
        problems: Sentences about records that could not be read completely.
        day: The day in the heading; None is today.

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
    several = sum(map(len, runs.values())) != 1
    rows = summarise(runs)
    answers = [" ".join(answer(rows)), "" if found is None else found.summary()]
    sections = {
        "Comparison": comparison(rows) if several else "",
        "Test curves": _curves(runs, numbers, note=not several),
        "Samples to look at": gallery_part,
        "Data map": _each(MAP_WORDS, runs, _charts(sample_map), numbers),
        "Weights": _each(WEIGHTS_WORDS, runs, _charts(weights, weight_groups), numbers),
        "How the method adapted": _each(ADAPTATION_WORDS, runs, _charts(adaptation), numbers),
        "Theory": _each(THEORY_WORDS, runs, theory_panel, numbers),
    }
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    heading = f"{title}, {(day or date.today()).isoformat()}"
    top = "".join(map(alert, [*problems, *_alerts(runs)])) + _lede(runs, answers)
    with overwrite(path, errors="replace") as file:
        file.write(frame(heading, top, sections))
    return path


def data_names(runs: Runs) -> str:
    """The names of the records' data, for a title; "" if they have none."""
    names = [_data_name(record.meta) for records in runs.values() for record in records]
    return "; ".join(dict.fromkeys(filter(None, names)))


def _data_name(meta: Mapping[str, object]) -> str:
    recipe = meta.get("recipe")
    summary = recipe.get("summary") if isinstance(recipe, dict) else None
    return str(meta.get("data_name") or summary or "").partition(":")[0]


def too_large(record: Record) -> str | None:
    """Why a record is too large for a command to read its samples, or None."""
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


def _alerts(runs: Runs) -> list[str]:
    """A sentence for each run that diverged or failed."""
    said = []
    for method, records in runs.items():
        for place, record in enumerate(records):
            name = f"{method}, seed {record.meta.get('seed', place)}," if len(records) > 1 else method
            reason, failed = divergence(record), record.meta.get("failed")
            if reason is not None:
                said.append(f"{name} diverged: {reason}. Train with a lower learning rate.")
            elif failed:
                said.append(f"{name} failed in epoch {len(record.epochs) + 1}: {failed}")
    return said


def _lede(runs: Runs, answers: Sequence[str]) -> str:
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
    first = "".join(f'<p class="answer">{escape(words)}</p>\n'.replace(" %", "\u00a0%") for words in answers if words)
    words = f'<p class="lede">{escape(", ".join(parts))}. {_going(records)}</p>\n'
    return (tiles(_glance(records[0])) if len(records) == 1 else "") + first + words


def _count(values: Sequence[int], noun: str) -> str:
    low, high = min(values), max(values)
    number = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{number} {noun}{'' if high == 1 else 's'}"


def _planned(record: Record) -> int | None:
    recipe = record.meta.get("recipe")
    epochs = recipe.get("epochs") if isinstance(recipe, dict) else None
    return epochs if isinstance(epochs, int) else None


def _going(records: Sequence[Record]) -> str:
    """A sentence about runs that are not finished."""
    going = [r for r in records if (planned := _planned(r)) is not None and len(r.epochs) < planned]
    if not going:
        return ""
    if len(records) == 1:
        return f"Not finished: {len(records[0].epochs)} of {_planned(records[0])} epochs so far."
    return f"{len(going)} of {len(records)} runs are not finished."


def _glance(record: Record) -> dict[str, tuple[str, str]]:
    """The main numbers of a single run that its record holds."""
    values: dict[str, tuple[str, str]] = {}
    best = best_epoch(record)
    for column, name in CURVES.items():
        numbers = record.column(column)
        known = np.flatnonzero(np.isfinite(numbers))
        if len(known):
            place = best if best is not None and best in known else int(known[-1])
            words = f"epoch {place + 1}, best validation" if place == best else f"epoch {place + 1}"
            values[name] = (f"{100 * numbers[place]:.1f} %", words)
    firsts = later_phase_starts([record])
    if any("phase" in row for row in record.epochs):
        words = "easy samples first, hard ones from here" if firsts else "the early phase has not ended"
        values["Later phase"] = (f"epoch {firsts[0]}" if firsts else "not yet", words)
    ess = record.column("ess")
    if len(ess) and math.isfinite(ess[-1]):
        values["Effective samples"] = (f"{100 * ess[-1]:.0f} %", "of the training set, by weight")
    return values


# ---------------------------------------------------------------------- sections


def _curves(runs: Runs, numbers: Iterator[str], note: bool) -> str:
    parts = []
    for column, words in CURVES.items():
        try:
            parts.append(figure(*curves(runs, column, words, next(numbers))))
        except MissingData as reason:
            parts.append(missing(str(reason)))
    return "".join(parts) + (f'<p class="small">{EPROP}</p>\n' if note else "")


def _charts(*draws: Callable[[str, Sequence[Record], str], Chart]) -> Content:
    """The charts that the records have data for."""

    def content(method: str, records: Sequence[Record], key: str) -> str:
        parts = []
        for draw in draws:
            try:
                parts.append(figure(*draw(method, records, f"{key}-{draw.__name__}")))
            except MissingData:
                continue
        return "".join(parts)

    return content


def _each(intro: str, runs: Runs, content: Content, numbers: Iterator[str]) -> str:
    """A part for every method that has the data; "" if none has."""
    parts = []
    for method, records in runs.items():
        try:
            part = content(method, records, next(numbers))
        except MissingData:
            continue
        if part:
            parts.append((f"<h3>{escape(method)}</h3>\n" if len(runs) > 1 else "") + part)
    return f"<p>{escape(intro)}</p>\n" + "".join(parts) if parts else ""


def _samples(runs: Runs) -> tuple[Audit | None, str]:
    """The audit and samples of the first usable record, if possible one without doubts."""
    reasons, doubtful = [], None
    for method, records in runs.items():
        try:
            if records and divergence(records[0]):
                raise MissingData("The labels cannot be judged, since the run diverged.")
            shown = samples(records[0])
        except MissingData as reason:
            reasons.append(f"{method}: {reason}")
            continue
        part = shown.found, gallery(method, records[0], shown)
        if not shown.found.health:
            return part
        doubtful = doubtful or part
    return doubtful or (None, "".join(map(missing, reasons)))
