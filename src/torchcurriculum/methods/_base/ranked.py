"""Base class of methods with a fixed order of the rows: difficulty is measured once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ...core import Epoch, checks
from ...functional.pacing import difficulty_order, rank_within
from .paced import Paced

__all__ = ["Order", "Ranked"]

Order = Literal["easy", "hard", "random"]


class Ranked(Paced):
    """Abstract: an order of the rows, computed when first needed, and kept.

    Args:
        n: Rows of the training set.
        pace: ``t -> lambda_t``.
        scores: (N,) difficulties; None uses ``score``.
        warmup: Epochs of plain training first; None is 0 with ``scores`` and 1 without.
        order: ``"easy"`` first, ``"hard"`` first (anti-curriculum), or ``"random"`` (the control arm: the same pace and
            cost without difficulty; ``scores`` are not used).
        groups: (N,) int64 groups, for example classes, that keep their shares in every subset; None does not balance.
        scheme: Weights within the selection and ``batch_size``, for ``Paced``.
    """

    ranks: Tensor
    ranked: Tensor

    def __init__(
        self,
        n: int,
        pace: Callable[[int], float],
        scores: Any = None,
        warmup: int | None = None,
        order: Order = "easy",
        groups: Any = None,
        **scheme: Any,
    ) -> None:
        super().__init__(n, pace, warmup if warmup is not None else int(scores is None), **scheme)
        checks.one_of("order", order, get_args(Order))
        self.order = order
        self.scores = None if scores is None else checks.row_values("scores", scores, self.n).double()
        self.groups = None if groups is None else checks.row_values("groups", groups, self.n, integers=True).long()
        self.register_buffer("ranks", torch.zeros(n, dtype=torch.int64))
        self.register_buffer("ranked", torch.tensor(False))

    def score(self, epoch: Epoch) -> Tensor:
        """(N,) difficulties if the user gave none: the student's losses at the end of the warm-up."""
        return epoch.losses()

    def difficulty(self, epoch: Epoch) -> Tensor:
        """Ranks in the order, from 0."""
        if not self.ranked:
            rows = self._ordered(epoch)
            self.ranks[rows] = torch.arange(self.n, device=rows.device)
            self.ranked.fill_(True)
        return self.ranks

    def _ordered(self, epoch: Epoch) -> Tensor:
        device = self.ranks.device
        generator = epoch.generator("order", device)
        if self.order == "random":
            return torch.randperm(self.n, generator=generator, device=device)
        scores = self.score(epoch) if self.scores is None else self.scores
        scores = scores.to(device, torch.float64)
        scores = scores if self.order == "easy" else -scores
        if self.groups is not None:
            places, sizes = rank_within(scores, self.groups.to(device))
            scores = (places + 0.5) / sizes
        return difficulty_order(scores, generator)
