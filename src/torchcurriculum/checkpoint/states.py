"""Numbered states of a run in a folder: safetensors + JSON, verified before anything is loaded.

A state is written next to the others as ``state-00000012.part``, synced, and only then renamed; older states are
removed afterwards. So if a run is killed, the newest state under its final name is complete. Checksums detect a state
that was damaged on disk later.
"""

from __future__ import annotations

import os
import re
import shutil
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from .. import checks
from ..distributed import is_first
from ..record.files import sync
from . import disk
from .ranks import from_first
from .tree import encode

__all__ = ["Checkpoint"]

NAME = re.compile(r"state-(\d{8,})(\.old)?")


class Checkpoint:
    """Numbered states of a run in a folder; a run resumes from the newest intact one.

    A part is anything with ``state_dict`` and ``load_state_dict`` (a model, an optimizer, a schedule, a
    ``GradScaler``, a ``Curriculum``) or a dict of tensors, numbers, strings, lists and dicts, which ``load`` fills.
    Under ``torch.distributed`` all ranks call ``save`` and ``load``; the first one writes, and all return the same.

    Args:
        folder: Where the states are; created with the first one.
        keep: How many states to keep, at least 1. With 2, a run survives one state that is damaged on disk.

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
        self.folder, self.keep = Path(folder), checks.whole("keep", keep)
        self._looked = False

    def save(self, number: int, **parts: Any) -> bool:
        """Writes a state. If the disk is full or fails, warns and lets the training continue.

        Args:
            number: Steps or epochs done; must grow. A state with the same number is replaced.
            parts: What to save, by name.

        Returns:
            Whether the state is on the disk; if not, the states before it are as they were.

        Raises:
            TypeError: If a part holds something that safetensors and JSON cannot.
            ValueError: If the folder holds a state at least as late as this one and ``load`` was never called: the run
                would overwrite one that could be resumed.
        """
        number = checks.whole("the number of a state", number, 0)
        # On every rank, because a state_dict may need all ranks.
        tensors: dict[str, Tensor] = {}
        states = {name: part.state_dict() if hasattr(part, "state_dict") else part for name, part in parts.items()}
        tree = {name: encode(state, name, tensors) for name, state in states.items()}
        done = False
        try:
            if is_first():
                done = self._try_to_write(number, tree, tensors)
        finally:
            done = bool(from_first(int(done)))
        return done

    def load(self, **parts: Any) -> int | None:
        """Loads the newest intact state; warns about damaged ones and skips them.

        Loads nothing before the whole state is read and verified.

        Args:
            parts: What to load into, by the names they were saved under: the same kinds of objects, or dicts.

        Returns:
            The state's number; None if there is none.

        Raises:
            ValueError: If the state lacks a part.
        """
        for name, part in parts.items():
            if not isinstance(part, dict) and not hasattr(part, "load_state_dict"):
                raise TypeError(f"load needs dicts or objects with load_state_dict; {name} is a {type(part).__name__}")
        found, state = self._newest()
        number = from_first(-1 if found is None else found)
        if number != (-1 if found is None else found):
            raise ValueError(f"ranks find different states in {self.folder}: {found} here, {number} on the first rank")
        if found is None:
            return None
        missing = [name for name in parts if name not in state]
        if missing:
            held, lacks = ", ".join(state), ", ".join(missing)
            raise ValueError(f"state {found} in {self.folder} holds {held}; it has no {lacks}")
        for name, part in parts.items():
            if hasattr(part, "load_state_dict"):
                part.load_state_dict(state[name])
            else:
                part.clear()
                part.update(state[name])
        return found

    def _states(self) -> list[tuple[int, Path]]:
        """Numbers and folders, newest first; a state that was being replaced comes after its replacement."""
        if not self.folder.exists():
            return []
        named = [(NAME.fullmatch(path.name), path) for path in self.folder.iterdir()]
        found = [(int(match[1]), match[2] is None, path) for match, path in named if match]
        return [(number, path) for number, _, path in sorted(found, reverse=True)]

    def _newest(self) -> tuple[int | None, dict[str, Any]]:
        self._looked = True
        for number, path in self._states():
            try:
                held, state = disk.read(path)
                if held != number:
                    raise disk.CheckpointError(f"{path} holds state {held} under another number")
                return number, state
            except (disk.CheckpointError, OSError) as error:
                if is_first():
                    warnings.warn(f"{error}; falling back to the state before it", stacklevel=3)
        return None, {}

    def _try_to_write(self, number: int, tree: dict[str, Any], tensors: dict[str, Tensor]) -> bool:
        temporary = self.folder / f"state-{number:08d}.part"
        try:
            self._refuse_to_begin_anew(number)
            self.folder.mkdir(parents=True, exist_ok=True)
            for left in self.folder.glob("state-*.part"):
                shutil.rmtree(left)
            disk.write(temporary, number, tree, tensors)
            self._put_in_place(temporary)
        except OSError as error:
            with suppress(OSError):
                shutil.rmtree(temporary)
            why = f"{error.filename or temporary}: {error.strerror or error}"
            warnings.warn(f"state {number} could not be saved ({why}); the run continues without it", stacklevel=4)
            return False
        with suppress(OSError):  # the state is saved; leftovers are removed with the next one
            self._tidy(number)
        return True

    def _refuse_to_begin_anew(self, number: int) -> None:
        if not self._looked:
            later = [held for held, _ in self._states() if held >= number]
            if later:
                raise ValueError(
                    f"{self.folder} holds state {later[0]} of an earlier run, but this run is at {number}. Call load "
                    "before training to resume it, or choose another folder."
                )
            self._looked = True

    def _put_in_place(self, temporary: Path) -> None:
        path = temporary.with_suffix("")
        if path.exists():
            old = path.with_suffix(".old")
            if old.exists():
                shutil.rmtree(old)
            os.rename(path, old)
        os.rename(temporary, path)
        sync(self.folder)

    def _tidy(self, number: int) -> None:
        """Removes replaced states, and all but the newest ``keep`` up to this one.

        Later states, which ``load`` skipped, stay until the run gets there: a newer version may have written them.
        """
        older = [path for held, path in self._states() if held <= number and not path.suffix]
        for path in [*older[self.keep :], *self.folder.glob("state-*.old")]:
            shutil.rmtree(path)
