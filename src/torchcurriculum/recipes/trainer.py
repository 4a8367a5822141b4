"""Trains one method with one seed as a recipe says, and evaluates it after every epoch."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import methods
from ..core import derive, evaluating
from ..curriculum import Curriculum
from ..data import Arrays, flip_labels
from ..record import Record
from ..report.table import best_epoch
from ..thresholds import error_threshold
from . import digits
from .recipe import Recipe

__all__ = ["environment", "evaluate", "load_data", "train"]

DATA: dict[str, Callable[[int], dict[str, tuple[Tensor, Tensor]]]] = {"digits": digits.load}
MODELS: dict[str, Callable[[], nn.Module]] = {"digits-cnn": digits.model}
Watch = Callable[[str, int, dict[str, Any]], None]


def load_data(recipe: Recipe, seed: int) -> tuple[dict[str, tuple[Tensor, Tensor]], Tensor]:
    """The parts of the data, and the training labels with the recipe's noise in them."""
    parts = DATA[recipe.data](seed)
    clean = parts["train"][1]
    classes = int(max(y.max() for _, y in parts.values())) + 1
    return parts, flip_labels(clean, recipe.noise_rate, classes, seed)


def train(recipe: Recipe, name: str, seed: int, folder: Path, watch: Watch) -> Record:
    """One run, with its record in ``folder``.

    Args:
        recipe: What to do.
        name: Which method.
        seed: Which seed.
        folder: Where the record goes.
        watch: Called after every epoch with the method's name, the seed and the epoch's row.

    Returns:
        The record, whose rows also hold valid_acc, test_acc, test_eprop and test_ece.
    """
    parts, labels = load_data(recipe, seed)
    x, clean = parts["train"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "initial weights"))
        model = MODELS[recipe.model]()
    method = methods.build(name, len(x), recipe.epochs, **_options(recipe, name))
    meta = {"method": name, "seed": seed, "q": getattr(getattr(method, "method", method), "q", None)}
    record = Record(len(x), {**meta, "recipe": recipe.as_dict(), "environment": environment()}, folder)
    record.set_array("labels", labels.numpy())
    record.set_array("clean", clean.numpy())
    options: dict[str, Any] = {"batch_size": recipe.batch_size, "seed": seed, "measure": recipe.measure}
    curriculum = Curriculum(method, Arrays(x, labels), record=record, samples=True, **options)
    optimizer = torch.optim.SGD(model.parameters(), recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe.epochs, recipe.lr_min)
    predicted = torch.zeros(len(x), dtype=torch.int64)
    for _ in range(recipe.epochs):
        model.train()
        for batch in curriculum.epoch(model):
            loss = curriculum.loss(model, batch)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        schedule.step()
        scores = {f"{part}_{key}": value for part in ("valid", "test") for key, value in evaluate(model, *parts[part])}
        record.annotate(**scores)
        if best_epoch(record) == len(record.epochs) - 1:
            predicted = _predict(model, x)
        watch(name, seed, record.epochs[-1])
    record.set_array("predicted", predicted.numpy())
    return record


def evaluate(model: nn.Module, x: Tensor, y: Tensor) -> list[tuple[str, float]]:
    """Accuracy, E-Prop at log 2 and expected calibration error (15 equal bins) on a set."""
    with evaluating(model), torch.no_grad():
        logits = torch.cat([model(part) for part in x.split(1024)])
    losses = F.cross_entropy(logits, y, reduction="none")
    confidence, guess = logits.softmax(1).max(1)
    right = (guess == y).double()
    bins = (confidence * 15).long().clamp(max=14)
    gaps = torch.zeros(15, dtype=torch.float64).scatter_add_(0, bins, right - confidence.double())
    log_2 = torch.tensor(2.0).log()
    return [
        ("acc", right.mean().item()),
        ("eprop", (losses <= log_2).double().mean().item()),
        ("ece", (gaps.abs().sum() / len(y)).item()),
    ]


def environment() -> dict[str, Any]:
    """Versions, hardware and commit: what a reader needs to judge a figure."""
    try:
        here = Path(__file__).parent
        asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, timeout=5)
        commit = asked.stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        commit = None
    accelerator = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    return {**versions, "machine": platform.machine(), "accelerator": accelerator, "commit": commit}


def write_json(path: Path, value: Any) -> None:
    """JSON for people: indented, sorted by nobody."""
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def _options(recipe: Recipe, name: str) -> dict[str, Any]:
    options = dict(recipe.options.get(name, {}))
    if "apw" in name and "threshold" not in options:
        rule = recipe.threshold
        paper = error_threshold(recipe.noise_rate, "synthetic") if recipe.noise_rate else error_threshold()
        options["threshold"] = paper if rule == "paper" else rule
    return options


def _predict(model: nn.Module, x: Tensor) -> Tensor:
    with evaluating(model), torch.no_grad():
        return torch.cat([model(part).argmax(1) for part in x.split(1024)])
