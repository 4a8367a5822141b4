"""Minimax curriculum learning: hard and diverse subsets that grow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..core import Batch, Epoch, Method
from ..functional.mcl import cluster, hard_and_diverse, project, subset_schedule
from .registry import register

__all__ = ["MCL"]

WIDTH = 32  # columns of the outputs that clustering looks at
MOST_CLUSTERS = 256


class MCL(Method):
    r"""Minimax curriculum learning with diversity (MCL).

    After ``warmup`` epochs on everything, an epoch of episode t trains on the subset

    .. math:: \arg\max_{|A| = k_t} \sum_{i \in A} L_i + \lambda_t F(A), \qquad
              k_t = k_0 (1+\Delta)^t, \quad \lambda_t = \lambda_0 (1-\gamma)^t

    with F the diversity of ``functional.mcl.marginal_gains``: a sum over groups of rows of the square root of how many
    are in A, on the scale of the losses, so that the greedy maximum is exact and costs a sort, not an N x N matrix.
    Losses are those at the start of the epoch. Groups are k-means clusters of the model's outputs (a random projection
    of them where they are wide), measured by a pass at the start of each episode.

    Args:
        n: Rows of the training set.
        warmup: Epochs on everything before the first subset. Outputs mean little before; ``build`` takes a fortieth.
        interval: Epochs of an episode; ``build`` takes a tenth of the run.
        start: k_0 / n. At 1 the method is plain training.
        growth: Delta >= 0; ``build`` makes the last episode train on everything.
        strength: lambda_0 >= 0; at 1 diversity weighs as much as the losses.
        decay: gamma in [0, 1]; the tenth is our default, the paper varies it.
        clusters: Number of groups, by default the square root of n, at most 256.
        groups: (N,) groups of your own (classes, sources, patients) instead of clusters.

    Example:
        >>> from torchcurriculum import Epoch
        >>> method = MCL(4, warmup=0, interval=1, start=0.75, groups=torch.tensor([0, 0, 0, 1]))
        >>> losses = torch.tensor([4.0, 3.0, 2.0, 1.0])
        >>> method.plan(Epoch(1, 4, losses, lambda: losses))      # row 3 is easier than row 2 but of another group
        tensor([0, 1, 3])

    Reference:
        Zhou and Bilmes, Minimax Curriculum Learning: Machine Teaching with Desirable Difficulties and Scheduled
        Diversity, ICLR 2018.
    """

    groups: Tensor
    diversity: Tensor

    def __init__(
        self,
        n: int,
        warmup: int,
        interval: int,
        start: float = 0.2,
        growth: float = 0.2,
        strength: float = 1.0,
        decay: float = 0.1,
        clusters: int | None = None,
        groups: Tensor | None = None,
    ) -> None:
        super().__init__()
        clusters = min(MOST_CLUSTERS, math.isqrt(n)) if clusters is None and n >= 1 else clusters
        _refuse_bad_knobs(n, warmup, interval, start, growth, strength, decay, clusters, groups)
        self.n, self.warmup, self.interval, self.start, self.growth = n, warmup, interval, start, growth
        self.strength, self.decay, self.clusters = strength, decay, clusters
        self.given = groups is not None
        self.register_buffer("groups", torch.zeros(n, dtype=torch.int32))
        self.register_buffer("diversity", torch.tensor(strength, dtype=torch.float64))
        if groups is not None:
            self.groups.copy_(groups.unique(return_inverse=True)[1])

    def plan(self, epoch: Epoch) -> Tensor | None:
        """Everything in the warm-up, then the hard and diverse rows."""
        past = epoch.number - self.warmup - 1
        if past < 0:
            return None
        size, strength = subset_schedule(
            past // self.interval, self.n, self.start, self.growth, self.strength, self.decay
        )
        self.diversity.fill_(strength)
        if size == self.n:
            return None
        losses = _known(epoch.losses().cpu().double())
        if past % self.interval == 0 and not self.given:
            self.groups.copy_(self._cluster(epoch))
        return hard_and_diverse(losses, self.groups.cpu().long(), size, strength)

    def report(self) -> Mapping[str, Any]:
        """lambda of the epoch; the record has the size of the subset as its rows."""
        return {"lambda": self.diversity}

    def _cluster(self, epoch: Epoch) -> Tensor:
        assert self.clusters is not None

        def outputs(model: nn.Module, batch: Batch) -> Tensor:
            assert batch.task is not None
            made = batch.task.forward(model, batch.x)
            if not isinstance(made, Tensor):
                raise TypeError(f"MCL clusters outputs that are tensors, not {type(made).__name__}; pass groups=")
            return project(made, WIDTH, epoch.generator("mcl-projection"))

        return cluster(epoch.measure(outputs).cpu(), self.clusters, epoch.generator("mcl-clusters"))


def _known(losses: Tensor) -> Tensor:
    """A row whose loss nobody has seen yet counts as the hardest that is known."""
    known = losses[losses.isfinite()]
    return torch.where(losses.isfinite(), losses, known.max() if len(known) else 1.0)


def _refuse_bad_knobs(
    n: int,
    warmup: int,
    interval: int,
    start: float,
    growth: float,
    strength: float,
    decay: float,
    clusters: int | None,
    groups: Tensor | None,
) -> None:
    if n < 1:
        raise ValueError(f"n must be the number of training rows, at least 1, got {n!r}")
    if warmup < 0 or interval < 1:
        raise ValueError(f"warmup must be at least 0 and interval at least 1 epoch, got {warmup!r} and {interval!r}")
    if not 0 < start <= 1:
        raise ValueError(f"start is the first subset's share of the rows, in (0, 1], got {start!r}")
    if not (0 <= growth < math.inf and 0 <= strength < math.inf and 0 <= decay <= 1):
        raise ValueError(
            "growth and strength must be at least 0 and finite, and decay in [0, 1], got "
            f"{growth!r}, {strength!r} and {decay!r}"
        )
    if clusters is not None and not 1 <= clusters <= n:
        raise ValueError(f"clusters must lie between 1 and the {n} rows, got {clusters!r}")
    if groups is not None and (groups.shape != (n,) or groups.is_floating_point()):
        raise ValueError(f"groups must be {n} whole numbers, got {groups.dtype} of shape {tuple(groups.shape)}")


@register(
    "mcl",
    MCL,
    "hard and diverse subsets that grow, by an exact submodular maximum",
    when="Clean labels and redundant data: it looks for hard rows, and with wrong labels those are the wrong ones.",
    cost="One forward pass over the set for each epoch (measure='pass') until the subset is everything, one more for "
    "each episode to cluster, fewer steps while the subset grows; 4 bytes a sample.",
)
def _mcl(n: int, epochs: int, start: float = 0.2, **options: Any) -> MCL:
    warmup = options.setdefault("warmup", max(1, epochs // 40))
    interval = options.setdefault("interval", max(1, epochs // 10))
    if "growth" not in options and 0 < start <= 1:
        options["growth"] = start ** (-1 / max(1, (epochs - warmup - 1) // max(1, interval))) - 1
    return MCL(n, start=start, **options)
