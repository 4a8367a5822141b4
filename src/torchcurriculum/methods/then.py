"""Then: one method for some epochs and another afterwards."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..core import Batch, Epoch, Method, Step, derive

__all__ = ["Then"]


class Then(Method):
    """``first`` for ``epochs`` epochs, ``second`` from then on.

    ``second`` counts its own epochs from 1, so its pace starts when it does; what it draws is not what ``first`` drew
    in the epoch of the same number. Losses seen while training carry over. May be nested:
    ``Then(a, 5, Then(b, 10, c))`` is a for 5 epochs, b for 10, then c.

    Args:
        first: The method of the first epochs.
        epochs: How many, at least 1.
        second: The method afterwards; made for the epochs that are left.

    Example:
        >>> from torchcurriculum import APW, Vanilla
        >>> warm = Then(Vanilla(), 2, APW(4, q=8))
        >>> losses = torch.tensor([0.5, 2.0, 2.0, 2.0])
        >>> for number in (1, 2, 3):
        ...     _ = warm.plan(Epoch(number, 4, last=losses, losses=lambda: losses))
        ...     print(number, type(warm.current).__name__, warm.report()["stage"])
        1 Vanilla 1
        2 Vanilla 1
        3 APW 2
    """

    def __init__(self, first: Method, epochs: int, second: Method) -> None:
        super().__init__()
        for method in (first, second):
            if not isinstance(method, Method):
                raise TypeError(f"Then needs two methods, got {type(method).__name__}; Then(first, epochs, second)")
        if not isinstance(epochs, int) or epochs < 1:
            raise ValueError(f"epochs must be the number of epochs of the first method, at least 1, got {epochs!r}")
        sizes = {method.n for method in (first, second) if hasattr(method, "n")}
        if len(sizes) > 1:
            raise ValueError(f"the two methods were made for different numbers of rows: {first.n} and {second.n}")
        if sizes:
            self.n = sizes.pop()
        self.first, self.epochs, self.second = first, epochs, second
        self.switched = False  # on the host: a step must not wait for the device to know

    @property
    def current(self) -> Method:
        """The method of this epoch."""
        return self.second if self.switched else self.first

    @property
    def weighs_by_loss(self) -> bool:  # type: ignore[override]
        """Whether this epoch's method looks at the losses of the batch."""
        return self.current.weighs_by_loss

    @property
    def weights(self) -> Tensor:
        """(N,) weights of this epoch's method; no such attribute if it has none."""
        return self.current.weights  # type: ignore[return-value]

    def plan(self, epoch: Epoch) -> Tensor | None:
        """This epoch's method's plan."""
        own = self._enter(epoch)
        return self.current.plan(own)

    def plan_whole(self, epoch: Epoch) -> Tensor | None:
        """This epoch's method's plan for a wrapper that samples from its weights."""
        own = self._enter(epoch)
        return self.current.plan_whole(own)

    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """This epoch's method's view."""
        return self.current.view(model, batch)

    def weigh(self, step: Step) -> Tensor:
        """This epoch's method's weights."""
        return self.current.weigh(step)

    def loss(self, step: Step) -> Tensor:
        """This epoch's method's loss."""
        return self.current.loss(step)

    def sync(self) -> None:
        """This epoch's method's."""
        self.current.sync()

    def report(self) -> Mapping[str, Any]:
        """This epoch's method's scalars, and which of the methods it is, counted from 1."""
        inner = self.current.report()
        before = _stages(self.first) if self.switched else 0
        return {**inner, "stage": before + inner.get("stage", 1)}

    def get_extra_state(self) -> Tensor:
        """Whether the second method has taken over."""
        return torch.tensor(self.switched)

    def set_extra_state(self, state: Tensor) -> None:
        """Takes back what ``get_extra_state`` gave."""
        self.switched = bool(state)

    def _enter(self, epoch: Epoch) -> Epoch:
        """Decides whose epoch it is, and gives the epoch as that method counts."""
        self.switched = epoch.number > self.epochs
        if not self.switched:
            return epoch
        for part in self.first.modules():
            if callable(release := getattr(part, "release", None)):
                release()  # what it hung up on the network
        later = copy.copy(epoch)
        later.number = epoch.number - self.epochs
        later.seed = derive(epoch.seed, "then", self.epochs)
        return later


def _stages(method: Method) -> int:
    return _stages(method.first) + _stages(method.second) if isinstance(method, Then) else 1
