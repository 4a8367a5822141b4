"""A run's record in memory: one row per epoch and, optionally, arrays with a value per sample."""

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
    """Rows of a run, in memory and, with a folder, also written to disk.

    Args:
        n: Rows of the training set.
        meta: Meta data of the run; must fit into JSON.
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
            if len(kept) == number:  # after a gap, values would be matched with the wrong epochs
                kept.append(values)
        self._write()
        self._send(row)

    def attach(self, sink: Any) -> None:
        """From now on also sends every row, and every annotation with its epoch, to ``sink.write(row)``.

        If a sink fails, there is a warning and the run continues. Sinks are not pickled with a record.
        """
        if not callable(getattr(sink, "write", None)):
            raise TypeError(f"a sink needs a method write(row), which {type(sink).__name__} lacks; see record.sinks")
        self._sinks.append(sink)

    def annotate(self, **scalars: Any) -> None:
        """Adds scalars to the last epoch's row, such as a validation accuracy computed after it ended."""
        if not self.epochs:
            raise RecordError("the record has no epoch to annotate yet")
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
        """Yields the (N,) per-sample values of each epoch; needs less memory than ``history``."""
        rows = self._histories.get(name, [])
        if not self.epochs:
            raise RecordError(f"this record has no complete epoch yet, so it holds no per-sample {name!r}")
        if not self.has(name):
            raise RecordError(
                f"this record holds no per-sample {name!r}; run with samples=True to keep them, and into a folder "
                "(record=) if the run is resumed"
            )
        if len(rows) < len(self.epochs):
            raise RecordError(f"this record holds {name!r} of only {len(rows)} of its {len(self.epochs)} epochs")
        return (unpack(name, row, self.n) for row in rows[: len(self.epochs)])

    def has(self, name: str) -> bool:
        """Whether there is a per-sample history of this name."""
        return bool(self.epochs and self._histories.get(name))

    def set_array(self, name: str, values: np.ndarray) -> None:
        """Keeps an array with one entry per sample, such as the given labels.

        Its name becomes a file name, so it must not contain a slash.
        """
        check_name(name)
        self.arrays[name] = check_array(name, values, self.n)
        if self._disk is not None:
            self._disk.write_array(name, self.arrays[name])

    def name_samples(self, names: Sequence[str]) -> None:
        """Keeps a readable name of each sample for audits: a file, a line, a sentence (its first 500 bytes).

        Example:
            >>> record = Record(2)
            >>> record.name_samples(["cats/1.png", "dogs/7.png"])
            >>> record.arrays["names"]
            array([b'cats/1.png', b'dogs/7.png'], dtype='|S10')
        """
        self.set_array("names", np.array([name.encode("utf-8", "replace")[:LONGEST] for name in names]))

    def labels(self, name: str) -> np.ndarray | None:
        """(N,) the array of this name, None if there is none; refused if it has more than one value per sample."""
        values = self.arrays.get(name)
        if values is not None and values.ndim != 1:
            raise RecordError(f"{name!r} must hold one label for each of {self.n} samples, got {values.shape}")
        return values

    def rewind(self, epochs: int) -> None:
        """Removes everything after the first ``epochs`` epochs: a run resumes there."""
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
        """Sets the epochs to those of a saved state; rows missing here are taken from it.

        A history shorter than the state is dropped, because continuing it would leave a gap.
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
        """Waits until everything is on the disk, so that a state that relies on this record can be written next."""
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
        """Continues the record in ``folder``, or starts a new one if there is no readable one.

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
                raise RecordError(
                    f"{folder} holds a record of {found.n} rows, but this run has {n}; "
                    "pass overwrite=True to replace it, or another folder"
                )
            return cls(n, meta, folder)
        record = cls._of(found)
        record._disk = Folder(found.path, n, found.ends)
        record.describe(meta)
        return record

    @classmethod
    def load(cls, folder: str | Path, samples: bool = True) -> Record:
        """Reads a record, also of an active run; without ``samples``, only the rows of its epochs."""
        return cls._of(Found(Path(folder), samples=samples))

    @classmethod
    def salvage(cls, folder: str | Path, samples: bool = True) -> tuple[Record | None, list[str]]:
        """Reads as much as possible of a damaged or newer record, with a sentence for each problem.

        Without ``samples``, reads only the rows of its epochs.

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
        """Replaces the meta data."""
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
            except Exception as error:  # a failing tracker must not stop the run
                name, epoch = type(sink).__name__, row.get("epoch")
                warnings.warn(f"{name} failed on epoch {epoch} ({error!r:.200}); the run continues", stacklevel=3)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sinks": []}

    @contextmanager
    def _warn_if_unwritable(self) -> Iterator[None]:
        """Turns an OSError into a warning: everything is in memory, and the next epoch retries."""
        try:
            yield
        except OSError as error:
            warnings.warn(
                f"the record in {self.folder} could not be written ({error}); the run continues, and tries again",
                stacklevel=4,
            )


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row for JSON: NumPy and PyTorch numbers become Python's; other values are refused by name."""
    plain: dict[str, Any] = {}
    for name, value in row.items():
        if not isinstance(name, str):
            raise RecordError(f"names of an epoch's values must be strings, got {name!r}")
        plain[name] = value.item() if getattr(value, "ndim", None) == 0 else value
        try:
            json.dumps(plain[name])
        except (TypeError, ValueError) as error:
            raise RecordError(
                f"{name!r} of an epoch must be a number, a string, or lists and dicts of them, "
                f"got {type(value).__name__} ({error})"
            ) from None
    return plain


def _number(name: str, value: Any, where: str) -> float:
    try:
        return float("nan") if value is None else float(value + 0)  # the sum refuses texts
    except (TypeError, ValueError, OverflowError) as error:
        raise RecordError(f"{where} has {name} = {value!r:.40}, which is not a number") from error
