"""Base class of paced methods: a growing easy part of the set, and weights within it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor

from ...core import Epoch, Method, Step, checks
from ...functional.pacing import difficulty_order, subset_size
from ...functional.spl import Scheme, self_paced_weights

__all__ = ["Paced"]


class Paced(Method, ABC):
    """Abstract: trains on the easiest share lambda_t of the rows, by a difficulty from the subclass.

    The first ``warmup`` epochs train on all rows. Then, t epochs later, the ``floor(lambda_t N)`` easiest rows are
    used, weighted by ``scheme``; once lambda_t = 1, all rows with the average loss. The age parameter is the difficulty
    of the easiest row that is left out. Weights within the selection are scaled to an average of one, so that they do
    not change the size of a step.

    Args:
        n: Rows of the training set.
        pace: ``t -> lambda_t``, t epochs or steps after the warm-up, from 0.
        warmup: Epochs of plain training before the pacing begins.
        scheme: Weights within the selection; ``power`` and ``ratio`` are its knobs.
        power: See ``functional.self_paced_weights``.
        ratio: See ``functional.self_paced_weights``.
        batch_size: Rows of the global batch; then t counts batches instead of epochs, which are the optimizer steps
            unless gradients are accumulated. A last smaller batch counts, also if ``drop_last`` leaves it out. The
            rows of an epoch are chosen at its start, so the share stays the same until its last step; while the set is
            small, epochs are short.

    Attributes:
        weights: (N,) float64, summing to one; zero for rows not in use.
    """

    confidence: Tensor
    share: Tensor
    age: Tensor
    steps: Tensor

    def __init__(
        self,
        n: int,
        pace: Callable[[int], float],
        warmup: int,
        scheme: Scheme = "hard",
        power: float = 3.0,
        ratio: float = 0.5,
        batch_size: int | None = None,
    ) -> None:
        super().__init__()
        self.n = n = checks.whole("n", n, what="the number of training rows")
        self.warmup = checks.whole("warmup", warmup, 0, "a number of epochs")
        pace(0)  # check the knobs now, not after the warm-up
        self_paced_weights(torch.zeros(0), 1.0, scheme, power, ratio)
        self.pace = pace
        self.batch_size = None if batch_size is None else checks.whole("batch_size", batch_size)
        self.scheme, self.power, self.ratio = scheme, power, ratio
        self.register_buffer("confidence", torch.ones(n, dtype=torch.float64))
        self.register_buffer("share", torch.ones((), dtype=torch.float64))
        self.register_buffer("age", torch.zeros((), dtype=torch.float64))
        if batch_size is not None:
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    @classmethod
    def for_run(
        cls, n: int, epochs: int, grow: int | None = None, batch_size: int | None = None, **options: Any
    ) -> Self:
        """All rows are in use half-way through the run, unless ``grow`` is given."""
        grow = max(1, epochs // 2) * cls.steps_of(n, batch_size) if grow is None else grow
        return cls(n, grow=grow, batch_size=batch_size, **options)  # type: ignore[call-arg]

    @staticmethod
    def steps_of(rows: int, batch_size: int | None) -> int:
        """The length of an epoch over ``rows`` rows: its steps, or one if time is counted in epochs."""
        if batch_size is None:
            return 1
        size = checks.whole("batch_size", batch_size)
        return math.ceil(rows / size) - (rows > size and rows % size == 1 < size)  # one row joins the batch before it

    @property
    def weights(self) -> Tensor:
        """(N,) float64 weights that sum to one."""
        return self.confidence / self.confidence.sum()

    @abstractmethod
    def difficulty(self, epoch: Epoch) -> Tensor:
        """(N,) difficulties of all rows now; +inf or NaN is hardest."""

    def plan(self, epoch: Epoch) -> Tensor | None:
        """The easiest share of the rows; all of them in the warm-up and once the pace reaches one."""
        t = epoch.number - self.warmup - 1
        share = 1.0 if t < 0 else self.pace(t if self.batch_size is None else int(self.steps))
        size = subset_size(share, self.n)
        self.share.fill_(share)
        rows = None
        if size == self.n:
            self.confidence.fill_(1.0)
        else:
            weights = self._select(self.difficulty(epoch).to(self.confidence), size, epoch)
            rows = weights.nonzero().flatten()
            self.confidence.copy_(weights / weights[rows].mean())
        if self.batch_size is not None and t >= 0:
            self.steps += self.steps_of(self.n if rows is None else len(rows), self.batch_size)
        return rows

    def weigh(self, step: Step) -> Tensor:
        """The average loss, times each row's weight within the selection."""
        return step.uniform() * self.confidence[step.index]

    def report(self) -> Mapping[str, Any]:
        """The share in use and, while it grows, the age parameter."""
        return {"share": self.share} if self.share == 1 else {"share": self.share, "age": self.age}

    def _select(self, difficulty: Tensor, size: int, epoch: Epoch) -> Tensor:
        """(N,) unscaled weights, zero outside the ``size`` easiest rows."""
        known = difficulty.isfinite()
        hardest = torch.where(known, difficulty, 0.0).max()
        difficulty = torch.where(known, difficulty, hardest)
        # The closed forms need losses of at least zero; a log-likelihood may be below.
        difficulty = difficulty - difficulty.min().clamp_max(0)
        order = difficulty_order(difficulty, epoch.generator("ties", difficulty.device))
        rows = order[:size]
        self.age.copy_(difficulty[order[size]])
        within = self_paced_weights(difficulty[rows], self.age, self.scheme, self.power, self.ratio)
        # All are as hard as the first row left out; the limit of their normalised weights is equal weights.
        within = torch.where(within.max() > 0, within, torch.ones_like(within))
        return torch.zeros_like(difficulty).index_copy_(0, rows, within)
