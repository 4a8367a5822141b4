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

__all__ = ["load_csv"]

Parts = dict[str, tuple[Tensor, Tensor]]
TARGETS = ("label", "labels", "target", "class", "y")


def load_csv(path: str | Path, seed: int = 0, label: str | None = None) -> tuple[Parts, list[str]]:
    """Rows of numbers with a class, split 8:1:1 and standardised by the training part.

    Args:
        path: A file in UTF-8 whose first line names its columns.
        seed: The split is a function of it.
        label: The column with the class; by default one called ``label``, ``labels``, ``target``, ``class`` or ``y``,
            and otherwise the last one.

    Returns:
        ``{"train": (x, y), "valid": ..., "test": ...}`` with x (n, columns) float32 and y (n,) int64, and the names of
        the classes in their order.

    Raises:
        ValueError: With the row and column that is not a number.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "flowers.csv"
        >>> _ = path.write_text("width,height,label\\n" + "1,2,rose\\n3,5,tulip\\n" * 10)
        >>> parts, classes = load_csv(path)
        >>> parts["train"][0].shape, classes
        (torch.Size([16, 2]), ['rose', 'tulip'])
    """
    path = Path(path)
    lines = read_lines(path, "a spreadsheet, saved as CSV")
    try:
        head, *rows = [row for row in csv.reader(io.StringIO("\n".join(lines)), strict=True) if row]
    except csv.Error as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    place = _target(path, head, label)
    values, names = np.empty((len(rows), len(head) - 1), np.float32), []
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


def _target(path: Path, head: list[str], label: str | None) -> int:
    if len(head) < 2 or len(set(head)) != len(head):
        raise ValueError(f"the first line of {path} must name two or more columns, each once")
    if label is not None and label not in head:
        raise ValueError(f"{path} has no column called {label!r}; it has {', '.join(head)}")
    words = [label] if label is not None else [name for name in head if name.strip().lower() in TARGETS]
    return head.index(words[0]) if words else len(head) - 1


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
    known = x[rows["train"]].double()
    mean, std = known.mean(0), known.std(0, correction=0)
    x = ((x.double() - mean) / torch.where(std > 0, std, 1.0)).float()
    return {part: (x[held], y[held]) for part, held in rows.items()}
