"""Baby steps: buckets of rising difficulty, one more every few epochs."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

from ..core import checks
from ..functional.pacing import buckets_in_use
from ._base.ranked import Order, Ranked
from .registry import register

__all__ = ["BabyStep"]


class BabyStep(Ranked):
    """Baby steps: sort the rows into buckets by difficulty; train on the first, then on the first two, and so on.

    Buckets are cumulative and of equal size: stage s = 1, 2, ... of ``interval`` epochs trains on the easiest
    s / ``buckets`` of the rows with the average loss, and all further epochs on everything.

    Args:
        n: Rows of the training set.
        buckets: Number of buckets; 1 is plain training. ``for_run`` takes ten.
        interval: Epochs for each stage. ``for_run`` adds the last bucket half-way through the run.
        scores: (N,) difficulties, lowest first, for example sentence lengths; None measures the student's losses
            once, at the end of the warm-up.
        warmup: Epochs of plain training first; None is 0 with ``scores`` and 1 without (losses of an untrained model
            are meaningless).
        order: ``"easy"``, ``"hard"`` or ``"random"``.
        groups: (N,) int64 groups that keep their shares in every bucket; None does not balance.
        batch_size: Rows of the global batch; then ``interval`` counts optimizer steps, not epochs (see ``Paced``).

    Example:
        >>> method = BabyStep(4, buckets=2, interval=1, scores=[0.3, 0.1, 0.4, 0.2])
        >>> from torchcurriculum import Epoch
        >>> import torch
        >>> method.plan(Epoch(1, 4, torch.zeros(4), lambda: torch.zeros(4)))       # the easy half
        tensor([1, 3])

    Reference:
        Bengio et al., Curriculum Learning, ICML 2009.
        Spitkovsky et al., From Baby Steps to Leapfrog: How "Less is More" in Unsupervised Dependency Parsing, NAACL
        2010.
    """

    def __init__(
        self,
        n: int,
        buckets: int,
        interval: int,
        scores: Any = None,
        warmup: int | None = None,
        order: Order = "easy",
        groups: Any = None,
        batch_size: int | None = None,
    ) -> None:
        pace = partial(buckets_in_use, interval=interval, buckets=buckets)
        super().__init__(n, pace, scores, warmup, order, groups, batch_size=batch_size)

    @classmethod
    def for_run(  # type: ignore[override]
        cls,
        n: int,
        epochs: int,
        buckets: int | None = None,
        interval: int | None = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> Self:
        """Ten buckets, or fewer in a short run; the last is added half-way through."""
        half = max(1, epochs // 2)
        buckets = min(10, half) if buckets is None else checks.whole("buckets", buckets)
        interval = max(1, half // buckets) * cls.steps_of(n, batch_size) if interval is None else interval
        return cls(n, buckets, interval, batch_size=batch_size, **options)


register(
    "baby-step",
    BabyStep,
    "buckets of rising difficulty, one more every few epochs",
    when="You know what is difficult (length, resolution, annotator agreement) and want the simplest schedule. With "
    "measured difficulty compare with `random`.",
    cost="One forward pass in the whole run without scores, none with; fewer steps while the set grows; 16 bytes a "
    "sample.",
)
