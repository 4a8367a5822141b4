"""Selective-Backprop: trains more often on rows of high loss, by their rank among recent losses."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import Step, checks, distributed
from ..functional.selection import percentile, row_uniform, selection_probability
from ._base.chosen import Chosen, Scope
from .registry import register

__all__ = ["SelectiveBackprop"]


class SelectiveBackprop(Chosen):
    r"""Selective-Backprop: a row is trained on with probability :math:`CDF_R(L_i)^\beta`.

    The CDF is the share of the last R losses, those of the batch among them, that are smaller. The loss of a batch is
    the average over the rows drawn; a batch without drawn rows changes nothing. The first epoch trains on all rows, as
    in the authors' code.

    Differences from the paper: there drawn rows are gathered until they fill a batch, and only these get a second pass
    with gradients, which saves time. Here the others have weight zero, so ``scope="batch"`` saves nothing.
    ``scope="epoch"`` draws once an epoch, by the CDF over all rows, and does save steps: it is close to the paper's
    Stale-SB, which keeps losses for some epochs. A batch then has fewer effective rows: choose the learning rate
    accordingly.

    Args:
        n: Rows of the training set.
        beta: The selectivity: 1 keeps about half of the rows, 2 a third, 3 a quarter, which is the authors' default. 0
            is plain training.
        history: R, the number of recent losses; the authors' 1024. Not used by ``scope="epoch"``.
        scope: ``"batch"`` draws in every batch, ``"epoch"`` once an epoch.
        warmup: Epochs of plain training first; the authors' 1.

    Example:
        >>> from torchcurriculum import Batch
        >>> method = SelectiveBackprop(4, beta=0.0, warmup=0)
        >>> method.weigh(Step(None, Batch(None, None, torch.arange(4)), None, torch.rand(4)))
        tensor([0.2500, 0.2500, 0.2500, 0.2500], dtype=torch.float64)

    Reference:
        Jiang et al., Accelerating Deep Learning by Focusing on the Biggest Losers, 2019.
    """

    losses: Tensor
    known: Tensor

    def __init__(self, n: int, beta: float = 3.0, history: int = 1024, scope: Scope = "batch", warmup: int = 1) -> None:
        super().__init__(n, scope, warmup)
        checks.real("beta", beta, "[0, inf)", "0 is plain training")
        self.beta, self.history = beta, checks.whole("history", history, what="a number of losses")
        self.register_buffer("losses", torch.full((self.history,), math.inf, dtype=torch.float64))
        self.register_buffer("known", torch.zeros((), dtype=torch.float64))

    def choose(self, losses: Tensor, index: Tensor, step: Step | None) -> Tensor:
        """Draws rows by their probability, after adding the batch to the history."""
        if step is None:
            cdf = percentile(losses, losses, losses.isfinite().sum())
        else:
            # In row order, so that the history does not depend on how a batch was split.
            everyone = distributed.gather_batch(losses, index)
            self.losses.copy_(torch.cat([self.losses, everyone])[-self.history :])
            self.known.copy_((self.known + len(everyone)).clamp_max(self.history))
            cdf = percentile(losses, self.losses, self.known)
        return row_uniform(index, self.salt) < selection_probability(cdf, self.beta)


register(
    "selective-backprop",
    SelectiveBackprop,
    "draws rows by the rank of their loss among recent ones, the highest most often",
    when="Large clean sets with many easy rows, and scope='epoch' to save steps. Not with wrong labels: their "
    "losses are the highest.",
    cost="scope='batch': a plain step, including gradients of unused rows. scope='epoch': one forward pass "
    "per epoch (measure='pass') or none ('running'), and a quarter of the steps with beta=3. No memory for each "
    "sample.",
)
