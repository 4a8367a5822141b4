"""CIFAR-10 and CIFAR-100 in their official binary form, held in memory on a device and augmented there."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...data import Arrays
from .splits import split

__all__ = ["CLASSES", "Images", "load_cifar10", "load_cifar100"]

ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
FOLDER = "cifar-10-batches-bin"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
TRAIN = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
}
TEST = {"test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d"}

ADDRESS_100 = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"
MD5_100 = "03b5dce01913d631647c71ecec9e9cb8"  # of the archive; none is published for its files
FOLDER_100 = "cifar-100-binary"
OF_EACH_100 = {"train.bin": 500, "test.bin": 100}  # images of each class
MEAN_100, STD_100 = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)

Parts = dict[str, tuple[Tensor, Tensor]]


def load_cifar10(folder: str | Path, seed: int = 0) -> Parts:
    """CIFAR-10, with a tenth of the training images split off for validation as in the paper.

    Args:
        folder: The folder of ``cifar-10-batches-bin``, or that folder itself. Files are checked against the published
            md5 sums.
        seed: The split is a function of it.

    Returns:
        ``{"train": (x, y), "valid": ..., "test": ...}`` with x (n, 3, 32, 32) uint8 and y (n,) int64: 45,000, 5,000 and
        10,000 images.
    """
    return _parts(_read(Path(folder), TRAIN), _read(Path(folder), TEST), seed)


def load_cifar100(folder: str | Path, seed: int = 0) -> Parts:
    """CIFAR-100 with its fine labels, split as ``load_cifar10`` does.

    Args:
        folder: The folder of ``cifar-100-binary``, or of the official ``cifar-100-binary.tar.gz``, which is read
            directly and checked against the published md5 sum. For unpacked files, which have no published sums, size
            and class balance are checked.
        seed: The split is a function of it.

    Returns:
        As ``load_cifar10``, with labels in range(100).
    """
    return _parts(_read_100(Path(folder), "train.bin"), _read_100(Path(folder), "test.bin"), seed)


def _parts(train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], seed: int) -> Parts:
    x, y = train
    rows = split(len(x), seed)
    return {"train": (x[rows["train"]], y[rows["train"]]), "valid": (x[rows["valid"]], y[rows["valid"]]), "test": test}


def _read(folder: Path, files: dict[str, str]) -> tuple[Tensor, Tensor]:
    parts = []
    for name, expected in files.items():
        path = (folder if (folder / name).is_file() else folder / FOLDER) / name
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing; get {ADDRESS} and unpack it into {folder}")
        content = path.read_bytes()
        if hashlib.md5(content, usedforsecurity=False).hexdigest() != expected:
            raise ValueError(f"{path} is damaged: its md5 sum is not the published one; get {ADDRESS} again")
        parts.append(content)
    return _images(b"".join(parts), labels=1)


def _read_100(folder: Path, name: str) -> tuple[Tensor, Tensor]:
    of_each = OF_EACH_100[name]
    path, archive = folder / FOLDER_100 / name, folder / f"{FOLDER_100}.tar.gz"
    path = folder / name if (folder / name).is_file() else path
    if path.is_file():
        content = path.read_bytes()
    elif archive.is_file():
        path, content = archive, _member(archive, f"{FOLDER_100}/{name}")
    else:
        raise FileNotFoundError(f"{path} is missing; get {ADDRESS_100} and put it, or what is in it, into {folder}")
    if len(content) != 100 * of_each * 3074:
        expected = 100 * of_each * 3074
        raise ValueError(f"{path} is damaged: {name} has {len(content)} bytes, not {expected}; get {ADDRESS_100} again")
    x, y = _images(content, labels=2)
    if y.max() > 99 or (y.bincount(minlength=100) != of_each).any():
        raise ValueError(
            f"{path} is damaged: {name} does not hold {of_each} images of each of 100 classes; get {ADDRESS_100} again"
        )
    return x, y


def _member(archive: Path, name: str) -> bytes:
    """A file of the official archive, after its md5 sum has been checked; nothing is unpacked to the disk."""
    with archive.open("rb") as file:
        if hashlib.file_digest(file, "md5").hexdigest() != MD5_100:
            raise ValueError(f"{archive} is damaged: its md5 sum is not the published one; get {ADDRESS_100} again")
    with tarfile.open(archive) as opened:
        member = opened.extractfile(name)
        if member is None:
            raise ValueError(f"{archive} holds no file {name}")
        return member.read()


def _images(content: bytes, labels: int) -> tuple[Tensor, Tensor]:
    """Rows of ``labels`` bytes, the last of which is the class, and 3,072 bytes of an image."""
    rows = np.frombuffer(content, np.uint8).reshape(-1, 3072 + labels)
    x = rows[:, labels:].reshape(-1, 3, 32, 32).copy()
    return torch.from_numpy(x), torch.from_numpy(rows[:, labels - 1].astype(np.int64))


class Images(Arrays):
    """uint8 images, converted to normalised floats per batch; training batches are cropped and flipped.

    The crop is a random 32x32 window of the image padded by ``padding`` black pixels, the flip left to right with
    probability one half, both drawn on the images' device.

    Args:
        x: (N, 3, H, W) uint8 images.
        y: (N,) targets.
        padding: Black pixels on each side before the crop.
        mean: Of each channel, in [0, 1]; CIFAR-10's by default.
        std: Of each channel.
    """

    def __init__(
        self, x: Tensor, y: Tensor, padding: int = 4, mean: Sequence[float] = MEAN, std: Sequence[float] = STD
    ) -> None:
        super().__init__(x, y, augment=self._augment)
        self.padding = padding
        self._mean = torch.tensor(mean, device=x.device).view(1, 3, 1, 1) * 255
        self._std = torch.tensor(std, device=x.device).view(1, 3, 1, 1) * 255

    def batch(self, index: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """The rows of ``index`` as floats, augmented if there is a generator."""
        x, y = super().batch(index, generator)
        # Channels last, because convolutions and pooling are twice as fast with it on a CPU.
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
