"""Minimax curriculum learning: hard and diverse subsets that grow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn

from ..core import Batch, Epoch, Method, checks
from ..functional.mcl import (
    cluster,
    hard_and_diverse,
    hard_and_representative,
    kernel_of_groups,
    project,
    subset_schedule,
)
from .registry import register

__all__ = ["MCL", "Diversity"]

WIDTH = 32  # columns of the outputs used for clustering
MOST_CLUSTERS = 256
Diversity = Literal["counts", "facility"]


class MCL(Method):
    r"""Minimax curriculum learning with diversity (MCL).

    After ``warmup`` epochs on all rows, an epoch of episode t trains on the subset

    .. math:: \arg\max_{|A| = k_t} \sum_{i \in A} L_i + \lambda_t F(A), \qquad
              k_t = k_0 (1+\Delta)^t, \quad \lambda_t = \lambda_0 (1-\gamma)^t

    with F the diversity of ``functional.mcl.marginal_gains``: a sum over groups of the square root of their number of
    rows in A, on the scale of the losses, so that the greedy maximum is exact and costs a sort, not an N x N matrix.
    Losses are those at the start of the epoch. Groups are k-means clusters of the model's outputs (randomly projected
    if they are wide), measured in a pass at the start of each episode.

    Differences from the paper: its F compares features, by facility location :math:`\sum_j \max_{i \in A} \omega_{ij}`
    or, in the author's code, by square roots of their sums. That code chooses among 1,000 cluster centres, by a greedy
    search and the losses of the rows nearest to them, and trains on whole clusters. Ours counts the rows of each
    cluster, because the maximum over all N rows is then exact and needs neither N x N similarities nor features.
    ``diversity="facility"`` is the paper's F over the clusters: a greedy search among them, by the losses of all their
    rows and a Gaussian kernel of their centres, and training on whole clusters.

    Args:
        n: Rows of the training set.
        warmup: Epochs on all rows before the first subset. Outputs mean little before that; ``for_run`` takes a
            fortieth.
        interval: Epochs of an episode; ``for_run`` takes a tenth of the run.
        factor: 1 + Delta >= 1, by which the subset grows; ``for_run`` makes the last episode train on everything.
        start: k_0 / n. At 1 the method is plain training.
        strength: lambda_0 >= 0; at 1 diversity counts as much as the losses.
        decay: 1 - gamma in [0, 1], by which lambda falls; 0.9 is our default, the paper varies it.
        clusters: Number of groups, by default the square root of n, at most 256.
        groups: (N,) your own groups (classes, sources, patients) instead of clusters.
        diversity: ``"counts"`` is ours, ``"facility"`` the paper's facility location, which compares outputs and so
            takes no ``groups``.

    Example:
        >>> from torchcurriculum import Epoch
        >>> method = MCL(4, warmup=0, interval=1, factor=1.2, start=0.75, groups=torch.tensor([0, 0, 0, 1]))
        >>> losses = torch.tensor([4.0, 3.0, 2.0, 1.0])
        >>> method.plan(Epoch(1, 4, losses, lambda: losses))      # row 3 is easier than row 2 but of another group
        tensor([0, 1, 3])

    Reference:
        Zhou and Bilmes, Minimax Curriculum Learning: Machine Teaching with Desirable Difficulties and Scheduled
        Diversity, ICLR 2018.
    """

    groups: Tensor
    diversity: Tensor
    similarity: Tensor

    def __init__(
        self,
        n: int,
        warmup: int,
        interval: int,
        factor: float,
        start: float = 0.2,
        strength: float = 1.0,
        decay: float = 0.9,
        clusters: int | None = None,
        groups: Any = None,
        diversity: Diversity = "counts",
    ) -> None:
        super().__init__()
        checks.one_of("diversity", diversity, get_args(Diversity))
        if diversity == "facility" and groups is not None:
            raise ValueError("diversity='facility' compares outputs, which groups= do not have; pass one of the two")
        self.n = n = checks.whole("n", n, what="the number of training rows")
        self.warmup, self.interval = checks.whole("warmup", warmup, 0), checks.whole("interval", interval)
        checks.real("factor", factor, "[1, inf)")
        checks.real("start", start, "(0, 1]", "the first subset's share of the rows")
        checks.real("strength", strength, "[0, inf)")
        checks.real("decay", decay, "[0, 1]")
        self.clusters = min(MOST_CLUSTERS, math.isqrt(n)) if clusters is None else checks.whole("clusters", clusters)
        checks.real("clusters", self.clusters, f"[1, {n}]", "at most as many as rows")
        self.start, self.factor, self.strength, self.decay = start, factor, strength, decay
        self.given, self.diversity_of = groups is not None, diversity
        self.register_buffer("groups", torch.zeros(n, dtype=torch.int32))
        self.register_buffer("diversity", torch.tensor(strength, dtype=torch.float64))
        if diversity == "facility":
            self.register_buffer("similarity", torch.eye(self.clusters, dtype=torch.float64))
        if groups is not None:
            self.groups.copy_(checks.row_values("groups", groups, n, integers=True).unique(return_inverse=True)[1])

    @classmethod
    def for_run(
        cls,
        n: int,
        epochs: int,
        warmup: int | None = None,
        interval: int | None = None,
        factor: float | None = None,
        start: float = 0.2,
        **options: Any,
    ) -> Self:
        """Ten episodes after a short warm-up, the last of them on everything."""
        checks.real("start", start, "(0, 1]", "the first subset's share of the rows")
        warmup = max(1, epochs // 40) if warmup is None else checks.whole("warmup", warmup, 0)
        interval = max(1, epochs // 10) if interval is None else checks.whole("interval", interval)
        growths = max(1, (epochs - warmup - 1) // interval)
        return cls(n, warmup, interval, start ** (-1 / growths) if factor is None else factor, start, **options)

    def plan(self, epoch: Epoch) -> Tensor | None:
        """All rows in the warm-up, then the hard and diverse rows."""
        past = epoch.number - self.warmup - 1
        if past < 0:
            return None
        size, strength = subset_schedule(
            past // self.interval, self.n, self.start, self.factor - 1, self.strength, 1 - self.decay
        )
        self.diversity.fill_(strength)
        if size == self.n:
            return None
        losses = _known(epoch.losses().cpu().double())
        if past % self.interval == 0 and not self.given:
            self._cluster(epoch)
        if self.diversity_of == "facility":
            similarity = self.similarity.cpu()
            return hard_and_representative(losses, self.groups.cpu().long(), similarity, size, strength)
        return hard_and_diverse(losses, self.groups.cpu().long(), size, strength)

    def report(self) -> Mapping[str, Any]:
        """lambda of the epoch."""
        return {"lambda": self.diversity}

    def _cluster(self, epoch: Epoch) -> None:
        def outputs(model: nn.Module, batch: Batch) -> Tensor:
            assert batch.task is not None
            made = batch.task.forward(model, batch.x)
            if not isinstance(made, Tensor):
                raise TypeError(f"MCL clusters outputs that are tensors, not {type(made).__name__}; pass groups=")
            return project(made, WIDTH, epoch.generator("mcl-projection"))

        features = epoch.measure(outputs).cpu()
        groups = cluster(features, self.clusters, epoch.generator("mcl-clusters"))
        self.groups.copy_(groups)
        if self.diversity_of == "facility":
            self.similarity.copy_(kernel_of_groups(features, groups, self.clusters))


def _known(losses: Tensor) -> Tensor:
    """A row with an unknown loss counts as hard as the hardest known one."""
    known = losses[losses.isfinite()]
    return torch.where(losses.isfinite(), losses, known.max() if len(known) else 1.0)


register(
    "mcl",
    MCL,
    "hard and diverse subsets that grow, by an exact submodular maximum",
    when="Clean labels and redundant data: it prefers hard rows, which with wrong labels are the wrong ones.",
    cost="One forward pass over the set per epoch (measure='pass') until the subset is the whole set, one more for "
    "each episode to cluster, fewer steps while the subset grows; 4 bytes per sample.",
)
