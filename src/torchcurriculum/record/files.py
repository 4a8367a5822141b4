"""Atomic writing: a file is either the old version or the new one. Standard library only."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

__all__ = ["name_in_errors", "overwrite", "remove_leftovers", "sync"]


@contextmanager
def overwrite(path: str | Path, mode: str = "w", *, durable: bool = False, **options: Any) -> Iterator[IO[Any]]:
    """Opens a file for writing that replaces ``path`` when the block ends, and not before.

    The data goes to a temporary file in the same folder. If the block raises, or the disk is full, ``path`` stays as it
    was and the temporary file is removed. A symbolic link is followed. An existing file keeps its permissions; a new
    one gets those of the umask. A device, a pipe or this process's own output (``/dev/stdout``) cannot be replaced; it
    is appended to.

    Args:
        path: The file. Its folder must exist.
        mode: ``"w"`` or ``"wb"``.
        durable: Whether to wait until the data is on the disk, so that it survives a power failure.
        options: For ``open``; the default encoding is UTF-8.

    Raises:
        OSError: If the file cannot be written; its message names ``path``.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "notes.txt"
        >>> with overwrite(path) as file:
        ...     _ = file.write("all of it")
        >>> path.read_text(), len(list(path.parent.iterdir()))
        ('all of it', 1)
    """
    if "b" not in mode:
        options = {"encoding": "utf-8", **options}
    found = _stat(path)
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(f"{path} is a folder; give a file name")
    if found is not None and (not stat.S_ISREG(found.st_mode) or _is_our_output(found)):
        with name_in_errors(path), open(path, mode.replace("w", "a"), **options) as file:
            yield file
        return
    target = os.path.realpath(path)
    temporary = os.path.join(os.path.dirname(target), f".{secrets.token_hex(8)}.part")
    try:
        with name_in_errors(path, temporary):
            with open(temporary, mode.replace("w", "x"), **options) as file:
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            if found is not None:
                os.chmod(temporary, stat.S_IMODE(found.st_mode))
            os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _stat(path: str | Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _is_our_output(found: os.stat_result) -> bool:
    """Whether this process's own output goes to the file; it must not be replaced then."""
    with suppress(OSError):  # they may be closed
        return any(os.path.samestat(found, os.fstat(descriptor)) for descriptor in (1, 2))
    return False


def remove_leftovers(folder: Path) -> None:
    """Removes the temporary files of a process that was killed inside ``overwrite``; for a folder with one writer."""
    for path in folder.glob(".*.part"):
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Waits until a file or folder is on the disk."""
    if path.is_dir() and os.name != "posix":
        return  # Windows cannot sync a folder
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def name_in_errors(path: str | Path, temporary: str | None = None) -> Iterator[None]:
    """Puts the file's name into an OSError that has none (as on a full disk), or only the temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno is None and str(path) not in str(error):  # NumPy's message has no file name
            raise OSError(f"{path}: {error}") from error
        if error.errno is None or error.filename not in (None, temporary):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
