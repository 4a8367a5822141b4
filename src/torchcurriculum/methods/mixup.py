"""Standard mixup: train on convex combinations of two samples and of their losses."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..core import Batch, Method, Pair, checks
from ..functional.mixup import beta_sample
from .registry import register

__all__ = ["LARGEST_ALPHA", "Mixup", "mix", "partners"]

LARGEST_ALPHA = 1e6  # by then every share is one half to three digits


def partners(batch: Batch) -> Tensor:
    """(B,) positions of each row's partner: a random permutation of the batch, a function of the batch's seed."""
    order = torch.randperm(len(batch.index), generator=batch.generator("partners"))
    return order.to(batch.index.device, non_blocking=True)


def mix(batch: Batch, partner: Tensor, input_share: Tensor, label_share: Tensor) -> Batch:
    """The batch mixed with its partners: ``input_share`` of each input stays, ``label_share`` of each loss."""
    if not isinstance(batch.x, Tensor) or not batch.x.is_floating_point():
        kind = f"{batch.x.dtype} tensors" if isinstance(batch.x, Tensor) else type(batch.x).__name__
        raise TypeError(f"mixup averages inputs, which must be floating-point tensors, but this batch has {kind}")
    share = input_share.to(batch.x.dtype).view(-1, *[1] * (batch.x.ndim - 1))
    mixed = share * batch.x + (1 - share) * batch.x[partner]
    return batch.with_(x=mixed, pair=Pair(batch.y[partner], batch.index[partner], label_share))


class Mixup(Method):
    r"""mixup: :math:`\tilde x = \lambda x_i + (1-\lambda) x_j` with :math:`\lambda \sim \mathrm{Beta}(a, a)`.

    The loss is the same combination of the two losses on the mixed input; the user's loss function stays as it is.
    Every pair has its own coefficient; partners are a permutation of the batch.

    Args:
        alpha: The shape a > 0; 1 is uniform, small values barely mix.

    Reference:
        Zhang et al., mixup: Beyond Empirical Risk Minimization, ICLR 2018.
    """

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        checks.real("alpha", alpha, f"(0, {LARGEST_ALPHA:g}]")
        self.alpha = alpha

    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """The mixed batch."""
        device = batch.x.device if isinstance(batch.x, Tensor) else torch.device("cpu")
        shape = torch.full((len(batch.index),), float(self.alpha), dtype=torch.float64, device=device)
        share = beta_sample(shape, shape, batch.generator("mixup", device))
        return mix(batch, partners(batch), share, share)


register(
    "mixup",
    Mixup,
    "convex combinations of two samples and their losses",
    when="Inputs that can be averaged (images, audio, features) and some wrong labels; it costs confidence.",
    cost="No extra pass; one more batch in memory.",
)
