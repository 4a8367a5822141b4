"""Standard mixup: train on convex combinations of two samples and of their losses."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from ..core import Batch, Method, Pair, checks
from ..functional.mixup import beta_sample
from .registry import register

__all__ = ["LARGEST_ALPHA", "Mixup", "Per", "draw_shares", "mix", "partners"]

Per = Literal["pair", "batch"]

LARGEST_ALPHA = 1e6  # where every share is 0.500


def partners(batch: Batch) -> Tensor:
    """(B,) positions of each row's partner: a random permutation of the batch, a function of the batch's seed."""
    order = torch.randperm(len(batch.index), generator=batch.generator("partners"))
    return order.to(batch.index.device, non_blocking=True)


def mix(batch: Batch, partner: Tensor, input_share: Tensor, label_share: Tensor) -> Batch:
    """The batch mixed with its partners: ``input_share`` of each input stays, ``label_share`` of each loss."""
    if not isinstance(batch.x, Tensor) or not batch.x.is_floating_point():
        kind = checks.describe(batch.x)
        raise TypeError(f"mixup averages inputs, so they must be floating-point tensors, but this batch has {kind}")
    if not isinstance(batch.y, Tensor):
        raise TypeError(f"mixup pairs rows with others' targets, which must be a tensor, not {type(batch.y).__name__}")
    share = input_share.to(batch.x.dtype).view(-1, *[1] * (batch.x.ndim - 1))
    mixed = share * batch.x + (1 - share) * batch.x[partner]
    return batch.with_(x=mixed, pair=Pair(batch.y[partner], batch.index[partner], label_share))


def draw_shares(batch: Batch, alpha: float, per: Per) -> Tensor:
    """(B,) draws of Beta(alpha, alpha), one for each row, or the same for all rows of this rank's batch."""
    device = batch.x.device if isinstance(batch.x, Tensor) else torch.device("cpu")
    size = len(batch.index) if per == "pair" else 1
    shape = torch.full((size,), float(alpha), dtype=torch.float64, device=device)
    return beta_sample(shape, shape, batch.generator("mixup", device)).expand(len(batch.index))


class Mixup(Method):
    r"""mixup: :math:`\tilde x = \lambda x_i + (1-\lambda) x_j` with :math:`\lambda \sim \mathrm{Beta}(a, a)`.

    The loss is the same combination of the two losses on the mixed input; the user's loss function is not changed.
    Partners are a permutation of the batch.

    Args:
        alpha: The shape a > 0; 1 is uniform, small values barely mix.
        per: ``"pair"`` draws a coefficient for every pair, ``"batch"`` one for the whole batch (of each rank), as the
            authors' code does.

    Reference:
        Zhang et al., mixup: Beyond Empirical Risk Minimization, ICLR 2018.
    """

    def __init__(self, alpha: float = 1.0, per: Per = "pair") -> None:
        super().__init__()
        checks.real("alpha", alpha, f"(0, {LARGEST_ALPHA:g}]")
        checks.one_of("per", per, get_args(Per))
        self.alpha, self.per = alpha, per

    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """The mixed batch."""
        share = draw_shares(batch, self.alpha, self.per)
        return mix(batch, partners(batch), share, share)


register(
    "mixup",
    Mixup,
    "convex combinations of two samples and their losses",
    when="Inputs that can be averaged (images, audio, features) and some wrong labels; it lowers confidence.",
    cost="No extra pass; one more batch in memory.",
)
