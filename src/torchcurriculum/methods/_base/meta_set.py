"""The meta set: trusted rows, and how each sample's gradient agrees with theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from ...core import Batch, Epoch, Step, Task, checks, distributed
from ...functional.meta import forward_products, gradient, losses_at, moved, reverse_products, trainable
from .weights import bare

__all__ = ["MetaSet", "count_rows", "rate_now", "rows_of"]


class MetaSet(nn.Module):
    """A set given by the user, or held-out rows of the training set; one batch of it in each step.

    The rows are shuffled once and then visited in turn, each rank taking its part of the batch.

    Args:
        n: Rows of the training set.
        meta: The set: a pair (x, y) of tensors (or dicts of tensors), or a dataset of (x, y) rows, which are collated
            by its own ``batch(index)`` if it has one. None holds out rows of the training set.
        fraction: Share of the training rows that is held out; not used with ``meta``.
        batch_size: Rows of a meta batch over all ranks; at most all of them.
    """

    def __init__(self, n: int, meta: Any = None, fraction: float = 0.1, batch_size: int = 100) -> None:
        super().__init__()
        checks.whole("meta_batch", batch_size)
        checks.real("meta_fraction", fraction, "(0, 1)")
        if meta is None and n < 2:
            raise ValueError(f"rows cannot be held out of a training set of {n}; pass meta=(x, y)")
        self.n, self.meta = n, meta
        size = min(n - 1, max(1, round(fraction * n))) if meta is None else count_rows(meta)
        self.batch_size, self.size = min(batch_size, size), size
        # On the host, so that fetching a meta batch does not synchronise.
        self.rows, self.steps = torch.arange(size), 0
        self.forward_mode = True

    def plan(self, epoch: Epoch) -> Tensor | None:
        """The rows left for training; None if the user gave the set. All epochs hold out the same rows."""
        generator = torch.Generator().manual_seed(distributed.derive(epoch.seed, "meta"))
        if self.meta is not None:
            self.rows = torch.randperm(self.size, generator=generator)
            return None
        order = torch.randperm(self.n, generator=generator)
        self.rows = order[: self.size]
        return order[self.size :].sort().values

    def agreement(self, step: Step, virtual: Tensor | None = None) -> Tensor:
        r"""(B,) :math:`\langle \nabla L_i(\theta), \nabla M(\hat\theta) \rangle`, M the loss of the next meta batch.

        Args:
            step: The step.
            virtual: (B,) sizes a_i of a virtual step :math:`\hat\theta = \theta - \sum_i a_i \nabla L_i(\theta)` over
                the global batch; None stays at theta.

        Returns:
            Inner products in float64, without gradients.
        """
        task = step.batch.task
        if task is None:
            raise ValueError("a meta set needs the forward and loss functions; pass Batch(..., task=Task(...))")
        net = bare(step.model, "a meta set")  # forward mode fails on a compiled model

        def losses(net: nn.Module) -> Tensor:
            return task.losses(net, step.batch)[1]

        with torch.enable_grad():
            parameters = trainable(net)
            if virtual is not None:
                parameters = moved(parameters, step.total(_weighted_gradient(losses, net, step, virtual)), -1.0)
            direction = step.total(self._gradient(task, net, parameters, step))
        if not len(step.index):
            return direction.new_zeros(0, dtype=torch.float64)
        return self._products(losses, net, direction)

    def get_extra_state(self) -> Tensor:
        """The number of batches drawn, and the rows."""
        return torch.cat([torch.tensor([self.steps]), self.rows])

    def set_extra_state(self, state: Tensor) -> None:
        """Restores the state from ``get_extra_state``."""
        self.steps, self.rows = int(state[0]), state[1:].cpu()

    def _products(self, losses: Any, net: nn.Module, direction: Tensor) -> Tensor:
        products = forward_products(losses, net, direction) if self.forward_mode else None
        if products is None:
            self.forward_mode = False  # not supported by the model; do not retry in every step
            products = reverse_products(losses, net, direction)
        return products.detach().double()

    def _gradient(self, task: Task, net: nn.Module, parameters: Mapping[str, Tensor], step: Step) -> Tensor:
        """This rank's part of the gradient of the average meta loss."""
        place = self.steps * self.batch_size + torch.arange(self.batch_size)
        self.steps += 1
        rows = self.rows[place % self.size]
        return self._gradient_of(rows[distributed.rank() :: distributed.world_size()], task, net, parameters, step)

    def _gradient_of(
        self, rows: Tensor, task: Task, net: nn.Module, parameters: Mapping[str, Tensor], step: Step
    ) -> Tensor:
        leaves = list(parameters.values())
        if not len(rows):
            return torch.cat([torch.zeros_like(leaf).flatten() for leaf in leaves])
        batch = self._fetch(rows, step, task)
        losses = losses_at(lambda net: task.losses(net, batch)[1], net, parameters)
        if losses.device.type == "cpu" or task.nan_strategy != "error":
            _, finite = checks.check_losses(losses.detach(), rows, task.nan_strategy)
            if finite is not None:  # again without the rows that would make every gradient NaN
                return self._gradient_of(rows[finite.cpu()], task, net, parameters, step)
        return gradient(losses.sum() / self.batch_size, leaves)

    def _fetch(self, rows: Tensor, step: Step, task: Task) -> Batch:
        if self.meta is None:
            if task.rows is None:
                raise ValueError("only a Curriculum can hold out rows, because it can fetch them; pass meta=(x, y)")
            return task.rows(rows)
        return rows_of(self.meta, rows, step.batch.x, step.losses.device).with_(task=task)


