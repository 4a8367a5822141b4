"""Trains one method with one seed as a recipe says, and evaluates it after every epoch."""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import methods
from ..checkpoint import Checkpoint, GracefulStop
from ..core import derive, evaluating
from ..curriculum import Curriculum
from ..data import Arrays, Images, flip_labels, load_cifar10
from ..data.cifar import CLASSES
from ..models import simple_cnn
from ..predictions import Predictions
from ..previews import Previews
from ..record import Record, RecordError
from ..report.samples import telling_rows
from ..report.table import best_epoch
from ..thresholds import error_threshold
from . import digits
from .recipe import Recipe

__all__ = ["Interrupted", "environment", "evaluate", "finished", "load_data", "train"]

Parts = dict[str, tuple[Tensor, Tensor]]
MODELS: dict[str, Callable[[], nn.Module]] = {"digits-cnn": digits.model, "simple-cnn": simple_cnn}
ARRAYS: dict[str, type[Arrays]] = {"digits": Arrays, "cifar10": Images}
PICTURES: dict[str, Callable[[Tensor], Tensor]] = {
    "digits": digits.pictures,
    "cifar10": lambda x: x.permute(0, 2, 3, 1),
}
Watch = Callable[[str, int, dict[str, Any]], None]


class Interrupted(Exception):
    """A run that was told to stop and left in order, with the exit status that says so."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__(words)
        self.status = status


def load_data(recipe: Recipe, seed: int, folder: Path | None = None) -> tuple[Parts, Tensor]:
    """The parts of the data, and the training labels with the recipe's noise in them."""
    if recipe.data == "digits":
        parts = digits.load(seed)
    elif folder is None:
        raise ValueError(f"the recipe {recipe.name!r} needs --data DIR, the folder where {recipe.data} lies")
    else:
        parts = load_cifar10(folder, seed)
    clean = parts["train"][1]
    return parts, flip_labels(clean, recipe.noise_rate, _classes(parts), seed)


def finished(recipe: Recipe, folder: Path) -> Record | None:
    """The record of a run that came to its end in ``folder``, or None."""
    try:
        record = Record.load(folder)
    except RecordError:
        return None
    if not record.meta.get("finished") or len(record.epochs) != recipe.epochs:
        return None
    shutil.rmtree(folder / "states", ignore_errors=True)  # a kill in a run's last moment may have left them
    return record


def train(
    recipe: Recipe,
    name: str,
    seed: int,
    folder: Path,
    watch: Watch,
    data: Path | None = None,
    stop: GracefulStop | None = None,
) -> Record:
    """One run, with its record in ``folder``, on an accelerator where there is one.

    A state is saved after every epoch; a run that was killed goes on from its newest whole one, and its record is that
    of an undisturbed run, except for ``seconds``.

    Args:
        recipe: What to do.
        name: Which method.
        seed: Which seed.
        folder: Where the record goes.
        watch: Called after every epoch with the method's name, the seed and the epoch's row.
        data: Folder of the data set, for recipes that need one.
        stop: Looked at before every step; when it is requested, a state is saved and ``Interrupted`` is raised.

    Returns:
        The record, whose rows also hold valid_acc, test_acc, test_eprop and test_ece.
    """
    run = _Run(recipe, name, seed, folder, data)
    run.resume()
    while len(run.record.epochs) < recipe.epochs:
        run.epoch(stop or GracefulStop())
        watch(name, seed, run.record.epochs[-1])
    return run.finish()


