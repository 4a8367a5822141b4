"""What `better_labels.py` reports: scores of a network, margins of the rows, and the audit of a run."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from torchcurriculum import Predictions, Record
from torchcurriculum.audit import audit


def scores(z: Tensor, y: Tensor) -> dict[str, float]:
    p, loss = z.softmax(1), F.cross_entropy(z, y, reduction="none")
    sure, guess = p.max(1)
    right = (guess == y).float()
    bins = (sure * 15).long().clamp_max(14)
    gap = torch.zeros(15, device=z.device).index_add_(0, bins, right - sure)
    found = {"acc": right.mean(), "eprop": (loss <= math.log(2)).float().mean(), "ece": gap.abs().sum() / len(y)}
    return {k: round(100 * v.item(), 2) for k, v in found.items()}


def temperature(z: Tensor, y: Tensor) -> Tensor:
    """By which outputs are divided, by the likelihood of labels that are known to be right."""
    choices = torch.logspace(-0.65, 0.65, 121, device=z.device)
    return choices[torch.stack([F.cross_entropy(z / t, y) for t in choices]).argmin()]


def auroc(score: Tensor, right: Tensor) -> float | None:
    good = int(right.sum())
    bad = len(right) - good
    if not good or not bad:
        return None
    rank = torch.empty(len(score), device=score.device, dtype=torch.float64)
    rank[score.argsort()] = torch.arange(1, len(score) + 1, device=score.device, dtype=torch.float64)
    return round(((rank[right].sum() - good * (good + 1) / 2) / (good * bad)).item(), 4)


class Margins:
    """Per row, the mean logit margin over the visits (AUM)."""

    def __init__(self, n: int, dev: str) -> None:
        self.aum, self.seen = torch.zeros(n, device=dev), torch.zeros(n, device=dev)

    def update(self, rows: Tensor, z: Tensor, y: Tensor) -> None:
        mine = z.gather(1, y[:, None])
        margin = mine.squeeze(1) - z.scatter(1, y[:, None], -torch.inf).amax(1)
        self.aum[rows] += (margin - self.aum[rows]) / (self.seen[rows] + 1)
        self.seen[rows] += 1


class Watched:
    """What the audit needs of a run: the losses of each epoch, and predictions, of the training pass itself."""

    def __init__(self, y: Tensor, clean: Tensor, classes: int) -> None:
        self.record, self.predictions = Record(len(y)), Predictions(y, classes).to(y.device)
        self.record.set_array("labels", y.cpu().numpy())
        self.record.set_array("clean", clean.cpu().numpy())
        self.logits = torch.zeros(len(y), classes, device=y.device)

    def update(self, order: Tensor, seen: Tensor, y: Tensor) -> None:
        self.logits[order] = seen
        losses = torch.full((len(self.logits),), torch.nan, device=y.device)
        losses[order] = F.cross_entropy(seen, y, reduction="none")
        self.record.append({}, losses=losses.cpu().numpy())
        self.predictions.note(self.logits)

    def judge(self) -> dict:
        for name, values in self.predictions.arrays().items():
            self.record.set_array(name, values)
        found = audit(self.record)
        called = {"called": int(found.issue.sum()), "falsely": int((found.issue & ~found.wrong).sum())}
        shares = {"share": found.share, "low": found.share_low, "high": found.share_high}
        rounded = {name: round(value, 4) for name, value in shares.items()}
        return {**rounded, **called, "auroc": found.auroc(), "health": found.health}


def dump(path: Path, q: Tensor, d: dict[str, Tensor], part: str = "", **more: Tensor) -> None:
    arrays = {"q": q.half(), "y": d[part + "y"].to(torch.uint8), "clean": d[part + "clean"].to(torch.uint8), **more}
    np.savez_compressed(path, **{k: v.cpu().numpy() for k, v in arrays.items()})
