"""Dynamic instance hardness: fewer and fewer rows, those that have been hard over the history of training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ..core import Epoch, Method, Step, ranks, total
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
        hardness: ``"loss"``, ``"change"`` or ``"flip"`` (classification only).
        gamma: Weight of the new value in the average.
        decay: Factor of the share for each epoch. By its name in ``build``, ``bottom`` is reached half-way through
            the epochs after the warm-up.
        bottom: The smallest share; 1 is plain training.
        warmup: Epochs on everything, shuffled; two at least give every row a change. By its name in ``build``, a
            tenth of the run.
        learning_rate: The learning rate as a function of the epoch number (from 1). The paper divides a by it because
            its schedule is cyclic; None does not divide.

    Attributes:
        dih: (N,) float64 DIH of the rows, +inf where unknown.
        weights: (N,) float64 probabilities that sum to one.

    Example:
        >>> method = DIHCL(3)
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
    touched: Tensor

    def __init__(
        self,
        n: int,
        hardness: Hardness = "loss",
        gamma: float = 0.9,
        decay: float = 0.85,
        bottom: float = 0.2,
        warmup: int = 10,
        learning_rate: Callable[[int], float] | None = None,
    ) -> None:
        super().__init__()
        _refuse_bad_knobs(n, hardness, gamma, decay, bottom, warmup)
        self.n, self.hardness, self.gamma, self.learning_rate = n, hardness, gamma, learning_rate
        self.decay, self.bottom, self.warmup = decay, bottom, warmup
        unknown = torch.full((n,), math.inf, dtype=torch.float64)
        self.register_buffer("dih", unknown)
        # The last loss, or whether the last prediction was right; the loss itself needs no memory.
        self.register_buffer("previous", unknown.clone() if hardness != "loss" else unknown[:0].clone())
        self.register_buffer("rate", torch.ones((), dtype=torch.float64))
        self.register_buffer("share", torch.ones((), dtype=torch.float64))
        # Which rows this rank wrote since the ranks last agreed.
        self.register_buffer("touched", torch.zeros(n, dtype=torch.bool), persistent=False)

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
        self.touched.index_fill_(0, index, True)  # assigning a number would make the host wait

    def sync(self) -> None:
        """Gives every rank the rows that the others wrote."""
        if ranks() == 1:
            return
        written = total(self.touched.to(torch.uint8)) > 0
        for state in (self.dih, self.previous):
            if len(state):
                state.copy_(torch.where(written, total(torch.where(self.touched, state, 0.0)), state))
        self.touched.zero_()

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


def _refuse_bad_knobs(n: int, hardness: str, gamma: float, decay: float, bottom: float, warmup: int) -> None:
    if not isinstance(n, int) or n < 1:
        raise ValueError(f"n must be the number of training rows, at least 1, got {n!r}")
    if hardness not in get_args(Hardness):
        raise ValueError(f"hardness must be 'loss', 'change' or 'flip', got {hardness!r}")
    for name, value in {"gamma": gamma, "decay": decay, "bottom": bottom}.items():
        if not 0 < value <= 1:
            raise ValueError(f"{name} must lie in (0, 1], got {value!r}")
    if not isinstance(warmup, int) or warmup < 0:
        raise ValueError(f"warmup must be a number of epochs, 0 or more, got {warmup!r}")


@register(
    "dihcl",
    DIHCL,
    "fewer and fewer rows, drawn by how hard they have been over the run",
    when="Labels are clean and epochs are dear: it drops what is learned. Not where labels are wrong: they stay hard.",
    cost="No pass; fewer steps after the warm-up; 9 bytes a sample, 17 for 'change' and 'flip'.",
)
def _dihcl(n: int, epochs: int, **options: Any) -> DIHCL:
    warmup, bottom = options.get("warmup", max(2, epochs // 10)), options.get("bottom", 0.2)
    half = max(1, (epochs - warmup) // 2)
    return DIHCL(n, **{"warmup": warmup, "decay": bottom ** (1 / half) if 0 < bottom <= 1 else 1.0, **options})
