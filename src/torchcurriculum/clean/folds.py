"""Trains so that every row is judged by networks that never saw its label."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ..curriculum import Curriculum
from ..data import Arrays
from ..distributed import derive, evaluating
from ..methods import build
from ..record import Record
from .userdata import Watch

__all__ = ["Folds", "fold_numbers", "train_folds"]

WIDTH = 128
CHUNK = 2**14  # rows that are predicted together
STEPS = 6000  # of a fold, roughly at most
LR, DECAY, DROP = 2e-3, 1e-2, 0.2


@dataclass(frozen=True)
class Folds:
    """What K networks say.

    Attributes:
        probabilities: (N, C) float32, for each row by the network that was trained without it.
        losses: (E, N) float32, of each epoch, by the networks that were trained with the row.
        words: What was trained.
        seconds: How long it took.
    """

    probabilities: np.ndarray
    losses: np.ndarray
    words: str
    seconds: float


def fold_numbers(labels: np.ndarray, features: np.ndarray, folds: int, seed: int = 0) -> np.ndarray:
    """(N,) the fold that each row is held out in: all classes are spread evenly, and equal rows are held out together.

    Example:
        >>> numbers = fold_numbers(np.array([0] * 10 + [1] * 10), np.arange(20.0)[:, None], 5)
        >>> np.bincount(numbers[:10]).tolist(), np.bincount(numbers[10:]).tolist()
        ([2, 2, 2, 2, 2], [2, 2, 2, 2, 2])
    """
    generator = np.random.default_rng(derive(seed, "folds"))
    order = generator.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    numbers = np.empty(len(labels), np.int64)
    numbers[order] = np.arange(len(labels)) % folds
    keys = np.ascontiguousarray(features).view(np.dtype((np.void, features.shape[1] * features.itemsize)))[:, 0]
    _, first, same = np.unique(keys, return_index=True, return_inverse=True)
    return numbers[first][same]


def train_folds(
    features: np.ndarray,
    labels: np.ndarray,
    classes: int,
    folds: int = 5,
    epochs: int | None = None,
    method: str = "vanilla",
    seed: int = 0,
    watch: Watch = lambda what, done, total: None,
) -> Folds:
    """Trains a small network on K parts of the rows each time, and asks it about the rest.

    Args:
        features: (N, D) float32.
        labels: (N,) int64 in range(classes).
        classes: C.
        folds: K.
        epochs: Of each network; by default 40, and fewer where there are many rows.
        method: The curriculum, a name of ``curriculum list``.
        seed: Parts, initial weights and order are a function of it; the global generators are left as found.
        watch: Called as ``watch(what, done, total)`` after every step.

    Returns:
        Probabilities and losses.
    """
    start = time.monotonic()
    held = fold_numbers(labels, features, folds, seed)
    x, y = torch.from_numpy(features), torch.from_numpy(labels)
    size = int(min(4096, max(32, 2 ** round(np.log2(max(len(y), 1) / 50)))))
    steps = max(1, len(y) * (folds - 1) // folds // size)
    epochs = epochs or int(min(40, max(8, STEPS // steps)))
    probabilities = np.zeros((len(y), classes), np.float32)
    losses, counts = np.zeros((epochs, len(y)), np.float32), np.zeros(len(y), np.float32)
    for fold in range(folds):
        rows, rest = (torch.from_numpy(np.flatnonzero(part)) for part in (held != fold, held == fold))
        if not len(rest):
            continue
        done = fold * epochs * steps

        def step(number: int, done: int = done) -> None:
            watch("training", min(done + number, folds * epochs * steps), folds * epochs * steps)

        network, record = _train(x[rows], y[rows], classes, epochs, size, method, derive(seed, "fold", fold), step)
        probabilities[rest.numpy()] = _predict(network, x[rest])
        for epoch, values in enumerate(record.rows("losses")):
            losses[epoch, rows.numpy()] += values
        counts[rows.numpy()] += 1
    words = f"{folds} networks with one hidden layer of {WIDTH}, {epochs} epochs each ({method})"
    return Folds(probabilities, losses / counts, words, time.monotonic() - start)


def _train(
    x: Tensor, y: Tensor, classes: int, epochs: int, size: int, method: str, seed: int, step: Callable[[int], None]
) -> tuple[nn.Module, Record]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(
            nn.Linear(x.shape[1], WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Dropout(DROP), nn.Linear(WIDTH, classes)
        )
        curriculum = Curriculum(
            build(method, len(y), epochs), Arrays(x, y), batch_size=size, seed=seed, measure="running", samples=True
        )
        optimizer = torch.optim.AdamW(network.parameters(), LR, weight_decay=DECAY)
        total, number = epochs * -(-len(y) // size), 0
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LR, total_steps=total + epochs)
        network.train()
        for _ in range(epochs):
            for batch in curriculum.epoch(network):
                loss = curriculum.loss(network, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                number += 1
                step(number)
    return network, curriculum.record


@torch.no_grad()
def _predict(network: nn.Module, x: Tensor) -> np.ndarray:
    with evaluating(network):
        return torch.cat([network(part).float().softmax(1) for part in x.split(CHUNK)]).numpy()
