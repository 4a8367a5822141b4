"""Batches of every form: a sampler that does what it is told, moving to a device, telling input from target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["Plan", "none_of", "to_device", "unpack"]

TARGETS = ("labels", "label", "target", "targets", "y")


class Plan:
    """A batch sampler that hands out exactly ``batches``. It keeps no position, so asking twice is harmless."""

    def __init__(self, batches: list[Tensor] | None = None) -> None:
        self.batches = batches or []

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def unpack(batch: Any) -> tuple[Any, Any]:
    """Input and target of a batch: a pair, a dict with a target of a usual name, or an object with ``.y``.

    Example:
        >>> unpack({"input_ids": 1, "labels": 2})
        ({'input_ids': 1}, 2)
    """
    if isinstance(batch, tuple | list) and len(batch) >= 2:
        return (batch[0] if len(batch) == 2 else tuple(batch[:-1])), batch[-1]
    if isinstance(batch, Mapping):
        for name in TARGETS:
            if name in batch:
                return {key: value for key, value in batch.items() if key != name}, batch[name]
        raise ValueError(f"a dict batch needs its target under one of {', '.join(TARGETS)}, got {', '.join(batch)}")
    if hasattr(batch, "y"):
        return batch, batch.y
    raise TypeError(f"cannot tell input from target in a batch of type {type(batch).__name__}; pass unpack=")


def to_device(value: Any, device: torch.device) -> Any:
    """``value`` with every tensor in it moved to ``device``."""
    if isinstance(value, Tensor):
        return value if value.device == device else value.to(device, non_blocking=True)
    if isinstance(value, Mapping):
        return {key: to_device(part, device) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return type(value)([to_device(part, device) for part in value])
    return value.to(device) if hasattr(value, "to") else value


def none_of(value: Any) -> Any:
    """``value`` with no rows in its tensors.

    Example:
        >>> none_of({"x": torch.ones(2, 3)})["x"].shape
        torch.Size([0, 3])
    """
    if isinstance(value, Tensor):
        return value[:0]
    if isinstance(value, Mapping):
        return {key: none_of(part) for key, part in value.items()}
    return type(value)([none_of(part) for part in value]) if isinstance(value, tuple | list) else value
