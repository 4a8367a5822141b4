"""Dynamic instance hardness: fewer and fewer rows, those that have been hard over the history of training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor

from ..core import Epoch, Method, Step, checks
from ..functional.dihcl import hardness_probabilities, update_hardness
from ..functional.pacing import subset_size
from ..functional.sampling import draw
from .registry import register

__all__ = ["DIHCL", "Hardness"]

Hardness = Literal["loss", "change", "flip"]


class DIHCL(Method):
    r"""Curriculum by dynamic instance hardness (DIHCL-Rand): sample rows in proportion to their DIH.

    The DIH of a row is a running average of its instantaneous hardness a, updated when the row is trained on:
    :math:`r_{t+1}(i) = \gamma a_t(i) + (1-\gamma) r_t(i)`. a is the loss, the change of the loss since the row's last
    visit, or whether its prediction went from right to wrong or back. After ``warmup`` epochs on everything, the k-th
    epoch draws :math:`\max(\text{bottom}, \text{decay}^k) N` rows without replacement with probabilities proportional
    to r, and trains on them with the average loss. Losses are those seen while training: no pass.

    Args:
        n: Rows of the training set.
        decay: Factor of the share for each epoch. ``for_run`` reaches ``bottom`` half-way through the epochs after the
            warm-up.
        warmup: Epochs on everything, shuffled; two at least give every row a change. ``for_run`` takes a tenth.
        hardness: ``"loss"``, ``"change"`` or ``"flip"`` (classification only).
        gamma: Weight of the new value in the average.
        bottom: The smallest share; 1 is plain training.
        learning_rate: The learning rate as a function of the epoch number (from 1). The paper divides a by it because
            its schedule is cyclic; None does not divide.

    Attributes:
        dih: (N,) float64 DIH of the rows, +inf where unknown.
        weights: (N,) float64 probabilities that sum to one.

    Example:
        >>> method = DIHCL(3, decay=0.85, warmup=10)
        >>> method.observe(torch.tensor([1.0, 3.0]), torch.tensor([0, 2]))
        >>> method.observe(torch.tensor([2.0]), torch.tensor([0]))              # 0.9 * 2 + 0.1 * 1
        >>> method.dih
        tensor([1.9000,    inf, 3.0000], dtype=torch.float64)

    Reference:
        Zhou et al., Curriculum Learning by Dynamic Instance Hardness, NeurIPS 2020.
    """

    dih: Tensor
    previous: Tensor
    rate: Tensor
    share: Tensor

    def __init__(
        self,
        n: int,
        decay: float,
        warmup: int,
        hardness: Hardness = "loss",
        gamma: float = 0.9,
        bottom: float = 0.2,
        learning_rate: Callable[[int], float] | None = None,
    ) -> None:
        super().__init__()
        self.n = n = checks.whole("n", n, what="the number of training rows")
        checks.one_of("hardness", hardness, get_args(Hardness))
        for name, value in {"gamma": gamma, "decay": decay, "bottom": bottom}.items():
            checks.real(name, value, "(0, 1]")
        self.warmup = checks.whole("warmup", warmup, 0, "a number of epochs")
        self.hardness, self.gamma, self.learning_rate = hardness, gamma, learning_rate
        self.decay, self.bottom = decay, bottom
        unknown = torch.full((n,), math.inf, dtype=torch.float64)
        self.add_rows("dih", unknown)
        if hardness != "loss":  # the last loss, or whether the last prediction was right
            self.add_rows("previous", unknown.clone())
        self.register_buffer("rate", torch.ones((), dtype=torch.float64))
        self.register_buffer("share", torch.ones((), dtype=torch.float64))

    @classmethod
    def for_run(
        cls,
        n: int,
        epochs: int,
        decay: float | None = None,
        warmup: int | None = None,
        bottom: float = 0.2,
        **options: Any,
    ) -> Self:
        """A tenth of the run on everything; the smallest share half-way through what is left."""
        checks.real("bottom", bottom, "(0, 1]")
        warmup = max(2, epochs // 10) if warmup is None else checks.whole("warmup", warmup, 0)
        half = max(1, (epochs - warmup) // 2)
        return cls(n, bottom ** (1 / half) if decay is None else decay, warmup, bottom=bottom, **options)

    @property
    def weights(self) -> Tensor:
        """(N,) float64 probabilities of a draw; equal while nothing is known."""
        return hardness_probabilities(self.dih)

    def plan(self, epoch: Epoch) -> Tensor | None:
        """Rows drawn in proportion to their DIH; all of them in the warm-up."""
        if self.learning_rate is not None:
            self.rate.fill_(self.learning_rate(epoch.number))
        k = epoch.number - self.warmup
        share = 1.0 if k <= 0 else max(self.bottom, self.decay**k)
        size = subset_size(share, self.n)
        self.share.fill_(share)
        return None if size == self.n else draw(self.weights.log(), size, epoch.generator("dih", self.dih.device))

    def weigh(self, step: Step) -> Tensor:
        """The average; the losses or predictions of the rows are noted for their DIH."""
        if len(step.losses):
            self.observe(_correct(step) if self.hardness == "flip" else step.losses, step.index)
        return step.uniform()

    def observe(self, values: Tensor, index: Tensor) -> None:
        """Updates the DIH of some rows.

        Args:
            values: (B,) losses; for ``"flip"`` 1 where the prediction is right and 0 where not.
            index: (B,) their rows.
        """
        instant = values.detach().to(self.dih.dtype)
        if self.hardness != "loss":
            last = self.previous[index]
            self.previous[index] = instant
            instant = (instant - last).abs()  # +inf, unknown, on the first visit
        self.dih[index] = update_hardness(self.dih[index], instant / self.rate, self.gamma)

    def report(self) -> Mapping[str, Any]:
        """The share in use."""
        return {"share": self.share}


def _correct(step: Step) -> Tensor:
    logits, y = step.logits, step.batch.y
    fits = isinstance(logits, Tensor) and logits.ndim == 2 and isinstance(y, Tensor) and y.shape == logits.shape[:1]
    if not fits or y.is_floating_point():
        raise TypeError(
            "hardness='flip' needs outputs (B, classes) and targets (B,) of class numbers, and this step has "
            f"{_kind(logits)} and {_kind(y)}; use 'loss' or 'change'"
        )
    return logits.detach().argmax(1) == y


def _kind(value: Any) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


register(
    "dihcl",
    DIHCL,
    "fewer and fewer rows, drawn by how hard they have been over the run",
    when="Labels are clean and epochs are dear: it drops what is learned. Not where labels are wrong: they stay hard.",
    cost="No pass; fewer steps after the warm-up; 9 bytes a sample, 17 for 'change' and 'flip'.",
)
