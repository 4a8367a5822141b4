"""Exploration of "better labels from the same run": one ResNet-18, remembered predictions, averaged weights, two views.

    python benchmarks/better_labels.py run --data DIR --out FILE.json set=c10n select=argmax views=ws seed=0
    python benchmarks/better_labels.py pack JOBS.json --data DIR --out DIR --workers 6 [--watch]
    python benchmarks/better_labels.py table DIR

DIR holds `cifar-10-batches-bin`, `cifar-100-binary` and the CIFAR-N files `CIFAR-10_human.pt`, `CIFAR-100_human.pt`.
Only the training files are read, unless `test=1`. 5,000 rows of the training set, drawn by the run's seed, keep their
clean labels and are the validation split; the clean labels of the other 45,000 are used for reporting only. Decision 5
is the protocol; `docs/results/better-labels.md` has the figures. Needs torch and NumPy, and a GPU; on a CPU, try
`limit=512 width=8 epochs=2 batch=64`.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcurriculum.functional import rapw
from torchcurriculum.lab.models.small import simple_cnn

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
NOISY = {"c10n": ("CIFAR-10_human.pt", "worse_label"), "c10agg": ("CIFAR-10_human.pt", "aggre_label")}
NOISY |= {"c10rand": ("CIFAR-10_human.pt", "random_label1"), "c100n": ("CIFAR-100_human.pt", "noisy_label")}


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
    warm: float = 0.4  # share of the epochs that is plain
    memory: float = 0.85  # decay of a row's remembered prediction
    select: str = "none"  # none; argmax: rows whose label is the memory's argmax; post: RAPW's posterior
    rest: str = "fit"  # with post: label (its weight alone), soft (posterior, by its maximum), fit (RAPW)
    power: float = 0.0  # of the memory; 0: the one under which the labels are most likely
    counts: float = 5.0  # power of the sharpened memory when the channel is counted: sure rows decide
    caution: float = 2.0  # power of f, with rest=fit
    plan: str = "all"  # all: rows without weight are visited, too; skip: they are not
    mix: int = 0  # 1: mixup from the first epoch (control arm)
    loss: str = "ce"  # ce superloss
    lam: float = 0.25  # SuperLoss' lambda
    consist: float = 0.0  # views=ws: share of the strong view's target that is the network's own answer to the weak one
    ramp: float = 0.1  # share of the epochs over which it rises
    temper: float = 0.5  # temperature of that answer
    net: str = "resnet"  # or simple: the paper's Simple-CNN
    width: int = 64
    limit: int = 0
    every: int = 10  # epochs between evaluations
    compile: int = 1
    benchmark: int = 1  # cuDNN's own search
    dump: str = ""  # epochs, joined by +, whose memory is written beside the results
    test: int = 0


class Block(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.short: nn.Module = nn.Identity()
        if stride > 1 or inputs != width:
            self.short = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.short(x))


class ResNet18(nn.Module):
    """3x3 stem, no pooling before the first stage."""

    def __init__(self, classes: int, width: int = 64) -> None:
        super().__init__()
        w = [width, width, 2 * width, 4 * width, 8 * width]
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        stages = [(Block(a, b, 1 + (k > 0)), Block(b, b, 1)) for k, (a, b) in enumerate(itertools.pairwise(w))]
        self.stages = nn.Sequential(*[block for stage in stages for block in stage])
        self.fc = nn.Linear(8 * width, classes)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.stages(F.relu(self.bn1(self.conv1(x)))).mean((2, 3)))


# ---------------------------------------------------------------------------------------------------------------- data


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


def read_noisy(path: Path, key: str, clean: np.ndarray) -> np.ndarray:
    """Labels of CIFAR-N, checked row by row against CIFAR's."""
    build = np._core.multiarray._reconstruct
    kinds = [build, (build, "numpy.core.multiarray._reconstruct"), np.ndarray, np.dtype]
    kinds += [type(np.dtype(t)) for t in (np.int64, np.int32, np.float64, np.uint8, np.str_)]
    with torch.serialization.safe_globals(kinds):
        data = torch.load(path, weights_only=True)
    if not np.array_equal(np.asarray(data["clean_label"]), clean):
        raise SystemExit(f"{path.name}: clean_label differs from CIFAR's labels; use the files in their original order")
    return np.asarray(data[key]).astype(np.int64)


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
        y = read_noisy(root / NOISY[cfg.set][0], NOISY[cfg.set][1], clean)
    elif "-n" in cfg.set:
        wrong = draw.random(len(y)) < int(cfg.set.split("-n")[1]) / 100
        y = np.where(wrong, (clean + draw.integers(1, classes, len(y))) % classes, clean)
    order = draw.permutation(len(y))
    valid, rows = order[:5000], order[5000:]
    if cfg.limit:
        valid, rows = valid[: cfg.limit], rows[: cfg.limit]
    out = {"x": x[rows], "y": y[rows], "clean": clean[rows], "valid_x": x[valid], "valid_y": clean[valid]}
    if cfg.test:
        out["test_x"], out["test_y"] = read_cifar(root, classes, "test")
    return {k: torch.from_numpy(v) for k, v in out.items()}, classes


