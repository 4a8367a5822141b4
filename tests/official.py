"""Tiny files of the official forms: what users download, made small."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from torchcurriculum.lab.data import cifar, cifar_n

NAMES = ("NCI1_A.txt", "NCI1_graph_indicator.txt", "NCI1_graph_labels.txt", "NCI1_node_labels.txt")


def nci1(folder: Path, graphs: int = 40) -> Path:
    """Rings of one kind of node are of class 1, chains of another are of class 0."""
    edges, indicator, kinds = [], [], []
    for graph in range(graphs):
        first, size = len(indicator) + 1, 3 + graph % 3
        pairs = [(first + i, first + i + 1) for i in range(size - 1)] + [(first + size - 1, first)] * (graph % 2)
        edges += [f"{a}, {b}\n{b}, {a}\n" for a, b in pairs]
        indicator += [str(graph + 1)] * size
        kinds += [str(graph % 2 + i % 2) for i in range(size)]
    folder.mkdir(parents=True, exist_ok=True)
    texts = ["".join(edges), "\n".join(indicator), "\n".join(str(g % 2) for g in range(graphs)), "\n".join(kinds)]
    for name, text in zip(NAMES, texts, strict=True):
        (folder / name).write_text(text if text.endswith("\n") else text + "\n")
    return folder


def rte(folder: Path, rows: int = 12) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in {"train": rows, "dev": 6}.items():
        lines = ["index\tsentence1\tsentence2\tlabel"]
        for row in range(count):
            label = "entailment" if row % 2 else "not_entailment"
            first, second = f'the "cat" sat {"on a mat " * (row % 3)}.', f"a cat {'sat' if row % 2 else 'ran'}"
            lines.append(f"{row}\t{first}\t{second}\t{label}")
        (folder / f"{part}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def sst2(folder: Path, rows: int = 12) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in {"train": rows, "dev": 6}.items():
        lines = [f"the cat {'sat on a mat' if row % 2 else 'ran'} \t{row % 2}" for row in range(count)]
        (folder / f"{part}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n", encoding="utf-8")
    return folder


def picture(path: Path, shade: int, size: tuple[int, int] = (24, 20)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((size[1], size[0], 3), shade, np.uint8)
    pixels[:, : size[0] // 2] //= 2
    Image.fromarray(pixels).save(path)


def webvision(folder: Path) -> Path:
    """Four Google images of class 0 and 49 each, one of class 50, two of Flickr, two for validation."""
    info = folder / "info"
    info.mkdir(parents=True, exist_ok=True)
    google = [(f"google/q{1 + label:04}/{i}.jpg", label) for label in (0, 49) for i in range(4)]
    google.append(("google/q0051/0.jpg", 50))
    flickr = [("flickr/q0001/0.jpg", 0), ("flickr/q1000/0.jpg", 999)]
    valid = [("val000001.jpg", 0), ("val000002.jpg", 49), ("val000003.jpg", 999)]
    lists = {"train_filelist_google.txt": google, "train_filelist_flickr.txt": flickr, "val_filelist.txt": valid}
    for name, rows in lists.items():
        (info / name).write_text("".join(f"{path} {label}\n" for path, label in rows))
        for path, label in rows:
            picture((folder / "val_images_256" if name.startswith("val") else folder) / path, 255 - label % 200)
    return folder


def image_folder(folder: Path, of_each: int = 10) -> Path:
    for label, name in enumerate(("cats", "dogs")):
        for row in range(of_each):
            picture(folder / name / f"{row}.png", 60 + 120 * label + row)
    return folder


def csv_file(path: Path, rows: int = 40) -> Path:
    lines = [f"{row % 7}.5,{(row % 2) * 2 - 1},{'yes' if row % 2 else 'no'}" for row in range(rows)]
    path.write_text("a,b,label\n" + "\n".join(lines) + "\n")
    return path


def cifar100(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two training images and one test image of each class, in the official layout."""
    monkeypatch.setattr(cifar, "OF_EACH_100", {"train.bin": 2, "test.bin": 1})
    (folder / "cifar-100-binary").mkdir(parents=True, exist_ok=True)
    for name, of_each in cifar.OF_EACH_100.items():
        fine = np.tile(np.arange(100, dtype=np.uint8), of_each)
        pixels = np.random.default_rng(0).integers(0, 256, (len(fine), 3072), np.uint8)
        content = np.concatenate([fine[:, None] // 5, fine[:, None], pixels], axis=1)
        (folder / "cifar-100-binary" / name).write_bytes(content.tobytes())
    return folder


def cifar10(folder: Path, monkeypatch: pytest.MonkeyPatch, rows: int = 10) -> Path:
    """``rows`` images in each of the six files of the official layout, with sums that fit."""
    (folder / "cifar-10-batches-bin").mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    for files in (cifar.TRAIN, cifar.TEST):
        for name in files:
            content = np.concatenate(
                [np.arange(rows, dtype=np.uint8)[:, None] % 10, draw.integers(0, 256, (rows, 3072), np.uint8)], axis=1
            ).tobytes()
            (folder / "cifar-10-batches-bin" / name).write_bytes(content)
            monkeypatch.setitem(files, name, hashlib.md5(content).hexdigest())
    return folder


def cifar10n(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cifar10(folder, monkeypatch)
    monkeypatch.setattr(cifar_n, "ROWS", 50)
    clean = np.tile(np.arange(10), 5)
    noisy = np.where(np.arange(50) % 5 < 2, (clean + 1) % 10, clean)
    names = ("aggre_label", "worse_label", "random_label1", "random_label2", "random_label3")
    torch.save({"clean_label": clean, **dict.fromkeys(names, noisy)}, folder / "CIFAR-10_human.pt")
    return folder


def cifar100n(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cifar100(folder, monkeypatch)
    monkeypatch.setattr(cifar_n, "ROWS", 200)
    clean = np.tile(np.arange(100), 2)
    noisy = np.where(np.arange(200) % 5 < 2, (clean + 1) % 100, clean)
    coarse = [int(label) // 5 for label in clean]
    content = {"clean_label": clean, "noisy_label": noisy, "clean_coarse_label": coarse, "noisy_coarse_label": coarse}
    torch.save(content, folder / "CIFAR-100_human.pt")
    return folder
