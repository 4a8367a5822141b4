"""CBM: masks salient patches of the images, increasingly many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..core import Batch, Epoch, Method, checks
from ..functional.masking import SCHEDULES, Schedule, mask_patches, masking_ratio
from .registry import register

__all__ = ["CBM"]


class CBM(Method):
    r"""Curriculum by masking: a share :math:`r_k` of each image's patches is set to zero, salient ones first.

    An image is a grid of patches; patch i is masked with a probability proportional to its mean gradient magnitude
    :math:`m_i` (Sobel), without replacement, until :math:`\lfloor r_k g^2 \rfloor` of the :math:`g^2` patches are.
    The ratio grows to ``ratio``; in ``"linear-repeat"``, the paper's choice, repeatedly: 1, 2, 3, 4 and 6 of 16
    patches in the five epochs of a cycle, as in the authors' code. Masks are drawn again in each epoch.

    One difference: salience is computed from the images as loaded, with repeated border pixels. The authors use the
    salience of the images before augmentation, with reflected borders.

    Args:
        epochs: T, the epochs of the run.
        ratio: The largest share of masked patches, in [0, 1]; the paper's 0.4 for CIFAR. 0 is plain training.
        grid: Patches along each side; the paper's 4.
        schedule: ``"linear-repeat"``, ``"linear"``, ``"log"`` or ``"exp"``.
        cycle: Epochs of a cycle of ``"linear-repeat"``; the paper's 5, for any length of the run.

    Example:
        >>> method = CBM(epochs=5, schedule="linear")
        >>> batch = Batch(torch.ones(2, 3, 8, 8), torch.zeros(2), torch.arange(2), epoch=5)
        >>> method.view(nn.Identity(), batch).x.mean()                       # 6 of 16 patches are masked
        tensor(0.6250)

    Reference:
        Jarca, Croitoru and Ionescu, CBM: Curriculum by Masking, ECAI 2024.
    """

    masked: Tensor

    def __init__(
        self, epochs: int, ratio: float = 0.4, grid: int = 4, schedule: Schedule = "linear-repeat", cycle: int = 5
    ) -> None:
        super().__init__()
        self.epochs = checks.whole("epochs", epochs, what="the number of epochs of the run")
        checks.real("ratio", ratio, "[0, 1]", "a share of the patches")
        self.grid = checks.whole("grid", grid, 2, "the number of patches along a side")
        checks.one_of("schedule", schedule, SCHEDULES)
        self.cycle = checks.whole("cycle", cycle, 2, "a number of epochs")
        self.ratio, self.schedule = ratio, schedule
        self.register_buffer("masked", torch.zeros((), dtype=torch.float64))

    def plan(self, epoch: Epoch) -> None:
        """Stores the share of masked patches for the report; every row is visited."""
        self.masked.fill_(self._ratio(epoch.number))

    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """The batch with salient patches masked."""
        x, ratio = batch.x, self._ratio(batch.epoch)
        if ratio == 0 or not len(batch.index):
            return batch
        if not isinstance(x, Tensor) or x.ndim != 4 or not x.is_floating_point():
            kind = checks.describe(x)
            raise TypeError(f"CBM masks floating-point images of shape (B, C, H, W), but this batch has {kind}")
        if min(x.shape[-2:]) < self.grid:
            raise ValueError(f"images of {x.shape[-2]}x{x.shape[-1]} have no {self.grid} patches along a side")
        return batch.with_(x=mask_patches(x, ratio, self.grid, batch.generator("cbm", x.device)))

    def report(self) -> Mapping[str, Any]:
        """The share of masked patches."""
        return {"masked": self.masked}

    def _ratio(self, epoch: int) -> float:
        return masking_ratio(epoch, self.epochs, self.ratio, self.schedule, self.cycle)


register(
    "cbm",
    CBM,
    "masks salient patches of the images, increasingly many",
    when="Images, and a network that relies on a few patches; a regulariser as much as a curriculum.",
    cost="No extra pass; the gradient of each image.",
)
