"""Folders for results: without other files, and with one process at a time in that of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Busy", "lock_folder", "refuse_other_files"]


class Busy(ValueError):
    """Another process is training the run."""


def refuse_other_files(folder: Path) -> None:
    """Raises an error if the folder for new results is a file or not empty; leftovers of a killed process may stay."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise ValueError(f"{place} is a file; give a new or empty folder (--out)")
    if folder.exists() and any(not held.name.endswith(".part") for held in folder.iterdir()):
        raise ValueError(f"{folder} holds other files; choose an empty or new folder")


@contextmanager
def lock_folder(folder: Path, wait: bool = False) -> Iterator[None]:
    """Creates a folder and locks it against other processes; the lock is released when the process ends.

    If another process holds the lock, waits for it or raises ``Busy``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    place = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise Busy(
                f"another process is training the run in {folder}; wait for it, or choose another folder (--out)"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(place)
