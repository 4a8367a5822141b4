"""Balanced: balances classes around any method, by weights or by rows."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ..core import Epoch, Method, Step, checks
from ._base.wrapper import Wrapper

__all__ = ["Balanced"]

By = Literal["weights", "rows"]


class Balanced(Wrapper):
    r"""Class balance around a method: class c gets the share :math:`\propto n_c^{1-s}` of the weight, or of the rows.

    The method inside sees plain losses. With class weights in the loss function instead, rare rows would look hard, and
    a method that distrusts hard rows would treat them as wrong.

    Args:
        method: The method inside. Its weights within a class keep their ratios, and the sum of a batch stays the same.
        labels: (N,) whole numbers, the class of each row, or any other groups that should count equally.
        by: ``"weights"`` multiplies the method's weights; ``"rows"`` visits fewer rows of the larger classes, drawn
            again in every epoch, and does not change the weights.
        strength: s in [0, 1]: 1 gives every class the same share, 0 is the method inside.

    Example:
        >>> from torchcurriculum import Vanilla
        >>> from torchcurriculum.core import Batch
        >>> method = Balanced(Vanilla(), labels=[0, 0, 0, 1])
        >>> batch = Batch(None, None, torch.tensor([0, 3]))
        >>> method.weigh(Step(None, batch, None, torch.ones(2)))          # class 1 is three times rarer
        tensor([0.2500, 0.7500], dtype=torch.float64)
    """

    factors: Tensor
    labels: Tensor

    def __init__(self, method: Method, labels: Any, by: By = "weights", strength: float = 1.0) -> None:
        super().__init__(method=method)
        checks.one_of("by", by, get_args(By))
        checks.real("strength", strength, "[0, 1]", "0 is the method inside")
        n = getattr(method, "n", len(labels))
        known = checks.row_values("labels", labels, n, integers=True)
        own = type(method).loss is not Method.loss and not getattr(type(method).loss, "forwards", False)
        if own and by == "weights":
            name = type(method).__name__
            raise TypeError(f"{name} has its own loss, which class weights would not affect; pass by='rows'")
        self.n, self.by, self.strength = n, by, strength
        _, places, counts = known.unique(return_inverse=True, return_counts=True)
        self.counts = counts.tolist()
        self.register_buffer("labels", places, persistent=False)
        self.register_buffer("factors", (counts.min() / counts.double())[places] ** strength, persistent=False)

    def active(self, epoch: int) -> Method:
        """This method, since its weights differ from those inside."""
        return self

    def plan(self, epoch: Epoch) -> Tensor | None:
        """The inner method's rows; with ``by="rows"``, a share of the rows of every class."""
        rows = self.method.plan(epoch)
        if self.by == "weights" or self.strength == 0:
            return rows
        if rows is not None:
            raise ValueError(f"{type(self.method).__name__} already chooses the rows of an epoch; pass by='weights'")
        draws, least, labels = epoch.generator("balanced"), min(self.counts), self.labels.cpu()
        kept = []
        for place, count in enumerate(self.counts):
            size = round(least * (count / least) ** (1 - self.strength))
            kept.append((labels == place).nonzero().flatten()[torch.randperm(count, generator=draws)[:size]])
        return torch.cat(kept).sort().values

    def weigh(self, step: Step) -> Tensor:
        """The inner method's weights times the factors of their classes; the sum over the batch stays the same."""
        weights = self.method.weigh(step)
        if self.by == "rows":
            return weights
        if self.factors.device != step.index.device:
            self.to(step.index.device)
        scaled = weights * self.factors[step.index].to(weights.dtype)
        before, after = step.total(torch.stack([weights.sum(), scaled.sum()]))
        return scaled * torch.where(after > 0, before / after, 0.0)

    def loss(self, step: Step) -> Tensor:
        """The weighted sum; with ``by="rows"`` the inner method's loss."""
        return self.method.loss(step) if self.by == "rows" else step.reduce(self.weigh(step))
