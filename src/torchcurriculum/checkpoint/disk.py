"""A state on disk: a folder of two files, both with checksums.

::

    state-00000012/tensors.safetensors    every tensor of every part, by its path, such as model/0.weight
    state-00000012/state.json             format, number, the parts' structure, size and SHA-256 of both files

No file refers to another file.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..record.files import overwrite, sync
from .tree import decode

__all__ = ["CheckpointError", "read", "write"]

FORMAT = 1
KIND = "torchcurriculum state"
TENSORS, STATE = "tensors.safetensors", "state.json"
NO_DIGEST = "0" * 64  # placeholder for the checksum of state.json while it is computed


class CheckpointError(ValueError):
    """A state that cannot be used, with the file and the reason."""


def write(folder: Path, number: int, tree: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Writes a state into a new folder and waits until it is on the disk."""
    folder.mkdir()
    path = folder / TENSORS
    try:
        save_file(_apart(tensors), path)
    except SafetensorError as error:  # safetensors' error for a full disk; unsupported values were refused before
        raise OSError(f"{path}: {error}") from error
    size, sha256 = path.stat().st_size, digest(path)
    sync(path)
    head = {"kind": KIND, "format": FORMAT, "sha256": NO_DIGEST, "number": number}
    text = json.dumps({**head, "tensors": {"bytes": size, "sha256": sha256}, "parts": tree}, allow_nan=False)
    own = hashlib.sha256(text.encode()).hexdigest()
    with overwrite(folder / STATE, "wb", durable=True) as file:
        file.write(text.replace(NO_DIGEST, own, 1).encode())
    sync(folder)


def read(folder: Path) -> tuple[int, dict[str, Any]]:
    """The number and the parts of a state; CheckpointError if it is damaged, OSError if it cannot be read."""
    head = _read_head(folder / STATE)
    try:
        tensors = _read_tensors(folder / TENSORS, **head["tensors"])
        return head["number"], {name: decode(part, tensors) for name, part in head["parts"].items()}
    except (CheckpointError, OSError):
        raise
    except (SafetensorError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        # The checksum is right but the contents are wrong: not written by this library.
        raise CheckpointError(
            f"{folder} is not a saved state of this library ({type(error).__name__}: {error})"
        ) from error


def _read_tensors(path: Path, bytes: int, sha256: str) -> dict[str, Tensor]:
    size = _size(path)
    if size != bytes:
        words = "empty" if not size else "truncated" if size < bytes else "too long"
        raise CheckpointError(f"{path} is {words}: {size} of {bytes} bytes")
    if digest(path) != sha256:
        raise CheckpointError(f"{path} is damaged: its checksum does not match")
    # Copies, because a memory-mapped tensor would change or fault with the file.
    return {name: value.clone() for name, value in load_file(path).items()}


def _read_head(path: Path) -> dict[str, Any]:
    if _size(path) == 0:
        raise CheckpointError(f"{path} is empty")
    raw = path.read_bytes()
    try:
        head = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is truncated, damaged or not JSON ({error})") from error
    if not isinstance(head, dict) or head.get("kind") != KIND:
        raise CheckpointError(f"{path} is not a saved state of this library")
    number = head.get("format")
    if number != FORMAT:
        newer = "; a newer version wrote it" if isinstance(number, int) and number > FORMAT else ""
        raise CheckpointError(f"{path} has format {number!r}, and this version reads format {FORMAT}{newer}")
    own = str(head.get("sha256")).encode()
    if hashlib.sha256(raw.replace(own, NO_DIGEST.encode(), 1)).hexdigest().encode() != own:
        raise CheckpointError(f"{path} is damaged: its checksum does not match")
    return head


def _size(path: Path) -> int:
    """The size of a regular file in bytes; refuses links, which may lead elsewhere, and pipes, which may block."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    if not stat.S_ISREG(found.st_mode) or path.parent.is_symlink():
        raise CheckpointError(f"{path} is not a regular file")
    return found.st_size


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in host memory, without shared storage, as safetensors requires."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        tensor = tensor.cpu().contiguous()
        place = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if place in seen else tensor
        seen.add(place)
    return apart
