"""Trains one method with one seed as a recipe says, and evaluates it after every epoch."""

from __future__ import annotations

import json
import math
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
from ..data import Arrays, Images, flip_labels, load_cifar10
from ..models import simple_cnn
from ..record import Record
from ..report.table import best_epoch
from ..thresholds import error_threshold
from . import digits
from .recipe import Recipe

__all__ = ["environment", "evaluate", "load_data", "train"]

Parts = dict[str, tuple[Tensor, Tensor]]
MODELS: dict[str, Callable[[], nn.Module]] = {"digits-cnn": digits.model, "simple-cnn": simple_cnn}
ARRAYS: dict[str, type[Arrays]] = {"digits": Arrays, "cifar10": Images}
Watch = Callable[[str, int, dict[str, Any]], None]


def load_data(recipe: Recipe, seed: int, folder: Path | None = None) -> tuple[Parts, Tensor]:
    """The parts of the data, and the training labels with the recipe's noise in them."""
    if recipe.data == "digits":
        parts = digits.load(seed)
    elif folder is None:
        raise ValueError(f"the recipe {recipe.name!r} needs --data DIR, the folder where {recipe.data} lies")
    else:
        parts = load_cifar10(folder, seed)
    clean = parts["train"][1]
    classes = int(max(y.max() for _, y in parts.values())) + 1
    return parts, flip_labels(clean, recipe.noise_rate, classes, seed)


def train(recipe: Recipe, name: str, seed: int, folder: Path, watch: Watch, data: Path | None = None) -> Record:
    """One run, with its record in ``folder``, on an accelerator where there is one.

    Args:
        recipe: What to do.
        name: Which method.
        seed: Which seed.
        folder: Where the record goes.
        watch: Called after every epoch with the method's name, the seed and the epoch's row.
        data: Folder of the data set, for recipes that need one.

    Returns:
        The record, whose rows also hold valid_acc, test_acc, test_eprop and test_ece.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    parts, labels = load_data(recipe, seed, data)
    clean = parts["train"][1]
    kind = ARRAYS[recipe.data]
    sets = {part: kind(x.to(device), y.to(device)) for part, (x, y) in parts.items()}
    train_set = kind(sets["train"].x, labels.to(device))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "initial weights"))
        model = MODELS[recipe.model]().to(device)
    n = len(train_set)
    method = methods.build(name, n, recipe.epochs, **_options(recipe, name))
    meta = {"method": name, "seed": seed, "q": getattr(getattr(method, "method", method), "q", None)}
    record = Record(n, {**meta, "recipe": recipe.as_dict(), "environment": environment()}, folder)
    record.set_array("labels", labels.numpy())
    record.set_array("clean", clean.numpy())
    options: dict[str, Any] = {"batch_size": recipe.batch_size, "seed": seed, "measure": recipe.measure}
    curriculum = Curriculum(method, train_set, record=record, samples=True, **options)
    optimizer = torch.optim.SGD(model.parameters(), recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe.epochs, recipe.lr_min)
    predicted = torch.zeros(n, dtype=torch.int64)
    for _ in range(recipe.epochs):
        model.train()
        for batch in curriculum.epoch(model):
            loss = curriculum.loss(model, batch)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        schedule.step()
        scores = {f"{part}_{key}": value for part in ("valid", "test") for key, value in evaluate(model, sets[part])}
        record.annotate(**scores)
        if best_epoch(record) == len(record.epochs) - 1:
            predicted = _logits(model, train_set).argmax(1).cpu()
        watch(name, seed, record.epochs[-1])
    record.set_array("predicted", predicted.numpy())
    return record


def evaluate(model: nn.Module, data: Arrays) -> list[tuple[str, float]]:
    """Accuracy, E-Prop at log 2 and expected calibration error (15 equal bins) on a set."""
    logits, y = _logits(model, data), data.y
    losses = F.cross_entropy(logits, y, reduction="none")
    confidence, guess = logits.softmax(1).max(1)
    right = (guess == y).double()
    bins = (confidence * 15).long().clamp(max=14)
    gaps = torch.zeros(15, dtype=torch.float64, device=y.device).scatter_add_(0, bins, right - confidence.double())
    log_2 = torch.tensor(2.0, device=y.device).log()
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
        commit = asked.stdout.strip() if asked.returncode == 0 else None
    except (OSError, subprocess.SubprocessError):
        commit = None
    accelerator = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    return {**versions, "machine": platform.machine(), "accelerator": accelerator, "commit": commit}


def write_json(path: Path, value: Any) -> None:
    """JSON for people: indented, and null for what is not a number."""
    path.write_text(json.dumps(_without_nan(value), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _options(recipe: Recipe, name: str) -> dict[str, Any]:
    options = dict(recipe.options.get(name, {}))
    if "apw" in name and "threshold" not in options:
        rule = recipe.threshold
        paper = error_threshold(recipe.noise_rate, "synthetic") if recipe.noise_rate else error_threshold()
        options["threshold"] = paper if rule == "paper" else rule
    return options


def _logits(model: nn.Module, data: Arrays) -> Tensor:
    with evaluating(model), torch.no_grad():
        return torch.cat([model(data.batch(rows)[0]) for rows in torch.arange(len(data)).split(1024)])
