"""The folder of a record.

::

    record.json      format, n, and the run's own description (meta)
    epochs.jsonl     one JSON object per epoch
    NAME.npy         an array with one value (or row) per sample: labels, predictions, ...
    NAME.TYPE.bin    one row of N values per epoch, appended: losses.float32.bin, easy.bits.bin
    previews/        what some of the samples look like, for a report (see ``previews.Previews``)

A reader of an active or killed run sees only complete epochs. An epoch's values have a fixed position in each file, so
a resumed run overwrites what a kill left half-written.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .files import name_in_errors, overwrite, remove_leftovers, sync

__all__ = [
    "FORMAT",
    "Folder",
    "Found",
    "LaterRecord",
    "RecordError",
    "check_array",
    "check_name",
    "pack",
    "unpack",
    "write_at",
]

FORMAT = 1
HISTORIES = {"losses": "float32", "easy": "bits"}
LARGEST = 2**30  # bytes of record.json and of epochs.jsonl, which are read in one piece
PLAIN = "biufSU"  # NumPy's kinds of numbers and texts


class RecordError(ValueError):
    """A record that cannot be read, with the reason."""


class LaterRecord(RecordError):
    """A record that a later version wrote; it must not be overwritten."""


class Folder:
    """Writes a record's files and tracks what has been written.

    Args:
        path: The folder.
        n: Rows of the training set.
        ends: Where each epoch's line in ``epochs.jsonl`` ends, in bytes, for the epochs already there.
    """

    def __init__(self, path: Path, n: int, ends: Sequence[int] = ()) -> None:
        self.path, self.n, self.ends = path, n, list(ends)
        self._unsynced: set[Path] = set()

    def begin(self, meta: Mapping[str, Any]) -> None:
        """Starts an empty record; an earlier one's epochs and arrays are removed."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.write_head(meta)
        self.cut(0)
        for file in self.path.glob("*.npy"):
            file.unlink()

    def write_head(self, meta: Mapping[str, Any]) -> None:
        """Writes ``record.json``."""
        remove_leftovers(self.path)
        with overwrite(self.path / "record.json", durable=True) as file:
            file.write(json.dumps({"format": FORMAT, "n": self.n, "meta": meta}, indent=1))

    def write_array(self, name: str, values: np.ndarray) -> None:
        """Writes ``NAME.npy``."""
        with overwrite(self.path / f"{name}.npy", "wb", durable=True) as file:
            np.save(file, values, allow_pickle=False)

    def write_epochs(self, rows: Sequence[Mapping[str, Any]], histories: Mapping[str, Sequence[np.ndarray]]) -> None:
        """Writes the epochs that are not on the disk yet.

        Per-sample values are written first, so a line in ``epochs.jsonl`` means that the epoch is complete.
        """
        with name_in_errors(self.path):
            for number in range(len(self.ends), len(rows)):
                for name, kept in histories.items():
                    if number < len(kept):
                        self._put(self._history(name), number * kept[number].nbytes, kept[number].tobytes())
                self._put_line(rows[number])

    def rewrite_last(self, row: Mapping[str, Any]) -> None:
        """Replaces the line of the last epoch."""
        self.ends.pop()
        self._put_line(row)

    def cut(self, epochs: int) -> None:
        """Removes everything after the first ``epochs`` epochs."""
        del self.ends[epochs:]
        _cut(self.path / "epochs.jsonl", self.ends[-1] if self.ends else 0)
        for name in HISTORIES:
            self.cut_history(name, epochs)

    def cut_history(self, name: str, epochs: int) -> None:
        """Removes one history's values after the first ``epochs`` epochs."""
        _cut(self._history(name), epochs * _width(HISTORIES[name], self.n))

    def sync(self) -> None:
        """Waits until everything is on the disk."""
        for path in [path for path in self._unsynced if path.exists()]:
            sync(path)
        self._unsynced.clear()

    def _history(self, name: str) -> Path:
        return self.path / f"{name}.{HISTORIES[name]}.bin"

    def _put_line(self, row: Mapping[str, Any]) -> None:
        line, start = json.dumps(row).encode() + b"\n", self.ends[-1] if self.ends else 0
        self._put(self.path / "epochs.jsonl", start, line)
        self.ends.append(start + len(line))

    def _put(self, path: Path, start: int, data: bytes) -> None:
        self._unsynced.add(path)
        write_at(path, start, data)


class Found:
    """The contents of a record's folder. Damage is added to ``problems`` and skipped; without that list it raises.

    Args:
        path: The folder.
        problems: Receives a sentence for each problem.
        samples: Whether to read per-sample arrays and histories.
    """

    def __init__(self, path: Path, problems: list[str] | None = None, samples: bool = True) -> None:
        head = _read_head(path, problems)
        self.path, self.n, self.meta = path, head["n"], head.get("meta", {})
        self.rows: list[dict[str, Any]] = []  # of complete epochs
        self.ends: list[int] = []  # of their lines, in bytes
        self.arrays: dict[str, np.ndarray] = {}
        # Packed. May be longer than the rows: a saved state may hold the row of an epoch whose line was truncated.
        self.histories: dict[str, list[np.ndarray]] = {}
        with _collect_problems(problems):
            for row, end in _read_rows(path / "epochs.jsonl"):
                self.rows.append(row)
                self.ends.append(end)
        for file in sorted(file for file in path.glob("*.npy") if samples and file.is_file()):
            with _collect_problems(problems):
                self.arrays[file.stem] = _read_array(file, self.n)
        for name, kind in HISTORIES.items() if samples else ():
            file = path / f"{name}.{kind}.bin"
            with _collect_problems(problems):
                if file.is_file():
                    self.histories[name] = list(_read_history(file, kind, self.n))
        whole = min([len(self.rows), *map(len, self.histories.values())])
        del self.rows[whole:], self.ends[whole:]


