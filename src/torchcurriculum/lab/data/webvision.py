"""WebVision 1.0 and Mini-WebVision, from the official file lists."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from ...clean.pictures import Files
from .text_files import official, read_lines

__all__ = ["load_webvision"]

ADDRESS = "https://data.vision.ee.ethz.ch/cvl/webvision/dataset2017.html"
CLASSES, MINI = 1000, 50
LINE = re.compile(r"(\S+)[ \t]+(\d{1,6})[ \t]*")


def load_webvision(folder: str | Path, mini: bool = False) -> dict[str, Files]:
    """WebVision 1.0; its test part has no public labels.

    Args:
        folder: Where ``info/train_filelist_google.txt``, ``info/train_filelist_flickr.txt`` and
            ``info/val_filelist.txt`` lie, with the images under the names in these lists; those of the validation
            part in ``val_images_256`` (or ``val_images``).
        mini: Only the first 50 classes of the Google subset: about 65,900 and 2,500 images.

    Returns:
        ``{"train": (paths, y), "valid": ...}``. Only the first image of each list is checked to exist; the others when
        they are read.

    Raises:
        FileNotFoundError: With the address to get the files from.
        ValueError: With the damaged list and line, the reason and the address.

    Reference:
        Li et al., WebVision Database: Visual Learning and Understanding from Web Data, 2017.
    """
    folder = Path(folder)
    folder = next((place for place in (folder / "webvision", folder) if (place / "info").is_dir()), folder)
    lists = ["train_filelist_google.txt"] + ([] if mini else ["train_filelist_flickr.txt"])
    classes = MINI if mini else CLASSES
    train = [_read(folder, name, folder, classes) for name in lists]
    images = next((folder / name for name in ("val_images_256", "val_images") if (folder / name).is_dir()), None)
    if images is None:
        raise FileNotFoundError(f"{folder / 'val_images_256'} is missing; get it from {ADDRESS}")
    paths = [path for part, _ in train for path in part]
    return {
        "train": (paths, torch.cat([y for _, y in train])),
        "valid": _read(folder, "val_filelist.txt", images, classes),
    }


@official(ADDRESS)
def _read(folder: Path, name: str, images: Path, classes: int) -> Files:
    """The images of a list whose class is below ``classes``."""
    path = folder / "info" / name
    paths, labels = [], []
    for number, line in enumerate(read_lines(path, ADDRESS), 1):
        match = LINE.fullmatch(line)
        if match is None or int(match[2]) >= CLASSES:
            raise ValueError(
                f"{path} is damaged: line {number} is {line[:60]!r}, not a file name and a class below {CLASSES}"
            )
        if not match[1].isprintable() or match[1].startswith("/") or ".." in Path(match[1]).parts or "\\" in match[1]:
            raise ValueError(f"{path} is refused: line {number} names {match[1][:60]!r}, outside its folder")
        if int(match[2]) < classes:
            paths.append(images / match[1])
            labels.append(int(match[2]))
    if not paths:
        raise ValueError(f"{path} is damaged: it holds no image of the first {classes} classes")
    if not paths[0].is_file():
        raise FileNotFoundError(f"{paths[0]}, the first image of {path}, is missing; get the images from {ADDRESS}")
    return paths, torch.tensor(labels)
