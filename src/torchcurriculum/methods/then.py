"""Then: one method for some epochs and another afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..core import Batch, Epoch, Method, Step, checks, distributed
from ._base.wrapper import Wrapper

__all__ = ["Then"]


class Then(Wrapper):
    """``first`` for ``epochs`` epochs, ``second`` from then on.

    ``second`` counts its own epochs from 1, so its pace starts when it does; its random draws differ from those of
    ``first``. Losses seen in training carry over. May be nested: ``Then(a, 5, Then(b, 10, c))`` is a for 5 epochs, b
    for 10, then c.

    Args:
        first: The method of the first epochs.
        epochs: Their number, at least 1.
        second: The method afterwards, made for the remaining epochs.

    Example:
        >>> from torchcurriculum import APW, Vanilla
        >>> warm = Then(Vanilla(), 2, APW(4, q=8))
        >>> losses = torch.tensor([0.5, 2.0, 2.0, 2.0])
        >>> for number in (1, 2, 3):
        ...     _ = warm.plan(Epoch(number, 4, last=losses, losses=lambda: losses))
        ...     print(number, type(warm.now).__name__, warm.report()["stage"])
        1 Vanilla 1
        2 Vanilla 1
        3 APW 2
    """

    first: Method
    second: Method
    switched: Tensor

    def __init__(self, first: Method, epochs: int, second: Method) -> None:
        super().__init__(first=first, second=second)
        self.epochs = checks.whole("epochs", epochs, what="the number of epochs of the first method")
        self.register_buffer("switched", torch.tensor(False))

    def inner(self, epoch: int) -> Method:
        """The method of this epoch."""
        return self.second if epoch > self.epochs else self.first

    def active(self, epoch: int) -> Method:
        """The same, inside all wrappers."""
        inner = self.inner(epoch)
        return inner.active(self._own(epoch)) if isinstance(inner, Wrapper) else inner

    @property
    def now(self) -> Method:
        """The method of the epoch that was planned last."""
        return self.second if self.switched else self.first

    def plan(self, epoch: Epoch) -> Tensor | None:
        """This epoch's method's."""
        self.switched.fill_(epoch.number > self.epochs)
        if not self.switched:
            return self.first.plan(epoch)
        for part in self.first.modules():
            if callable(release := getattr(part, "release", None)):
                release()  # its hooks on the network
        seed = distributed.derive(epoch.seed, "then", self.epochs)
        return self.second.plan(epoch.with_(number=self._own(epoch.number), seed=seed))

    @checks.forwards
    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """This epoch's method's."""
        viewed = self.inner(batch.epoch).view(model, batch.with_(epoch=self._own(batch.epoch)))
        return viewed.with_(epoch=batch.epoch)

    def weigh(self, step: Step) -> Tensor:
        """This epoch's method's."""
        return self.inner(step.epoch).weigh(self._own_step(step))

    @checks.forwards
    def loss(self, step: Step) -> Tensor:
        """This epoch's method's."""
        return self.inner(step.epoch).loss(self._own_step(step))

    def report(self) -> Mapping[str, Any]:
        """This epoch's method's scalars, and the number of this method, from 1."""
        inner = self.now.report()
        before = _stages(self.first) if self.switched else 0
        return {**inner, "stage": before + inner.get("stage", 1)}

    def _own(self, epoch: int) -> int:
        """The epoch as its method counts."""
        return epoch - self.epochs if epoch > self.epochs else epoch

    def _own_step(self, step: Step) -> Step:
        return step.with_(batch=step.batch.with_(epoch=self._own(step.epoch)))


def _stages(method: Method) -> int:
    return _stages(method.first) + _stages(method.second) if isinstance(method, Then) else 1
