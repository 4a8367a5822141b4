"""Competence-based curriculum: rows whose difficulty, as a share of all, is within the model's competence."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..core import Epoch
from ..functional.pacing import pace
from ._base.ranked import Ranked
from .registry import register

__all__ = ["Competence"]


class Competence(Ranked):
    r"""Competence-based curriculum: the rows with :math:`CDF(d_i) \le c(t)`.

    The competence is :math:`c(t) = \min(1, \sqrt[p]{\frac tT (1 - c_0^p) + c_0^p})`, and the CDF of a row's difficulty
    the share of rows that are not more difficult, so rows of equal difficulty enter together. Until any row is within
    the competence, only the easiest rows are used. After T epochs all rows are.

    Differences from the paper: it paces by steps and draws batches from the rows within the competence; here an
    epoch visits each of them once, and t counts epochs, or with ``batch_size`` the steps at the start of the epoch.
    Its difficulties are sentence length and word rarity, which you pass as ``scores``; without, they are the student's
    losses after a warm-up.

    Args:
        n: Rows of the training set.
        grow: T, epochs until all rows are in use. ``for_run`` takes half of the run.
        start: c_0; the paper's 0.01. 1 is plain training.
        p: The root; the paper recommends 2, and 1 is its linear competence.
        scores: (N,) difficulties, lowest first; None measures the student's losses once, at the end of the warm-up.
        warmup: Epochs of plain training first; None is 0 with ``scores`` and 1 without.
        batch_size: Rows of the global batch; then ``grow`` counts optimizer steps, not epochs (see ``Paced``).

    Example:
        >>> method = Competence(4, grow=4, start=0.5, p=1, scores=[3, 1, 2, 2])            # CDF 1, 1/4, 3/4, 3/4
        >>> [method.plan(Epoch(k, 4, torch.zeros(4), lambda: torch.zeros(4))) for k in (1, 3, 5)]   # c = 1/2, 3/4, 1
        [tensor([1]), tensor([1, 2, 3]), None]

    Reference:
        Platanios et al., Competence-based Curriculum Learning for Neural Machine Translation, NAACL 2019.
    """

    def __init__(
        self,
        n: int,
        grow: int,
        start: float = 0.01,
        p: float = 2.0,
        scores: Any = None,
        warmup: int | None = None,
        batch_size: int | None = None,
    ) -> None:
        rule = partial(pace, grow=grow, start=start, shape="root", p=p)
        super().__init__(n, rule, scores, warmup, batch_size=batch_size)

    def difficulty(self, epoch: Epoch) -> Tensor:
        """(N,) CDF of the difficulties."""
        if not self.ranked:
            scores = (self.score(epoch) if self.scores is None else self.scores).to(self.ranks.device).double()
            self.ranks.copy_(torch.searchsorted(scores.sort().values, scores, right=True))
            self.ranked.fill_(True)
        return self.ranks.double() / self.n

    def _select(self, difficulty: Tensor, size: int, epoch: Epoch) -> Tensor:
        """One for rows within the competence, and at least for the easiest."""
        within = difficulty <= torch.maximum(self.share, difficulty.min())
        self.age.copy_(difficulty[within].max())
        return within.double()


register(
    "competence",
    Competence,
    "rows whose difficulty, as a share of all, is within a competence that grows as a square root",
    when="Text, with lengths or word rarities as scores, above all for translation and small learning-rate warm-ups. "
    "Compare with `random`.",
    cost="One forward pass in the whole run without scores, none with; fewer steps while the set grows; 16 bytes a "
    "sample.",
)
