"""Small problems that are not classification of rows: for each a learnable training set, a model, and losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcurriculum import per_sample

N, IGNORED = 32, -100


@dataclass(frozen=True)
class Problem:
    """What a ``Curriculum`` is given; ``model`` makes a fresh one."""

    rows: Any
    model: Callable[[], nn.Module]
    loss_fn: Callable[[Any, Any], Tensor]
    lr: float = 0.3


class Table:
    """Rows of one or more tensors, each item as ``make`` puts it together."""

    def __init__(self, make: Callable[..., Any], *columns: Tensor) -> None:
        self.make, self.columns = make, columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, row: int) -> Any:
        return self.make(*(column[row] for column in self.columns))


def pair(x: Any, y: Any) -> tuple[Any, Any]:
    return x, y


class Tagger(nn.Module):
    """Tokens to a class each, (B, C, T)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 8), nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.embed(ids)).transpose(1, 2)


class Copier(nn.Module):
    """A sequence to another: the tokens so far and the source to the next token, (B, T, V)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 12), nn.Linear(24, 11)

    def forward(self, x: dict[str, Tensor]) -> Tensor:
        return self.head(torch.cat([self.embed(x["source"]), self.embed(x["before"])], 2))


class Detector(nn.Module):
    """One box and one score for each of four places of a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(1, 5, 4, stride=4)

    def forward(self, pictures: Tensor) -> dict[str, Tensor]:
        maps = self.body(pictures).flatten(2)
        return {"boxes": maps[:, :4], "scores": maps[:, 4]}


def detection_losses(outputs: dict[str, Tensor], y: dict[str, Tensor]) -> Tensor:
    """(B,) objectness over all places, and the distance of the boxes where there is one."""
    found = F.binary_cross_entropy_with_logits(outputs["scores"], y["there"], reduction="none").mean(1)
    away = F.smooth_l1_loss(outputs["boxes"], y["boxes"], reduction="none").mean(1)
    return found + (away * y["there"]).sum(1) / y["there"].sum(1).clamp_min(1)


def token_losses(logits: Tensor, y: Tensor) -> Tensor:
    """(B,) the mean over the tokens of each sequence that are not padding."""
    losses = F.cross_entropy(logits.transpose(1, 2), y, ignore_index=IGNORED, reduction="none")
    return losses.sum(1) / (y != IGNORED).sum(1).clamp_min(1)


def problems() -> dict[str, Problem]:
    """Every problem by its name."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(N, 6, generator=draw)
    ids = torch.randint(0, 11, (N, 5), generator=draw)
    tags = (ids % 3).clone()
    tags[::4, -2:] = IGNORED
    pictures = torch.rand(N, 1, 8, 8, generator=draw)
    there = (F.avg_pool2d(pictures, 4).flatten(1) > 0.5).float()
    boxes = F.avg_pool2d(pictures, 4).flatten(1)[:, None].expand(-1, 4, -1).clone()
    before = torch.cat([torch.zeros(N, 1, dtype=torch.int64), ids[:, :-1]], 1)
    bce = per_sample(nn.BCEWithLogitsLoss())
    target = (x[:, :2].sum(1) > 0).float()
    return {
        "multi-label": Problem(Table(pair, x, (x[:, :4] > 0).float()), lambda: nn.Linear(6, 4), bce),
        "multi-label, whole numbers": Problem(
            Table(pair, x, (x[:, :4] > 0).long()), lambda: nn.Linear(6, 4), lambda out, y: bce(out, y.float())
        ),
        "single logit, flat": Problem(
            Table(pair, x, target), lambda: nn.Sequential(nn.Linear(6, 1), nn.Flatten(0)), bce
        ),
        "single logit": Problem(Table(pair, x, target[:, None]), lambda: nn.Linear(6, 1), bce),
        "regression": Problem(
            Table(pair, x, x[:, :1] - x[:, 1:2]), lambda: nn.Linear(6, 1), per_sample(nn.MSELoss()), 0.05
        ),
        "token classification": Problem(Table(pair, ids, tags), Tagger, per_sample(nn.CrossEntropyLoss()), 1.0),
        "seq2seq": Problem(
            Table(lambda s, b, y: {"source": s, "before": b, "labels": y}, ids, before, ids),
            Copier,
            token_losses,
            1.0,
        ),
        "segmentation": Problem(
            Table(pair, pictures, (pictures[:, 0] > 0.5).long()),
            lambda: nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 1)),
            per_sample(nn.CrossEntropyLoss()),
        ),
        "detection": Problem(
            Table(lambda p, t, b: (p, {"there": t, "boxes": b}), pictures, there, boxes), Detector, detection_losses
        ),
    }
