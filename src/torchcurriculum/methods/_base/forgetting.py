"""`Forgetting`: drops the rows with the largest losses of each batch; `TwoNetworks`: with a second network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from ...core import Epoch, Method, Step, checks, distributed
from ...functional.coteaching import forget_rate
from .weights import Peer

__all__ = ["Forgetting", "TwoNetworks"]


class Forgetting(Method):
    """Abstract: drops the largest losses of a batch, increasingly many until a share ``forget`` is dropped.

    Args:
        gradual: T_k, the epochs until the share is reached.
        forget: tau, the share that is dropped in the end, in [0, 1).
    """

    forgotten: Tensor

    def __init__(self, gradual: int, forget: float) -> None:
        super().__init__()
        checks.real("forget", forget, "[0, 1)", "it is the share of wrong labels")
        self.gradual, self.forget = checks.whole("gradual", gradual), forget
        self.register_buffer("forgotten", torch.tensor(0.0, dtype=torch.float64))

    @classmethod
    def for_run(cls, n: int, epochs: int, gradual: int | None = None, **options: Any) -> Self:
        """The authors' ten epochs, or a quarter of a run that is shorter than forty."""
        return cls(gradual=min(10, max(1, epochs // 4)) if gradual is None else gradual, **options)

    def plan(self, epoch: Epoch) -> None:
        """All rows; stores the share of a batch to drop."""
        self.forgotten.fill_(forget_rate(epoch.number, self.forget, self.gradual))

    def smallest(self, step: Step, losses: Tensor) -> Tensor:
        """(B,) equal weights over the smallest losses of the global batch, and over ties with the largest kept.

        Keeps as many as the authors: the kept share of the batch, rounded down, but at least one.
        """
        losses = losses.detach().double()
        if not len(losses) and distributed.world_size() == 1:
            return losses
        share = 1 - forget_rate(step.epoch, self.forget, self.gradual)
        count = (share * step.size()).floor().clamp_min(1)
        kept = (losses <= distributed.order_statistics(losses, (count - 1).long().reshape(1))).double()
        return kept / step.total(kept.sum())

    def report(self) -> Mapping[str, Any]:
        """The share of a batch that is dropped."""
        return {"forgotten": self.forgotten}


class TwoNetworks(Forgetting):
    """Abstract: the user's model is network 1, and ``peer`` holds network 2, which the subclass trains in ``weigh``.

    Args:
        gradual: As for ``Forgetting``.
        forget: As for ``Forgetting``.
        lr: Adam's learning rate for network 2.
        net: Network 2 before training, or None; see ``Peer``.
    """

    def __init__(self, gradual: int, forget: float, lr: float, net: nn.Module | None) -> None:
        super().__init__(gradual, forget)
        self.peer = Peer(lr, net)

    def plan(self, epoch: Epoch) -> None:
        """All rows; network 2 gets its initial weights before the first epoch."""
        super().plan(epoch)
        self.peer.begin(epoch.model, distributed.derive(epoch.seed, "second network"))

    def second_model(self, model: nn.Module) -> nn.Module:
        """A copy of ``model`` with the weights of network 2, for evaluation or an ensemble."""
        return self.peer.model_like(model)
