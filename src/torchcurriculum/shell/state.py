"""The state of a curriculum: its position, what it saves, and the checks on loading."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..core import checks
from ..distributed import derive, rank, world_size
from .outputs import PARTS

__all__ = ["FORMAT", "SETTINGS", "Progress", "cloned", "compare_ranks", "refuse_foreign", "set_knobs"]

FORMAT = 2
SETTINGS = ("n", "seed", "batch_size", "shuffle", "packs", "measure", "drop_last")  # attributes of a curriculum


@dataclass
class Progress:
    """The current epoch and how many of its batches are done. Only these methods change it.

    Attributes:
        number: The epoch, from 1; 0 before the first.
        steps: Batches of it that are done.
        open: Whether the epoch has begun and not ended.
        resumed: Whether it was loaded and has not been resumed yet.
    """

    number: int = 0
    steps: int = 0
    open: bool = False
    resumed: bool = False

    def begin(self) -> None:
        """Begins the next epoch."""
        self.number, self.steps, self.open, self.resumed = self.number + 1, 0, True, False

    def done(self, step: int) -> None:
        """Marks the batch of this number and those before it as done; repeated calls change nothing."""
        self.steps = step + 1

    def end(self) -> None:
        """Ends the epoch."""
        self.open = False

    def state_dict(self) -> dict[str, Any]:
        """The values to save."""
        return {"epoch": self.number, "step": self.steps, "open": self.open}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores saved values."""
        self.number, self.steps, self.open, self.resumed = state["epoch"], state["step"], state["open"], state["open"]


KINDS: dict[str, Any] = {
    "n": int,
    "labels": int | None,
    "method_class": str,
    "knobs": Mapping,
    "seed": int,
    "batch_size": int,
    "measure": str,
    "drop_last": bool,
    "shuffle": bool,
    "packs": int | None,
    "epoch": int,
    "step": int,
    "open": bool,
    "rows": Tensor | None,
    "last": Tensor,
    "measured": Tensor | None,
    "method": Mapping,
    "epochs": list,
    "outputs": Mapping,
}


def refuse_foreign(state: Any, now: Mapping[str, Any], knobs: str) -> list[str]:
    """Raises a ValueError if a state is incomplete, or of another format, method or training set.

    Args:
        state: The saved state.
        now: The settings of this curriculum.
        knobs: ``"same"`` also refuses other knobs.

    Returns:
        The knobs that differ.
    """
    if not isinstance(state, Mapping):
        raise ValueError(f"the state must be a dict, got {type(state).__name__}")
    state = {"shuffle": True, "packs": None, "outputs": {}, **state}  # older states have no such entries
    if state.get("format") != FORMAT:
        raise ValueError(f"the state has format {state.get('format')!r}; this version reads {FORMAT}")
    for name, kind in KINDS.items():
        if name not in state:
            raise ValueError(f"the state is incomplete: it has no {name!r}")
        if not isinstance(state[name], kind):
            raise ValueError(f"{name!r} of the state has the wrong type, {type(state[name]).__name__}")
    if state["method_class"] != now["method_class"]:
        raise ValueError(f"the state is of {state['method_class']}, and this method is {now['method_class']}")
    if state["n"] != now["n"]:
        raise ValueError(f"the state is of a training set of {state['n']} rows, and this one has {now['n']}")
    if None not in (state["labels"], now["labels"]) and state["labels"] != now["labels"]:
        raise ValueError("the state is of a training set with other labels")
    if not all(isinstance(row, Mapping) for row in state["epochs"]) or min(state["epoch"], state["step"]) < 0:
        raise ValueError("the state is damaged: its epochs are not rows of a record")
    rows = state["rows"]
    if rows is not None and (rows.dtype != torch.int64 or rows.ndim != 1 or not 0 < len(rows) <= now["n"]):
        raise ValueError(f"'rows' of the state must be up to {now['n']} row numbers, got {tuple(rows.shape)}")
    for name in ("last", "measured"):
        if state[name] is not None and state[name].shape != (now["n"],):
            raise ValueError(f"{name!r} of the state must have {now['n']} values, got {tuple(state[name].shape)}")
    outputs = state["outputs"]
    if outputs and not all(isinstance(outputs.get(name), Tensor) and len(outputs[name]) == now["n"] for name in PARTS):
        raise ValueError(f"the 'outputs' of the state must be {', '.join(PARTS)} of {now['n']} rows")
    names = ["seed", "batch_size", "shuffle", *(["packs"] if state["packs"] != now["packs"] else [])]
    cut = [", ".join(f"{name} {settings[name]}" for name in names) for settings in (state, now)]
    if state["open"] and cut[0] != cut[1]:
        raise ValueError(f"the state was taken inside an epoch with {cut[0]}; with {cut[1]} it cannot be resumed")
    other = [name for name in ("measure", "drop_last") if state[name] != now[name]]
    other += [f"knobs.{name}" for name in {**state["knobs"], **now["knobs"]} if _knob(state, name) != _knob(now, name)]
    if other and knobs == "same":
        words = "; ".join(f"{name}: {_value(state, name)!r} in the state, {_value(now, name)!r} now" for name in other)
        raise checks.OtherKnobs(f"the state was made with other knobs ({words})", "pass knobs='state' or knobs='given'")
    return other


def set_knobs(curriculum: Any, names: list[str], source: Mapping[str, Any]) -> None:
    """Sets knobs to the values in ``source``; scalars only."""
    for name in names:
        owner, _, knob = name.rpartition(".")
        target, value = curriculum.method if owner else curriculum, _value(source, name)
        held = getattr(target, knob, None)
        if isinstance(held, Tensor) and held.ndim == 0 and isinstance(value, int | float):
            held.fill_(value)
        elif isinstance(value, bool | int | float | str) and not isinstance(held, Tensor):
            setattr(target, knob, value)
        else:
            raise ValueError(f"{name} cannot be set to {value!r:.60}; make a new method")


def compare_ranks(settings: Mapping[str, Any], device: torch.device) -> None:
    """Raises an error on every rank if the settings differ between ranks."""
    if world_size() == 1:
        return
    digests = torch.tensor([derive(json.dumps(value, sort_keys=True, default=str)) for value in settings.values()])
    low, high = digests.to(device), digests.clone().to(device)
    dist.all_reduce(low, op=dist.ReduceOp.MIN)
    dist.all_reduce(high, op=dist.ReduceOp.MAX)
    other = [name for name, same in zip(settings, (low == high).tolist(), strict=True) if not same]
    if other:
        here = ", ".join(f"{name} = {settings[name]!r:.80}" for name in other)
        raise ValueError(f"settings must agree on all ranks; {' and '.join(other)} differ; on rank {rank()}: {here}")


def _knob(settings: Mapping[str, Any], name: str) -> Any:
    return json.dumps(settings["knobs"].get(name), sort_keys=True, default=str)


def _value(settings: Mapping[str, Any], name: str) -> Any:
    return settings["knobs"].get(name[6:]) if name.startswith("knobs.") else settings[name]


def cloned(tensors: Mapping[str, Tensor | None]) -> dict[str, Tensor | None]:
    """Copies that later steps do not change."""
    return {name: None if value is None else value.clone() for name, value in tensors.items()}