# --------------------------------------------------------------------------------------------------------------- views


def weak(padded: Tensor, rows: Tensor) -> Tensor:
    """Random crop of the image padded by 4 and a random flip: (b, 3, 32, 32) in [0, 1], channels last."""
    n, dev = len(rows), padded.device
    steps = torch.arange(32, device=dev)
    r = torch.randint(0, 9, (n, 1), device=dev) + steps
    c = torch.randint(0, 9, (n, 1), device=dev) + steps
    c = torch.where(torch.rand(n, 1, device=dev) < 0.5, c, c.flip(1))
    return padded[rows[:, None, None], r[:, :, None], c[:, None, :]].permute(0, 3, 1, 2).float() / 255


def strong(x: Tensor, ops: int) -> Tensor:
    """RandAugment with continuous magnitudes: `ops` of 13 operations per image, then a square of 16 x 16 is cut out."""
    n, dev = len(x), x.device
    on = torch.zeros(n, 13, device=dev).scatter_(1, torch.rand(n, 13, device=dev).topk(ops, 1).indices, 1.0)
    size = (torch.rand(n, 13, device=dev) * 2 - 1) * on
    turn, shear_x, shear_y = size[:, 0] * math.pi / 6, size[:, 1] * 0.3, size[:, 2] * 0.3
    zoom = 1 + 0.3 * size[:, 5]
    cos, sin = turn.cos(), turn.sin()
    top = torch.stack([(cos - sin * shear_y) * zoom, (cos * shear_x - sin) * zoom, size[:, 3] * 0.5], 1)
    low = torch.stack([(sin + cos * shear_y) * zoom, (sin * shear_x + cos) * zoom, size[:, 4] * 0.5], 1)
    grid = F.affine_grid(torch.stack([top, low], 1), list(x.shape), align_corners=False)
    x = F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
    one = size[:, :, None, None, None]
    x = x * (1 + 0.7 * one[:, 6])
    mean = x.mean((1, 2, 3), keepdim=True)
    x = mean + (x - mean) * (1 + 0.8 * one[:, 7])
    grey = x.mean(1, keepdim=True)
    x = (grey + (x - grey) * (1 + 0.9 * one[:, 8])).clamp(0, 1)
    flag = on[:, :, None, None, None] > 0
    levels = 4 + 28 * torch.rand(n, 1, 1, 1, device=dev)
    x = torch.where(flag[:, 9], (x * levels).floor() / levels, x)
    x = torch.where(flag[:, 10] & (x > 0.5 + 0.5 * one[:, 10].abs()), 1 - x, x)
    least, most = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    x = torch.where(flag[:, 11], (x - least) / (most - least).clamp_min(0.05), x)
    soft = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
    x = (soft + (x - soft) * (1 + 0.9 * one[:, 12])).clamp(0, 1)
    steps = torch.arange(32, device=dev)
    cy, cx = torch.randint(0, 32, (2, n, 1, 1), device=dev)
    out = ((steps[:, None] - cy).abs() < 8) & ((steps[None, :] - cx).abs() < 8)
    return torch.where(out[:, None], torch.tensor(MEAN, device=dev)[:, None, None], x)


