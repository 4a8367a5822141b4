"""Batches of any form: a fixed sampler, moving to a device, separating input and target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..checks import map_leaves

__all__ = [
    "TARGETS", "FixedBatches", "finite_rows", "padding_like", "take", "to_device", "unpack", "without_rows", "zeros_of",
]  # fmt: skip

TARGETS = ("labels", "label", "target", "targets", "y")
LOADER_OPTIONS = ("prefetch_factor", "multiprocessing_context", "timeout", "worker_init_fn")  # of ``DataLoader``


class FixedBatches:
    """A batch sampler that yields exactly ``batches``. It keeps no position, so it can be iterated repeatedly."""

    def __init__(self) -> None:
        self.batches: list[Tensor] = []

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def unpack(batch: Any) -> tuple[Any, Any]:
    """Input and target of a batch: a pair, a dict with a target under a common name, or an object with ``.y``.

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
        names = f"{', '.join(TARGETS)}, got {', '.join(map(str, batch))}"
        raise ValueError(f"a dict batch needs its target under one of {names}; or pass unpack=lambda batch: (x, y)")
    if hasattr(batch, "y"):
        return batch, batch.y
    raise TypeError(
        f"cannot tell input from target in a batch of type {type(batch).__name__}; pass unpack=lambda batch: (x, y)"
    )


def to_device(value: Any, device: torch.device) -> Any:
    """``value`` with every tensor in it moved to ``device``."""

    def move(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf if leaf.device == device else leaf.to(device, non_blocking=True)
        return leaf.to(device) if hasattr(leaf, "to") else leaf

    return map_leaves(move, value)


def without_rows(value: Any) -> Any:
    """``value`` with tensors of zero rows.

    Example:
        >>> without_rows({"x": torch.ones(2, 3)})["x"].shape
        torch.Size([0, 3])
    """
    return map_leaves(lambda leaf: leaf[:0] if isinstance(leaf, Tensor) else leaf, value)


def padding_like(viewed: Any, padding: Any) -> Any:
    """``padding``, or two rows of zeros where a view of zero rows changed its shape or type.

    Example:
        >>> padding_like(torch.zeros(0, 3), torch.ones(2, 5))
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
    """
    if isinstance(viewed, Tensor) and isinstance(padding, Tensor):
        same = viewed.shape[1:] == padding.shape[1:] and viewed.dtype == padding.dtype
        return padding if same else viewed.new_zeros(2, *viewed.shape[1:])
    if isinstance(viewed, Mapping) and isinstance(padding, Mapping):
        return {key: padding_like(part, padding.get(key)) for key, part in viewed.items()}
    if isinstance(viewed, Tensor):
        return viewed.new_zeros(2, *viewed.shape[1:])
    return padding


def zeros_of(value: Any) -> Any:
    """``value`` with its floating-point numbers set to zero: padding that any network can take."""
    return map_leaves(
        lambda leaf: torch.zeros_like(leaf) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf, value
    )


def take(value: Any, rows: Tensor, size: int) -> Any:
    """``value`` with only these rows of every tensor in it that has ``size`` of them.

    Example:
        >>> take({"x": torch.tensor([1, 2, 3]), "scale": torch.tensor(5)}, torch.tensor([0, 2]), size=3)
        {'x': tensor([1, 3]), 'scale': tensor(5)}
    """

    def select(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf[rows.to(leaf.device)] if leaf.ndim and leaf.shape[0] == size else leaf
        if leaf is None or isinstance(leaf, str | int | float):
            return leaf
        raise TypeError(f"cannot select rows of a batch that holds {type(leaf).__name__}")

    return map_leaves(select, value)


def finite_rows(value: Any, size: int) -> Tensor | None:
    """(size,) bool: the rows whose floating-point numbers are all finite; None if there are no such numbers.

    Example:
        >>> finite_rows((torch.tensor([[1.0, 2.0], [float("nan"), 0.0]]), torch.tensor([0, 1])), size=2)
        tensor([ True, False])
    """
    if isinstance(value, Tensor):
        if not value.is_floating_point() or not value.ndim or value.shape[0] != size:
            return None
        return value.flatten(1).isfinite().all(1) if value.ndim > 1 else value.isfinite()
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else ()
    found = [mask for mask in (finite_rows(part, size) for part in parts) if mask is not None]
    return torch.stack(found).all(0) if found else None