class _Run:
    """Everything that one run holds, and how it goes on after a stop."""

    def __init__(self, recipe: Recipe, name: str, seed: int, folder: Path, data: Path | None) -> None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        parts, labels = load_data(recipe, seed, data)
        kind = ARRAYS[recipe.data]
        self.name, self.seed, self.data = f"{name}, seed {seed}", seed, recipe.data
        self.sets = {part: kind(x.to(device), y.to(device)) for part, (x, y) in parts.items()}
        self.train_set = kind(self.sets["train"].x, labels.to(device))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(seed, "initial weights"))
            self.model = MODELS[recipe.model]().to(device)
        method = methods.build(name, len(self.train_set), recipe.epochs, **_options(recipe, name))
        meta = {"method": name, "seed": seed, "q": getattr(getattr(method, "method", method), "q", None)}
        if recipe.data == "cifar10":
            meta["classes"] = list(CLASSES)
        self.states = folder / "states"
        self.record = _open_record(len(self.train_set), {**meta, "recipe": recipe.as_dict()}, folder, self.states)
        self.record.set_array("labels", labels.numpy())
        self.record.set_array("clean", parts["train"][1].numpy())
        options: dict[str, Any] = {"batch_size": recipe.batch_size, "seed": seed, "measure": recipe.measure}
        self.curriculum = Curriculum(method, self.train_set, record=self.record, samples=True, **options)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay
        )
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, recipe.epochs, recipe.lr_min)
        self.seen: dict[str, Any] = {"steps": 0}
        self.predictions = Predictions(labels.to(device), _classes(parts))
        self.checkpoint = Checkpoint(self.states)

    def _parts(self) -> dict[str, Any]:
        names = ("model", "optimizer", "schedule", "curriculum", "predictions", "seen")
        return {name: getattr(self, name) for name in names}

    def resume(self) -> None:
        """Goes on from the newest whole state; without one the run begins anew."""
        if self.checkpoint.load(**self._parts()) is None:
            self.record.rewind(0)

    def save(self) -> bool:
        return self.checkpoint.save(self.seen["steps"], **self._parts())

    def epoch(self, stop: GracefulStop) -> None:
        """The rest of an epoch: trains, evaluates, notes the predictions for all training rows, saves."""
        self.model.train()
        for batch in self.curriculum.epoch(self.model):
            if stop.requested:
                self._leave(stop)
            loss = self.curriculum.loss(self.model, batch)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.seen["steps"] += 1
        self.schedule.step()
        scores = {part: evaluate(self.model, self.sets[part]) for part in ("valid", "test")}
        self.record.annotate(**{f"{part}_{key}": value for part in scores for key, value in scores[part]})
        best = best_epoch(self.record) == len(self.record.epochs) - 1
        self.predictions.note(_logits(self.model, self.train_set), best)
        self.save()

    def _leave(self, stop: GracefulStop) -> None:
        where = f"in epoch {self.curriculum.number} of {self.name}"
        saved = "its state is saved" if self.save() else "its state could not be saved, the one before it stands"
        raise Interrupted(f"stopped {where}; {saved}", stop.status)

    def finish(self) -> Record:
        for name, values in self.predictions.arrays().items():
            self.record.set_array(name, values)
        self._keep_previews()
        self.record.describe({**self.record.meta, "finished": True})
        shutil.rmtree(self.states, ignore_errors=True)  # nothing is left to go on with
        return self.record

    def _keep_previews(self) -> None:
        """Pictures of the samples that a report of this run shows."""
        rows = telling_rows(self.record)
        if len(rows) and self.data in PICTURES and self.record.folder is not None:
            pictures = PICTURES[self.data](self.train_set.x[torch.from_numpy(rows).to(self.train_set.x.device)])
            Previews(rows, pictures.cpu().numpy()).save(self.record.folder)


def _open_record(n: int, meta: dict[str, Any], folder: Path, states: Path) -> Record:
    """The record to go on with; states whose record is lost go, for they could not make it whole again."""
    meta = {**meta, "environment": environment()}
    try:
        held = Record.load(folder).meta
    except RecordError:
        shutil.rmtree(states, ignore_errors=True)
        return Record(n, meta, folder)
    began = held.get("began", held.get("environment"))
    return Record.open(n, meta if began == meta["environment"] else {**meta, "began": began}, folder)


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
    temporary = path.with_name(f"{path.name}.part")
    temporary.write_text(json.dumps(_without_nan(value), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(temporary, path)


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


def _classes(parts: Parts) -> int:
    return int(max(y.max() for _, y in parts.values())) + 1


def _logits(model: nn.Module, data: Arrays) -> Tensor:
    with evaluating(model), torch.no_grad():
        return torch.cat([model(data.batch(rows)[0]) for rows in torch.arange(len(data)).split(1024)])
