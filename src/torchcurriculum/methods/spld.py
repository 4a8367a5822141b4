"""Self-paced learning with diversity: easy rows, but of every group."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..core import Batch, Epoch, checks
from ..functional.pacing import Shape, pace
from ..functional.spl import diversity_bonus, spread
from ._base.paced import Paced
from .registry import register

__all__ = ["SPLD"]


class SPLD(Paced):
    r"""Self-paced learning with diversity: :math:`\min \sum_i v_i L_i - \lambda \sum_i v_i - \gamma \|v\|_{2,1}`.

    The negative :math:`\ell_{2,1}` norm spreads the selection over groups: the i-th easiest row of its group is
    selected if :math:`L < \lambda + \gamma / (\sqrt i + \sqrt{i-1})` (Algorithm 1, the exact solution). Here lambda is
    the quantile of :math:`L - \gamma / (\sqrt i + \sqrt{i-1})` at the pace lambda_t, so that exactly this share is in
    use, and gamma is ``diversity`` standard deviations of the epoch's losses; the paper grows both by separate factors.
    Once the pace reaches one, all rows are in use.

    Args:
        n: Rows of the training set.
        grow: Epochs from ``start`` to all rows. ``for_run`` takes half of the run.
        groups: (N,) int64 groups, for example clusters of the inputs; None takes the labels, read once.
        diversity: gamma, in standard deviations of the losses; 0 is self-paced learning.
        start: The share at first; 1 is plain training.
        shape: ``"linear"``, ``"geometric"`` or ``"root"`` pacing.
        p: The root of ``"root"``.
        warmup: Epochs of plain training first.
        batch_size: Rows of the global batch; then ``grow`` counts optimizer steps, not epochs (see ``Paced``).

    Attributes:
        weights: (N,) float64, summing to one; zero for rows not in use.

    Example:
        >>> from torchcurriculum import Epoch
        >>> losses = torch.tensor([0.1, 0.2, 0.5, 0.9])                     # self-paced learning takes rows 0 and 1
        >>> method = SPLD(4, grow=2, groups=[0, 0, 0, 1], diversity=9.0, start=0.5, warmup=0)
        >>> method.plan(Epoch(1, 4, torch.zeros(4), lambda: losses))
        tensor([0, 3])

    Reference:
        Jiang et al., Self-Paced Learning with Diversity, NeurIPS 2014.
    """

    groups: Tensor
    grouped: Tensor

    def __init__(
        self,
        n: int,
        grow: int,
        groups: Any = None,
        diversity: float = 1.0,
        start: float = 0.1,
        shape: Shape = "linear",
        p: float = 2.0,
        warmup: int = 1,
        batch_size: int | None = None,
    ) -> None:
        rule = partial(pace, grow=grow, start=start, shape=shape, p=p)
        super().__init__(n, rule, warmup, batch_size=batch_size)
        checks.real("diversity", diversity, "[0, inf)")
        self.diversity = diversity
        given = torch.zeros(n) if groups is None else checks.row_values("groups", groups, self.n, integers=True)
        self.register_buffer("groups", given.long().clone())
        self.register_buffer("grouped", torch.tensor(groups is not None))

    def difficulty(self, epoch: Epoch) -> Tensor:
        """The losses at the start of this epoch, minus the bonus of each row's rank in its group."""
        if not self.grouped:
            self.groups.copy_(epoch.measure(_labels))
            self.grouped.fill_(True)
        losses = epoch.losses().to(self.confidence)
        return losses - diversity_bonus(losses, self.groups, self.diversity * spread(losses))


def _labels(model: nn.Module, batch: Batch) -> Tensor:
    y = batch.y
    if not isinstance(y, Tensor) or y.shape != batch.index.shape or y.is_floating_point():
        kind = checks.describe(y)
        raise TypeError(f"SPLD groups rows by class, but these targets are {kind}; pass groups=, a number per row")
    return y


register(
    "spld",
    SPLD,
    "self-paced learning that takes easy rows of every group",
    when="As `spl`, if easy rows would all come from a few classes or clusters.",
    cost="One forward pass over the set per epoch of the growth (measure='pass'), and the labels read once; 16 "
    "bytes a sample.",
)
