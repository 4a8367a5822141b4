"""The user's own pictures, split into train, valid and test parts."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from ...clean.pictures import Files, picture_parts
from .splits import split

__all__ = ["load_image_folder"]

FEWEST = 10  # least number of images for a split of 8:1:1


def load_image_folder(folder: str | Path, seed: int = 0) -> tuple[dict[str, Files], list[str]]:
    """The user's images, one folder per class. Unreadable ones are left out with a warning.

    Args:
        folder: With ``train``, ``valid`` (or ``val``) and ``test`` in it, each with one folder for each class; or with
            the folders of the classes themselves, which are then split 8:1:1. Without ``valid``, a tenth of ``train``
            is split off; without ``test``, ``valid`` is used for it.
        seed: Seed of the split.

    Returns:
        ``{"train": (paths, y), "valid": ..., "test": ...}``, and the names of the classes, which are counted from 0.
    """
    held, classes = picture_parts(folder)
    if "all" in held:
        paths, y = held["all"]
        if len(y) < FEWEST:
            raise ValueError(f"{folder} holds {len(y)} images; a split of 8:1:1 needs at least {FEWEST}")
        return {part: _rows(paths, y, rows) for part, rows in split(len(y), seed, 0.1, 0.1).items()}, classes
    if "valid" not in held:
        paths, y = held["train"]
        if len(y) < FEWEST:
            raise ValueError(
                f"{Path(folder) / 'train'} holds {len(y)} images; there must be at least {FEWEST}, or a folder "
                f"{Path(folder) / 'valid'}"
            )
        held |= {part: _rows(paths, y, rows) for part, rows in split(len(y), seed).items() if part != "test"}
    return {"train": held["train"], "valid": held["valid"], "test": held.get("test", held["valid"])}, classes


def _rows(paths: list[Path], y: Tensor, rows: Tensor) -> Files:
    return [paths[row] for row in rows.tolist()], y[rows]
