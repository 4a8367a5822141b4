"""Exchange of one number between the ranks of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..distributed import world_size

__all__ = ["from_first", "largest"]


def from_first(number: int) -> int:
    """The first rank's number, on every rank; returns after all ranks have it."""
    return _exchange(number, lambda held: dist.broadcast(held, 0))


def largest(number: int) -> int:
    """The largest of all ranks' numbers, on every rank."""
    return _exchange(number, lambda held: dist.all_reduce(held, dist.ReduceOp.MAX))


def _exchange(number: int, operation: Callable[[Tensor], Any]) -> int:
    if world_size() == 1:
        return number
    on_device = dist.get_backend() == "nccl"
    held = torch.tensor(number, device=torch.device("cuda", torch.cuda.current_device()) if on_device else "cpu")
    operation(held)
    return int(held)