def check_name(name: str) -> None:
    """Refuses a name that would put an array's file outside the record's folder."""
    if not re.fullmatch(r"[^./\\\0][^/\\\0]{0,99}", name):
        raise RecordError(f"{name!r:.60} cannot name an array: use up to 100 letters without slashes or a leading dot")


def check_array(name: str, values: np.ndarray, n: int) -> np.ndarray:
    """``values``, if they hold a number or text for each of the n samples."""
    values = np.asarray(values)
    if values.ndim == 0 or len(values) != n or values.dtype.kind not in PLAIN:
        raise RecordError(f"{name!r} must hold one number or text for each of {n} samples, got {values.shape}")
    return values


def pack(name: str, values: np.ndarray, n: int) -> np.ndarray:
    """One epoch of a history as stored: float32, or eight flags in a byte."""
    if name not in HISTORIES:
        raise RecordError(f"unknown per-sample history {name!r}; known: {', '.join(HISTORIES)}")
    values = np.asarray(values)
    if values.shape != (n,):
        raise RecordError(f"{name!r} must have one value for each of {n} samples, got {values.shape}")
    return np.packbits(values.astype(bool)) if HISTORIES[name] == "bits" else values.astype(np.float32)


def unpack(name: str, values: np.ndarray, n: int) -> np.ndarray:
    """The inverse of ``pack``."""
    return np.unpackbits(values, count=n).astype(bool) if HISTORIES[name] == "bits" else values


def write_at(path: Path, start: int, data: bytes) -> None:
    """Writes ``data`` from byte ``start`` to the end of the file."""
    with open(path, "r+b" if path.exists() else "w+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size < start:
            raise OSError(f"{path} has {size} bytes instead of {start}; another program may have changed it")
        file.truncate(start)
        file.seek(start)
        file.write(data)


def _cut(path: Path, size: int) -> None:
    """Truncates a file to ``size`` bytes; deletes it if it becomes empty."""
    if size == 0:
        path.unlink(missing_ok=True)
    elif path.exists() and path.stat().st_size > size:
        os.truncate(path, size)


@contextmanager
def _collect_problems(problems: list[str] | None) -> Iterator[None]:
    """Adds a RecordError to the list of problems, or raises it if there is no list."""
    try:
        yield
    except RecordError as error:
        if problems is None:
            raise
        problems.append(str(error))


def _read_head(folder: Path, problems: list[str] | None) -> dict[str, Any]:
    path = folder / "record.json"
    if not path.is_file():
        raise RecordError(f"{folder} holds no record (there is no record.json in it)")
    try:
        head = json.loads(_whole(path))
    except RecordError:
        raise
    except (ValueError, OSError, RecursionError) as error:
        raise RecordError(f"{path} is damaged: {error}") from error
    if not isinstance(head, dict) or type(head.get("n")) is not int or head["n"] < 1:
        raise RecordError(f"{path} is not a record of this library")
    if not isinstance(head.get("meta", {}), dict):
        raise RecordError(f"{path} is damaged: its meta data is not an object")
    with _collect_problems(problems):
        written = head.get("format")
        words = f"{path} has format {written!r}, and this version reads format {FORMAT}"
        if type(written) is int and written > FORMAT:
            raise LaterRecord(f"{words}; a later version wrote it, so update torchcurriculum")
        if written != FORMAT:
            raise RecordError(words)
    return head


def _whole(path: Path) -> bytes:
    size = path.stat().st_size
    if size > LARGEST:
        raise RecordError(f"{path} has {size:,} bytes, more than the limit of {LARGEST:,}")
    return path.read_bytes()


def _read_rows(path: Path) -> Iterable[tuple[dict[str, Any], int]]:
    """Rows and where their lines end; a last line without a newline is incomplete and ignored."""
    try:
        lines = _whole(path).split(b"\n")[:-1] if path.is_file() else []
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error}") from error
    end = 0
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{path} is damaged in line {number}: {error}") from error
        if not isinstance(row, dict):
            raise RecordError(f"{path} holds a line that is not an epoch: {line[:60]!r}")
        end += len(line) + 1
        yield row, end


def _read_array(path: Path, n: int) -> np.ndarray:
    try:
        with open(path, "rb") as file:
            return check_array(path.stem, np.lib.format.read_array(file, allow_pickle=False), n)
    except Exception as error:  # NumPy raises many kinds of errors on damaged files
        raise RecordError(f"{path} is damaged: {error}") from error


def _read_history(path: Path, kind: str, n: int) -> Iterable[np.ndarray]:
    try:
        values = np.fromfile(path, dtype=np.uint8)
    except (OSError, MemoryError) as error:
        raise RecordError(f"{path} cannot be read: {error}") from error
    width = _width(kind, n)
    for number in range(len(values) // max(width, 1)):
        row = values[number * width : (number + 1) * width]
        yield row if kind == "bits" else row.view(np.float32)


def _width(kind: str, n: int) -> int:
    """Bytes of one epoch of a history."""
    return -(-n // 8) if kind == "bits" else 4 * n
