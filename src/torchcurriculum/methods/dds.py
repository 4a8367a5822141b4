"""DDS: a scorer that learns to prefer samples whose gradients agree with a development set's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..core import Epoch, Method, Step, checks
from ..functional.meta import score_gradient
from ._base.meta_set import MetaSet, rate_now
from ._base.side_net import Perceptron, SideNet
from .registry import register

__all__ = ["DDS"]


class DDS(Method):
    r"""Differentiable data selection: weights :math:`p = \mathrm{softmax}(s_\psi(x))` over the batch.

    The reward of a sample is how its gradient agrees with that of the meta set after a step with these weights,
    :math:`r_i = \langle \nabla L_i(\theta), \nabla M(\theta - \eta \sum_j p_j \nabla L_j) \rangle`, an inner product
    from one forward-mode pass where the authors use a finite difference. The scorer ascends
    :math:`\frac1B \sum_i r_i \nabla_\psi \log p_i`.

    Differences from the paper: its scorer for images is a network like the model, on the input. Ours is a perceptron
    with 32 hidden units on the model's own detached outputs, because that works on any input and costs no pass; its
    scores start equal. ``net=scorer_like(model)`` is the paper's version. Its rewards come from a finite difference,
    ours are exact.

    Args:
        n: Rows of the training set.
        meta: The meta (development) set, ideally with verified labels: a pair (x, y) or a dataset (see
            ``MetaSet``). None holds out rows of the training set, which are then not trained on.
        meta_fraction: Share of rows held out; not used with ``meta``.
        meta_batch: Rows of a meta batch.
        virtual_lr: eta of the virtual step, ideally the learning rate of the model: a number, or a function called in
            each step (see ``MWNet``); 0 takes the meta gradient at theta and saves a backward pass.
        net: The scorer: ``forward(net, x) -> (B,)`` or ``(B, 1)``, for example
            ``methods.scorer_like(model)``; None makes the perceptron.
        lr: Learning rate of the scorer (Adam); 0 is vanilla with the perceptron.

    Reference:
        Wang et al., Optimizing Data Usage via Differentiable Rewards, ICML 2020.
    """

    reward: Tensor

    def __init__(
        self,
        n: int,
        meta: Any = None,
        meta_fraction: float = 0.1,
        meta_batch: int = 100,
        virtual_lr: float | Callable[[], float] = 0.01,
        net: nn.Module | None = None,
        lr: float = 1e-3,
    ) -> None:
        super().__init__()
        rate_now(virtual_lr, "[0, inf)")
        self.n, self.virtual_lr = checks.whole("n", n, what="the number of training rows"), virtual_lr
        self.meta_set = MetaSet(n, meta, meta_fraction, meta_batch)
        self.scorer = SideNet(Perceptron(bias=False) if net is None else net, lr)
        self.register_buffer("reward", torch.tensor(0.0, dtype=torch.float64))

    def plan(self, epoch: Epoch) -> Tensor | None:
        """Every row that is not in the meta set."""
        return self.meta_set.plan(epoch)

    def weigh(self, step: Step) -> Tensor:
        """The softmax of the scores over the batch; the scorer then takes its step."""
        scores = self.scorer.scores(step)
        weights, rate = step.normalise(scores.detach()), rate_now(self.virtual_lr, "[0, inf)")
        rewards = self.meta_set.agreement(step, rate * weights if rate else None)
        climb = score_gradient(rewards, weights, step.total) * step.uniform()
        self.scorer.descend(-(climb * scores).sum())
        self.reward.copy_(step.total((weights * rewards).sum()))
        return weights

    def report(self) -> Mapping[str, Any]:
        """The expected reward of the last batch."""
        return {"reward": self.reward}


register(
    "dds",
    DDS,
    "a scorer learns to prefer samples whose gradients agree with a meta set's",
    when="You have a small set from the distribution you care about (pass it as meta) and a broader training set.",
    cost="Per step a backward pass for the virtual step, a forward and backward pass over the meta batch and a "
    "forward-mode pass over the batch (about three forward passes). Without meta=, a tenth of the rows is not trained "
    "on. No memory per sample.",
)
