"""EfficientTrain: small, low-frequency, weakly augmented images first; full images later."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..core import Batch, Epoch, Method, checks, distributed
from ..functional.frequency import augment as standard_augment
from ..functional.frequency import bandwidth, growing_magnitude, low_frequency_crop, low_pass
from .registry import register

__all__ = ["EfficientTrain"]

Augment = Callable[[Tensor, float, torch.Generator], Tensor]
PAPER_STAGES = ((0.6, 160 / 224), (0.8, 192 / 224))


class EfficientTrain(Method):
    r"""EfficientTrain: crops in the Fourier domain, and augmentation that grows.

    In epoch k of T, images of H x W become B x B ones that hold exactly the lowest frequencies (low-frequency
    cropping), with B / H = 5/7 for the first 60 % of the run, 6/7 until 80 %, and the whole image afterwards: the
    stages of the paper. The images are really smaller: a fully convolutional network processes 65 % of the pixels over
    a run. Before the crop they are augmented with a magnitude that grows linearly from 0 to its maximum. Measuring and
    evaluation see whole images.

    The paper's augmentation is RandAug; here it is a small set of tensor operations for any scale
    (``functional.frequency.augment``), or ``augment``. With torchvision, ``functional.frequency.RandAugment`` and
    ``magnitude=0.9`` are the paper's. Augmentation by the data set is kept.

    Args:
        epochs: T, the epochs of the run.
        stages: (end as a share of the run, share of the side), in order; the whole image afterwards. Sides are rounded
            to even numbers, which networks that halve their maps prefer.
        magnitude: The last epoch's magnitude in [0, 1]; 0 turns augmentation off.
        augment: ``augment(x, magnitude, generator) -> x``, instead of the library's operations.
        keep_size: Keep the image's size and only filter it, for networks that cannot take smaller images; saves no
            computation.

    Example:
        >>> method = EfficientTrain(epochs=10, magnitude=0)
        >>> batch = Batch(torch.rand(4, 3, 32, 32), torch.zeros(4), torch.arange(4))
        >>> method.view(nn.Identity(), batch).x.shape
        torch.Size([4, 3, 22, 22])

    Reference:
        Wang et al., EfficientTrain: Exploring Generalized Curriculum Learning for Training Visual Backbones, ICCV 2023.
    """

    shown: Tensor

    def __init__(
        self,
        epochs: int,
        stages: Sequence[tuple[float, float]] = PAPER_STAGES,
        magnitude: float = 1.0,
        augment: Augment = standard_augment,
        keep_size: bool = False,
    ) -> None:
        super().__init__()
        self.epochs = checks.whole("epochs", epochs, what="the number of epochs of the run")
        checks.real("magnitude", magnitude, "[0, 1]")
        pairs = [stage for stage in stages if isinstance(stage, tuple | list) and len(stage) == 2]
        growing = all(list(c) == sorted(c) and 0 < c[0] <= c[-1] <= 1 for c in zip(*pairs, strict=True))
        if len(pairs) != len(stages) or not growing:
            raise ValueError(f"stages must be growing (share of the run, share of the side) in (0, 1], got {stages!r}")
        self.stages, self.magnitude = tuple(stages), magnitude
        self.augment, self.keep_size = augment, keep_size
        self.register_buffer("shown", torch.zeros(2, dtype=torch.float64))
        self._accepted: set[tuple[int, int]] = set()  # sizes that the network accepts, checked once per run

    def plan(self, epoch: Epoch) -> None:
        """Stores the bandwidth and the magnitude for the report; every row is visited."""
        self.shown.copy_(torch.tensor([self._share(epoch.number), self._magnitude(epoch.number)], dtype=torch.float64))

    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """The batch augmented and cropped to this epoch's bandwidth."""
        share, magnitude = self._share(batch.epoch), self._magnitude(batch.epoch)
        if (share == 1 and magnitude == 0) or not len(batch.index):
            return batch
        x = _images(batch.x)
        places = isinstance(batch.y, Mapping | list | tuple) or (isinstance(batch.y, Tensor) and batch.y.ndim > 2)
        if places and (magnitude > 0 or not self.keep_size):
            raise TypeError(
                "EfficientTrain crops and augments images, but targets that belong to positions (masks, boxes) "
                "would no longer fit; pass keep_size=True and magnitude=0.0"
            )
        if magnitude > 0:
            x = self.augment(x, magnitude, batch.generator("efficient-train", x.device))
        height, width = (side if share == 1 else max(2, 2 * round(share * side / 2)) for side in x.shape[-2:])
        height, width = min(height, x.shape[-2]), min(width, x.shape[-1])
        if self.keep_size:
            return batch.with_(x=low_pass(x, height, width))
        small = batch.with_(x=low_frequency_crop(x, height, width))
        self._try(model, small, tuple(x.shape[-2:]))
        return small

    def report(self) -> Mapping[str, Any]:
        """The bandwidth as a share of the side, and the magnitude of the augmentation."""
        return {"bandwidth": self.shown[0], "magnitude": self.shown[1]}

    def _share(self, epoch: int) -> float:
        return bandwidth(epoch, self.epochs, self.stages)

    def _magnitude(self, epoch: int) -> float:
        return growing_magnitude(epoch, self.epochs, self.magnitude)

    def _try(self, model: nn.Module, batch: Batch, full: tuple[int, ...]) -> None:
        """Runs two images of a new size through the network, to raise a clear error if it cannot take them."""
        size = (batch.x.shape[-2], batch.x.shape[-1])
        if size in self._accepted or size == full or batch.task is None:
            return
        net = distributed.unwrapped(model)
        try:
            with torch.no_grad(), distributed.evaluating(net):
                batch.task.forward(net, batch.x[:2])
        except (RuntimeError, AssertionError, ValueError) as error:
            raise ValueError(
                f"{type(net).__name__} does not take images of {size[0]}x{size[1]}, to which EfficientTrain crops "
                f"those of {full[0]}x{full[1]}: {error}. Pass keep_size=True (filtered images of the full size, no "
                "time saved), or use a network that pools its last maps globally."
            ) from error
        self._accepted.add(size)


def _images(x: Any) -> Tensor:
    if not isinstance(x, Tensor) or x.ndim != 4 or not x.is_floating_point():
        kind = checks.describe(x)
        raise TypeError(f"EfficientTrain needs floating-point images of shape (B, C, H, W), but this batch has {kind}")
    return x


register(
    "efficient-train",
    EfficientTrain,
    "low-frequency, weakly augmented images first, full images later",
    when="Image networks that take any size: the same data in less time. With keep_size=True any network, no saving.",
    cost="Saves time: 65 % of the pixels over a run; two Fourier transforms of each image.",
)
