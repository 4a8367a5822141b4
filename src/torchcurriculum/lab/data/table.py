"""The user's own CSV file: numbers in columns, and a class."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .splits import split
from .text_files import read_lines

__all__ = ["label_column", "load_csv"]

Parts = dict[str, tuple[Tensor, Tensor]]
TARGETS = ("label", "labels", "target", "class", "y")


def load_csv(path: str | Path, seed: int = 0, label: str | None = None) -> tuple[Parts, list[str]]:
    """Rows of numbers with a class, split 8:1:1 and standardised by the training part.

    Args:
        path: A file in UTF-8 whose first line names its columns.
        seed: The split is a function of it.
        label: The column with the class; by default the only one called ``label``, ``labels``, ``target``, ``class``
            or ``y``, and otherwise the last one. See ``label_column``.

    Returns:
        ``{"train": (x, y), "valid": ..., "test": ...}`` with x (n, columns) float32 and y (n,) int64, and the names of
        the classes in their order.

    Raises:
        ValueError: With the row and column that is not a number, or if the label column is ambiguous.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "flowers.csv"
        >>> _ = path.write_text("width,height,label\\n" + "1,2,rose\\n3,5,tulip\\n" * 10)
        >>> parts, classes = load_csv(path)
        >>> parts["train"][0].shape, classes
        (torch.Size([16, 2]), ['rose', 'tulip'])
    """
    path = Path(path)
    head, *rows = _rows(path)
    place = _target(path, head, label)
    values, names = np.empty((len(rows), len(head) - 1)), []
    for number, row in enumerate(rows):
        if len(row) != len(head):
            raise ValueError(f"{path} is damaged: row {number + 1} has {len(row)} columns, not {len(head)}")
        names.append(row[place].strip())
        if not names[-1]:
            raise ValueError(
                f"{path} cannot be learnt from: row {number + 1} has no class in the column {head[place]!r}"
            )
        values[number] = [_number(path, number + 1, head[c], cell) for c, cell in enumerate(row) if c != place]
    classes = sorted(set(names))
    if len(rows) < 10 or len(classes) < 2:
        raise ValueError(f"{path} has {len(rows)} rows and {len(classes)} classes; there must be 10 and 2 at least")
    if len(classes) > len(rows) / 2:
        words = f"the column {head[place]!r} has {len(classes)} different values in {len(rows)} rows"
        raise ValueError(f"{path} cannot be learnt from: {words}, so it is no class; call that of the classes 'label'")
    numbered = {name: number for number, name in enumerate(classes)}
    y = torch.tensor([numbered[name] for name in names])
    return _parts(torch.from_numpy(values), y, seed), classes


def label_column(path: str | Path, label: str | None = None) -> str:
    """The name of the column that ``load_csv`` takes the classes from, so that a caller can say it.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "flowers.csv"
        >>> _ = path.write_text("width,height,kind\\n1,2,rose\\n")
        >>> label_column(path)
        'kind'
    """
    head = _rows(Path(path))[0]
    return head[_target(Path(path), head, label)]


def _rows(path: Path) -> list[list[str]]:
    lines = read_lines(path, "a spreadsheet, saved as CSV")
    try:
        return [row for row in csv.reader(io.StringIO("\n".join(lines)), strict=True) if row]
    except csv.Error as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def _target(path: Path, head: list[str], label: str | None) -> int:
    if len(head) < 2 or len(set(head)) != len(head):
        raise ValueError(f"the first line of {path} must name two or more columns, each once")
    if label is not None and label not in head:
        raise ValueError(f"{path} has no column called {label!r}; it has {', '.join(head)}")
    if label is not None:
        return head.index(label)
    plain = [name.strip().lower() for name in head]
    found = [place for place, name in enumerate(plain) if name in TARGETS]
    beside_x = found and plain[found[0]] == "y" and "x" in plain and found[0] != len(head) - 1  # a coordinate?
    if len(found) > 1 or beside_x:
        words = "it is not clear which column holds the classes"
        raise ValueError(f"{path} has the columns {', '.join(head)}: {words}; name it by --label COLUMN (label=)")
    return found[0] if found else len(head) - 1


def _number(path: Path, row: int, column: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not abs(value) < 3e38:
        words = f"row {row} has {cell[:40]!r} in the column {column!r}, which is no finite number"
        raise ValueError(f"{path} cannot be learnt from: {words}")
    return value


def _parts(x: Tensor, y: Tensor, seed: int) -> Parts:
    rows = split(len(y), seed, 0.1, 0.1)
    known = x[rows["train"]]
    mean, std = known.mean(0), known.std(0, correction=0)
    varies = known.amax(0) > known.amin(0)  # a constant's standard deviation is a rounding error, not always 0
    x = ((x - mean) / torch.where(varies, std, 1.0)).float()  # float64 until here: timestamps differ in late digits
    return {part: (x[held], y[held]) for part, held in rows.items()}
