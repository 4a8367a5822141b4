"""The state of a curriculum: where it is, what it saves, and which states it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..core import Method

__all__ = ["FORMAT", "Progress", "cloned", "refuse_foreign"]

FORMAT = 1


@dataclass
class Progress:
    """Which epoch it is, and how many of its batches are done. Only these methods write it.

    Attributes:
        number: The epoch, from 1; 0 before the first.
        steps: Batches of it that are done.
        open: Whether the epoch has begun and not ended.
        resumed: Whether it was loaded and not taken up again yet.
    """

    number: int = 0
    steps: int = 0
    open: bool = False
    resumed: bool = False

    def begin(self) -> None:
        """The next epoch begins."""
        self.number, self.steps, self.open, self.resumed = self.number + 1, 0, True, False

    def done(self, step: int) -> None:
        """The batch of this number is done, and so are those before it; saying it twice changes nothing."""
        self.steps = step + 1

    def end(self) -> None:
        """The epoch ends."""
        self.open = False

    def state_dict(self) -> dict[str, Any]:
        """What is saved."""
        return {"epoch": self.number, "step": self.steps, "open": self.open}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what was saved."""
        self.number, self.steps, self.open, self.resumed = state["epoch"], state["step"], state["open"], state["open"]


def refuse_foreign(
    state: Mapping[str, Any], method: Method, n: int, labels: int | None, seed: int, batch_size: int
) -> None:
    """Raises a ValueError if a state is of another format, method or training set."""
    if state.get("format") != FORMAT:
        raise ValueError(f"the state has format {state.get('format')!r}; this version reads {FORMAT}")
    name = type(method).__name__
    if state["method_class"] != name:
        raise ValueError(f"the state is of {state['method_class']}, and this method is {name}")
    if state["n"] != n:
        raise ValueError(f"the state is of a training set of {state['n']} rows, and this one has {n}")
    if None not in (state["labels"], labels) and state["labels"] != labels:
        raise ValueError("the state is of a training set with other labels")
    if state["open"] and (state["seed"], state["batch_size"]) != (seed, batch_size):
        raise ValueError(
            f"the state was taken inside an epoch with seed {state['seed']} and batch_size {state['batch_size']}; "
            f"with seed {seed} and batch_size {batch_size} that epoch cannot be resumed"
        )


def cloned(tensors: Mapping[str, Tensor | None]) -> dict[str, Tensor | None]:
    """Copies that later steps do not reach."""
    return {name: None if value is None else value.clone() for name, value in tensors.items()}
