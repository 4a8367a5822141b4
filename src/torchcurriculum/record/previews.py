"""Pictures and texts of some samples, kept with a record for its report.

On disk, in the folder ``previews`` of a record: ``rows.npy``, ``pictures.npy`` (uint8) and ``texts.json``. Nothing in
them is executed, and a report escapes every text.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .files import name_in_errors

__all__ = ["Previews"]

MOST = 10_000  # samples
LARGEST = 2**26  # bytes of a file
LONGEST = 2_000  # letters of a text


@dataclass(frozen=True)
class Previews:
    """Pictures, texts or both of some samples.

    Args:
        rows: (M,) which rows of the training set.
        pictures: (M, H, W) grey or (M, H, W, 3) colour, uint8, or None.
        texts: M texts (a sentence, the name of a graph or a file), cut at 2,000 letters, or None.

    Example:
        >>> previews = Previews(np.array([7, 3]), texts=["a", "b"])
        >>> previews.text(3), previews.picture(3), previews.text(4)
        ('b', None, None)
    """

    rows: np.ndarray
    pictures: np.ndarray | None = None
    texts: Sequence[str] | None = None

    def __post_init__(self) -> None:
        rows, pictures, texts = np.asarray(self.rows), self.pictures, self.texts
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or len(rows) > MOST or (rows < 0).any():
            raise ValueError(f"previews need at most {MOST:,} rows, numbered from 0; got {rows.dtype} {rows.shape}")
        if pictures is not None and (
            pictures.dtype != np.uint8
            or len(pictures) != len(rows)
            or not (pictures.ndim == 3 or (pictures.ndim == 4 and pictures.shape[3] == 3))
            or not all(pictures.shape)
        ):
            raise ValueError(
                f"pictures must be uint8 of shape ({len(rows)}, H, W) or ({len(rows)}, H, W, 3), got {pictures.dtype} "
                f"{pictures.shape}"
            )
        if texts is not None and (len(texts) != len(rows) or not all(isinstance(text, str) for text in texts)):
            raise ValueError(f"texts must be {len(rows)} strings, one for each row")
        object.__setattr__(self, "rows", rows.astype(np.int64))
        object.__setattr__(self, "texts", None if texts is None else [text[:LONGEST] for text in texts])

    def picture(self, row: int) -> np.ndarray | None:
        """The picture of a row of the training set, or None."""
        place = self._place(row)
        return None if place is None or self.pictures is None else self.pictures[place]

    def text(self, row: int) -> str | None:
        """Its text, or None."""
        place = self._place(row)
        return None if place is None or self.texts is None else self.texts[place]

    def _place(self, row: int) -> int | None:
        places = np.flatnonzero(self.rows == row)
        return int(places[0]) if len(places) else None

    def save(self, record: str | Path) -> None:
        """Writes them into the folder of a record and replaces earlier ones."""
        folder = Path(record) / "previews"
        part = folder.with_name("previews.part")
        shutil.rmtree(part, ignore_errors=True)
        try:
            with name_in_errors(folder):
                part.mkdir(parents=True)
                np.save(part / "rows.npy", self.rows, allow_pickle=False)
                if self.pictures is not None:
                    np.save(part / "pictures.npy", self.pictures, allow_pickle=False)
                if self.texts is not None:
                    (part / "texts.json").write_text(json.dumps(list(self.texts)), encoding="utf-8")
                shutil.rmtree(folder, ignore_errors=True)
                part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    @classmethod
    def load(cls, record: str | Path) -> Previews | None:
        """Reads them from the folder of a record; None where there are none.

        Raises:
            ValueError: If they are damaged.
        """
        folder = Path(record) / "previews"
        if not folder.exists():
            return None
        try:
            return cls(
                _array(folder / "rows.npy"),
                _array(folder / "pictures.npy") if (folder / "pictures.npy").exists() else None,
                json.loads(_checked(folder / "texts.json").read_bytes()) if (folder / "texts.json").exists() else None,
            )
        except Exception as error:  # NumPy raises many kinds of errors on damaged files
            raise ValueError(f"the previews in {folder} cannot be read: {error}") from error


def _checked(path: Path) -> Path:
    if not path.is_file():  # reading a pipe could block
        raise ValueError(f"{path.name} is not a regular file")
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path.name} is larger than {LARGEST:,} bytes")
    return path


def _array(path: Path) -> np.ndarray:
    with open(_checked(path), "rb") as file:
        return np.lib.format.read_array(file, allow_pickle=False)
