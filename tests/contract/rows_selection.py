"""Methods that select rows, tasks or classes: MCL, RL teacher, LGL, C2F and Adaptive CL."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .problem import CLASSES, N, model
from .row import Row


class Teacher(nn.Module):
    """The contract's net with other weights than the student's, for inputs of any precision."""

    def __init__(self) -> None:
        super().__init__()
        self.net = model()
        with torch.no_grad():
            self.net[0].weight.neg_()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.double())


def _tasks(data: Any) -> dict[str, Any]:
    return {"policy": "window", "tasks": torch.arange(N) % 3, "picks": 2, "warmup": 0, "window": 2}


def _labels(data: Any) -> dict[str, Any]:
    return {"labels": data.y, "order": "dissimilar", "interval": 2}


def _taught(data: Any) -> dict[str, Any]:
    return {"teacher": Teacher(), "classes": CLASSES, "start": 0.4}


ROWS = [
    Row("mcl", {"clusters": 3}, zero={"start": 1.0}),
    Row("mcl", lambda data: {"groups": data.y, "warmup": 0, "interval": 2}, zero={"start": 1.0}),
    Row("mcl", {"clusters": 3, "diversity": "facility"}, zero={"start": 1.0}),
    Row("mcl", {"start": 0.5}, zero={"start": 1.0}, measure="running"),
    Row("rl-teacher", {"policy": "online", "tasks": 4}, zero={"picks": 4}),
    Row("rl-teacher", {"policy": "naive", "tasks": 4, "window": 2}, zero={"picks": 4}),
    Row("rl-teacher", {"policy": "window", "tasks": 4, "exploration": "boltzmann"}, zero={"picks": 4}),
    Row("rl-teacher", {"policy": "sampling", "tasks": 4}, zero={"picks": 4}),
    Row("rl-teacher", {"policy": "online", "tasks": 4, "epsilon": 0.5}, zero={"picks": 4}, measure="running"),
    Row("rl-teacher", _tasks, zero={"picks": 3}, rank_batch=23),  # two tasks have 25 rows, or 24
    Row("lgl", {"order": "random"}, zero={"start": 1.0}),
    Row("lgl", {"order": "similar"}, zero={"start": 1.0}),
    Row("lgl", _labels, zero={"start": 1.0}),
    Row("c2f", {"interval": 2}, zero={"levels": 0}),
    Row("c2f", lambda data: {"teacher": Teacher(), "levels": 1}, zero={"levels": 0}),
    Row("c2f", lambda data: {"teacher": Teacher(), "valid": (data.x[:20], data.y[:20])}, zero={"levels": 0}),
    Row("c2f", {"hierarchy": [[0, 0, 1]]}, zero={"levels": 0}),
    Row("adaptive-cl", {"start": 0.3}, zero={"start": 1.0}),
    Row("adaptive-cl", {"start": 0.3, "classes": CLASSES}, zero={"start": 1.0, "gamma": 0.0}),
    Row("adaptive-cl", {"start": 0.3}, zero={"start": 1.0}, measure="running"),
    Row("adaptive-cl", _taught, zero={"start": 1.0, "gamma": 0.0}),
]
