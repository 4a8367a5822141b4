"""Passes over every row of a data set: losses at the start of an epoch, or any function of a method."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .. import distributed
from ..core import Batch, Epoch, Task, checks
from ..data.batches import to_device
from ..distributed import Sharded, evaluating, same_buffers, unwrapped
from .reader import BatchReader, untouched_generators

__all__ = ["Measurer", "device_of", "versions"]

Function = Callable[[nn.Module, Batch], Tensor]
Seed = Callable[[int], int]


class Measurer:
    """Applies a function to all rows in order, in evaluation mode and without gradients or side effects.

    Args:
        n: Rows of the set.
        reader: Reads them.
        unpack: ``unpack(raw) -> (x, y)``.
        task: The forward and loss functions.
        batch_size: Rows at a time on a CPU, where larger batches are slower; elsewhere four times as many.
        exact_batch_size: Rows at a time on any device, or None.
    """

    def __init__(
        self,
        n: int,
        reader: BatchReader,
        unpack: Callable[[Any], tuple[Any, Any]],
        task: Task,
        batch_size: int,
        exact_batch_size: int | None,
    ) -> None:
        self.n, self.reader, self.unpack, self.task = n, reader, unpack, task
        self.batch_size, self.exact_batch_size = batch_size, exact_batch_size

    def losses(self, model: nn.Module, seed: Seed, nan_strategy: checks.NanStrategy) -> Sharded:
        """(N,) losses; each rank holds its share."""
        rows = distributed.share(self.n)
        losses = self._share(lambda net, batch: self.task.losses(net, batch)[1], model, seed)
        losses, _ = checks.check_losses(losses, torch.arange(rows.start, rows.stop), nan_strategy)
        values = losses.new_zeros(self.n)
        values[rows.start : rows.stop] = losses
        return Sharded(values)

    def epoch(
        self, number: int, model: nn.Module, last: Sharded, measured: Callable[[], Sharded], seed: int, draws: Seed
    ) -> Epoch:
        """The ``Epoch`` for a method's plan; nothing is measured or exchanged until it is needed."""
        return Epoch(
            number,
            self.n,
            last.whole,
            lambda: measured().whole(),
            lambda threshold: measured().at_most(threshold),
            lambda function, net: self.all(function, net, draws),
            model,
            seed,
        )

    def all(self, function: Function, model: nn.Module, seed: Seed) -> Tensor:
        """(N, ...) ``function(model, batch)`` of every row, on every rank."""
        return distributed.gather_rows(self._share(function, model, seed), self.n)

    def rows(self, index: Tensor, device: torch.device, seed: int) -> Batch:
        """Some rows, without augmentation."""
        return self._batch(self.reader.rows(index, seed), to_device(index, device))

    def _batch(self, raw: Any, index: Tensor) -> Batch:
        """The raw batch on the device of its row numbers."""
        x, y = self.unpack(raw)
        return Batch(to_device(x, index.device), to_device(y, index.device), index, task=self.task)

    def _share(self, function: Function, model: nn.Module, seed: Seed) -> Tensor:
        """``function`` over this rank's rows, in order."""
        net = unwrapped(model)  # a data-parallel wrapper would synchronise ranks
        device = device_of(model)
        mine = distributed.share(self.n)
        rows = torch.arange(mine.start, mine.stop)
        size = self.exact_batch_size or self.batch_size * (1 if device.type == "cpu" else 4)
        batches = list(rows.split(size)) if len(rows) else []
        # With FSDP every forward pass involves all ranks, so all run the same number.
        passes = math.ceil(math.ceil(self.n / distributed.world_size()) / size)
        batches += [torch.arange(min(2, self.n))] * (passes - len(batches))
        indices = torch.cat(batches).to(device).split([len(part) for part in batches])
        parts: list[Tensor] = []
        with torch.no_grad(), evaluating(net), untouched_generators(), same_buffers(net):
            for index, raw in zip(indices, self.reader.read(batches, seed, draws=False), strict=True):
                parts.append(function(net, self._batch(raw, index)).detach())
        return torch.cat(parts)[: len(rows)]


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's first parameter or buffer."""
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        return tensor.device
    return torch.device("cpu")


def versions(model: nn.Module) -> int:
    """A number that grows when an optimizer changes the model's parameters."""
    return sum(parameter._version for parameter in model.parameters() if not parameter.is_inference())
