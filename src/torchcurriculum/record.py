"""What happened in a run: one row per epoch and, where asked for, arrays with a value for every sample.

Readable without torch. On disk a record is a folder::

    record.json      format, n, and what the run said about itself
    epochs.jsonl     one JSON object per epoch
    NAME.npy         an array with one value (or row) per sample: labels, predictions, ...
    NAME.TYPE.bin    one row of N values per epoch, appended: losses.float32.bin, easy.bits.bin
    previews/        what some of the samples look like, for a report (see ``previews.Previews``)

Everything is written so that a reader of a run that is still going, or of one that was killed, sees whole epochs only.
An epoch's values stand at a place that its number decides, so what a kill left half-written is written over.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["FORMAT", "Record", "RecordError", "naming"]

FORMAT = 1
HISTORIES = {"losses": "float32", "easy": "bits"}
PLAIN = "biufSU"  # NumPy's kinds of numbers and texts
LONGEST = 500  # bytes of a sample's name


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
        self.source: Path | None = None  # where it was read from
        self._histories: dict[str, list[np.ndarray]] = {}
        self._ends: list[int] = []  # where the line of each epoch on the disk ends, in bytes
        self._unsynced: set[Path] = set()
        self._sinks: list[Any] = []
        self.folder = Path(folder) if folder is not None else None
        if self.folder is not None:
            self._begin(self.folder)

    def append(self, row: Mapping[str, Any], **histories: np.ndarray) -> None:
        """Adds an epoch: its scalars, and (N,) arrays by the name of their history (``losses``, ``easy``)."""
        packed = {name: _pack(name, values, self.n) for name, values in histories.items()}
        number = len(self.epochs)
        self.epochs.append(dict(row))
        for name, values in packed.items():
            kept = self._histories.setdefault(name, [])
            del kept[number:]
            if len(kept) == number:  # after a gap the values would count for earlier epochs
                kept.append(values)
        self._write()
        self._send(row)

    def attach(self, sink: Any) -> None:
        """Sends every row from now on to ``sink.write(row)`` as well, and every annotation with its epoch (see sinks).

        A sink that fails is warned about and the run goes on. Sinks are left behind when a record is pickled.
        """
        if not callable(getattr(sink, "write", None)):
            raise TypeError(f"a sink has a method write(row), and {type(sink).__name__} has none; see the sinks module")
        self._sinks.append(sink)

    def annotate(self, **scalars: Any) -> None:
        """Adds scalars to the last epoch's row: what was found out after it ended, such as a validation accuracy."""
        if not self.epochs:
            raise RecordError("there is no epoch yet to annotate")
        self.epochs[-1].update(scalars)
        if self.folder is not None and len(self._ends) == len(self.epochs):
            self._ends.pop()
            with self._going_on():
                self._write_line(self.folder, len(self._ends))
        else:
            self._write()
        self._send({"epoch": self.epochs[-1].get("epoch", len(self.epochs)), **scalars})

    def column(self, name: str) -> np.ndarray:
        """(K,) the values of one scalar over the epochs, NaN where an epoch lacks it."""
        where = "this record" if self.source is None else str(self.source)
        values = [_number(name, row.get(name), f"epoch {k} of {where}") for k, row in enumerate(self.epochs, 1)]
        return np.array(values, dtype=np.float64)

    def history(self, name: str) -> np.ndarray:
        """(K, N) per-sample values over the epochs."""
        return np.stack(list(self.rows(name)))

    def rows(self, name: str) -> Iterator[np.ndarray]:
        """(N,) per-sample values of one epoch after the other: what fits in memory when ``history`` does not."""
        rows = self._histories.get(name, [])
        if not self.epochs:
            raise RecordError(f"this record has no whole epoch yet, so there is no {name!r} for each sample")
        if not self.has(name):
            raise RecordError(f"this record holds no {name!r} for each sample; run with samples=True to keep them")
        if len(rows) < len(self.epochs):
            raise RecordError(f"this record holds {name!r} of {len(rows)} epochs only, and has {len(self.epochs)}")
        return (_unpack(name, row, self.n) for row in rows[: len(self.epochs)])

    def has(self, name: str) -> bool:
        """Whether there is a per-sample history of this name."""
        return bool(self.epochs and self._histories.get(name))

    def set_array(self, name: str, values: np.ndarray) -> None:
        """Keeps an array with one entry per sample, such as the given labels."""
        values = np.asarray(values)
        if values.ndim == 0 or len(values) != self.n or values.dtype.kind not in PLAIN:
            raise RecordError(f"{name!r} must hold one plain value for each of {self.n} samples, got {values.shape}")
        self.arrays[name] = values
        if self.folder is not None:
            _replace(self.folder / f"{name}.npy", lambda file: np.save(file, values, allow_pickle=False))

    def name_samples(self, names: Sequence[str]) -> None:
        """Keeps what people call each sample: a file, a line, a sentence (its first 500 bytes). Audits show it.

        Example:
            >>> record = Record(2)
            >>> record.name_samples(["cats/1.png", "dogs/7.png"])
            >>> record.arrays["names"]
            array([b'cats/1.png', b'dogs/7.png'], dtype='|S10')
        """
        self.set_array("names", np.array([name.encode("utf-8", "replace")[:LONGEST] for name in names]))

    def labels(self, name: str) -> np.ndarray | None:
        """(N,) the array of this name, None where there is none; one with more than a value per sample is refused."""
        values = self.arrays.get(name)
        if values is not None and values.ndim != 1:
            raise RecordError(f"{name!r} must hold one label for each of {self.n} samples, got {values.shape}")
        return values

    def rewind(self, epochs: int) -> None:
        """Forgets everything after the first ``epochs`` epochs: a run that resumes goes on from there."""
        del self.epochs[epochs:], self._ends[epochs:]
        for kept in self._histories.values():
            del kept[epochs:]
        if self.folder is not None:
            _cut(self.folder / "epochs.jsonl", self._ends[-1] if self._ends else 0)
            for name, kind in HISTORIES.items():
                _cut(self.folder / f"{name}.{kind}.bin", epochs * _width(kind, self.n))

    def restore(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Goes back or forward to the epochs of a saved state: rows that are missing here are taken from it.

        A history that does not reach as far as the state is forgotten as a whole: it could not go on without a gap.
        """
        self.rewind(len(rows))
        for name in [name for name, kept in self._histories.items() if len(kept) < len(rows)]:
            del self._histories[name]
            if self.folder is not None:
                _cut(self.folder / f"{name}.{HISTORIES[name]}.bin", 0)
        self.epochs += [dict(row) for row in rows[len(self.epochs) :]]
        self._write()

    def flush(self) -> None:
        """Writes the epochs that are not on the disk yet; raises OSError if it cannot."""
        if self.folder is not None:
            with naming(self.folder):
                for number in range(len(self._ends), len(self.epochs)):
                    self._write_epoch(self.folder, number)

    def sync(self) -> None:
        """Waits until everything is on the disk: a state that counts on this record may be written afterwards."""
        with self._going_on():
            for path in [path for path in self._unsynced if path.exists()]:
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
        self._unsynced.clear()

    def save(self, folder: str | Path) -> None:
        """Writes the whole record."""
        copy = Record(self.n, self.meta, folder)
        copy.epochs, copy._histories = self.epochs, self._histories
        for name, values in self.arrays.items():
            copy.set_array(name, values)
        for number in range(len(self.epochs)):
            copy._write_epoch(Path(folder), number)
        if self.folder == copy.folder:
            self._ends = copy._ends

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
        record.folder = Path(folder)
        record.describe(meta)
        return record

    @classmethod
    def load(cls, folder: str | Path) -> Record:
        """Reads a record, also of a run that is still going."""
        return cls._read(Path(folder), None)

    @classmethod
    def salvage(cls, folder: str | Path) -> tuple[Record | None, list[str]]:
        """What can be read of a record that is damaged, or of a newer version, and a sentence for all that cannot.

        Example:
            >>> Record.salvage("nowhere")
            (None, ['nowhere holds no record (there is no record.json in it)'])
        """
        problems: list[str] = []
        try:
            return cls._read(Path(folder), problems), problems
        except RecordError as error:
            return None, [*problems, str(error)]

    @classmethod
    def _read(cls, folder: Path, problems: list[str] | None) -> Record:
        """Damage is noted in ``problems`` and passed over, or raised where there is no such list."""
        head = _read_head(folder, problems)
        record = cls(head["n"], head.get("meta"))
        record.source = folder
        with _noting(problems):
            for row, end in _read_rows(folder / "epochs.jsonl"):
                record.epochs.append(row)
                record._ends.append(end)
        for path in sorted(path for path in folder.glob("*.npy") if path.is_file()):
            with _noting(problems):
                record._read_array(path)
        for name, kind in HISTORIES.items():
            path = folder / f"{name}.{kind}.bin"
            with _noting(problems):
                if path.is_file():
                    record._histories[name] = list(_read_history(path, kind, record.n))
        whole = min([len(record.epochs), *map(len, record._histories.values())])
        # Histories stay as long as they are: a state may know the row of an epoch whose line a kill cut short.
        del record.epochs[whole:], record._ends[whole:]
        return record

    def _read_array(self, path: Path) -> None:
        try:
            with open(path, "rb") as file:
                self.set_array(path.stem, np.lib.format.read_array(file, allow_pickle=False))
        except Exception as error:  # what damage raises inside NumPy is of every kind
            raise RecordError(f"{path} is damaged: {error}") from error

    def describe(self, meta: Mapping[str, Any]) -> None:
        """Says something else about the run from now on."""
        self.meta = dict(meta)
        if self.folder is not None:
            head = {"format": FORMAT, "n": self.n, "meta": self.meta}
            _replace(self.folder / "record.json", lambda file: file.write(json.dumps(head, indent=1).encode()))

    def _begin(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.describe(self.meta)
        for path in [folder / "epochs.jsonl", *(folder / f"{n}.{kind}.bin" for n, kind in HISTORIES.items())]:
            path.unlink(missing_ok=True)

    def _write(self) -> None:
        """Writes the epochs that are not on the disk yet, or warns."""
        with self._going_on():
            self.flush()

    def _write_epoch(self, folder: Path, number: int) -> None:
        # Arrays first: a row in epochs.jsonl says that the epoch's arrays are complete.
        for name, kept in self._histories.items():
            if number < len(kept):
                path = folder / f"{name}.{HISTORIES[name]}.bin"
                self._unsynced.add(path)
                _write_at(path, number * kept[number].nbytes, kept[number].tobytes())
        self._write_line(folder, number)

    def _write_line(self, folder: Path, number: int) -> None:
        line, start = json.dumps(self.epochs[number]).encode() + b"\n", self._ends[number - 1] if number else 0
        self._unsynced.add(folder / "epochs.jsonl")
        _write_at(folder / "epochs.jsonl", start, line)
        self._ends.append(start + len(line))

    def _send(self, row: Mapping[str, Any]) -> None:
        for sink in self._sinks:
            try:
                sink.write(row)
            except Exception as error:  # a tracker that is down must not end a run
                words = f"{type(sink).__name__} did not take the row of epoch {row.get('epoch')}"
                warnings.warn(f"{words} ({error!r:.200}); the run goes on", stacklevel=3)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sinks": []}

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """A disk that is full must not end a run: everything is in memory, and the next epoch tries again."""
        try:
            yield
        except OSError as error:
            words = "the run goes on, and the next epoch tries to write again"
            warnings.warn(f"the record in {self.folder} could not be written ({error}); {words}", stacklevel=4)


def _pack(name: str, values: np.ndarray, n: int) -> np.ndarray:
    if name not in HISTORIES:
        raise RecordError(f"there is no per-sample history called {name!r}; known: {', '.join(HISTORIES)}")
    values = np.asarray(values)
    if values.shape != (n,):
        raise RecordError(f"{name!r} must have one value for each of {n} samples, got {values.shape}")
    return np.packbits(values.astype(bool)) if HISTORIES[name] == "bits" else values.astype(np.float32)


def _unpack(name: str, values: np.ndarray, n: int) -> np.ndarray:
    return np.unpackbits(values, count=n).astype(bool) if HISTORIES[name] == "bits" else values


def _write_at(path: Path, start: int, data: bytes) -> None:
    """Makes ``data`` the end of a file, from byte ``start`` on."""
    with open(path, "r+b" if path.exists() else "w+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size < start:
            raise OSError(f"{path} has {size} bytes and should have {start}; was it changed from outside?")
        file.truncate(start)
        file.seek(start)
        file.write(data)


def _cut(path: Path, size: int) -> None:
    """Forgets what a file holds after ``size`` bytes; an empty one goes."""
    if size == 0:
        path.unlink(missing_ok=True)
    elif path.exists() and path.stat().st_size > size:
        os.truncate(path, size)


def _replace(path: Path, write: Any) -> None:
    temporary = path.with_name(path.name + ".part")
    with naming(path), open(temporary, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Says which file it was that could not be written: a full disk does not."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def _noting(problems: list[str] | None) -> Iterator[None]:
    """Turns a RecordError into a note, where notes are taken."""
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
        head = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise RecordError(f"{path} is damaged: {error}") from error
    if not isinstance(head, dict) or type(head.get("n")) is not int or head["n"] < 1:
        raise RecordError(f"{path} is no record of this library")
    if not isinstance(head.get("meta", {}), dict):
        raise RecordError(f"{path} is damaged: what it says about the run is no object")
    with _noting(problems):
        if head.get("format") != FORMAT:
            raise RecordError(f"{path} has format {head.get('format')!r}, and this version reads format {FORMAT}")
    return head


def _read_rows(path: Path) -> Iterable[tuple[dict[str, Any], int]]:
    """Rows and where their lines end; a last line without an end is being written, or a run was killed in it."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error}") from error
    end = 0
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{path} is damaged in line {number}: {error}") from error
        if not isinstance(row, dict):
            raise RecordError(f"{path} holds a line that is no epoch: {line[:60]!r}")
        end += len(line) + 1
        yield row, end


def _number(name: str, value: Any, where: str) -> float:
    try:
        return float("nan") if value is None else float(value + 0)  # a text has no sum with a number
    except (TypeError, ValueError, OverflowError) as error:
        raise RecordError(f"{where} has {name} = {value!r:.40}, which is no number") from error


def _width(kind: str, n: int) -> int:
    """Bytes of one epoch of a history."""
    return -(-n // 8) if kind == "bits" else 4 * n


def _read_history(path: Path, kind: str, n: int) -> Iterable[np.ndarray]:
    try:
        values = np.fromfile(path, dtype=np.uint8)
    except (OSError, MemoryError) as error:
        raise RecordError(f"{path} cannot be read: {error}") from error
    width = _width(kind, n)
    for number in range(len(values) // max(width, 1)):
        row = values[number * width : (number + 1) * width]
        yield row if kind == "bits" else row.view(np.float32)
