"""CIFAR-10N and CIFAR-100N: human labels of CIFAR's training images, from the authors' files.

The files are pickles. They are read by torch's restricted unpickler under an allow-list of exactly four names, and even
these do not lead to NumPy: each is replaced by a small class of this module that accepts only a plain array of numbers.
So no code of a file runs, and the module path of NumPy (``core`` or ``_core``) does not matter.
"""

from __future__ import annotations

import re
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

__all__ = ["load_cifar_n"]

ADDRESS = "https://github.com/UCSC-REAL/cifar-10-100n/tree/main/data"
ROWS = 50_000
LARGEST = 2**26  # bytes, unpacked; the larger of the two files has 2.4 million
CLASSES = {
    "CIFAR-10N": dict.fromkeys(
        ("clean_label", "aggre_label", "worse_label", "random_label1", "random_label2", "random_label3"), 10
    ),
    "CIFAR-100N": {"clean_label": 100, "noisy_label": 100, "clean_coarse_label": 20, "noisy_coarse_label": 20},
}


def load_cifar_n(path: str | Path) -> dict[str, np.ndarray]:
    """The labels of ``CIFAR-10_human.pt`` or ``CIFAR-100_human.pt``, row by row those of CIFAR's training images.

    Args:
        path: The file. No code in it is executed.

    Returns:
        (50000,) int64 labels by name. CIFAR-10N: ``clean_label``, ``aggre_label``, ``worse_label`` and
        ``random_label1`` to ``random_label3``; CIFAR-100N: ``clean_label``, ``noisy_label`` and both as coarse labels.

    Raises:
        FileNotFoundError: With the address to get it from.
        ValueError: If the file is damaged, too large, of another format, or refers to anything but plain arrays.

    Reference:
        Wei et al., Learning with Noisy Labels Revisited, ICLR 2022.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; get it from {ADDRESS}")
    with ALONE:
        content = _read(path)
    try:
        return _check(content)
    except ValueError as error:
        raise ValueError(f"{path} is not a label file of CIFAR-N: {error}; get it again from {ADDRESS}") from error


class _Number:
    """Replaces ``numpy.dtype``: little-endian int64, as 'i8' and '<' in the files."""

    def __init__(self, code: str, *_: Any) -> None:
        if code != "i8":
            raise ValueError(f"labels must be int64, but an array of this file holds {_short(code)}")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] != "<":
            raise ValueError(f"labels must be little-endian, but an array of this file is {_short(state[1])}")


class _Numbers:
    """Replaces ``numpy.ndarray``: one row of int64."""

    values: np.ndarray | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, number, _, data = state
        if type(number) is not _Number or type(data) is not bytes:
            raise ValueError("an array of this file holds something other than numbers")
        if shape != (len(data) // 8,) or len(data) % 8:
            raise ValueError(f"an array of this file has {len(data)} bytes, which do not match the shape of one row")
        self.values = np.frombuffer(data, "<i8").astype(np.int64)


def _reconstruct(*_: Any) -> _Numbers:
    """Replaces NumPy's constructor of empty arrays."""
    return _Numbers()


ALLOWED: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
    (_reconstruct, "numpy.core.multiarray._reconstruct"),
    (_reconstruct, "numpy._core.multiarray._reconstruct"),
    (_Numbers, "numpy.ndarray"),
    (_Number, "numpy.dtype"),
]


ALONE = threading.Lock()  # torch's allow-list is global


def _read(path: Path) -> Any:
    """The contents of the file, read with only our allow-list; the program's own is set aside meanwhile."""
    others = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > LARGEST:
            raise ValueError(f"it holds {size} bytes, and a label file no more than {LARGEST}")
        with torch.serialization.safe_globals(ALLOWED):
            return torch.load(path, map_location="cpu", weights_only=True)
    except PermissionError:
        raise
    except Exception as error:  # torch raises many kinds of errors on damaged files
        # Without the cause, because torch's message advises reading the file without restrictions.
        raise ValueError(f"{path} is refused: {_reason(error)}. Get it from {ADDRESS}") from None
    finally:
        torch.serialization.add_safe_globals(others)


def _short(value: Any) -> str:
    """A short description of a value from the file, which may be deeply nested."""
    return repr(value[:20]) if isinstance(value, str) else f"a {type(value).__name__}"


def _reason(error: Exception) -> str:
    asked = re.search(r"GLOBAL ([\w.]{1,80})", str(error))
    if asked:
        return f"it refers to {asked[1]}, which does not belong in a label file; no code was run"
    words = re.sub(r"Weights only load failed.*?WeightsUnpickler error: ", "", str(error), flags=re.DOTALL)
    return f"it cannot be read ({type(error).__name__}: {' '.join(words.split())[:120]})"


def _check(content: Any) -> dict[str, np.ndarray]:
    names = list(content) if type(content) is dict else []
    for classes in CLASSES.values():
        if set(names) == set(classes):
            return {name: _labels(name, content[name], classes[name]) for name in classes}
    known = " or ".join(f"{', '.join(classes)} ({name})" for name, classes in CLASSES.items())
    found = ", ".join(_short(name) for name in names[:8]) if names else f"a {type(content).__name__} without names"
    raise ValueError(f"it holds {found}, where there should be {known}")


def _labels(name: str, value: Any, classes: int) -> np.ndarray:
    if type(value) is list and all(type(label) is int and 0 <= label < classes for label in value):
        value = np.array(value, dtype=np.int64)  # the coarse labels of CIFAR-100N are plain lists
    elif type(value) is _Numbers and value.values is not None:
        value = value.values
    else:
        raise ValueError(f"{name} is not a row of labels in range({classes})")
    if len(value) != ROWS:
        raise ValueError(f"{name} holds {len(value)} labels, where there should be {ROWS}")
    if value.min() < 0 or value.max() >= classes:
        raise ValueError(f"{name} holds labels from {value.min()} to {value.max()}, outside range({classes})")
    return value
