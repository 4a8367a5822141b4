"""A run's record in memory: one row per epoch and, where asked for, arrays with a value for every sample."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .disk import Folder, Found, RecordError, check_array, check_name, pack, unpack

__all__ = ["Record"]

LONGEST = 500  # bytes of a sample's name


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
        self._sinks: list[Any] = []
        self._disk: Folder | None = None
        if folder is not None:
            self._disk = Folder(Path(folder), n)
            self._disk.begin(self.meta)

    @property
    def folder(self) -> Path | None:
        """Where the record is written; None for one that is only in memory."""
        return None if self._disk is None else self._disk.path

    def append(self, row: Mapping[str, Any], **histories: np.ndarray) -> None:
        """Adds an epoch: its scalars, and (N,) arrays by the name of their history (``losses``, ``easy``)."""
        packed = {name: pack(name, values, self.n) for name, values in histories.items()}
        number, row = len(self.epochs), _plain(row)
        self.epochs.append(row)
        for name, values in packed.items():
            kept = self._histories.setdefault(name, [])
            del kept[number:]
            if len(kept) == number:  # after a gap the values would count for earlier epochs
                kept.append(values)
        self._write()
        self._send(row)

    def attach(self, sink: Any) -> None:
        """Sends every row from now on to ``sink.write(row)`` as well, and every annotation with its epoch (see sinks).

        If a sink fails, there is a warning and the run continues. Sinks are not pickled with a record.
        """
        if not callable(getattr(sink, "write", None)):
            raise TypeError(f"a sink has a method write(row), and {type(sink).__name__} has none; see the sinks module")
        self._sinks.append(sink)

    def annotate(self, **scalars: Any) -> None:
        """Adds scalars to the last epoch's row: what was found out after it ended, such as a validation accuracy."""
        if not self.epochs:
            raise RecordError("there is no epoch yet to annotate")
        scalars = _plain(scalars)
        self.epochs[-1].update(scalars)
        if self._disk is not None and len(self._disk.ends) == len(self.epochs):
            with self._warn_if_unwritable():
                self._disk.rewrite_last(self.epochs[-1])
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
        return (unpack(name, row, self.n) for row in rows[: len(self.epochs)])

    def has(self, name: str) -> bool:
        """Whether there is a per-sample history of this name."""
        return bool(self.epochs and self._histories.get(name))

    def set_array(self, name: str, values: np.ndarray) -> None:
        """Keeps an array with one entry per sample, such as the given labels.

        Its name becomes the name of a file, so it may hold no slash.
        """
        check_name(name)
        self.arrays[name] = check_array(name, values, self.n)
        if self._disk is not None:
            self._disk.write_array(name, self.arrays[name])

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
        """Removes everything after the first ``epochs`` epochs: a run resumes from there."""
        del self.epochs[epochs:]
        for kept in self._histories.values():
            del kept[epochs:]
        if self._disk is not None:
            self._disk.cut(epochs)

    def clear(self) -> None:
        """Removes all epochs and arrays."""
        self.epochs, self.arrays, self._histories = [], {}, {}
        if self._disk is not None:
            self._disk.ends = []
            self._disk.begin(self.meta)

    def restore(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Goes back or forward to the epochs of a saved state: rows that are missing here are taken from it.

        A history that does not reach as far as the state is forgotten as a whole: it could not go on without a gap.
        """
        self.rewind(len(rows))
        for name in [name for name, kept in self._histories.items() if len(kept) < len(rows)]:
            del self._histories[name]
            if self._disk is not None:
                self._disk.cut_history(name, 0)
        self.epochs += [dict(row) for row in rows[len(self.epochs) :]]
        self._write()

    def flush(self) -> None:
        """Writes the epochs that are not on the disk yet; raises OSError if it cannot."""
        if self._disk is not None:
            self._disk.write_epochs(self.epochs, self._histories)

    def sync(self) -> None:
        """Waits until everything is on the disk: a state that counts on this record may be written afterwards."""
        if self._disk is not None:
            with self._warn_if_unwritable():
                self._disk.sync()

    def save(self, folder: str | Path) -> None:
        """Writes the whole record."""
        copy = Record(self.n, self.meta, folder)
        copy.epochs, copy._histories = self.epochs, self._histories
        for name, values in self.arrays.items():
            copy.set_array(name, values)
        copy.flush()
        if self.folder == copy.folder:
            self._disk = copy._disk

    @classmethod
    def open(cls, n: int, meta: Mapping[str, Any], folder: str | Path | None, overwrite: bool = False) -> Record:
        """Continues the record in ``folder``, or starts a new one where there is none that can be read.

        Raises:
            RecordError: If the folder holds a record of another number of rows, unless it may be overwritten.
        """
        if folder is None:
            return cls(n, meta)
        try:
            found = Found(Path(folder))
        except RecordError:
            return cls(n, meta, folder)
        if found.n != n:
            if not overwrite:
                words = "pass overwrite=True to replace it, or another folder"
                raise RecordError(f"{folder} holds a record of {found.n} rows, and this run has {n}; {words}")
            return cls(n, meta, folder)
        record = cls._of(found)
        record._disk = Folder(found.path, n, found.ends)
        record.describe(meta)
        return record

    @classmethod
    def load(cls, folder: str | Path, samples: bool = True) -> Record:
        """Reads a record, also of a run that is still going; without ``samples``, only what it says of whole epochs."""
        return cls._of(Found(Path(folder), samples=samples))

    @classmethod
    def salvage(cls, folder: str | Path, samples: bool = True) -> tuple[Record | None, list[str]]:
        """Reads what can be read of a damaged record, or of a newer version, with a sentence for each problem.

        Without ``samples``, only what it says of whole epochs.

        Example:
            >>> Record.salvage("nowhere")
            (None, ['nowhere holds no record (there is no record.json in it)'])
        """
        problems: list[str] = []
        try:
            return cls._of(Found(Path(folder), problems, samples)), problems
        except RecordError as error:
            return None, [*problems, str(error)]

    @classmethod
    def _of(cls, found: Found) -> Record:
        record = cls(found.n, found.meta)
        record.source, record.epochs = found.path, found.rows
        record.arrays, record._histories = found.arrays, found.histories
        return record

    def without_samples(self) -> Record:
        """The same epochs in memory, without arrays and histories."""
        copy = Record(self.n, self.meta)
        copy.source, copy.epochs = self.folder or self.source, self.epochs
        return copy

    def describe(self, meta: Mapping[str, Any]) -> None:
        """Replaces what the record says about the run."""
        self.meta = dict(meta)
        if self._disk is not None:
            self._disk.write_head(self.meta)

    def _write(self) -> None:
        """Writes the epochs that are not on the disk yet, or warns."""
        with self._warn_if_unwritable():
            self.flush()

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
    def _warn_if_unwritable(self) -> Iterator[None]:
        """A disk that is full must not end a run: everything is in memory, and the next epoch tries again."""
        try:
            yield
        except OSError as error:
            words = "the run goes on, and the next epoch tries to write again"
            warnings.warn(f"the record in {self.folder} could not be written ({error}); {words}", stacklevel=4)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as JSON can hold it: numbers of NumPy and PyTorch as Python's; what it cannot hold is refused by name."""
    plain: dict[str, Any] = {}
    for name, value in row.items():
        if not isinstance(name, str):
            raise RecordError(f"names of an epoch's values are strings, got {name!r}")
        plain[name] = value.item() if getattr(value, "ndim", None) == 0 else value
        try:
            json.dumps(plain[name])
        except (TypeError, ValueError) as error:
            words = "must be a number, a string, or lists and dicts of them"
            raise RecordError(f"{name!r} of an epoch {words}, got {type(value).__name__} ({error})") from None
    return plain


def _number(name: str, value: Any, where: str) -> float:
    try:
        return float("nan") if value is None else float(value + 0)  # a text has no sum with a number
    except (TypeError, ValueError, OverflowError) as error:
        raise RecordError(f"{where} has {name} = {value!r:.40}, which is no number") from error
