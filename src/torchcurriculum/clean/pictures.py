"""Pictures in files: class folders, training batches, and features for an audit."""

from __future__ import annotations

import functools
import io
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data import Rows
from .folders import class_files, has_parts, part_of, unlabelled_files
from .networks import feature_network
from .patches import SIDE, patch_features
from .userdata import Column, UserData, Watch, named_counts, number_classes

__all__ = ["SUFFIXES", "ImageFiles", "open_picture", "picture_parts", "read_pictures"]

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
NETWORK_SIDE = 224
DIMENSIONS = 256  # of the features
READ = 32  # pictures per read
SHOWN = 160  # the longer side of a preview
SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm")
Files = tuple[list[Path], Tensor]


class ImageFiles(Rows):
    """Images in files. Training batches are random crops (8 to 100 % of the area, 3:4 to 4:3), flipped half the time.

    Other batches are the middle of the image, seven eighths of its shorter side. Random draws use only the batch's
    generator, so they do not depend on the threads.

    Args:
        paths: The files.
        y: (N,) targets.
        size: Side of the images in a batch.
        threads: Number of reading threads; by default one for each core, at most 16.
    """

    def __init__(self, paths: Sequence[Path], y: Tensor, size: int = 224, threads: int | None = None) -> None:
        if len(paths) != len(y):
            raise ValueError(f"there are {len(paths)} files and {len(y)} targets")
        self.paths, self.y, self.size = list(paths), y, size
        self.names = [str(path) for path in self.paths]
        self.threads = threads or min(16, os.cpu_count() or 1)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        x, y = self.batch(torch.tensor([row]))
        return x[0], y[0]

    def batch(self, index: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """The images of ``index`` as normalised floats, augmented if there is a generator."""
        paths = [self.paths[row] for row in index.tolist()]
        drawn = None if generator is None else torch.rand(len(paths), 5, generator=generator, device=generator.device)
        draws = [None] * len(paths) if drawn is None else drawn.cpu().tolist()
        with ThreadPoolExecutor(self.threads) as pool:
            pixels = np.stack(list(pool.map(self._read, paths, draws)))
        return _normalised(torch.from_numpy(pixels).to(self.y.device)), self.y[index.to(self.y.device)]

    def pictures(self, index: Tensor, size: int = 64) -> Tensor:
        """Previews of the images of ``index``: (M, size, size, 3) uint8."""
        chosen = ImageFiles([self.paths[row] for row in index.tolist()], index, size)
        return torch.from_numpy(np.stack([chosen._read(path, None) for path in chosen.paths]))

    def _read(self, path: Path, draws: list[float] | None) -> np.ndarray:
        whole = open_picture(path)
        width, height = whole.size
        box = _middle(width, height) if draws is None else _crop(width, height, draws)
        made = np.asarray(whole.resize((self.size, self.size), _pillow().Resampling.BILINEAR, box))
        return made[:, ::-1] if draws is not None and draws[4] < 0.5 else made


def _normalised(pixels: Tensor) -> Tensor:
    """(B, 3, H, W) floats, as ImageNet's networks take them, from (B, H, W, 3) bytes."""
    mean, std = (torch.tensor(values, device=pixels.device).view(1, 3, 1, 1) * 255 for values in (MEAN, STD))
    return (pixels.permute(0, 3, 1, 2).float() - mean) / std


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("reading pictures needs Pillow: pip install 'torchcurriculum[clean]'") from error
    return Image


def open_picture(path: Path) -> Any:
    """A picture of any kind as RGB, rotated by its EXIF data, with transparency on white.

    Raises:
        FileNotFoundError: If it is missing.
        ValueError: If it cannot be read, with the reason.
    """
    image = _pillow()
    from PIL import ImageOps

    try:
        with image.open(path) as opened:
            return _in_eight_bits(ImageOps.exif_transpose(opened), opened.format, image)
    except FileNotFoundError:
        raise FileNotFoundError(f"the image {path} is missing") from None
    except Exception as error:  # Pillow raises many kinds of errors on damaged files
        why = " ".join(str(error).replace(f" {str(path)!r}", "").split())[:120]
        raise ValueError(f"{path} cannot be read as an image: {why}") from error


def _in_eight_bits(opened: Any, form: str | None, image: Any) -> Any:
    """An opened image as RGB. Pillow's own conversion would clip deeper pixels to 0 and 255."""
    deep = opened.mode.startswith("I;16") or (opened.mode == "I" and form in ("PNG", "PPM"))
    if deep:  # one channel of 16 bits; for three, Pillow also takes the upper byte
        return image.fromarray((np.asarray(opened) >> 8).astype(np.uint8)).convert("RGB")
    if opened.mode in ("I", "F"):
        raise ValueError("it has 32-bit pixels of unknown range; convert it to 8 or 16 bits")
    if opened.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in opened.info:
        above = opened.convert("RGBA")
        return image.alpha_composite(image.new("RGBA", above.size, "white"), above).convert("RGB")
    return opened.convert("RGB")


def _middle(width: int, height: int) -> tuple[float, float, float, float]:
    side = 0.875 * min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def _crop(width: int, height: int, draws: list[float]) -> tuple[float, float, float, float]:
    """A random crop from five numbers in [0, 1): area, aspect, position (2), flip."""
    area = (0.08 + 0.92 * draws[0]) * width * height
    ratio = math.exp((2 * draws[1] - 1) * math.log(4 / 3))
    across, down = min(width, math.sqrt(area * ratio)), min(height, math.sqrt(area / ratio))
    left, top = draws[2] * (width - across), draws[3] * (height - down)
    return left, top, min(width, left + across), min(height, top + down)


def picture_parts(folder: str | Path) -> tuple[dict[str, Files], list[str]]:
    """The user's pictures, one folder per class. Unreadable ones are left out with a warning.

    Args:
        folder: With ``train``, ``valid`` and ``test`` (or names as in ``folders.PARTS``) in it, each with one folder
            for each class; or with the folders of the classes themselves.

    Returns:
        ``{"train": (paths, y), ...}`` with the splits found, or ``"all"`` without any; and the class names, numbered
        from 0.
    """
    folder = Path(folder)
    parts: dict[str, list[tuple[Path, str]]] = {}
    found = class_files(folder, SUFFIXES)
    whole = has_parts(folder)
    good, bad = _readable(tuple((folder / name, *_stamp(folder / name)) for name, _ in found))
    others = unlabelled_files(folder, SUFFIXES)
    bad = bad + [f"{name}: {why}" for name, why in others if name.lower().endswith(SUFFIXES)]
    if bad:
        first = "; ".join(bad[:3])
        warnings.warn(f"{len(bad)} pictures in {folder} cannot be used and are left out: {first}", stacklevel=2)
    for (name, label), fine in zip(found, good, strict=True):
        part = part_of(name) if whole else "all"
        if fine:
            parts.setdefault(part, []).append((folder / name, label))
    classes = sorted({label for _, label in parts.get("train" if whole else "all", [])})
    if len(classes) < 2:
        raise ValueError(f"{folder} holds pictures of {len(classes)} classes; at least two are needed")
    unknown = sorted({label for held in parts.values() for _, label in held} - set(classes))
    if unknown:
        raise ValueError(f"{folder} has the class {unknown[0]!r}, which the training split lacks")
    number = {name: place for place, name in enumerate(classes)}
    return {
        part: ([path for path, _ in held], torch.tensor([number[label] for _, label in held]))
        for part, held in parts.items()
    }, classes


def _stamp(path: Path) -> tuple[int, int]:
    held = path.stat()
    return held.st_size, held.st_mtime_ns


@functools.lru_cache(maxsize=1)  # every run of a recipe calls it
def _readable(files: tuple[tuple[Path, int, int], ...]) -> tuple[list[bool], list[str]]:
    """Whether each file is a readable picture, and the reasons for those that are not."""

    def check(path: Path) -> str | None:
        try:
            open_picture(path)
        except (ValueError, OSError) as error:
            return str(error)
        return None

    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        reasons = list(pool.map(check, (path for path, *_ in files)))
    return [reason is None for reason in reasons], [reason for reason in reasons if reason is not None]


def read_pictures(
    folder: str | Path,
    features: str | None = None,
    strict: bool = False,
    watch: Watch = lambda what, done, total: None,
) -> UserData:
    """Reads a folder of pictures, with one folder for each class.

    Args:
        folder: The folder.
        features: A file of weights of a pretrained network, or the network's name; see ``feature_network``. By default
            EfficientNet-B0 from torch's cache, or else filters learnt from the pictures.
        strict: Whether a picture that cannot be read is an error.
        watch: Called as ``watch(what, done, total)``.

    Returns:
        One row per picture.
    """
    folder = Path(folder)
    network, how = feature_network(features)
    files, others = class_files(folder, SUFFIXES), unlabelled_files(folder, SUFFIXES, strict)
    side = SIDE if network is None else NETWORK_SIDE
    blocks, rows, skipped, done = [], [], [], 0
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        for start, made in _in_batches(pool, [folder / name for name, _ in files], side):
            for row, one in enumerate(made, start):
                if isinstance(one, str):
                    if strict:
                        raise ValueError(f"{one} (--strict)")
                    skipped.append((files[row][0], one.removeprefix(f"{folder / files[row][0]} ")))
            good = [row for row, one in enumerate(made, start) if not isinstance(one, str)]
            if good:
                pixels = np.stack([made[row - start] for row in good])
                blocks.append(pixels if network is None else _through(network, pixels))
                rows += good
            done += len(made)
            watch("reading pictures" if network is None else "looking at pictures", done, len(files))
    labels, classes, kept, notes = number_classes([files[row][1] for row in rows], str(folder))
    x = np.concatenate(blocks)[kept]
    x = patch_features(x, watch=watch) if network is None else x
    chosen = np.array(rows)[kept]
    small = [files[row][0] for row, keep in zip(rows, kept, strict=True) if not keep]
    skipped += [(name, "its class has fewer than 5 pictures") for name in small] + others
    names = [files[row][0] for row in chosen]
    columns = [Column("pictures", "picture", how), Column("folders", "label", named_counts(labels[kept], classes))]
    return UserData(
        "pictures", folder, labels[kept], classes, names, reduced(x), np.zeros(min(x.shape[1], DIMENSIONS), np.int64),
        chosen, columns, skipped, notes, {}, lambda row: _small(folder / names[row]),
    )  # fmt: skip


def _in_batches(pool: ThreadPoolExecutor, paths: list[Path], side: int) -> Iterator[tuple[int, list[Any]]]:
    """Yields (first row, pixels or the reason for failing), a batch at a time."""
    resample = _pillow().Resampling.BILINEAR

    def read(path: Path) -> Any:
        try:
            whole = open_picture(path)
        except (ValueError, OSError) as error:
            return str(error)
        return np.asarray(whole.resize((side, side), resample))

    for start in range(0, len(paths), READ):
        yield start, list(pool.map(read, paths[start : start + READ]))


def _through(network: torch.nn.Module, pixels: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return network(_normalised(torch.from_numpy(pixels))).float().flatten(1).numpy()


def reduced(x: np.ndarray) -> np.ndarray:
    """The principal components of the features, at most 256, centred; stronger ones stay larger."""
    from sklearn.decomposition import PCA

    size = min(DIMENSIONS, *x.shape)
    x = (x - x.mean(0)) / (x.std(0) + 1e-6)
    x = PCA(size, svd_solver="randomized", random_state=0).fit_transform(x)
    return (x / max(float(x.std(0).max()), 1e-6)).astype(np.float32)


def _small(path: Path) -> dict[str, bytes]:
    """A preview as JPEG bytes."""
    picture = open_picture(path)
    picture.thumbnail((SHOWN, SHOWN))
    held = io.BytesIO()
    picture.save(held, "JPEG", quality=85)
    return {"picture": held.getvalue()}
