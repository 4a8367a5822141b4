"""CIFAR-10 in its official binary form, held whole on a device and augmented there."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..core import derive
from .arrays import Arrays

__all__ = ["Images", "load_cifar10"]

ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
FOLDER = "cifar-10-batches-bin"
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
TRAIN = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
}
TEST = {"test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d"}


def load_cifar10(folder: str | Path, seed: int = 0) -> dict[str, tuple[Tensor, Tensor]]:
    """CIFAR-10, with a tenth of the training images split off for validation as the paper does.

    Args:
        folder: Where ``cifar-10-batches-bin`` lies. Files are checked against the published md5 sums.
        seed: The split is a function of it.

    Returns:
        ``{"train": (x, y), "valid": ..., "test": ...}`` with x (n, 3, 32, 32) uint8 and y (n,) int64: 45,000, 5,000 and
        10,000 images.
    """
    x, y = _read(Path(folder), TRAIN)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(derive(seed, "split")))
    valid, train = order[: len(x) // 10], order[len(x) // 10 :]
    return {"train": (x[train], y[train]), "valid": (x[valid], y[valid]), "test": _read(Path(folder), TEST)}


def _read(folder: Path, files: dict[str, str]) -> tuple[Tensor, Tensor]:
    parts = []
    for name, expected in files.items():
        path = folder / FOLDER / name
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing; get {ADDRESS} and unpack it into {folder}")
        content = path.read_bytes()
        if hashlib.md5(content, usedforsecurity=False).hexdigest() != expected:
            raise ValueError(f"{path} is damaged: its md5 sum is not the published one; get {ADDRESS} again")
        parts.append(np.frombuffer(content, np.uint8).reshape(-1, 3073))
    rows = np.concatenate(parts)
    return torch.from_numpy(rows[:, 1:].reshape(-1, 3, 32, 32).copy()), torch.from_numpy(rows[:, 0].astype(np.int64))


class Images(Arrays):
    """uint8 images that become normalised floats when a batch is taken; training batches are cropped and flipped.

    The crop is a random 32x32 window of the image padded by ``padding`` black pixels, the flip left to right with
    probability one half, both drawn on the images' device.

    Args:
        x: (N, 3, H, W) uint8 images.
        y: (N,) targets.
        padding: Black pixels on each side before the crop.
    """

    def __init__(self, x: Tensor, y: Tensor, padding: int = 4) -> None:
        super().__init__(x, y, augment=self._augment)
        self.padding = padding
        self._mean = torch.tensor(MEAN, device=x.device).view(1, 3, 1, 1) * 255
        self._std = torch.tensor(STD, device=x.device).view(1, 3, 1, 1) * 255

    def batch(self, index: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """The rows of ``index`` as floats, augmented when there is a generator to do it with."""
        x, y = super().batch(index, generator)
        # Convolutions and pooling want the channels last: a pass over images as they lie takes twice as long on a CPU.
        return (x.to(torch.float32, memory_format=torch.channels_last) - self._mean) / self._std, y

    def _augment(self, x: Tensor, generator: torch.Generator) -> Tensor:
        size, height, width = len(x), *x.shape[2:]
        padded = torch.nn.functional.pad(x, [self.padding] * 4)
        shift = torch.randint(0, 2 * self.padding + 1, (2, size, 1), generator=generator, device=x.device)
        flip = torch.rand(size, 1, generator=generator, device=x.device) < 0.5
        rows = shift[0] + torch.arange(height, device=x.device)
        columns = torch.arange(width, device=x.device)
        columns = shift[1] + torch.where(flip, width - 1 - columns, columns)
        image = torch.arange(size, device=x.device)[:, None, None]
        # Advanced indices around the channel slice come first: (B, H, W, 3).
        return padded[image, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
