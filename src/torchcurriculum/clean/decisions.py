"""A person's decisions about the suspects of a proposal, as JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ..audit.exports import spreadsheet_safe, spreadsheet_text
from ..record.files import overwrite
from .csvfile import find_layout, records
from .proposal import Proposal, Source, read_json

__all__ = ["DECISIONS", "Decision", "Decisions"]

FORMAT = 1
DECISIONS = ("accept", "keep", "drop", "other")
COLUMNS = ("row", "id", "given", "decision", "label")


@dataclass(frozen=True)
class Decision:
    """A decision about one row.

    Attributes:
        row: The row, as in the proposal.
        given: Its label in the data.
        decision: ``"accept"`` the suggestion, ``"keep"`` the given label, ``"drop"`` the row, or ``"other"`` label.
        label: The new label, for accept and other.
        id: The user's name for the row.
    """

    row: int
    given: str
    decision: str
    label: str | None = None
    id: str | None = None

    def __post_init__(self) -> None:
        if type(self.row) is not int or self.row < 0:
            raise ValueError(f"a row must be a number from 0, got {self.row!r}")
        if self.decision not in DECISIONS:
            known = ", ".join(DECISIONS)
            raise ValueError(f"row {self.row}: a decision must be one of {known}, got {self.decision!r}")
        texts: dict[str, str | None] = {"given": self.given, **({} if self.id is None else {"id": self.id})}
        if self.decision in ("accept", "other"):
            texts["label"] = self.label
        elif self.label is not None:
            raise ValueError(f"row {self.row}: the decision {self.decision!r} takes no label, got {self.label!r}")
        for name, value in texts.items():
            if not isinstance(value, str) or (name == "label" and not value.strip()):
                raise ValueError(f"row {self.row}: {name} must be a text, got {value!r}")


@dataclass(frozen=True)
class Decisions:
    """All decisions about a proposal.

    Attributes:
        rows: The decisions, each row at most once.
        proposal: The ``key`` of the proposal, or None if the file lacks it (CSV).
        source: The data, or None if the file lacks it (CSV).

    Example:
        >>> import tempfile
        >>> decisions = Decisions([Decision(7, "-1", "other", "=2"), Decision(3, "cat", "keep")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = decisions.write(f"{folder}/decisions.csv")
        ...     print(path.read_text().splitlines()[1], Decisions.read(path) == decisions)
        7,,-1,other,'=2 True
    """

    rows: Sequence[Decision] = ()
    proposal: str | None = None
    source: Source | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", list(self.rows))
        if len({one.row for one in self.rows}) != len(self.rows):
            raise ValueError("two decisions are about the same row")
        if self.proposal is not None and not isinstance(self.proposal, str):
            raise ValueError(f"proposal must be a text, got {self.proposal!r}")

    @classmethod
    def of(cls, proposal: Proposal, rows: Sequence[Decision] = ()) -> Decisions:
        """Decisions about a proposal; each must name one of its rows and its label."""
        given = {one.row: one.given for one in proposal.rows}
        for one in rows:
            if given.get(one.row) != one.given:
                raise ValueError(f"the proposal has no row {one.row} with the label {one.given!r}")
        return cls(rows, proposal.key, proposal.source)

    def write(self, path: str | Path) -> Path:
        """Writes them, as CSV if the name ends in .csv and else as JSON; overwrites an existing file."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with overwrite(path, durable=True, newline="") as file:
            file.write(self.as_csv() if path.suffix.lower() == ".csv" else self.as_json())
        return path

    def as_json(self) -> str:
        """The decisions with the proposal and the data they are about."""
        source = None if self.source is None else asdict(self.source)
        rows = [{name: getattr(one, name) for name in COLUMNS} for one in self.rows]
        return json.dumps({"format": FORMAT, "proposal": self.proposal, "source": source, "decisions": rows}) + "\n"

    def as_csv(self) -> str:
        """A CSV table; texts that a spreadsheet would run as formulas get a leading apostrophe."""
        held = io.StringIO()
        writer = csv.writer(held, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([spreadsheet_safe(getattr(one, name)) for name in COLUMNS] for one in self.rows)
        return held.getvalue()

    @classmethod
    def read(cls, path: str | Path) -> Decisions:
        """Reads and checks a file from ``write`` or the review page."""
        path = Path(path)
        try:
            return cls._from_csv(path) if path.suffix.lower() == ".csv" else cls.from_dict(read_json(path, "decisions"))
        except (ValueError, TypeError, csv.Error) as error:
            if str(path) in str(error):
                raise
            raise ValueError(f"{path} holds no usable decisions: {error}") from None

    @classmethod
    def from_dict(cls, held: dict[str, Any]) -> Decisions:
        """Decisions from JSON; ValueError if they are malformed."""
        if held.get("format") != FORMAT or not isinstance(held.get("decisions"), list):
            raise ValueError(f"this version reads decisions of format {FORMAT} only")
        source = held.get("source")
        known = {one.name for one in fields(Source)}
        if source is not None and (not isinstance(source, dict) or not set(source) <= known):
            raise ValueError("source is not that of a proposal")
        rows = []
        for row in held["decisions"]:
            if not isinstance(row, dict) or not set(row) <= set(COLUMNS):
                raise ValueError(f"a decision must have the fields {', '.join(COLUMNS)}, got {row!r}")
            rows.append(Decision(**row))
        return cls(rows, held.get("proposal"), None if source is None else Source(**source))

    @classmethod
    def _from_csv(cls, path: Path) -> Decisions:
        lines = records(path, find_layout(path))  # a spreadsheet saves with other separators and encodings
        head = [name.strip() for name in next(lines)[1]]
        missing = {"row", "given", "decision"} - set(head)
        if missing:
            raise ValueError(f"the column {min(missing)!r} is missing")
        rows = []
        for number, cells in lines:
            held = dict.fromkeys(COLUMNS, "") | dict(zip(head, map(spreadsheet_text, cells), strict=False))
            if not any(cell.strip() for cell in cells):
                continue
            if not held["row"].strip().isdecimal():
                raise ValueError(f"line {number}: the column 'row' must hold a whole number, got {held['row']!r}")
            decision = held["decision"].strip().lower()
            label, id = held["label"].strip() or None, held["id"] or None
            rows.append(Decision(int(held["row"]), held["given"], decision, label, id))
        return cls(rows)