def normal(x: Tensor, dtype: torch.dtype) -> Tensor:
    mean, std = (torch.tensor(v, device=x.device)[:, None, None] for v in (MEAN, STD))
    return ((x - mean) / std).to(dtype, memory_format=torch.channels_last)


def draw_views(cfg: Config, padded: Tensor, order: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """The epoch's images in their order, one tensor per view."""
    out: list[list[Tensor]] = [[] for _ in range(2 if cfg.views == "ws" else 1)]
    for rows in order.split(6000):
        x = weak(padded, rows)
        if cfg.views == "ws":
            out[1].append(normal(strong(x, cfg.ops), dtype))
        elif cfg.views in "sm":
            hard = torch.rand(len(x), device=x.device) < (cfg.strong if cfg.views == "m" else 1)
            x[hard] = strong(x[hard], cfg.ops)
        out[0].append(normal(x, dtype))
    return [torch.cat(parts) for parts in out]


def mix_rows(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Mixes each row with another of the epoch."""
    lam, other = torch.rand(len(x), device=x.device), torch.randperm(len(x), device=x.device)
    ratio = lam[:, None, None, None].to(x.dtype)
    mixed = (x * ratio + x[other] * (1 - ratio)).contiguous(memory_format=torch.channels_last)
    return mixed, lam[:, None] * target + (1 - lam)[:, None] * target[other]


# -------------------------------------------------------------------------------------------------------------- labels


def posterior(cfg: Config, q: Tensor, y: Tensor) -> tuple[Tensor, float]:
    """RAPW's probability of each class given memory and label, and the power of the memory."""
    means, given = q.mean(0), F.one_hot(y, q.shape[1]).float()
    table = rapw.channel((rapw.sharpen(q, means, cfg.power or 1.5) ** cfg.counts).T @ given)
    power = cfg.power or rapw.likeliest_power(q, means, y, table)
    return rapw.believed(rapw.sharpen(q, means, power), y, table), power


def weigh(cfg: Config, q: Tensor, y: Tensor, done: float) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted targets (N, C) whose rows sum to the row's weight, the weights, and the belief in each label."""
    given = F.one_hot(y, q.shape[1]).float()
    if cfg.select == "none" or done < cfg.warm:
        return given, torch.ones(len(y), device=q.device), torch.ones(len(y), device=q.device)
    if cfg.select == "argmax":
        keep = (q.argmax(1) == y).float()
        return keep[:, None] * given, keep, keep
    p, _ = posterior(cfg, q, y)
    mine = (p * given).sum(1)
    if cfg.rest == "soft":
        target = p.amax(1, keepdim=True) * p
    else:  # replaced labels count as far as the network has learned those that it believes
        learned = (mine * (q * given).sum(1)).sum() / mine.sum()
        target = p * given + (learned**cfg.caution if cfg.rest == "fit" else 0.0) * p * (1 - given)
    return target, target.sum(1), mine


# ------------------------------------------------------------------------------------------------------------ training


def lambert(x: Tensor) -> Tensor:
    """Lambert's W for x >= -1/e by Halley's rule."""
    w = torch.where(x < 0, -1 + (2 * (math.e * x + 1).clamp_min(1e-8)).sqrt(), x.clamp_min(0).log1p())
    for _ in range(8):
        e = w.exp()
        f = w * e - x
        w = w - f / (e * (w + 1) - (w + 2) * f / (2 * w + 2).clamp_min(1e-6)).clamp_min(1e-6)
    return w


class Trainer:
    """One step of SGD on fixed buffers, captured as a CUDA graph where there is one."""

    def __init__(self, cfg: Config, classes: int, dev: str) -> None:
        self.cfg, self.dev, self.graph = cfg, dev, None
        self.dtype = torch.bfloat16 if dev == "cuda" else torch.float32

        def build() -> nn.Module:
            return simple_cnn(classes) if cfg.net == "simple" else ResNet18(classes, cfg.width)

        self.net = build().to(dev, memory_format=torch.channels_last)
        self.avg = build().to(dev, memory_format=torch.channels_last).requires_grad_(False)
        self.avg.load_state_dict(self.net.state_dict())
        self.call = torch.compile(self.net, dynamic=False) if cfg.compile and dev == "cuda" else self.net
        self.params = list(self.net.parameters())
        self.velocity = [torch.zeros_like(p) for p in self.params]
        self.mean = list(self.avg.parameters())
        n = cfg.batch * (2 if cfg.views == "ws" else 1)
        self.x = torch.zeros(n, 3, 32, 32, device=dev, dtype=self.dtype).to(memory_format=torch.channels_last)
        self.target = torch.full((n, classes), 1 / classes, device=dev)
        self.lr = torch.tensor(0.0, device=dev)
        self.out = torch.zeros(n, classes, device=dev)
        self.usual = torch.full((classes,), 1 / classes, device=dev)
        self.ramp = torch.tensor(0.0, device=dev)

    @torch.no_grad()
    def guess(self, z: Tensor) -> Tensor:
        """Targets of both views: the strong one's are, in part, the network's answer to the weak one."""
        size, cfg = self.cfg.batch, self.cfg
        self.usual += 0.01 * (z[:size].softmax(1).mean(0) - self.usual)
        own = (z[:size] / cfg.temper).softmax(1)
        own = own / self.usual.clamp_min(0.2 / z.shape[1])
        own = own / own.sum(1, keepdim=True)
        own = own * own.amax(1, keepdim=True)
        share = cfg.consist * self.ramp
        strong = share * own + (1 - share) * self.target[size:]
        return torch.cat([self.target[:size], strong])

    def step(self) -> None:
        with torch.autocast(self.dev, torch.bfloat16, enabled=self.dev == "cuda"):
            z = self.call(self.x)
        z = z.float()
        target = self.guess(z.detach()) if self.cfg.consist else self.target
        loss = -(target * z.log_softmax(1)).sum(1)
        if self.cfg.loss == "superloss":
            with torch.no_grad():
                beta = ((loss - math.log(z.shape[1])) / self.cfg.lam).clamp_min(-2 / math.e)
                sigma = (-lambert(0.5 * beta)).exp()
            loss = loss * sigma
        loss = loss.mean()
        for p in self.params:
            p.grad = None
        loss.backward()
        with torch.no_grad():
            self.out.copy_(z)
            grads = [p.grad for p in self.params]
            knobs = {"weight_decay": self.cfg.wd, "momentum": 0.9, "lr": self.lr, "dampening": 0.0}
            flags = {"nesterov": True, "maximize": False, "is_first_step": False}
            torch._fused_sgd_(self.params, grads, self.velocity, **knobs, **flags)
            torch._foreach_lerp_(self.mean, self.params, 1 - self.cfg.average)

    def capture(self) -> None:
        """Compiles and captures the step, then restores weights and statistics."""
        if self.dev != "cuda":
            return
        state = {k: v.clone() for k, v in self.net.state_dict().items()}
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        self.graph = graph
        self.net.load_state_dict(state)
        self.avg.load_state_dict(state)
        for v in self.velocity:
            v.zero_()
        self.usual.fill_(1 / len(self.usual))

    def go(self, x: list[Tensor], target: list[Tensor], lr: float) -> Tensor:
        size = self.cfg.batch
        for k, (image, wanted) in enumerate(zip(x, target, strict=True)):
            self.x[k * size : (k + 1) * size].copy_(image)
            self.target[k * size : (k + 1) * size].copy_(wanted)
        self.lr.fill_(lr)
        if self.graph is None:
            self.step()
        else:
            self.graph.replay()
        return self.out[:size]

    def settle(self, x: Tensor) -> None:
        """Estimates the averaged network's batch statistics anew: those of the raw network do not fit its weights."""
        for part in self.avg.modules():
            if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
                part.reset_running_stats()
                part.momentum = None
        self.avg.train()
        with torch.no_grad(), torch.autocast(self.dev, torch.bfloat16, enabled=self.dev == "cuda"):
            for part in x.split(500):
                self.avg(part)

    def predict(self, net: nn.Module, x: Tensor) -> Tensor:
        """Logits of uint8 images in evaluation mode."""
        net.eval()
        out = []
        with torch.no_grad(), torch.autocast(self.dev, torch.bfloat16, enabled=self.dev == "cuda"):
            for part in x.split(1000):
                out.append(net(normal(part.permute(0, 3, 1, 2).float() / 255, self.dtype)).float())
        net.train()
        return torch.cat(out)


def scores(z: Tensor, y: Tensor) -> dict[str, float]:
    p, loss = z.softmax(1), F.cross_entropy(z, y, reduction="none")
    sure, guess = p.max(1)
    right = (guess == y).float()
    bins = (sure * 15).long().clamp_max(14)
    gap = torch.zeros(15, device=z.device).index_add_(0, bins, right - sure)
    found = {"acc": right.mean(), "eprop": (loss <= math.log(2)).float().mean(), "ece": gap.abs().sum() / len(y)}
    return {k: round(100 * v.item(), 2) for k, v in found.items()}


def auroc(score: Tensor, right: Tensor) -> float | None:
    good = int(right.sum())
    bad = len(right) - good
    if not good or not bad:
        return None
    rank = torch.empty(len(score), device=score.device, dtype=torch.float64)
    rank[score.argsort()] = torch.arange(1, len(score) + 1, device=score.device, dtype=torch.float64)
    return round(((rank[right].sum() - good * (good + 1) / 2) / (good * bad)).item(), 4)


class Memory:
    """Per row: the exponential mean of softmax over observations, and of the logit margin (and its plain mean, AUM)."""

    def __init__(self, n: int, classes: int, decay: float, dev: str) -> None:
        self.q = torch.full((n, classes), 1 / classes, device=dev)
        self.margin, self.aum, self.seen = (torch.zeros(n, device=dev) for _ in range(3))
        self.decay = decay

    def update(self, rows: Tensor, z: Tensor, y: Tensor) -> None:
        k = (self.seen[rows] / (self.seen[rows] + 1)).clamp_max(self.decay)
        self.q[rows] = k[:, None] * self.q[rows] + (1 - k[:, None]) * z.softmax(1)
        mine = z.gather(1, y[:, None])
        margin = mine.squeeze(1) - z.scatter(1, y[:, None], -torch.inf).amax(1)
        self.margin[rows] = k * self.margin[rows] + (1 - k) * margin
        self.aum[rows] += (margin - self.aum[rows]) / (self.seen[rows] + 1)
        self.seen[rows] += 1


def report(cfg: Config, t: Trainer, m: Memory, d: dict[str, Tensor], keep: Tensor, target: Tensor) -> dict:
    """Validation figures, and how good memory and selection are against the clean labels."""
    out: dict = {}
    for part in ["valid"] + ["test"] * cfg.test:
        for kind, net in (("raw", t.net), ("avg", t.avg)):
            out[f"{part}_{kind}"] = scores(t.predict(net, d[f"{part}_x"]), d[f"{part}_y"])
    y, right = d["y"], d["y"] == d["clean"]
    mine = m.q.gather(1, y[:, None]).squeeze(1)
    gap = mine - m.q.scatter(1, y[:, None], -1).amax(1)
    kinds = {"q": mine, "gap": gap, "margin": m.margin, "aum": m.aum}
    p, power = posterior(cfg, m.q, y)
    trust = p.gather(1, y[:, None]).squeeze(1)
    kinds["post"] = trust
    out["auroc"] = {k: auroc(v, right) for k, v in kinds.items()}
    share = {"true": (~right).float(), "argmax": (m.q.argmax(1) != y).float(), "bayes": 1 - trust}
    share["kept"] = 1 - keep
    out["share"] = {k: round(v.mean().item(), 4) for k, v in share.items()}
    weight = target.sum(1)
    good = (target.argmax(1) == d["clean"]).float()
    out["kept_right"] = round((keep * right).sum().item() / max(keep.sum().item(), 1e-9), 4)
    out["right_kept"] = round((keep * right).sum().item() / max(int(right.sum()), 1), 4)
    out["target_right"] = round((weight * good).sum().item() / max(weight.sum().item(), 1e-9), 4)
    out["weight"] = round(weight.mean().item(), 4)
    out["power"] = power
    out["memory_right"] = round((m.q.argmax(1) == d["clean"]).float().mean().item(), 4)
    return out


def plan_rows(cfg: Config, weight: Tensor, n: int, dev: str) -> Tensor:
    """The rows of this epoch in their order, whole batches only."""
    order = torch.randperm(n, device=dev)
    if cfg.plan != "all":
        chosen = order[weight[order] > 1e-3]
        order = chosen if len(chosen) >= cfg.batch else order
    return order[: len(order) // cfg.batch * cfg.batch]


def dump(path: Path, m: Memory, d: dict[str, Tensor], valid: Tensor) -> None:
    arrays = {"q": m.q.half(), "margin": m.margin, "aum": m.aum, "y": d["y"].to(torch.uint8)}
    arrays |= {"clean": d["clean"].to(torch.uint8), "valid": valid.half(), "valid_y": d["valid_y"].to(torch.uint8)}
    np.savez_compressed(path, **{k: v.cpu().numpy() for k, v in arrays.items()})


def train(cfg: Config, root: Path, out: Path) -> None:
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(cfg.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = bool(cfg.benchmark)
    start = time.time()
    data, classes = load(cfg, root)
    d = {k: v.to(dev) for k, v in data.items()}
    n, size = len(d["y"]), cfg.batch
    padded = F.pad(d["x"].permute(0, 3, 1, 2).float(), (4, 4, 4, 4), mode="reflect").to(torch.uint8)
    padded = padded.permute(0, 2, 3, 1).contiguous()
    trainer = Trainer(cfg, classes, dev)
    trainer.capture()
    memory = Memory(n, classes, cfg.memory, dev)
    result = {"config": dataclasses.asdict(cfg), "device": "cpu", "torch": torch.__version__, "curve": []}
    if dev == "cuda":
        result["device"] = torch.cuda.get_device_name()
    result["ready_s"], passes, begun = round(time.time() - start, 1), 0.0, time.time()
    for e in range(cfg.epochs):
        target, weight, keep = weigh(cfg, memory.q, d["y"], e / cfg.epochs)
        order = plan_rows(cfg, weight, n, dev)
        views = draw_views(cfg, padded, order, trainer.dtype)
        sample = torch.cat([v[:6000:2] if len(views) == 2 else v[:6000] for v in views])
        wanted = target[order] / weight[order].mean().clamp_min(0.05)
        targets = [wanted] * len(views)
        if cfg.mix:
            views[-1], targets[-1] = mix_rows(views[-1], wanted)
        trainer.ramp.fill_(min(1.0, e / max(cfg.ramp * cfg.epochs, 1)))
        seen, steps = torch.empty(len(order), classes, device=dev), len(order) // size
        for s in range(steps):
            at = slice(s * size, (s + 1) * size)
            done = (e + s / steps) / cfg.epochs
            lr = cfg.lr * min(1.0, done * cfg.epochs / 2 + 1e-3) * 0.5 * (1 + math.cos(math.pi * done))
            z = trainer.go([v[at] for v in views], [t[at] for t in targets], lr)
            seen[at] = z
        passes += len(views) * len(order) / n
        if e < 2:
            torch._foreach_copy_(trainer.mean, [v.detach() for v in trainer.params])
        if not cfg.mix or len(views) == 2:  # a mixed row tells nothing of its own
            memory.update(order, seen, d["y"][order])
        last = e + 1 == cfg.epochs
        if last or (e + 1) % cfg.every == 0:
            trainer.settle(sample)
            row = {"epoch": e + 1, "s": round(time.time() - begun, 1), "passes": round(passes, 2)}
            row |= report(cfg, trainer, memory, d, keep, target)
            result["curve"].append(row)
            out.write_text(json.dumps(result))
        if str(e + 1) in cfg.dump.split("+"):
            dump(out.with_name(f"{out.stem}-e{e + 1}.npz"), memory, d, trainer.predict(trainer.avg, d["valid_x"]))
    print(line(result), flush=True)


# ------------------------------------------------------------------------------------------------------------- running


def line(result: dict) -> str:
    c, r = result["config"], result["curve"][-1]
    a, v, w, u = r["valid_raw"], r["valid_avg"], r["auroc"], r["share"]
    text = f"{c['name'][:28]:28} {c['set']:8} s{c['seed']} e{r['epoch']:3} raw {a['acc']:5.2f}/{a['eprop']:5.2f}"
    text += f" avg {v['acc']:5.2f}/{v['eprop']:5.2f} ece {v['ece']:4.1f} | q {w['q']} aum {w['aum']} gap {w['gap']} |"
    text += f" share am {u['argmax']:.3f} by {u['bayes']:.3f} | kr {r['kept_right']:.3f} rk {r['right_kept']:.3f}"
    text += f" tr {r['target_right']:.3f} w {r['weight']:.2f} power {r['power']} | {r['passes']:.0f}p {r['s']:.0f}s"
    return text


def pack(jobs: Path, root: Path, out: Path, workers: int, watch: bool) -> None:
    """Runs the jobs of a JSON list, several at once; with `watch`, reads the list again until `stop` lies beside it."""
    out.mkdir(parents=True, exist_ok=True)
    begun: set[str] = set()
    running: list[subprocess.Popen] = []
    while True:
        todo = [job for job in (json.loads(jobs.read_text()) if jobs.exists() else []) if job["id"] not in begun]
        running = [p for p in running if p.poll() is None]
        while todo and len(running) < workers:
            job = todo.pop(0)
            begun.add(job["id"])
            words = [f"{k}={v}" for k, v in job.items() if k != "id"]
            command = [sys.executable, __file__, "run", "--data", str(root), "--out", str(out / f"{job['id']}.json")]
            with (out / f"{job['id']}.log").open("w") as log:
                running.append(subprocess.Popen(command + words, stdout=log, stderr=log))
        if not running and not todo and (not watch or (jobs.parent / "stop").exists()):
            return
        time.sleep(0.3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["run", "pack", "table"])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("runs/better_labels"))
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--watch", action="store_true")
    args = parser.parse_intermixed_args()
    if args.what == "run":
        types = {f.name: type(f.default) for f in dataclasses.fields(Config)}
        pairs = dict(word.split("=", 1) for word in args.words)
        cfg = Config(**{k: types[k](v) for k, v in pairs.items()})
        train(cfg, args.data, args.out)
    elif args.what == "pack":
        pack(Path(args.words[0]), args.data, args.out, args.workers, args.watch)
    else:
        for path in sorted(Path(args.words[0]).glob("*.json")):
            print(line(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
