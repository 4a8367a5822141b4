"""Saved states that survive a crash at any moment: safetensors + JSON, verified before anything is loaded.

A state is a folder of two files, and no file in it says where to read::

    state-00000012/tensors.safetensors    every tensor of every part, by its path, such as model/0.weight
    state-00000012/state.json             format, number, the parts' structure, size and SHA-256 of both files

It is written beside the others as ``state-00000012.part``, synced, and only then renamed; older states go afterwards.
Whatever moment a run is killed at, the newest state under its own name is whole, and a state that the disk damaged
later is told from a whole one by its checksums.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import stat
import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from .tree import decode, encode

__all__ = ["Checkpoint", "CheckpointError", "GracefulStop"]

FORMAT = 1
KIND = "torchcurriculum state"
TENSORS, STATE = "tensors.safetensors", "state.json"
NAME = re.compile(r"state-(\d{8,})(\.old)?")
NO_DIGEST = "0" * 64  # stands in state.json for its own checksum while that is computed


class CheckpointError(ValueError):
    """A state that is not whole, with the file and the reason."""


class Checkpoint:
    """Numbered states of a run in a folder; the newest whole one is where a run goes on.

    A part is anything with ``state_dict`` and ``load_state_dict`` (a model, an optimizer, a schedule, a
    ``GradScaler``, a ``Curriculum``) or a dict of tensors, numbers, strings, lists and dicts, which ``load`` fills.
    Under ``torch.distributed`` all ranks call ``save`` and ``load``; the first one writes, and all return the same.

    Args:
        folder: Where the states are; made when the first one is saved.
        keep: How many states to keep, at least 1. With 2, a state that the disk damages later is no loss of the run.

    Example:
        >>> import tempfile
        >>> checkpoint = Checkpoint(tempfile.mkdtemp())
        >>> model, seen = nn.Linear(2, 1), {"best": 0.75}
        >>> checkpoint.save(12, model=model, seen=seen)
        True
        >>> other, found = nn.Linear(2, 1), {}
        >>> checkpoint.load(model=other, seen=found), found, torch.equal(model.weight, other.weight)
        (12, {'best': 0.75}, True)
    """

    def __init__(self, folder: str | Path, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep!r}")
        self.folder, self.keep = Path(folder), keep
        self._looked = False

    def save(self, number: int, **parts: Any) -> bool:
        """Writes a state. A disk that is full or refuses is reported by a warning, and the training goes on.

        Args:
            number: Where the run is: steps or epochs done, growing. A state with the same number is replaced.
            parts: What to save, by name.

        Returns:
            Whether the state is on the disk; if not, the states before it are as they were.

        Raises:
            TypeError: If a part holds something that safetensors and JSON cannot.
            ValueError: If the folder holds a state as late as this one and was never looked at with ``load``: the run
                would begin anew over one that could go on.
        """
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise ValueError(f"a state's number is a whole number from 0 on, got {number!r}")
        # Every rank asks its parts, for the answer may need all ranks.
        tensors: dict[str, Tensor] = {}
        tree = {name: encode(_state_of(part), name, tensors) for name, part in parts.items()}
        done = False
        try:
            if _rank() == 0:
                done = self._try_to_write(number, tree, tensors)
        finally:
            done = bool(_from_first(int(done)))
        return done

    def load(self, **parts: Any) -> int | None:
        """Loads the newest state that is whole; those that are not are reported by a warning and passed over.

        Nothing is loaded into any part before the whole state is read and verified.

        Args:
            parts: What to load into, by the names they were saved under: the same kinds of objects, or dicts.

        Returns:
            The state's number; None if there is none.

        Raises:
            ValueError: If the state lacks a part.
        """
        for name, part in parts.items():
            if not isinstance(part, dict) and not hasattr(part, "load_state_dict"):
                raise TypeError(f"load fills dicts and objects with load_state_dict; {name} is a {type(part).__name__}")
        found, state = self._newest()
        number = _from_first(-1 if found is None else found)
        if number != (-1 if found is None else found):
            words = "and the ranks of a run must see the same folder"
            raise ValueError(f"this rank finds state {found} in {self.folder}, the first one {number}, {words}")
        if found is None:
            return None
        missing = [name for name in parts if name not in state]
        if missing:
            words = f"holds {', '.join(state)}; it has no {', '.join(missing)}"
            raise ValueError(f"state {found} in {self.folder} {words}")
        for name, part in parts.items():
            if hasattr(part, "load_state_dict"):
                part.load_state_dict(state[name])
            else:
                part.clear()
                part.update(state[name])
        return found

    def _states(self) -> list[tuple[int, Path]]:
        """Numbers and folders, the newest first; one that was being replaced comes after the one that replaced it."""
        if not self.folder.exists():
            return []
        named = [(NAME.fullmatch(path.name), path) for path in self.folder.iterdir()]
        found = [(int(match[1]), match[2] is None, path) for match, path in named if match]
        return [(number, path) for number, _, path in sorted(found, reverse=True)]

    def _newest(self) -> tuple[int | None, dict[str, Any]]:
        self._looked = True
        for number, path in self._states():
            try:
                held, state = _read(path)
                if held != number:
                    raise CheckpointError(f"{path} holds state {held} under another number")
                return number, state
            except (CheckpointError, OSError) as error:
                if _rank() == 0:
                    warnings.warn(f"{error}; the state before it is taken", stacklevel=3)
        return None, {}

    def _try_to_write(self, number: int, tree: dict[str, Any], tensors: dict[str, Tensor]) -> bool:
        temporary = self.folder / f"state-{number:08d}.part"
        try:
            self._refuse_to_begin_anew(number)
            self.folder.mkdir(parents=True, exist_ok=True)
            for left in self.folder.glob("state-*.part"):
                shutil.rmtree(left)
            _write(temporary, number, tree, tensors)
            self._put_in_place(temporary)
        except OSError as error:
            with suppress(OSError):
                shutil.rmtree(temporary)
            words = f"{error.filename or temporary}: {error.strerror or error}"
            warnings.warn(f"state {number} could not be saved ({words}); the run goes on without it", stacklevel=4)
            return False
        with suppress(OSError):  # the state is saved; what is left over here goes with the next one
            self._tidy(number)
        return True

    def _refuse_to_begin_anew(self, number: int) -> None:
        if not self._looked:
            later = [held for held, _ in self._states() if held >= number]
            if later:
                words = f"{self.folder} holds state {later[0]} of an earlier run, and this one is at {number}"
                raise ValueError(f"{words}. Call load before the training, or choose another folder.")
            self._looked = True

    def _put_in_place(self, temporary: Path) -> None:
        path = temporary.with_suffix("")
        if path.exists():
            old = path.with_suffix(".old")
            if old.exists():
                shutil.rmtree(old)
            os.rename(path, old)
        os.rename(temporary, path)
        _sync(self.folder)

    def _tidy(self, number: int) -> None:
        """Removes what was replaced, and all but the newest ``keep`` states up to this one.

        A later one, which ``load`` passed over, stays until the run gets there: a newer version may have written it.
        """
        older = [path for held, path in self._states() if held <= number and not path.suffix]
        for path in [*older[self.keep :], *self.folder.glob("state-*.old")]:
            shutil.rmtree(path)


class GracefulStop(AbstractContextManager["GracefulStop"]):
    """Turns Ctrl-C and SIGTERM into a flag, so that a loop can save a state and leave.

    A second Ctrl-C interrupts at once. Handlers of before are put back at the end. In a thread other than the main one
    Python delivers no signals, and the flag stays down.

    Example:
        >>> with GracefulStop() as stop:
        ...     for step in range(1000):
        ...         if step == 3:
        ...             signal.raise_signal(signal.SIGTERM)     # somebody ends the job
        ...         if stop.requested:
        ...             break                                   # after checkpoint.save(...)
        >>> step, stop.status
        (3, 143)
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._agreed = False
        self._before: dict[signal.Signals, Any] = {}
        self._process = 0

    def __enter__(self) -> GracefulStop:
        self._process = os.getpid()
        if threading.current_thread() is threading.main_thread():
            self._before = {which: signal.signal(which, self._note) for which in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for which, handler in self._before.items():
            signal.signal(which, handler)

    @property
    def requested(self) -> bool:
        """Whether to stop now. With several ranks, whether any of them was told to: all must look at the same time."""
        if not self._agreed:
            self._agreed = bool(_largest(int(self.signal is not None)))
        return self._agreed

    @property
    def status(self) -> int:
        """The exit status by convention: 128 + the signal's number; 0 if none came to this process."""
        return 0 if self.signal is None else 128 + int(self.signal)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a child that inherited this handler; Ctrl-C is its parent's affair
            if number == signal.SIGTERM:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.raise_signal(signal.SIGTERM)
            return
        if number == signal.SIGINT and self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)


