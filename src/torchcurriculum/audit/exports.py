"""An audit as files for other tools: CSV, JSON with cleanlab's names, cleanlab's own table, Label Studio tasks."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from ..record.files import overwrite
from .label_studio import interface, task
from .result import Audit

__all__ = ["EXPORTS", "export", "read_csv", "spreadsheet_safe", "spreadsheet_text"]

FORMULA = re.compile(r"'*[=+\-@\t\r]")
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
Row = dict[str, Any]


def export(
    found: Audit,
    path: str | Path,
    form: str = "csv",
    top: int | None = None,
    names: Sequence[str] | None = None,
    texts: Sequence[str] | None = None,
) -> Path:
    """Writes an audit to a file, the most suspicious rows first.

    Args:
        found: The audit.
        path: The file; an existing one is overwritten.
        form: ``"csv"`` or ``"json"``: a table with the columns of cleanlab's issues (``is_label_issue``,
            ``label_quality``, ``given_label``, ``predicted_label``), ``row``, and ``name`` if the run named its
            samples. In a CSV, texts that a spreadsheet would run get a leading apostrophe (``read_csv`` removes it).
            ``"cleanlab"``: the table that ``CleanLearning.fit(label_issues=pandas.read_csv(path))`` takes, with all
            rows in the order of the data and classes as numbers. ``"label-studio"``: tasks to import, only for labels
            called wrong, with the suggested label as a prediction; the matching labelling interface is written next to
            them, with the suffix ``.xml``.
        top: Number of rows; by default all (for Label Studio: all that are called wrong).
        names: Names of the classes, written instead of their numbers; by default the audit's.
        texts: The samples' texts for Label Studio; by default their names.

    Returns:
        The path.

    Example:
        >>> import tempfile, numpy as np
        >>> from torchcurriculum import Record
        >>> from torchcurriculum.audit import audit
        >>> record = Record(2)
        >>> record.set_array("labels", np.array([0, 1]))
        >>> record.append({"epoch": 1}, losses=np.array([0.5, 2.0]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(export(audit(record), f"{folder}/issues.csv").read_text().splitlines()[0])
        row,is_label_issue,label_quality,given_label,predicted_label,score,easy,truly_wrong
    """
    if form not in EXPORTS:
        raise ValueError(f"there is no export called {form!r}; known: {', '.join(EXPORTS)}")
    if form == "cleanlab" and (top is not None or names is not None or found.given is None):
        raise ValueError("cleanlab takes all rows and numbered classes: leave out top and names, and audit with labels")
    rows = found.rows(len(found.score) if top is None else top)
    if form == "cleanlab":
        rows.sort(key=lambda row: int(row["row"]))
    elif form == "label-studio" and top is None:
        rows = [row for row in rows if row["issue"]]
    names = found.classes if names is None and form != "cleanlab" else names
    for row in rows:
        row["given"], row["suggested"] = (_name(row[key], names) for key in ("given", "suggested"))
        row["text"] = row["name"] if texts is None else _unicode(str(texts[row["row"]]))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with overwrite(path, newline="") as file:
        EXPORTS[form](rows, file)
    if form == "label-studio":
        with overwrite(path.with_suffix(".xml")) as file:
            file.write(interface(_class_names(found, names), "text") + "\n")
    return path


def read_csv(path: str | Path) -> list[dict[str, str]]:
    """The rows of a CSV export, with the original texts."""
    with open(path, encoding="utf-8", newline="") as file:
        return [{name: spreadsheet_text(text or "") for name, text in row.items()} for row in csv.DictReader(file)]


def _class_names(found: Audit, names: Sequence[str] | None) -> list[str]:
    if names is not None:
        return [_unicode(name) for name in names]
    known = [values.tolist() for values in (found.given, found.suggested) if values is not None]
    return [str(label) for label in sorted({label for values in known for label in values})]


def _name(label: Any, names: Sequence[str] | None) -> Any:
    if names is not None and isinstance(label, int) and 0 <= label < len(names):
        label = names[label]
    return _unicode(label) if isinstance(label, str) else label


def _unicode(text: str) -> str:
    """Text as valid UTF-8: bytes of a folder's name that are not are escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _number(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def _issue(row: Row) -> Row:
    """A row with the names of cleanlab's table of label issues."""
    return {
        "row": row["row"],
        **({} if row["name"] is None else {"name": row["name"]}),
        "is_label_issue": row["issue"],
        "label_quality": _number(row["quality"]),
        "given_label": row["given"],
        "predicted_label": row["suggested"],
        "score": _number(row["score"]),
        "easy": _number(row["easy"]),
        "truly_wrong": row["wrong"],
    }


def _task(row: Row) -> Row:
    shown = f"row {row['row']}" if row["text"] is None else row["text"]
    wrong = None if _number(row["quality"]) is None else 1 - row["quality"]
    data = {"text": shown, "row": row["row"], "is_label_issue": row["issue"]}
    return task(data, str(row["given"]), None if row["suggested"] is None else str(row["suggested"]), wrong)


def _write_cleanlab(rows: Sequence[Row], file: IO[str]) -> None:
    names = ("is_label_issue", "label_quality", "given_label", "predicted_label")
    writer = csv.DictWriter(file, names, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(_issue(row) for row in rows)


def _write_csv(rows: Sequence[Row], file: IO[str]) -> None:
    writer = csv.DictWriter(file, list(_issue(rows[0])) if rows else ["row"])
    writer.writeheader()
    writer.writerows({name: spreadsheet_safe(value) for name, value in _issue(row).items()} for row in rows)


def spreadsheet_safe(value: Any) -> Any:
    """Puts an apostrophe before a text that a spreadsheet would run as a formula, but not before a number.

    Example:
        >>> [spreadsheet_safe(text) for text in ("=1+1", "-1", "-x", "cat", "'=1+1")]
        ["'=1+1", '-1', "'-x", 'cat', "''=1+1"]
        >>> [spreadsheet_text(spreadsheet_safe(text)) for text in ("=1+1", "-1", "'=1+1", "'cat")]
        ['=1+1', '-1', "'=1+1", "'cat"]
    """
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) and not NUMBER.fullmatch(value) else value


def spreadsheet_text(value: str) -> str:
    """The original of a text from ``spreadsheet_safe``."""
    return value[1:] if value.startswith("'") and FORMULA.match(value) else value


def _writer(shape: Callable[[Row], Row]) -> Callable[[Sequence[Row], IO[str]], None]:
    def write(rows: Sequence[Row], file: IO[str]) -> None:
        file.write(json.dumps([shape(row) for row in rows], indent=0, allow_nan=False) + "\n")

    return write


EXPORTS: dict[str, Callable[[Sequence[Row], IO[str]], None]] = {
    "csv": _write_csv,
    "json": _writer(_issue),
    "cleanlab": _write_cleanlab,
    "label-studio": _writer(_task),
}
