"""What happened in a run: one row per epoch and, where asked for, arrays with a value for every sample.

Readable without torch. On disk a record is a folder::

    record.json      format, n, and what the run said about itself
    epochs.jsonl     one JSON object per epoch
    NAME.npy         an array with one value (or row) per sample: labels, predictions, ...
    NAME.TYPE.bin    one row of N values per epoch, appended: losses.float32.bin, easy.bits.bin

Everything is written so that a reader of a run that is still going, or of one that was killed, sees whole epochs only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["FORMAT", "Record", "RecordError"]

FORMAT = 1
HISTORIES = {"losses": "float32", "easy": "bits"}


class RecordError(ValueError):
    """A record that cannot be read, with the reason."""


class Record:
    """Rows of a run, in memory and, with a folder, on disk as they come.

    Args:
        n: Rows of the training set.
        meta: What to say about the run: anything JSON can hold.
        folder: Where to write; None keeps the record in memory until ``save``.

    Example:
        >>> record = Record(2)
        >>> record.append({"epoch": 1, "rho": 0.9}, losses=np.array([0.1, 2.0]), easy=np.array([True, False]))
        >>> record.column("rho"), record.history("easy").shape
        (array([0.9]), (1, 2))
    """

    def __init__(self, n: int, meta: Mapping[str, Any] | None = None, folder: str | Path | None = None) -> None:
        self.n = n
        self.meta: dict[str, Any] = dict(meta or {})
        self.epochs: list[dict[str, Any]] = []
        self.arrays: dict[str, np.ndarray] = {}
        self._histories: dict[str, list[np.ndarray]] = {}
        self._last_line = 0
        self.folder = Path(folder) if folder is not None else None
        if self.folder is not None:
            self._begin(self.folder)

    def append(self, row: Mapping[str, Any], **histories: np.ndarray) -> None:
        """Adds an epoch: its scalars, and (N,) arrays by the name of their history (``losses``, ``easy``)."""
        row = dict(row)
        packed = {name: _pack(name, values, self.n) for name, values in histories.items()}
        self.epochs.append(row)
        for name, values in packed.items():
            self._histories.setdefault(name, []).append(values)
        if self.folder is not None:
            self._write_epoch(self.folder, row, packed)

    def annotate(self, **scalars: Any) -> None:
        """Adds scalars to the last epoch's row: what was found out after it ended, such as a validation accuracy."""
        if not self.epochs:
            raise RecordError("there is no epoch yet to annotate")
        self.epochs[-1].update(scalars)
        if self.folder is not None:
            with open(self.folder / "epochs.jsonl", "r+b") as lines:
                lines.truncate(self._last_line)
                lines.seek(self._last_line)
                lines.write(json.dumps(self.epochs[-1]).encode() + b"\n")

    def column(self, name: str) -> np.ndarray:
        """(K,) the values of one scalar over the epochs, NaN where an epoch lacks it."""
        return np.array([float("nan") if row.get(name) is None else row[name] for row in self.epochs])

    def history(self, name: str) -> np.ndarray:
        """(K, N) per-sample values over the epochs."""
        rows = self._histories.get(name)
        if not rows:
            raise RecordError(f"this record holds no {name!r} for each sample; run with samples=True to keep them")
        if len(rows) != len(self.epochs):
            raise RecordError(f"this record holds {name!r} of {len(rows)} epochs only, and has {len(self.epochs)}")
        return np.stack([_unpack(name, row, self.n) for row in rows])

    def has(self, name: str) -> bool:
        """Whether there is a per-sample history of this name."""
        return bool(self._histories.get(name))

    def set_array(self, name: str, values: np.ndarray) -> None:
        """Keeps an array with one entry per sample, such as the given labels."""
        values = np.asarray(values)
        if len(values) != self.n or values.dtype == object:
            raise RecordError(f"{name!r} must hold one plain value for each of {self.n} samples, got {values.shape}")
        self.arrays[name] = values
        if self.folder is not None:
            _replace(self.folder / f"{name}.npy", lambda file: np.save(file, values, allow_pickle=False))

    def rewind(self, epochs: int) -> None:
        """Forgets everything after the first ``epochs`` epochs: a run that resumes goes on from there."""
        if epochs < len(self.epochs):
            self.epochs = self.epochs[:epochs]
            self._histories = {name: rows[:epochs] for name, rows in self._histories.items()}
            if self.folder is not None:
                self.save(self.folder)

    def save(self, folder: str | Path) -> None:
        """Writes the whole record."""
        folder = Path(folder)
        self._begin(folder)
        for name, values in self.arrays.items():
            _replace(folder / f"{name}.npy", lambda file, v=values: np.save(file, v, allow_pickle=False))
        for number, row in enumerate(self.epochs):
            histories = {name: rows[number] for name, rows in self._histories.items()}
            self._write_epoch(folder, row, histories)

    @classmethod
    def open(cls, n: int, meta: Mapping[str, Any], folder: str | Path | None) -> Record:
        """A record that goes on with the one in ``folder`` if that is of as many rows, and else begins anew."""
        try:
            if folder is None:
                return cls(n, meta)
            record = cls.load(folder)
        except RecordError:
            return cls(n, meta, folder)
        if record.n != n:
            return cls(n, meta, folder)
        record.meta, record.folder = dict(meta), Path(folder)
        record.save(folder)
        return record

    @classmethod
    def load(cls, folder: str | Path) -> Record:
        """Reads a record, also of a run that is still going."""
        folder = Path(folder)
        head = _read_head(folder)
        record = cls(head["n"], head.get("meta"))
        record.epochs = list(_read_rows(folder / "epochs.jsonl"))
        for path in sorted(folder.glob("*.npy")):
            try:
                record.set_array(path.stem, np.load(path, allow_pickle=False))
            except (ValueError, EOFError, OSError) as error:
                raise RecordError(f"{path} is damaged: {error}") from error
        for name, kind in HISTORIES.items():
            path = folder / f"{name}.{kind}.bin"
            if path.exists():
                record._histories[name] = list(_read_history(path, kind, record.n))[: len(record.epochs)]
        whole = min([len(record.epochs), *map(len, record._histories.values())])
        record.rewind(whole)
        return record

    def _begin(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        head = {"format": FORMAT, "n": self.n, "meta": self.meta}
        _replace(folder / "record.json", lambda file: file.write(json.dumps(head, indent=1).encode()))
        for path in [folder / "epochs.jsonl", *(folder / f"{n}.{kind}.bin" for n, kind in HISTORIES.items())]:
            path.unlink(missing_ok=True)

    def _write_epoch(self, folder: Path, row: Mapping[str, Any], histories: Mapping[str, np.ndarray]) -> None:
        # Arrays first: a row in epochs.jsonl says that the epoch's arrays are complete.
        for name, values in histories.items():
            with open(folder / f"{name}.{HISTORIES[name]}.bin", "ab") as file:
                file.write(values.tobytes())
        with open(folder / "epochs.jsonl", "ab") as lines:
            self._last_line = lines.tell()
            lines.write(json.dumps(row).encode() + b"\n")


def _pack(name: str, values: np.ndarray, n: int) -> np.ndarray:
    if name not in HISTORIES:
        raise RecordError(f"there is no per-sample history called {name!r}; known: {', '.join(HISTORIES)}")
    values = np.asarray(values)
    if values.shape != (n,):
        raise RecordError(f"{name!r} must have one value for each of {n} samples, got {values.shape}")
    return np.packbits(values.astype(bool)) if HISTORIES[name] == "bits" else values.astype(np.float32)


def _unpack(name: str, values: np.ndarray, n: int) -> np.ndarray:
    return np.unpackbits(values, count=n).astype(bool) if HISTORIES[name] == "bits" else values


def _replace(path: Path, write: Any) -> None:
    temporary = path.with_name(path.name + ".part")
    with open(temporary, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _read_head(folder: Path) -> dict[str, Any]:
    path = folder / "record.json"
    if not path.exists():
        raise RecordError(f"{folder} holds no record (there is no record.json in it)")
    try:
        head = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise RecordError(f"{path} is damaged: {error}") from error
    if not isinstance(head, dict) or not isinstance(head.get("n"), int) or head["n"] < 0:
        raise RecordError(f"{path} is no record of this library")
    if head.get("format") != FORMAT:
        raise RecordError(f"{path} has format {head.get('format')!r}, and this version reads format {FORMAT}")
    return head


def _read_rows(path: Path) -> Iterable[dict[str, Any]]:
    if not path.exists():
        return
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:
                return  # the last line of a run that is being written, or was killed
            if not isinstance(row, dict):
                raise RecordError(f"{path} holds a line that is no epoch: {line[:60]!r}")
            yield row


def _read_history(path: Path, kind: str, n: int) -> Iterable[np.ndarray]:
    width, dtype = (-(-n // 8), np.uint8) if kind == "bits" else (n, np.float32)
    values = np.fromfile(path, dtype=dtype)
    for number in range(len(values) // max(width, 1)):
        yield values[number * width : (number + 1) * width]