def rate_now(virtual_lr: float | Callable[[], float], interval: str) -> float:
    """The virtual learning rate of this step: the number, or the function's value."""
    rate = virtual_lr() if callable(virtual_lr) else virtual_lr
    checks.real("virtual_lr", rate, interval)
    return float(rate)


def rows_of(given: Any, rows: Tensor, like: Any, device: torch.device, name: str = "meta") -> Batch:
    """Rows of the user's set, on ``device`` and in the precision of ``like``, the inputs of a batch."""
    if isinstance(given, tuple):
        x, y = checks.map_leaves(lambda part: part[rows.to(part.device, non_blocking=True)], given)
    elif hasattr(given, "batch"):
        x, y = given.batch(rows)
    else:
        pairs = default_collate([given[row] for row in rows.tolist()])
        if not isinstance(pairs, tuple | list) or len(pairs) != 2:
            raise ValueError(f"rows of {name} must be pairs (x, y), but the first is {given[0]!r:.60}")
        x, y = pairs
    dtype = like.dtype if isinstance(like, Tensor) and like.is_floating_point() else None

    def move(part: Any) -> Any:
        if isinstance(part, Tensor):
            return part.to(device, dtype if part.is_floating_point() else None, non_blocking=True)
        return part.to(device) if hasattr(part, "to") else part

    return Batch(checks.map_leaves(move, x), checks.map_leaves(move, y), rows)


def _weighted_gradient(losses: Any, net: nn.Module, step: Step, virtual: Tensor) -> Tensor:
    """This rank's part of sum_i a_i grad L_i, from the graph of the step if it has one that can be kept."""
    virtual = virtual.detach().to(step.losses.dtype)
    if step.losses.requires_grad and not _compiled(step.model):
        leaves = [p for p in net.parameters() if p.requires_grad]
        return gradient((virtual * step.losses).sum(), leaves, retain_graph=True)
    parameters = trainable(net)
    if not len(virtual):
        return torch.cat([torch.zeros_like(leaf).flatten() for leaf in parameters.values()])
    return gradient((virtual * losses_at(losses, net, parameters)).sum(), list(parameters.values()))


def _compiled(model: nn.Module) -> bool:
    """Whether any part is compiled, so that a backward pass may free what a second one needs."""
    parts = model.modules()
    return any(distributed.uncompiled(part) is not part or part._compiled_call_impl is not None for part in parts)


def count_rows(meta: Any, name: str = "meta") -> int:
    """The number of rows of a set; raises an error if it is not a pair (x, y) or a dataset."""
    pair = isinstance(meta, tuple) and len(meta) == 2
    if not pair and (isinstance(meta, tuple | str | Mapping | Tensor) or not hasattr(meta, "__getitem__")):
        got = f"a tuple of {len(meta)}" if isinstance(meta, tuple) else f"{meta!r:.60}"
        raise ValueError(f"{name} must be a pair (x, y) of tensors or a dataset of such rows, got {got}")
    parts = list(meta) if pair else [meta]
    parts = [next(iter(part.values()), None) if isinstance(part, Mapping) else part for part in parts]
    sizes = {len(part) if hasattr(part, "__len__") else 0 for part in parts}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"{name} must hold as many inputs as targets, and at least one, got {sorted(sizes)}")
    return sizes.pop()
