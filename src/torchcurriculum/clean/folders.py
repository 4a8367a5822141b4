"""Folders with one folder for each class."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["class_files", "files_in", "has_parts", "holds", "part_of", "require_writable", "unlabelled_files"]


PARTS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
PARTS |= dict.fromkeys(("valid", "val", "validation", "dev", "eval"), "valid")


def class_files(folder: Path, suffixes: tuple[str, ...]) -> list[tuple[str, str]]:
    """(path in the folder with ``/``, class) of the files with one of the suffixes, sorted; skips hidden ones.

    Folders named as in ``PARTS``, in capitals or not, are treated as splits that hold the class folders.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} does not exist; it should hold one folder per class")
    above = [(name, name.split("/")[:-1]) for name in sorted(files_in(folder)) if name.lower().endswith(suffixes)]
    place = int(has_parts(folder))
    if not place:
        _refuse_parts(folder, [parts for _, parts in above])
    found = [(name, parts[place]) for name, parts in above if len(parts) > place]
    if (count := len({label for _, label in found})) < 2:
        kinds = ", ".join(suffixes)
        raise ValueError(f"{folder} holds files ({kinds}) of {count} classes; two or more class folders are needed")
    return found


def _refuse_parts(folder: Path, above: list[list[str]]) -> None:
    """Raises an error if a folder that is named like a split holds the same folders as another one."""
    held: dict[str, set[str]] = {}
    for first, second in {(parts[0], parts[1]) for parts in above if len(parts) > 1}:
        held.setdefault(first, set()).add(second)
    for part in sorted(name for name in held if name.lower() in PARTS):
        for other in sorted(held.keys() - {part}):
            if both := held[part] & held[other]:
                raise ValueError(
                    f"in {folder}, both {part} and {other} hold {min(both)!r}, so it is not clear which folders are "
                    f"the classes; name the splits train, valid and test, or rename {part}, if it is a class"
                )


def unlabelled_files(folder: Path, suffixes: tuple[str, ...], strict: bool = False) -> list[tuple[str, str]]:
    """(path in the folder, reason) of the files that ``class_files`` leaves out, sorted; without those in no folder."""
    place, found = int(has_parts(folder)), []
    for name in sorted(files_in(folder)):
        known, depth = name.lower().endswith(suffixes), name.count("/")
        if known and 0 < depth <= place:
            found.append((name, "it is in no class folder"))
        elif not known and depth > place:
            suffix = Path(name).suffix.lower()
            found.append((name, f"{suffix} files are not read" if suffix else "files without a suffix are not read"))
    if strict and found:
        raise ValueError(f"{folder / found[0][0]} cannot be used (--strict): {found[0][1]}")
    return found


def has_parts(folder: Path) -> bool:
    """Whether the class folders are inside folders named train, valid, val and test, or as in ``PARTS``."""
    parts = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    known = {PARTS.get(path.name.lower()) for path in parts}
    return "train" in known and None not in known and any(path.is_dir() for part in parts for path in part.iterdir())


def part_of(name: str) -> str:
    """The split of a path in a folder that has splits: "train", "valid" or "test"."""
    return PARTS[name.split("/")[0].lower()]


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
