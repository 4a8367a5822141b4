"""Base class of methods that train only on rows chosen by their losses, per batch or per epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor

from ...core import Epoch, Method, Step, checks, distributed

__all__ = ["Chosen", "Scope"]

Scope = Literal["batch", "epoch"]


class Chosen(Method, ABC):
    """Abstract: the average loss of rows that a subclass chooses by their losses.

    With scope ``"batch"``, ``weigh`` gives the other rows of a batch weight zero. This uses current losses, as in the
    papers, but costs as much as plain training, since PyTorch computes gradients of zero-weight rows, too. With scope
    ``"epoch"``, ``plan`` drops them from the epoch, which saves steps but uses the losses at its start.

    Args:
        n: Rows of the training set.
        scope: ``"batch"`` or ``"epoch"``.
        warmup: Epochs of plain training first.
    """

    salt: Tensor
    used: Tensor

    def __init__(self, n: int, scope: Scope, warmup: int) -> None:
        super().__init__()
        self.n = checks.whole("n", n, what="the number of training rows")
        checks.one_of("scope", scope, ("batch", "epoch"))
        self.scope, self.warmup = scope, checks.whole("warmup", warmup, 0, "a number of epochs")
        self.register_buffer("salt", torch.zeros((), dtype=torch.int64))  # seeds the random numbers of this epoch
        self.register_buffer("used", torch.zeros(2, dtype=torch.float64))  # rows trained on and rows seen in this epoch

    @abstractmethod
    def choose(self, losses: Tensor, index: Tensor, step: Step | None) -> Tensor:
        """(B,) bool, from the losses of a batch or, if ``step`` is None, of all rows."""

    def plan(self, epoch: Epoch) -> Tensor | None:
        """With scope ``"epoch"``, the chosen rows and those with unknown loss; otherwise all."""
        self.salt.fill_(distributed.derive(epoch.seed, epoch.number, "chosen"))
        self.used.zero_()
        if self.scope == "batch" or epoch.number <= self.warmup:
            return None
        losses = epoch.losses().to(self.salt.device).double()
        known = losses.isfinite()
        if not bool(known.any()):
            return None
        chosen = self.choose(losses, torch.arange(self.n, device=losses.device), None) | ~known
        if not bool(chosen.any()):
            chosen[losses.argmax()] = True  # an epoch needs at least one row
        return None if bool(chosen.all()) else chosen.nonzero().flatten()

    def weigh(self, step: Step) -> Tensor:
        """The average over the chosen rows of the global batch; zero for the others, and for all if none is chosen."""
        if self.scope == "epoch" or step.epoch <= self.warmup:
            return step.uniform()
        chosen = self.choose(step.losses.detach().double(), step.index, step).double()
        count = step.total(chosen.sum())
        self.used += torch.stack([count, step.size()])
        return chosen / count.clamp_min(1)

    def report(self) -> dict[str, Tensor]:
        """The share of rows that counted, if rows are chosen in every batch."""
        return {"chosen": self.used[0] / self.used[1].clamp_min(1)} if self.scope == "batch" else {}
