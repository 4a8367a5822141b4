"""Pacing by a function lambda_t, easy first; the same hard first (`anti`) and at random (`random`), its controls."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..functional.pacing import Shape, pace
from ._base.ranked import Order, Ranked
from .registry import register

__all__ = ["LambdaStep"]


class LambdaStep(Ranked):
    r"""Paced curriculum: epoch t trains on the easiest share lambda_t of the rows, with the average loss.

    :math:`\lambda_t = \min(1, (\frac tT (1 - \lambda_0^p) + \lambda_0^p)^{1/p})`; linear is p = 1, geometric
    :math:`\lambda_0^{1 - t/T}`. After T epochs all rows are in use.

    Differences from the paper and its authors' code: that keeps the classes balanced in every subset, starts from 4 %
    and multiplies the share by 1.9 every 100 steps, and scores rows by a support vector machine on the features of a
    pretrained network. Ours balances only with ``groups=labels``, because targets need not be classes. By default it
    paces linearly and by epochs; with ``batch_size`` by steps, rounded to epochs. Without ``scores`` it uses the
    student's losses after a short warm-up, which needs no other network.

    Args:
        n: Rows of the training set.
        grow: T, epochs from lambda_0 to 1. ``for_run`` takes half of the run.
        start: lambda_0; 0.1, so that an epoch has a few batches. 1 is plain training.
        shape: ``"linear"``, ``"geometric"`` or ``"root"``.
        p: The root of ``"root"``.
        scores: (N,) difficulties, lowest first; None measures the student's losses once, at the end of the warm-up.
        warmup: Epochs of plain training first; None is 0 with ``scores`` and 1 without.
        order: ``"easy"``; ``"hard"`` is the anti-curriculum and ``"random"`` the control arm.
        groups: (N,) int64 groups that keep their shares in every subset, as the paper keeps classes balanced; None
            does not balance.
        batch_size: Rows of the global batch; then ``grow`` counts optimizer steps, not epochs (see ``Paced``).

    Example:
        >>> method = LambdaStep(4, grow=2, start=0.5, scores=[0.3, 0.1, 0.4, 0.2])
        >>> from torchcurriculum import Epoch
        >>> import torch
        >>> [method.plan(Epoch(k, 4, torch.zeros(4), lambda: torch.zeros(4))) for k in (1, 2, 3)]  # 1/2, 3/4, all
        [tensor([1, 3]), tensor([0, 1, 3]), None]

    Reference:
        Hacohen and Weinshall, On the Power of Curriculum Learning in Training Deep Networks, ICML 2019.
    """

    def __init__(
        self,
        n: int,
        grow: int,
        start: float = 0.1,
        shape: Shape = "linear",
        p: float = 2.0,
        scores: Any = None,
        warmup: int | None = None,
        order: Order = "easy",
        groups: Any = None,
        batch_size: int | None = None,
    ) -> None:
        rule = partial(pace, grow=grow, start=start, shape=shape, p=p)
        super().__init__(n, rule, scores, warmup, order, groups, batch_size=batch_size)


for _name, _order, _summary, _when, _passes in (
    (
        "lambda-step",
        "easy",
        "the easiest share of the rows, growing by a pacing function",
        "You know what is difficult, or trust the losses after a short warm-up, and want a smooth schedule.",
        "One forward pass in the whole run without scores, none with",
    ),
    (
        "anti",
        "hard",
        "hard rows first: the difficulty order reversed",
        "To test whether the order matters. Not with wrong labels: they would come first.",
        "One forward pass in the whole run without scores, none with",
    ),
    (
        "random",
        "random",
        "a growing random subset: the control arm of every paced curriculum",
        "Always compare a paced curriculum with it: it takes the same steps without difficulty.",
        "No pass",
    ),
):
    register(
        _name,
        LambdaStep,
        _summary,
        when=_when,
        cost=f"{_passes}; fewer steps while the set grows; 16 bytes per sample.",
        order=_order,
    )
