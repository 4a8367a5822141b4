"""Dynamic instance hardness: fewer and fewer rows, those that have been hard during training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor

from ..core import Epoch, Method, Step, checks
from ..functional.dihcl import (
    beta_probabilities,
    exp_probabilities,
    hardness_probabilities,
    ucb_probabilities,
    update_hardness,
)
from ..functional.pacing import difficulty_order, subset_size
from ..functional.sampling import draw
from .registry import register

__all__ = ["DIHCL", "Hardness", "Policy"]

Hardness = Literal["loss", "change", "flip"]
Policy = Literal["rand", "exp", "beta", "ucb", "greedy"]
LEAST_CHANCE = 1e-8  # added to the probability by which "exp" divides, as in the authors' code
EPISODES = (0, 5, 10, 15, 25, 35, 55, 85, 135, 205)  # the authors' starts in the 295 epochs after the warm-up


class DIHCL(Method):
    r"""Curriculum by dynamic instance hardness (DIHCL): train on rows whose DIH is large.

    The DIH of a row is a running average of its instantaneous hardness a, updated when the row is trained on:
    :math:`r_{t+1}(i) = \gamma a_t(i) + (1-\gamma) r_t(i)` (Eq. 1). With eta_t the learning rate of epoch t and tau the
    row's last visit, a is (Eq. 2)

    - ``"loss"``: :math:`L_i / \eta_t`;
    - ``"change"``: the change of the loss since the last visit, over :math:`\sum_{t'=\tau}^{t-1} \eta_{t'}`;
    - ``"flip"``: whether the prediction went from right to wrong or back, over the same sum.

    After ``warmup`` epochs on everything, episode k (from 1) trains on :math:`\max(\text{bottom}, \text{decay}^k) N`
    rows with the average loss, drawn or chosen by ``policy``. Losses are those seen in training, without an extra pass.

    The sum ends at t - 1, as in the authors' code. Three parts of that code are not implemented: its episodes begin
    with a pass over the set, it sums or averages over all visits instead of Eq. 1, and it clips a change at 10.

    Args:
        n: Rows of the training set.
        decay: Factor of the share for each episode, the paper's 0.85.
        warmup: Epochs on all rows, shuffled; at least two give every row a change. The paper's 5; ``for_run`` takes
            fewer in a run of less than 20 epochs.
        hardness: ``"loss"``, ``"change"`` or ``"flip"`` (classification only).
        gamma: Weight of the new value in the average, the paper's 0.95.
        bottom: The smallest share, the paper's 0.2; 1 is plain training.
        learning_rate: The learning rate as a function of the epoch number (from 1). The paper's is cyclic. None means
            constant, so that a change is divided by the number of epochs since the last visit.
        episodes: The first epoch of each episode after the warm-up, in increasing order. ``for_run`` takes the authors'
            ten (6, 11, 16, 21, 31, 41, 61, 91, 141 and 211 of 300), scaled to the run. None makes every epoch one, as
            Algorithm 1 prints it.
        policy: ``"rand"`` draws in proportion to r; ``"exp"`` in proportion to :math:`\exp(\sqrt{2 \log n / n}\, r)`,
            and divides a by the probability of the draw; ``"beta"`` in proportion to a draw of Beta(r, 1 - r), for
            ``hardness="flip"``, whose r is at most 1; ``"ucb"``, which is only in the authors' code, in proportion to
            the exponential of an upper bound of r over its mean (``functional.dihcl.ucb_probabilities``);
            ``"greedy"`` takes the rows of largest r (Algorithm 1).
        horizon: T of ``"ucb"``, the epochs of the run, which ``for_run`` knows; no other policy has one.

    Attributes:
        dih: (N,) float64 DIH of the rows, +inf where unknown.
        weights: (N,) float64 probabilities that sum to one.

    Example:
        >>> method = DIHCL(3)
        >>> method.observe(torch.tensor([1.0, 3.0]), torch.tensor([0, 2]))
        >>> method.observe(torch.tensor([2.0]), torch.tensor([0]))              # 0.95 * 2 + 0.05 * 1
        >>> method.dih
        tensor([1.9500,    inf, 3.0000], dtype=torch.float64)

    Reference:
        Zhou et al., Curriculum Learning by Dynamic Instance Hardness, NeurIPS 2020.
    """

    dih: Tensor
    previous: Tensor
    visited_at: Tensor
    chance: Tensor
    visits: Tensor
    sharpness: Tensor
    rate: Tensor
    paid: Tensor
    share: Tensor

    def __init__(
        self,
        n: int,
        decay: float = 0.85,
        warmup: int = 5,
        hardness: Hardness = "loss",
        gamma: float = 0.95,
        bottom: float = 0.2,
        learning_rate: Callable[[int], float] | None = None,
        episodes: Sequence[int] | None = None,
        policy: Policy = "rand",
        horizon: int | None = None,
    ) -> None:
        super().__init__()
        self.n = n = checks.whole("n", n, what="the number of training rows")
        checks.one_of("hardness", hardness, get_args(Hardness))
        checks.one_of("policy", policy, get_args(Policy))
        for name, value in {"gamma": gamma, "decay": decay, "bottom": bottom}.items():
            checks.real(name, value, "(0, 1]")
        self.warmup = checks.whole("warmup", warmup, 0, "a number of epochs")
        self.hardness, self.gamma, self.learning_rate = hardness, gamma, learning_rate
        self.decay, self.bottom, self.policy = decay, bottom, policy
        if horizon is None and policy == "ucb":
            raise ValueError("policy='ucb' needs horizon, the epochs of the run")
        if horizon is not None and policy != "ucb":
            raise ValueError(f"policy={policy!r} would ignore horizon={horizon}")
        if policy == "beta" and (hardness != "flip" or learning_rate is not None):
            raise ValueError(
                "policy='beta' draws from Beta(r, 1 - r) and so needs r in [0, 1]: hardness='flip' without "
                f"learning_rate, got hardness={hardness!r}, learning_rate={learning_rate!r:.40}"
            )
        self.horizon = None if horizon is None else checks.whole("horizon", horizon)
        self.episodes = None if episodes is None else [checks.whole("episodes", start) for start in episodes]
        if self.episodes is not None and self.episodes != sorted(self.episodes):
            raise ValueError(f"episodes must be epochs in increasing order, got {self.episodes}")
        unknown = torch.full((n,), math.inf, dtype=torch.float64)
        self.add_rows("dih", unknown)
        if hardness != "loss":  # the last loss, or whether the last prediction was right
            self.add_rows("previous", unknown.clone())
            self.add_rows("visited_at", torch.zeros(n, dtype=torch.float64))
        if policy == "exp":
            self.register_buffer("chance", torch.ones(n, dtype=torch.float64))
        if policy == "ucb":
            self.add_rows("visits", torch.zeros(n, dtype=torch.float64))
            self.register_buffer("sharpness", torch.tensor(20.0, dtype=torch.float64))
        for name, start in {"rate": 1.0, "paid": 0.0, "share": 1.0}.items():
            self.register_buffer(name, torch.tensor(start, dtype=torch.float64))

    @classmethod
    def for_run(
        cls,
        n: int,
        epochs: int,
        warmup: int | None = None,
        episodes: Sequence[int] | None = None,
        policy: Policy = "rand",
        horizon: int | None = None,
        **options: Any,
    ) -> Self:
        """The paper's warm-up of five epochs and ten episodes of growing length."""
        warmup = min(5, max(2, epochs // 4)) if warmup is None else checks.whole("warmup", warmup, 0)
        if episodes is None:
            left = max(0, epochs - warmup)
            episodes = [warmup + 1 + math.floor(left * begin / 295 + 1e-9) for begin in EPISODES]
        horizon = epochs if policy == "ucb" and horizon is None else horizon
        return cls(n, warmup=warmup, episodes=episodes, policy=policy, horizon=horizon, **options)

    @property
    def weights(self) -> Tensor:
        """(N,) float64 probabilities of a draw, of ``"beta"`` their mean; equal while nothing is known."""
        if self.horizon is not None:
            return ucb_probabilities(self.dih, self.visits, self.horizon, float(self.sharpness))
        return exp_probabilities(self.dih) if self.policy == "exp" else hardness_probabilities(self.dih)

    def plan(self, epoch: Epoch) -> Tensor | None:
        """Rows drawn by their DIH, or those of the largest; all of them in the warm-up."""
        self.paid += self.rate  # the learning rates of the epochs before this one
        if self.learning_rate is not None:
            self.rate.fill_(self.learning_rate(epoch.number))
        share = max(self.bottom, self.decay ** self._episode(epoch.number))
        size = subset_size(share, self.n)
        self.share.fill_(share)
        if self.policy == "ucb":
            self.sharpness.fill_(max(1.0, 20 * 0.8 ** self._episode(epoch.number)))
        weights = self.weights
        if self.policy == "exp":
            self.chance.copy_(torch.ones_like(weights) if size == self.n else weights)
        if size == self.n:
            return None
        generator = epoch.generator("dih", self.dih.device)
        if self.policy == "beta":
            weights = beta_probabilities(self.dih, epoch.generator("beta", self.dih.device))
        if self.policy == "greedy":
            return difficulty_order(-weights, generator)[:size].sort().values
        return draw(weights.log(), size, generator)

    def weigh(self, step: Step) -> Tensor:
        """The average loss; stores the losses or predictions of the rows for their DIH."""
        if len(step.losses):
            self.observe(_correct(step) if self.hardness == "flip" else step.losses, step.index)
        return step.uniform()

    def observe(self, values: Tensor, index: Tensor) -> None:
        """Updates the DIH of some rows.

        Args:
            values: (B,) losses; for ``"flip"`` 1 where the prediction is right and 0 where not.
            index: (B,) their rows.
        """
        instant, rates = values.detach().to(self.dih.dtype), self.rate
        if self.hardness != "loss":
            last, since = self.previous[index], self.paid - self.visited_at[index]
            self.previous[index], self.visited_at[index] = instant, self.paid
            instant = (instant - last).abs()  # +inf, unknown, on the first visit
            rates = torch.where(since > 0, since, self.rate)  # if observed twice in an epoch
        if self.policy == "ucb":
            self.visits[index] += 1
        if self.policy == "exp":
            rates = rates * (self.chance[index] + LEAST_CHANCE)
        self.dih[index] = update_hardness(self.dih[index], instant / rates, self.gamma)

    def report(self) -> Mapping[str, Any]:
        """The share in use."""
        return {"share": self.share}

    def _episode(self, epoch: int) -> int:
        """The number of episodes begun, 0 in the warm-up."""
        if self.episodes is None or epoch <= self.warmup:
            return max(0, epoch - self.warmup)
        return sum(start <= epoch for start in self.episodes)


def _correct(step: Step) -> Tensor:
    logits, y = step.logits, step.batch.y
    fits = isinstance(logits, Tensor) and logits.ndim == 2 and isinstance(y, Tensor) and y.shape == logits.shape[:1]
    if not fits or y.is_floating_point():
        raise TypeError(
            "hardness='flip' needs outputs (B, classes) and targets (B,) of class numbers, but this step has "
            f"{checks.describe(logits)} and {checks.describe(y)}; use 'loss' or 'change'"
        )
    return logits.detach().argmax(1) == y


register(
    "dihcl",
    DIHCL,
    "fewer and fewer rows, drawn by how hard they have been over the run",
    when="Clean labels and a small budget: it drops rows that are learned. Not with wrong labels, which stay hard.",
    cost="No extra pass; fewer steps after the warm-up; 9 bytes per sample, 26 for 'change' and 'flip'.",
)
