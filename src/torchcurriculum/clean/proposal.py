"""The proposal: which labels of a user's data look wrong and what they should be, as one JSON file.

`curriculum clean` writes it; the review page shows it, and `curriculum fix` applies it. Everything read is checked,
since a proposal may come from anywhere.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ..record.files import overwrite
from .folders import files_in

__all__ = ["KINDS", "Proposal", "Share", "Source", "Suspect", "digest", "read_json"]

FORMAT = 1
KINDS = ("table", "pictures", "text")
LARGEST = 2**30  # most bytes of a file to read
PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*")
BLOCK = 2**20
OPTIONAL = ("label", "encoding", "separator", "id", "features")


@dataclass(frozen=True)
class Source:
    """The user's data.

    Attributes:
        path: The absolute path of the file or folder.
        kind: ``"table"`` (CSV, TSV, Parquet), ``"pictures"`` or ``"text"`` (folders with one folder for each class).
        digest: Of its bytes, see ``digest``.
        label: The column of the labels; None for folders.
        encoding: Of a CSV or TSV file, Python's name; None for Parquet and folders.
        separator: Of a CSV or TSV file; None for Parquet and folders.
        id: The column that names the rows, or None.
        quotes: Whether cells of a CSV or TSV file may be quoted.
        drop: Columns that the user left out.
        features: The features that the user chose.
    """

    path: str
    kind: str
    digest: str
    label: str | None = None
    encoding: str | None = None
    separator: str | None = None
    id: str | None = None
    quotes: bool = True
    drop: Sequence[str] = ()
    features: str | None = None

    def __post_init__(self) -> None:
        texts = {name: getattr(self, name) for name in ("path", "digest")}
        texts |= {name: value for name in OPTIONAL if (value := getattr(self, name))}
        for name, value in texts.items():
            _require(isinstance(value, str), f"source.{name} must be a text, got {value!r}")
        _require(self.kind in KINDS, f"source.kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if self.kind == "table":
            _require(self.label is not None, "source.label must name the label column of a table")
        names = isinstance(self.drop, list | tuple) and all(isinstance(name, str) for name in self.drop)
        _require(names, f"source.drop must be a list of texts, got {self.drop!r}")
        object.__setattr__(self, "drop", list(self.drop))
        _require(isinstance(self.quotes, bool), f"source.quotes must be true or false, got {self.quotes!r}")
        separated = self.separator is not None
        _require(not separated or len(str(self.separator)) == 1, f"source.separator must be one letter: {self!r}")


@dataclass(frozen=True)
class Share:
    """The share of wrong labels: an estimate and its interval; None if unknown."""

    estimate: float | None = None
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        for name in ("estimate", "low", "high"):
            _probability(getattr(self, name), f"share.{name}")


@dataclass(frozen=True)
class Suspect:
    """A row whose label looks wrong.

    Attributes:
        row: Its position in the data, from 0. In a CSV or TSV file header and blank lines do not count. In a folder it
            is the position in the sorted list of files read.
        id: The user's name for it: the value of the id column, or a file's path in its folder with ``/``.
        given: The label in the data, as text.
        suggested: The label that fits better, or None.
        quality: The probability that the given label is right.
        suggestion_probability: The probability that the suggested label is right, or None.
        sure: Whether it may be changed without review.
        why: One sentence.
        show: Its preview: ``values`` (a mapping from column to text, the strongest evidence first), ``text``, and
            ``picture`` (a small one, as a data URI).
        called: Whether the label is called wrong; if not, it is for a person to check, and may be an exception.
    """

    row: int
    given: str
    suggested: str | None
    quality: float
    id: str | None = None
    suggestion_probability: float | None = None
    sure: bool = False
    why: str = ""
    show: Mapping[str, Any] = field(default_factory=dict)
    called: bool = True

    def __post_init__(self) -> None:
        name = f"row {self.row!r}"
        _require(type(self.row) is int and self.row >= 0, f"a row must be a number from 0, got {self.row!r}")
        for key in ("given", "why", *(key for key in ("id", "suggested") if getattr(self, key) is not None)):
            _require(isinstance(getattr(self, key), str), f"{name}: {key} must be a text, got {getattr(self, key)!r}")
        _require(self.quality is not None, f"{name}: quality must be a number from 0 to 1, got None")
        for key in ("quality", "suggestion_probability"):
            _probability(getattr(self, key), f"{name}: {key}")
        for key in ("called", "sure"):
            flag = getattr(self, key)
            _require(isinstance(flag, bool), f"{name}: {key} must be true or false, got {flag!r}")
        _require(self.called or not self.sure, f"{name} is marked sure but not called wrong")
        changed = self.suggested is not None and self.suggested != self.given
        _require(changed or not self.sure, f"{name} is marked sure but suggests no other label")
        _check_show(self.show, name)


@dataclass(frozen=True)
class Proposal:
    """The findings in a user's data.

    Attributes:
        source: The data.
        classes: All labels that occur, as text.
        total: Number of rows examined.
        rows: The suspects: those called wrong, then those to check, the most suspicious first in each.
        share: The share of wrong labels.
        health: Reasons why the findings cannot be trusted; empty if they can.
        method: What was trained, in words.
        notes: Other sentences for the reader, such as how many files could not be read.

    Example:
        >>> import tempfile
        >>> source = Source("/data/pets.csv", "table", "00", label="kind", encoding="utf-8", separator=",")
        >>> proposal = Proposal(source, ["cat", "dog"], 100, [Suspect(7, "cat", "dog", 0.02, sure=True)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Proposal.read(proposal.write(f"{folder}/proposal.json")) == proposal
        True
    """

    source: Source
    classes: Sequence[str]
    total: int
    rows: Sequence[Suspect] = ()
    share: Share = field(default_factory=Share)
    health: Sequence[str] = ()
    method: str = ""
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("classes", "health", "notes"):
            value = getattr(self, name)
            good = isinstance(value, list | tuple) and all(isinstance(part, str) for part in value)
            _require(good, f"{name} must be a list of texts")
            object.__setattr__(self, name, list(value))
        _require(isinstance(self.method, str), f"method must be a text, got {self.method!r}")
        enough = type(self.total) is int and self.total >= len(self.rows)
        _require(enough, f"total must be the number of all rows, and at least {len(self.rows)}, got {self.total!r}")
        object.__setattr__(self, "rows", list(self.rows))
        _require(len({one.row for one in self.rows}) == len(self.rows), "a row occurs twice among the suspects")
        _require(len(set(self.classes)) == len(self.classes), "a class occurs twice")
        _require(not self.health or not any(one.sure for one in self.rows), "an unhealthy run must not mark rows sure")

    @property
    def called(self) -> list[Suspect]:
        """The rows whose labels are called wrong, without those to check."""
        return [row for row in self.rows if row.called]

    def to_check(self) -> str:
        """A sentence on the rows to check; empty if there are none."""
        count = len(self.rows) - len(self.called)
        if not count:
            return ""
        more = " more" if self.called else ""
        them = "label fits its row" if count == 1 else "labels fit their rows"
        return f"{count:,}{more} {them} worse than another one. Check by hand: these may be exceptions, not mistakes."

    @property
    def key(self) -> str:
        """A checksum of the whole proposal, which ties decisions to it."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()

    def as_dict(self) -> dict[str, Any]:
        """The contents of the file."""
        return {"format": FORMAT, **asdict(self)}

    def write(self, path: str | Path) -> Path:
        """Writes it as JSON; an existing file is overwritten."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with overwrite(path) as file:
            json.dump(self.as_dict(), file, indent=0, allow_nan=False)
            file.write("\n")
        return path

    @classmethod
    def read(cls, path: str | Path) -> Proposal:
        """Reads and checks a file from ``write``; ValueError if it is something else or damaged."""
        held = read_json(path, "a proposal")
        try:
            _require(held.pop("format", None) == FORMAT, f"this version reads format {FORMAT} only")
            held["source"] = _build(Source, held.get("source"), "source")
            held["share"] = _build(Share, held.get("share"), "share")
            _require(isinstance(held.get("rows"), list), "rows must be a list")
            held["rows"] = [_build(Suspect, row, "a row") for row in held["rows"]]
            built: Proposal = _build(cls, held, "the proposal")
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is not a usable proposal: {error}") from None
        return built


def digest(path: str | Path) -> str:
    """SHA-256 of a file, or of the names and contents of all files in a folder. Hidden files are skipped."""
    path = Path(path)
    if path.is_file():
        return _sha(path).hexdigest()
    if not path.is_dir():
        raise FileNotFoundError(f"{path} does not exist")
    total = hashlib.sha256()
    for name in sorted(files_in(path)):
        total.update(name.encode("utf-8", "surrogateescape") + b"\0" + _sha(path / name).digest())
    return total.hexdigest()


def read_json(path: str | Path, what: str) -> dict[str, Any]:
    """An object from a JSON file; ValueError with the file's name if it is anything else."""
    path = Path(path)
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path} is larger than {LARGEST:,} bytes and cannot be {what}")
    try:
        held = json.loads(path.read_bytes(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON and cannot be {what}: {error}") from None
    if not isinstance(held, dict):
        raise ValueError(f"{path} holds a {type(held).__name__} and cannot be {what}")
    return held


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _sha(path: Path) -> Any:
    total = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            total.update(block)
    return total


def _build(kind: Any, held: Any, name: str) -> Any:
    _require(isinstance(held, dict), f"{name} must be an object, got {type(held).__name__}")
    known = {one.name for one in fields(kind)}
    _require(set(held) <= known, f"{name} has unknown parts: {', '.join(sorted(map(repr, set(held) - known)))}")
    return kind(**held)


def _require(good: bool, message: str) -> None:
    if not good:
        raise ValueError(message)


def _probability(value: Any, name: str) -> None:
    number = value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1)
    _require(number and (value is None or math.isfinite(value)), f"{name} must be a number from 0 to 1, got {value!r}")


def _check_show(show: Any, name: str) -> None:
    _require(isinstance(show, Mapping), f"{name}: show must be an object")
    known = {"values", "text", "picture"}
    _require(set(show) <= known, f"{name}: show has unknown parts: {', '.join(map(repr, set(show) - known))}")
    values, text, picture = (show.get(key) for key in ("values", "text", "picture"))
    pairs = isinstance(values, Mapping) and all(isinstance(part, str) for pair in values.items() for part in pair)
    _require(values is None or pairs, f"{name}: show.values must be an object of texts")
    _require(text is None or isinstance(text, str), f"{name}: show.text must be a text")
    safe = isinstance(picture, str) and PICTURE.fullmatch(picture)
    _require(picture is None or bool(safe), f"{name}: show.picture must be a data URI of a PNG, JPEG, GIF or WebP")
