"""Self-paced curriculum learning: combines the model's losses with a given order."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from ..core import Epoch, checks
from ..functional.pacing import Shape, pace
from ..functional.spl import Scheme, curriculum_penalty, spread
from ._base.ranked import Ranked
from .registry import register

__all__ = ["SPCL"]


class SPCL(Ranked):
    r"""Self-paced curriculum learning: :math:`\min_{w, v} \sum_i v_i L_i(w) + f(v; \lambda)` with v in a curriculum.

    The given order confines v to :math:`a^\top v \le c`, a growing along the order. With the constraint's multiplier
    mu the solution is the self-paced weight of :math:`L_i + \mu a_i`: both the instructor's order and the student's
    losses decide. Here a_i is the row's rank in the order over N - 1, and mu is ``trust`` standard deviations of the
    epoch's losses, so that it has no unit; the paper uses c instead of mu, and leaves its value to the user.

    Differences from the paper: the constraint is a penalty with a chosen multiplier, not solved for a given c, and the
    age parameter follows a pace, so that a known share of the rows is in use. Thus an epoch costs only one sort. The
    paper alternates v and w until w has converged; here v changes once an epoch.

    Args:
        n: Rows of the training set.
        grow: Epochs from ``start`` to all rows. ``for_run`` takes half of the run.
        scores: (N,) prior difficulties, lowest first; None takes the losses at the end of the warm-up, so that the
            first impression counts.
        trust: Weight of the prior; 0 is self-paced learning, large is a fixed order.
        start: The share at first; 1 is plain training.
        scheme: As in ``SPL``.
        power: As in ``SPL``.
        ratio: As in ``SPL``.
        shape: ``"linear"``, ``"geometric"`` or ``"root"`` pacing.
        p: The root of ``"root"``.
        warmup: Epochs of plain training first.
        batch_size: Rows of the global batch; then ``grow`` counts optimizer steps, not epochs (see ``Paced``).

    Attributes:
        weights: (N,) float64, summing to one; zero for rows not in use.

    Example:
        >>> import torch
        >>> from torchcurriculum import Epoch
        >>> method = SPCL(4, grow=2, scores=[3, 2, 1, 0], trust=10.0, start=0.5, warmup=0)
        >>> method.plan(Epoch(1, 4, torch.zeros(4), lambda: torch.tensor([0.1, 0.2, 0.3, 0.4])))
        tensor([2, 3])

    Reference:
        Jiang et al., Self-Paced Curriculum Learning, AAAI 2015.
    """

    def __init__(
        self,
        n: int,
        grow: int,
        scores: Any = None,
        trust: float = 1.0,
        start: float = 0.1,
        scheme: Scheme = "linear",
        power: float = 3.0,
        ratio: float = 0.5,
        shape: Shape = "linear",
        p: float = 2.0,
        warmup: int = 1,
        batch_size: int | None = None,
    ) -> None:
        rule = partial(pace, grow=grow, start=start, shape=shape, p=p)
        super().__init__(n, rule, scores, warmup, scheme=scheme, power=power, ratio=ratio, batch_size=batch_size)
        checks.real("trust", trust, "[0, inf)")
        self.trust = trust

    def difficulty(self, epoch: Epoch) -> Tensor:
        """L + mu a at the start of this epoch."""
        losses = epoch.losses().to(self.confidence)
        return losses + curriculum_penalty(super().difficulty(epoch), self.trust * spread(losses))


register(
    "spcl",
    SPCL,
    "self-paced learning led by a given order of difficulty",
    when="You have a prior order of difficulty but do not fully trust it.",
    cost="One forward pass over the set per epoch of the growth (measure='pass'); 16 bytes per sample.",
)