# ---------------------------------------------------------------------- files


def _write(folder: Path, number: int, tree: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    folder.mkdir()
    path = folder / TENSORS
    try:
        save_file(_apart(tensors), path)
    except SafetensorError as error:  # how safetensors names a full disk; what it cannot hold was refused before
        raise OSError(f"{path}: {error}") from error
    size, digest = path.stat().st_size, _digest(path)
    _sync(path)
    head = {"kind": KIND, "format": FORMAT, "sha256": NO_DIGEST, "number": number}
    text = json.dumps({**head, "tensors": {"bytes": size, "sha256": digest}, "parts": tree}, allow_nan=False)
    own = hashlib.sha256(text.encode()).hexdigest()
    with open(folder / STATE, "wb") as file:
        file.write(text.replace(NO_DIGEST, own, 1).encode())
        file.flush()
        os.fsync(file.fileno())
    _sync(folder)


def _read(folder: Path) -> tuple[int, dict[str, Any]]:
    """The number and the parts of a state; CheckpointError if it is not whole, OSError if it cannot be read."""
    head = _read_head(folder / STATE)
    try:
        tensors = _read_tensors(folder / TENSORS, **head["tensors"])
        return head["number"], {name: decode(part, tensors) for name, part in head["parts"].items()}
    except (CheckpointError, OSError):
        raise
    except (SafetensorError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        # A file with the right checksum and the wrong contents: not written by us, whatever it says.
        raise CheckpointError(f"{folder} is no state of this library ({type(error).__name__}: {error})") from error


def _read_tensors(path: Path, bytes: int, sha256: str) -> dict[str, Tensor]:
    size = _size(path)
    if size != bytes:
        words = "empty" if not size else "cut short" if size < bytes else "too long"
        raise CheckpointError(f"{path} is {words}: {size} of {bytes} bytes")
    if _digest(path) != sha256:
        raise CheckpointError(f"{path} is damaged: its checksum is not the one it was written with")
    # Copies: a tensor from a mapped file would change or fault with the file.
    return {name: value.clone() for name, value in load_file(path).items()}


def _read_head(path: Path) -> dict[str, Any]:
    if _size(path) == 0:
        raise CheckpointError(f"{path} is empty")
    raw = path.read_bytes()
    try:
        head = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is cut short, damaged or no JSON ({error})") from error
    if not isinstance(head, dict) or head.get("kind") != KIND:
        raise CheckpointError(f"{path} is no state of this library")
    number = head.get("format")
    if number != FORMAT:
        newer = "; a newer version wrote it" if isinstance(number, int) and number > FORMAT else ""
        raise CheckpointError(f"{path} has format {number!r}, and this version reads format {FORMAT}{newer}")
    own = str(head.get("sha256")).encode()
    if hashlib.sha256(raw.replace(own, NO_DIGEST.encode(), 1)).hexdigest().encode() != own:
        raise CheckpointError(f"{path} is damaged: its checksum is not the one it was written with")
    return head


def _size(path: Path) -> int:
    """Bytes of a file that is a plain one: a link could lead elsewhere, and a pipe would make the reader wait."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    if not stat.S_ISREG(found.st_mode) or path.parent.is_symlink():
        raise CheckpointError(f"{path} is a link or no plain file")
    return found.st_size


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    if path.is_dir() and os.name != "posix":
        return  # Windows cannot sync a folder
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in host memory, none sharing its storage with another, as safetensors demands."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        tensor = tensor.cpu().contiguous()
        place = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if place in seen else tensor
        seen.add(place)
    return apart


def _state_of(part: Any) -> Any:
    return part.state_dict() if hasattr(part, "state_dict") else part


# ---------------------------------------------------------------------- ranks


def _rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _exchange(number: int, operation: Callable[[Tensor], Any]) -> int:
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return number
    on_device = dist.get_backend() == "nccl"
    held = torch.tensor(number, device=torch.device("cuda", torch.cuda.current_device()) if on_device else "cpu")
    operation(held)
    return int(held)


def _from_first(number: int) -> int:
    """The first rank's number on every rank; nobody goes on before it has one."""
    return _exchange(number, lambda held: dist.broadcast(held, 0))


def _largest(number: int) -> int:
    return _exchange(number, lambda held: dist.all_reduce(held, dist.ReduceOp.MAX))
