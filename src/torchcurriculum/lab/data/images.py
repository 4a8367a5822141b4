"""Images in files: read, cropped and resized by several threads when a batch is taken; folders of them by class."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...data import Rows
from .splits import split

__all__ = ["ImageFiles", "load_image_folder"]

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
FEWEST = 10  # images that can be split 8:1:1
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm")
Files = tuple[list[Path], Tensor]


class ImageFiles(Rows):
    """Images in files. Training batches are random crops (8 to 100 % of the area, 3:4 to 4:3), flipped half the time.

    Other batches are the middle of the image, seven eighths of its shorter side. What is drawn comes from the batch's
    generator alone, so it does not depend on the threads.

    Args:
        paths: The files.
        y: (N,) targets.
        size: Side of the images in a batch.
        threads: How many read at once; by default one for each core, at most 16.
    """

    def __init__(self, paths: Sequence[Path], y: Tensor, size: int = 224, threads: int | None = None) -> None:
        if len(paths) != len(y):
            raise ValueError(f"there are {len(paths)} files and {len(y)} targets")
        self.paths, self.y, self.size = list(paths), y, size
        self.names = [str(path) for path in self.paths]
        self.threads = threads or min(16, os.cpu_count() or 1)
        self._mean, self._std = (torch.tensor(values).view(1, 3, 1, 1) * 255 for values in (MEAN, STD))

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        x, y = self.batch(torch.tensor([row]))
        return x[0], y[0]

    def batch(self, index: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """The images of ``index`` as normalised floats, augmented when there is a generator to do it with."""
        paths = [self.paths[row] for row in index.tolist()]
        drawn = None if generator is None else torch.rand(len(paths), 5, generator=generator, device=generator.device)
        draws = [None] * len(paths) if drawn is None else drawn.cpu().tolist()
        with ThreadPoolExecutor(self.threads) as pool:
            pixels = np.stack(list(pool.map(self._read, paths, draws)))
        x = torch.from_numpy(pixels).to(self.y.device).permute(0, 3, 1, 2)
        return (x.float() - self._mean) / self._std, self.y[index.to(self.y.device)]

    def pictures(self, index: Tensor, size: int = 64) -> Tensor:
        """The images of ``index`` as pictures to look at: (M, size, size, 3) uint8."""
        chosen = ImageFiles([self.paths[row] for row in index.tolist()], index, size)
        return torch.from_numpy(np.stack([chosen._read(path, None) for path in chosen.paths]))

    def _read(self, path: Path, draws: list[float] | None) -> np.ndarray:
        image = _pillow()
        try:
            with image.open(path) as opened:
                whole = _in_eight_bits(opened, image)
            width, height = whole.size
            box = _middle(width, height) if draws is None else _crop(width, height, draws)
            made = np.asarray(whole.resize((self.size, self.size), image.Resampling.BILINEAR, box))
        except FileNotFoundError:
            raise FileNotFoundError(f"the image {path} is missing") from None
        except Exception as error:  # what damage raises inside Pillow is of every kind
            raise ValueError(f"{path} cannot be read as an image: {' '.join(str(error).split())[:120]}") from error
        return made[:, ::-1] if draws is not None and draws[4] < 0.5 else made


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("images are read by Pillow: pip install 'torchcurriculum[vision]'") from error
    return Image


def _in_eight_bits(opened: Any, image: Any) -> Any:
    """An opened image as RGB. Pillow's own conversion would clip deeper pixels to 0 and 255."""
    deep = opened.mode.startswith("I;16") or (opened.mode == "I" and opened.format in ("PNG", "PPM"))
    if deep:  # one channel of 16 bits; for three, Pillow takes the upper byte, too
        return image.fromarray((np.asarray(opened) >> 8).astype(np.uint8)).convert("RGB")
    if opened.mode in ("I", "F"):
        raise ValueError("its pixels have 32 bits, of an unknown range; convert it to 8 or 16 bits")
    opened.info.pop("transparency", None)  # it is dropped in any case, and with it Pillow warns
    return opened.convert("RGB")


