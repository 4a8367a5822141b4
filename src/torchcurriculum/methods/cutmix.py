"""CutMix: a box of another image in each image, and its loss by the share of the pixels."""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor, nn

from ..core import Batch, Method, Pair, checks
from ..functional.mixup import box_masks
from .mixup import LARGEST_ALPHA, Per, draw_shares, partners
from .registry import register

__all__ = ["CutMix"]


class CutMix(Method):
    r"""CutMix: a box of image j replaces that part of image i; the loss is :math:`\lambda L_i + (1-\lambda) L_j`.

    :math:`\lambda \sim \mathrm{Beta}(a, a)` gives the size of the box, its centre is uniform. Lambda is then the share
    of pixels that really stayed, since a box may extend over the edge.

    Args:
        alpha: The shape a > 0; the authors' 1 is uniform.
        probability: The share of batches that are mixed: the authors' 1 for ImageNet, 0.5 for CIFAR; 0 is vanilla.
        per: ``"batch"`` draws one box for the whole batch (of each rank), as the authors' code does, ``"pair"`` one for
            every pair.

    Example:
        >>> batch = Batch(torch.arange(2.0).view(2, 1, 1, 1).expand(2, 1, 4, 4), torch.arange(2), torch.arange(2))
        >>> mixed = CutMix().view(nn.Identity(), batch)
        >>> mixed.x.shape, bool((mixed.pair.share == (mixed.x == batch.x).double().mean((1, 2, 3))).all())
        (torch.Size([2, 1, 4, 4]), True)

    Reference:
        Yun et al., CutMix: Regularization Strategy to Train Strong Classifiers with Localizable Features, ICCV 2019.
    """

    def __init__(self, alpha: float = 1.0, probability: float = 1.0, per: Per = "batch") -> None:
        super().__init__()
        checks.real("alpha", alpha, f"(0, {LARGEST_ALPHA:g}]")
        checks.real("probability", probability, "[0, 1]")
        checks.one_of("per", per, get_args(Per))
        self.alpha, self.probability, self.per = alpha, probability, per

    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """The batch with boxes of its partners."""
        x = batch.x
        if not isinstance(x, Tensor) or x.ndim != 4:
            raise TypeError(f"CutMix cuts boxes out of images (B, C, H, W), but this batch has {checks.describe(x)}")
        if not isinstance(batch.y, Tensor) or batch.y.ndim > 2:
            kind = checks.describe(batch.y)
            raise TypeError(f"CutMix mixes the losses of whole images, but these targets belong to positions: {kind}")
        draws = batch.generator("cutmix")
        if not len(batch.index) or float(torch.rand(1, generator=draws)) >= self.probability:
            return batch
        sizes = torch.tensor(x.shape[-2:])
        places = torch.rand(len(x) if self.per == "pair" else 1, 2, generator=draws, dtype=torch.float64)
        centre = (places * sizes).long().expand(len(x), 2).to(x.device)
        inside = box_masks(draw_shares(batch, self.alpha, self.per), centre, x.shape[-2], x.shape[-1])
        partner, stays = partners(batch), 1 - inside.double().mean((1, 2))
        mixed = torch.where(inside.unsqueeze(1), x[partner], x)
        return batch.with_(x=mixed, pair=Pair(batch.y[partner], batch.index[partner], stays))


register(
    "cutmix",
    CutMix,
    "a box of another image in each image, and its loss by the share of the pixels",
    when="Images whose class shows in their parts (photographs of objects); it lowers confidence, like mixup.",
    cost="No extra pass; one more batch in memory.",
)
