"""Folders with one folder for each class."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["class_files", "files_in", "has_parts", "holds", "require_writable"]


def class_files(folder: Path, suffixes: tuple[str, ...]) -> list[tuple[str, str]]:
    """(path in the folder with ``/``, class) of the files with one of the suffixes, sorted; skips hidden ones.

    Folders named train, valid, val and test are treated as splits that hold the class folders.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} does not exist; it should hold one folder per class")
    found = []
    for name in files_in(folder):
        if name.lower().endswith(suffixes):
            *above, _ = name.split("/")
            place = 1 if len(above) > 1 and above[0] in PARTS and has_parts(folder) else 0
            if len(above) > place:
                found.append((name, above[place]))
    if (count := len({label for _, label in found})) < 2:
        kinds = ", ".join(suffixes)
        raise ValueError(f"{folder} holds files ({kinds}) of {count} classes; two or more class folders are needed")
    return sorted(found)


PARTS = ("train", "valid", "val", "test")


def has_parts(folder: Path) -> bool:
    """Whether the class folders are inside folders named train, valid, val and test."""
    names = {path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")}
    return "train" in names and names <= set(PARTS)


def holds(folder: Path, suffixes: tuple[str, ...]) -> int:
    """The number of files with one of the suffixes in a folder and its subfolders."""
    return sum(name.lower().endswith(suffixes) for name in files_in(folder))


def require_writable(folder: Path, flag: str) -> None:
    """Raises an error, which names the flag, if a folder can be neither made nor written to."""
    above = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    if not above.is_dir():
        raise ValueError(f"{above} is a file, so no folder can be made there; choose another place with {flag}")
    if not os.access(above, os.W_OK | os.X_OK):
        raise ValueError(f"{above} may not be written to; choose another place with {flag}")


def files_in(folder: Path) -> list[str]:
    """Paths in the folder with ``/``, without hidden ones. Links to folders are followed."""
    found = []
    for where, folders, files in os.walk(folder, followlinks=True):
        place = Path(where)
        folders[:] = [name for name in folders if not name.startswith(".") and not _leads_back(folder, place / name)]
        above = place.relative_to(folder)
        found += [(above / name).as_posix() for name in files if not name.startswith(".") and (place / name).is_file()]
    return found


def _leads_back(folder: Path, path: Path) -> bool:
    """Whether a path in the folder is a link to a folder that it is in, so that following it would never end."""
    if not path.is_symlink():
        return False
    above = [place.resolve() for place in path.parents[: len(path.relative_to(folder).parts)]]
    return any(path.resolve() in (place, *place.parents) for place in above)