def _middle(width: int, height: int) -> tuple[float, float, float, float]:
    side = 0.875 * min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def _crop(width: int, height: int, draws: list[float]) -> tuple[float, float, float, float]:
    """A random box from five numbers in [0, 1): area, shape, place, flip."""
    area = (0.08 + 0.92 * draws[0]) * width * height
    ratio = math.exp((2 * draws[1] - 1) * math.log(4 / 3))
    across, down = min(width, math.sqrt(area * ratio)), min(height, math.sqrt(area / ratio))
    left, top = draws[2] * (width - across), draws[3] * (height - down)
    return left, top, min(width, left + across), min(height, top + down)


def load_image_folder(folder: str | Path, seed: int = 0) -> tuple[dict[str, Files], list[str]]:
    """The user's own images: one folder for each class.

    Args:
        folder: With ``train``, ``valid`` (or ``val``) and ``test`` in it, each with one folder for each class; or with
            the folders of the classes themselves, which are then split 8:1:1. Without ``valid``, a tenth of ``train``
            is split off; without ``test``, ``valid`` takes its place.
        seed: The split is a function of it.

    Returns:
        ``{"train": (paths, y), "valid": ..., "test": ...}``, and the names of the classes, which are counted from 0.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; it should hold one folder of images for each class")
    if not (folder / "train").is_dir():
        classes = _classes(folder)
        paths, y = _files(folder, classes, whole=True)
        if len(y) < FEWEST:
            raise ValueError(f"{folder} holds {len(y)} images; to be split 8:1:1 there must be {FEWEST} at least")
        return {part: _rows(paths, y, rows) for part, rows in split(len(y), seed, 0.1, 0.1).items()}, classes
    classes = _classes(folder / "train")
    parts = {"train": _files(folder / "train", classes, whole=True)}
    valid = next((folder / name for name in ("valid", "val") if (folder / name).is_dir()), None)
    if valid is None:
        if len(parts["train"][1]) < FEWEST:
            words = f"there must be {FEWEST} at least, or a folder {folder / 'valid'}"
            raise ValueError(f"{folder / 'train'} holds {len(parts['train'][1])} images; {words}")
        rows = split(len(parts["train"][1]), seed)
        paths, y = parts["train"]
        parts = {"train": _rows(paths, y, rows["train"]), "valid": _rows(paths, y, rows["valid"])}
    else:
        parts["valid"] = _files(valid, classes)
    parts["test"] = _files(folder / "test", classes) if (folder / "test").is_dir() else parts["valid"]
    return parts, classes


def _rows(paths: list[Path], y: Tensor, rows: Tensor) -> Files:
    return [paths[row] for row in rows.tolist()], y[rows]


def _classes(folder: Path) -> list[str]:
    classes = sorted(_folders(folder))
    if len(classes) < 2:
        raise ValueError(f"{folder} holds {len(classes)} folders; there should be one for each class, at least two")
    return classes


def _folders(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")}


def _files(folder: Path, classes: list[str], whole: bool = False) -> Files:
    """The images of all classes; if they must be ``whole``, each class has some."""
    unknown = sorted(_folders(folder) - set(classes))
    if unknown:
        raise ValueError(f"{folder} has the class {unknown[0]!r}, which the training part has not")
    paths, labels = [], []
    for label, name in enumerate(classes):
        inside = folder / name
        found = sorted(inside.rglob("*")) if inside.is_dir() else []
        found = [path for path in found if path.suffix.lower() in SUFFIXES and path.is_file()]
        if whole and not found:
            words = f"each folder in {folder} is a class (results can go elsewhere, by --out)"
            raise ValueError(f"{inside} holds no images ({', '.join(SUFFIXES)}); {words}")
        paths += found
        labels += [label] * len(found)
    if not paths:
        raise ValueError(f"{folder} holds no images ({', '.join(SUFFIXES)})")
    return paths, torch.tensor(labels)
