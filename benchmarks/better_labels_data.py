"""What `better_labels.py` trains on: its settings, the rows of CIFAR and their noisy labels, and views of images."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchcurriculum.functional.views import strong
from torchcurriculum.lab.data.cifar_n import load_cifar_n

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
NOISY = {
    "c10n": ("CIFAR-10_human.pt", "worse_label"),
    "c10agg": ("CIFAR-10_human.pt", "aggre_label"),
    "c10rand": ("CIFAR-10_human.pt", "random_label1"),
    "c100n": ("CIFAR-100_human.pt", "noisy_label"),
}
FOLDS = 5


@dataclasses.dataclass
class Config:
    name: str = ""
    set: str = "c10n"  # c10n c10agg c10rand c100n c10 c100 c10-n40 c100-n20 ... random10 random100
    seed: int = 0
    epochs: int = 50
    batch: int = 256
    lr: float = 0.1
    wd: float = 5e-4
    average: float = 0.999  # decay of the averaged weights, per step
    views: str = "m"  # w: weak; s: strong; m: each row weak or strong at random; ws: both, two passes
    strong: float = 0.5  # with views=m, the probability of the strong view
    ops: int = 2  # operations of a strong view, before the square is cut out
    method: str = "vanilla"  # vanilla rapw; argmax: rows whose label is the memory's argmax, after 0.4 of the epochs
    plain: float = 0.4  # share of the epochs that is plain
    caution: float = 2.0  # of RAPW
    fold: int = -1  # 0 to 4: leaves a fifth of the rows out and writes the predictions for them beside the results
    audit: int = 0  # 1: the audit of the run, from the losses and predictions seen while training
    mix: int = 0  # 1: mixup from the first epoch (control arm)
    loss: str = "ce"  # ce superloss elr
    lam: float = 0.25  # SuperLoss' lambda, or ELR's
    beta: float = 0.7  # of ELR
    consist: float = 0.0  # views=ws: share of the strong view's target that is the network's own answer to the weak one
    ramp: float = 0.1  # share of the epochs over which it rises
    temper: float = 0.5  # temperature of that answer
    net: str = "resnet"  # or simple: the paper's Simple-CNN
    limit: int = 0
    every: int = 10  # epochs between evaluations
    compile: int = 1
    benchmark: int = 1  # cuDNN's own search
    dump: str = ""  # epochs, joined by +, whose memory is written beside the results
    test: int = 0


def read_cifar(root: Path, classes: int, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 32, 32, 3) and labels from the official binary version."""
    if classes == 10:
        names = [f"data_batch_{k}.bin" for k in range(1, 6)] if part == "train" else ["test_batch.bin"]
        files, head = [root / "cifar-10-batches-bin" / name for name in names], 1
    else:
        files, head = [root / "cifar-100-binary" / f"{part}.bin"], 2
    raw = np.concatenate([np.frombuffer(f.read_bytes(), np.uint8).reshape(-1, head + 3072) for f in files])
    images = raw[:, head:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), raw[:, head - 1].astype(np.int64)


def load(cfg: Config, root: Path) -> tuple[dict[str, Tensor], int]:
    """Tensors x, y, clean (training rows), valid_x, valid_y and, if asked for, test_x, test_y; and C."""
    classes = 100 if "100" in cfg.set else 10
    draw = np.random.default_rng(1000 + cfg.seed)
    if cfg.set.startswith("random"):
        x, clean = draw.integers(0, 256, (50_000, 32, 32, 3), np.uint8), draw.integers(0, classes, 50_000)
    else:
        x, clean = read_cifar(root, classes, "train")
    y = clean.copy()
    if cfg.set in NOISY:
        file, name = NOISY[cfg.set]
        labels = load_cifar_n(root / file)
        if not np.array_equal(labels["clean_label"], clean):
            raise SystemExit(f"{file}: clean_label differs from CIFAR's labels; use the files in their original order")
        y = labels[name]
    elif "-n" in cfg.set:
        wrong = draw.random(len(y)) < int(cfg.set.split("-n")[1]) / 100
        y = np.where(wrong, (clean + draw.integers(1, classes, len(y))) % classes, clean)
    order = draw.permutation(len(y))
    valid, rows = order[:5000], order[5000:]
    if cfg.limit:
        valid, rows = valid[: cfg.limit], rows[: cfg.limit]
    out = {"valid_x": x[valid], "valid_y": clean[valid]}
    if cfg.fold >= 0:
        left = np.arange(len(rows)) % FOLDS == cfg.fold
        out |= {"fold_x": x[rows[left]], "fold_y": y[rows[left]], "fold_clean": clean[rows[left]]}
        rows = rows[~left]
    out |= {"x": x[rows], "y": y[rows], "clean": clean[rows]}
    if cfg.test:
        out["test_x"], out["test_y"] = read_cifar(root, classes, "test")
    return {k: torch.from_numpy(v) for k, v in out.items()}, classes


def weak(padded: Tensor, rows: Tensor) -> Tensor:
    """Random crop of the image padded by 4 and a random flip: (b, 3, 32, 32) in [0, 1], channels last."""
    n, dev = len(rows), padded.device
    steps = torch.arange(32, device=dev)
    r = torch.randint(0, 9, (n, 1), device=dev) + steps
    c = torch.randint(0, 9, (n, 1), device=dev) + steps
    c = torch.where(torch.rand(n, 1, device=dev) < 0.5, c, c.flip(1))
    return padded[rows[:, None, None], r[:, :, None], c[:, None, :]].permute(0, 3, 1, 2).float() / 255


def normal(x: Tensor, dtype: torch.dtype) -> Tensor:
    mean, std = (torch.tensor(v, device=x.device)[:, None, None] for v in (MEAN, STD))
    return ((x - mean) / std).to(dtype, memory_format=torch.channels_last)


def draw_views(cfg: Config, padded: Tensor, order: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """The epoch's images in their order, one tensor per view."""
    out: list[list[Tensor]] = [[] for _ in range(2 if cfg.views == "ws" else 1)]
    for rows in order.split(6000):
        x = weak(padded, rows)
        if cfg.views == "ws":
            out[1].append(normal(strong(x, operations=cfg.ops), dtype))
        elif cfg.views in "sm":
            hard = torch.rand(len(x), device=x.device) < (cfg.strong if cfg.views == "m" else 1)
            x[hard] = strong(x[hard], operations=cfg.ops)
        out[0].append(normal(x, dtype))
    return [torch.cat(parts) for parts in out]


def mix_rows(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Mixes each row with another of the epoch."""
    lam, other = torch.rand(len(x), device=x.device), torch.randperm(len(x), device=x.device)
    ratio = lam[:, None, None, None].to(x.dtype)
    mixed = (x * ratio + x[other] * (1 - ratio)).contiguous(memory_format=torch.channels_last)
    return mixed, lam[:, None] * target + (1 - lam)[:, None] * target[other]
