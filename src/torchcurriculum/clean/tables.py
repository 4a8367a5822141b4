"""Tables: CSV, TSV and Parquet files, read with pandas and turned into features with scikit-learn."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from .columns import SAMPLE, ColumnUse, cell_texts, column_use, decimal_mark
from .csvfile import Layout, find_layout, records, require_file
from .leaks import is_copy, notes_on_columns
from .text import text_features
from .userdata import LISTED, Column, UserData, Watch, named_counts, number_classes

__all__ = ["SUFFIXES", "TABLE_OPTIONS", "parquet_frame", "read_table"]

TARGETS = ("label", "labels", "target", "class", "y")
SUFFIXES = (".csv", ".tsv", ".tab", ".txt", ".parquet", ".pq")
LINES = 200  # records in which a separator at the end is looked for
BATCH = 20_000  # records held in memory as Python strings
MANY = 50  # most distinct values of a numeric label
NEAR = 8  # columns that are named, of many
LENGTH = 300  # characters of a cell in a preview
NO_LABEL = ("", "na", "n/a", "nan", "null", "#n/a", "#na", "<na>")  # "none", "-" and "?" may be classes
TABLE_OPTIONS = ("label", "id", "drop", "sep", "encoding")  # of read_table and of the command line


def read_table(
    path: str | Path,
    label: str | None = None,
    id: str | None = None,
    drop: Sequence[str] = (),
    sep: str | None = None,
    encoding: str | None = None,
    features: str | None = None,
    strict: bool = False,
    watch: Watch = lambda what, done, total: None,
) -> UserData:
    """Reads a table with a class in one column.

    Args:
        path: A CSV, TSV or Parquet file whose first line names its columns.
        label: The column with the classes; by default the only one named ``label``, ``labels``, ``target``, ``class``
            or ``y``, and otherwise the last one with a name.
        id: The column that names the rows; by default the first with distinct values.
        drop: Columns to leave out.
        sep: Cell separator; detected by default, like the ``encoding``.
        encoding: Python's name of it.
        features: ``"minilm"`` or ``"tfidf"``, for columns of text; see ``text_features``.
        strict: Whether a row without a label, or with too many or too few cells, is an error.
        watch: Called as ``watch(what, done, total)`` during the work.

    Returns:
        The rows that have a label, with features made of all other columns.

    Raises:
        ValueError: With the reason, if the file cannot be read or learnt from.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "flowers.csv"
        >>> rows = "".join(f"{i};1,{i};{'rose' if i % 2 else 'tulip'}\\n" for i in range(20))
        >>> _ = path.write_text(";width;kind\\n" + rows)
        >>> source = read_table(path)
        >>> source.classes, source.features.shape, source.ids[3], source.layout["separator"]
        (['rose', 'tulip'], (20, 1), '3', ';')
    """
    path = Path(path)
    frame, layout, lines, bad = _parquet(path, sep, encoding) if _is_parquet(path) else _csv(path, sep, encoding, watch)
    names = [str(name) for name in frame.columns]
    _check_header(path, frame, names)
    target = _target(path, names, label)
    _check_named(path, names, target, [*drop, *([] if id is None else [id])])
    rows, labels, classes, left, notes = _labelled(path, frame, target, lines, bad, strict)
    _refuse_values(path, names, target, classes)
    frame = frame if len(rows) == len(frame) else frame.iloc[rows].reset_index(drop=True)
    taken = _take_all(frame, target, id, drop, layout, labels)
    columns = [Column(target, "label", named_counts(labels, classes))]
    columns += [Column(name or "(no name)", one.kind, one.why) for name, one in taken.items()]
    ids = [name for name, one in taken.items() if one.kind == "id"]
    called = id or next(iter([*filter(None, ids), *ids]), None)
    if layout is not None:
        notes.append(_written(layout))
    x, groups = _features(taken, features, watch, notes)
    if not x.shape[1]:
        reasons = "; ".join(f"{one.name}: {one.taken}, {one.why}" for one in columns[1:])
        raise ValueError(f"{path} has no usable column to learn from ({reasons})")
    return UserData(
        kind="table",
        path=path,
        labels=labels,
        classes=classes,
        ids=cell_texts(frame[called]) if called is not None else [f"line {lines[row]}" for row in rows],
        features=x,
        groups=groups,
        rows=rows,
        columns=columns,
        skipped=left,
        notes=[*notes, *notes_on_columns(taken, labels, classes, x, groups)],
        layout=_layout(layout, target, called),
        shown=_shown(frame, taken, called),
    )


def _check_header(path: Path, frame: Any, names: list[str]) -> None:
    nameless = sum(_no_name(name) and bool((frame[name] != "").any()) for name in names)
    if nameless > len(names) / 2:
        raise ValueError(
            f"the first line of {path} must name the columns, but {nameless} of {len(names)} columns have no name in "
            "it; delete the lines above the names"
        )


def _check_named(path: Path, names: list[str], target: str, given: list[str]) -> None:
    for name in given:
        if name not in names:
            raise _unknown(path, names, name)
        if name == target:
            raise ValueError(
                f"the column {name!r} holds the classes; it cannot be dropped (--drop) or name rows (--id)"
            )


def _refuse_values(path: Path, names: list[str], target: str, classes: Sequence[str]) -> None:
    """Raises an error if the first line holds a row in place of names."""
    if target in classes and any(map(_digits, names)):
        raise ValueError(
            f"the first line of {path} must name the columns, but it holds numbers and {target!r}, which is a class of "
            "other lines too; add a line with names"
        )


def _labelled(
    path: Path, frame: Any, target: str, lines: Sequence[int], bad: dict[int, str], strict: bool
) -> tuple[np.ndarray, np.ndarray, list[str], list[tuple[str, str]], list[str]]:
    """The usable rows, their labels, the classes, what is left out and why, and notes."""
    given = _given(frame[target])
    skipped = {row: "it has no label" for row, label in enumerate(given) if label.lower() in NO_LABEL} | bad
    if strict and skipped:
        row = min(skipped)
        words = f"{len(skipped):,} rows that cannot be used (--strict); line {lines[row]}: {skipped[row]}"
        raise ValueError(f"{path} has {words}")
    rows = np.setdiff1d(np.arange(len(frame)), np.fromiter(skipped, np.int64, len(skipped)))
    _refuse_label(path, target, given[rows])
    labels, classes, large, notes = number_classes(given[rows].tolist(), str(path))
    skipped |= {int(row): "its class has fewer than 5 rows" for row in rows[~large]}
    left = [(f"line {lines[row]}", reason) for row, reason in sorted(skipped.items())]
    return rows[large], labels[large], classes, left, notes


def _written(layout: Layout) -> str:
    marks = {"\t": "tabs", ";": "semicolons", ",": "commas", "|": "bars"}
    mark = marks.get(layout.separator, repr(layout.separator))
    return f"read as {layout.encoding}, separated by {mark} (--encoding, --sep)"


def _layout(layout: Layout | None, target: str, called: str | None) -> dict[str, str | None]:
    found: dict[str, str | None] = {"label": target, "id": called or None}
    if layout is not None:
        found |= {"separator": layout.separator, "encoding": layout.encoding, "quotes": "yes" if layout.quotes else ""}
    return found


def _shown(frame: Any, taken: dict[str, ColumnUse], called: str | None) -> Callable[[int], dict[str, Any]]:
    held = {name: one.kind for name, one in taken.items() if one.kind not in ("id", "left out") or name == called}

    def shown(row: int) -> dict[str, Any]:
        cells = {name: cell_texts(frame[name].iloc[[row]])[0] for name in held}
        values = {name: cells[name][:LENGTH] for name, kind in held.items() if kind != "text"}
        text = "\n".join(cells[name] for name, kind in held.items() if kind == "text")
        return {"values": values, **({"text": text} if text else {})}

    return shown


def _is_parquet(path: Path) -> bool:
    require_file(path)
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1"


def _pandas() -> Any:
    try:
        import pandas
        import sklearn
    except ImportError as error:
        raise ImportError("tables need pandas and scikit-learn: pip install 'torchcurriculum[clean]'") from error
    assert sklearn.__name__
    return pandas


def _parquet(path: Path, sep: str | None, encoding: str | None) -> tuple[Any, None, range, dict[int, str]]:
    if sep is not None or encoding is not None:
        raise ValueError(f"{path} is a Parquet file; --sep and --encoding are for text")
    frame = parquet_frame(path)
    return frame, None, range(1, len(frame) + 1), {}


def parquet_frame(path: Path) -> Any:
    """A Parquet file as a pandas DataFrame; a named index is a column."""
    pandas = _pandas()
    try:
        frame = pandas.read_parquet(path)
    except Exception as error:  # pyarrow raises many kinds of errors on damaged files
        raise ValueError(f"{path} cannot be read as Parquet: {' '.join(str(error).split())[:120]}") from error
    return frame.reset_index(drop=None in frame.index.names)


def _csv(
    path: Path, sep: str | None, encoding: str | None, watch: Watch
) -> tuple[Any, Layout, list[int], dict[int, str]]:
    """All cells as text, column by column; the last line of each record; and the damaged records with their reasons."""
    pandas = _pandas()
    layout = find_layout(path, sep, encoding)
    size, every = path.stat().st_size, records(path, layout)
    head = [name.strip() for name in next(every)[1]]
    _check_head(path, head, layout)
    wider = [cells[len(head) :] == [""] for _, cells in islice(records(path, layout), 1, LINES)]
    head += [""] * (any(wider) and all(wider))  # each line but the first ends with a separator
    names, width = _once(head), len(head)
    parts: list[list[Any]] = [[] for _ in names]
    lines: list[int] = []
    bad: dict[int, str] = {}
    batch: list[list[str]] = []

    def flush() -> None:
        for held, cells in zip(parts, zip(*batch, strict=True), strict=False):
            held.append(pandas.Series(list(cells), dtype="str"))
        batch.clear()

    for line, cells in every:
        if len(cells) != width:
            bad[len(lines)] = f"it has {len(cells)} cells, not {width}"
            cells = (cells + [""] * width)[:width]
        lines.append(line)
        batch.append(cells)
        if len(batch) == BATCH:
            flush()
            watch("reading", min(size, round(size * len(lines) / (len(lines) + 1))), size)
    flush()
    if not lines:
        raise ValueError(f"{path} has no rows")
    if len(bad) > len(lines) / 2:
        row = min(bad)
        words = f"line {lines[row]}: {bad[row]}"
        raise ValueError(
            f"{path} is damaged: most rows do not have as many cells as the first line ({words}); see --sep"
        )
    frame = pandas.DataFrame(
        {name: pandas.concat(held, ignore_index=True) for name, held in zip(names, parts, strict=True)}
    )
    return frame, layout, lines, bad


def _check_head(path: Path, head: list[str], layout: Layout) -> None:
    if layout.quotes and any(name.startswith('"') for name in head):
        raise ValueError(f"the first line of {path} has a blank before a quote; remove the blanks after separators")
    if head == ["sep=", ""]:
        raise ValueError(f"the first line of {path} is a note to Excel (sep=), not the names of the columns; delete it")
    if len(head) < 2:
        raise ValueError(f"the first line of {path} must name two or more columns, got {head}")
    number = next((name for name in head if _fraction(name)), None)
    if number is not None:
        raise ValueError(f"the first line of {path} must name the columns, but it holds the number {number}")


def _fraction(name: str) -> bool:
    try:
        return "." in name and np.isfinite(float(name))
    except ValueError:
        return False


def _no_name(name: str) -> bool:
    return not name or name.startswith(" (")  # see _once


def _digits(name: str) -> bool:
    return name.lstrip("+-").isdigit()


def _once(head: list[str]) -> list[str]:
    """Unique column names: a second ``a`` becomes ``a (2)``."""
    seen: dict[str, int] = {}
    names = []
    for name in head:
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return names


def _target(path: Path, names: list[str], label: str | None) -> str:
    if label is not None and label not in names:
        raise _unknown(path, names, label)
    target = _default_target(path, names) if label is None else label
    first = re.sub(r" \(\d+\)$", "", target)
    if f"{target} (2)" in names or (first != target and first in names):
        raise ValueError(f"{path} has two columns named {first!r}; rename one of them")
    return target


def _unknown(path: Path, names: list[str], given: str) -> ValueError:
    """The error for a column that a table does not have; of many columns, it names the most similar ones."""
    held = names
    if len(names) > LISTED:
        alike = {name: SequenceMatcher(None, name.lower(), given.lower()).ratio() for name in names}
        held = sorted(names, key=lambda name: -alike[name])[:NEAR]
    more = f" and {len(names) - NEAR:,} more" if held is not names else ""
    return ValueError(f"{path} has no column {given!r}; it has {', '.join(held)}{more}")


def _default_target(path: Path, names: list[str]) -> str:
    plain = [name.lower() for name in names]
    found = [name for name, low in zip(names, plain, strict=True) if low in TARGETS]
    beside_x = found and found[0].lower() == "y" and "x" in plain and found[0] != names[-1]  # a coordinate?
    if len(found) > 1 or beside_x:
        words = "it is not clear which column holds the classes"
        raise ValueError(f"{path} has the columns {', '.join(names)}: {words}; give it with --label COLUMN (label=)")
    named = [name for name in names if not _no_name(name)]  # a separator may end each line
    return found[0] if found else [*names[-1:], *named][-1]


def _given(cells: Any) -> np.ndarray:
    """The labels as stripped text; "" if missing."""
    return np.array([cell.strip() for cell in cell_texts(cells)], dtype=object)


def _refuse_label(path: Path, target: str, given: np.ndarray) -> None:
    distinct = set(given.tolist())
    words = f"the column {target!r} has {len(distinct):,} different values in {len(given):,} rows"
    if len(distinct) > len(given) / 2:
        raise ValueError(
            f"{path} cannot be learnt from: {words}, so it does not hold classes; give the right one with --label"
        )
    numbers = all(_fraction(value) or _digits(value) for value in distinct)
    if len(distinct) > MANY and numbers and any(map(_fraction, distinct)):
        raise ValueError(f"{path} cannot be learnt from: {words}, all numbers, so it holds no classes; see --label")


def _take_all(
    frame: Any, target: str, id: str | None, drop: Sequence[str], layout: Layout | None, labels: np.ndarray
) -> dict[str, ColumnUse]:
    others = [name for name in frame.columns if name != target]
    step = max(1, len(frame) // SAMPLE)
    samples = [] if layout is None else [frame[name].iloc[::step].tolist() for name in others]
    mark = decimal_mark(samples, layout and layout.separator)
    in_order = int((np.diff(labels) != 0).sum()) < 2 * (labels.max() + 1) + 0.01 * len(labels)
    taken = {}
    for name in others:
        if name == id:
            taken[name] = ColumnUse("id", "named by --id")
        elif name in drop:
            taken[name] = ColumnUse("left out", "named by --drop")
        else:
            taken[name] = column_use(name, frame[name], mark, labels if in_order else None)
            if taken[name].kind in ("category", "number", "yes/no") and is_copy(frame[name], labels):
                taken[name] = ColumnUse("left out", "it is a copy of the label")
    return taken


def _features(
    taken: dict[str, ColumnUse], features: str | None, watch: Watch, notes: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """(N, D) float32 and the column of each feature, counted from 1: column 0 is the label."""
    blocks, groups = [], []
    texts = [one for one in taken.values() if one.texts is not None]
    for place, (name, one) in enumerate(taken.items(), 1):
        watch("columns", place, len(taken))
        if one.texts is not None:
            block, how = text_features(one.texts(), features, watch, together=len(texts))
            notes.append(f"{name}: {how}")
        elif one.make is not None:
            block = one.make()
        else:
            continue
        blocks.append(block)
        groups += [place] * block.shape[1]
    if features is not None and not texts:
        raise ValueError(f"--features {features} is for pictures and text, but no column of this table holds text")
    if not blocks:
        return np.zeros((0, 0), np.float32), np.zeros(0, np.int64)
    whole = np.empty((len(blocks[0]), len(groups)), np.float32)
    start = 0
    while blocks:  # each is freed as it is copied
        block = blocks.pop(0)
        whole[:, start : start + block.shape[1]] = block
        start += block.shape[1]
    return whole, np.array(groups)
