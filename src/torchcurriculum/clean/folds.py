"""Cross-validation: every row is judged by classifiers that never saw its label.

Three kinds of classifier vote, because each is better than the others on some tables: a small network, trained through
``Curriculum``; logistic regression; and gradient-boosted trees. Their probabilities are averaged.
See docs/results/clean.md for results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..curriculum import Curriculum
from ..data import Arrays
from ..distributed import derive, evaluating
from ..methods import build
from .userdata import Watch

__all__ = ["VOTERS", "Folds", "fold_numbers", "train_folds"]

WIDTH = 128
EPOCHS = 12  # more would memorise wrong labels
STEPS = 6000  # approximate limit for a fold's network
LR, DECAY, DROP = 2e-3, 1e-2, 0.2
CHUNK = 2**14  # rows per prediction batch
MOST = 20  # most classes for which trees vote, since their cost grows with each class
VOTERS = {"table": ("network", "linear", "trees"), "pictures": ("network", "linear"), "text": ("network", "linear")}
FLOOR = 1e-4  # lower limit of a probability


@dataclass(frozen=True)
class Folds:
    """Predictions for held-out rows.

    Attributes:
        probabilities: (N, C) float32.
        words: What was trained, for the user.
    """

    probabilities: np.ndarray
    words: str


def fold_numbers(labels: np.ndarray, features: np.ndarray, folds: int, seed: int = 0) -> np.ndarray:
    """(N,) the fold that each row is held out in: stratified by class, with equal rows held out together.

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
    kinds: Sequence[str] = ("network", "linear", "trees"),
    method: str = "vanilla",
    seed: int = 0,
    watch: Watch = lambda what, done, total: None,
    held: np.ndarray | None = None,
) -> Folds:
    """Trains on all folds but one and predicts that one, for each fold.

    Args:
        features: (N, D) float32.
        labels: (N,) int64 in range(classes).
        classes: C.
        folds: Number of folds.
        epochs: Epochs of the networks; by default 12.
        kinds: Which classifiers vote. Trees suit table columns but are slow on embeddings; they do not vote if there
            are many classes.
        method: The curriculum of the networks, a name of ``curriculum list``.
        seed: Determines folds, initial weights and order; the global generators are restored.
        watch: Called as ``watch(what, done, total)`` after every step.
        held: (N,) the fold of each row, to reuse a split; by default ``fold_numbers``.

    Returns:
        The mean of their probabilities.
    """
    epochs = epochs or EPOCHS
    held = fold_numbers(labels, features, folds, seed) if held is None else held
    parts = [(np.flatnonzero(held != fold), np.flatnonzero(held == fold)) for fold in range(folds)]
    parts = [(rows, rest) for rows, rest in parts if len(rest)]
    found, words = np.zeros((len(labels), classes), np.float32), []
    if "network" in kinds:
        found = _networks(features, labels, classes, parts, epochs, method, seed, watch)
        words.append(f"{len(parts)} networks of {epochs} epochs ({method})")
    others: dict[str, Callable[[], Any]] = {"logistic regression": _linear} if "linear" in kinds else {}
    if "trees" in kinds and classes <= MOST:
        others["boosted trees"] = _trees
    for name, make in others.items():
        for number, (rows, rest) in enumerate(parts):
            watch(name, number, len(parts))
            if (labels[rows] == labels[rows[:1]]).all():  # few different rows, held out together: one class is left
                continue
            model = make().fit(features[rows], labels[rows])
            for some in np.array_split(rest, 1 + len(rest) // CHUNK):
                found[np.ix_(some, model.classes_)] += np.clip(model.predict_proba(features[some]), FLOOR, 1)
        words.append(name)
    found = np.maximum(found, FLOOR)
    found /= found.sum(1, keepdims=True)
    return Folds(found, ", ".join(words))


def _linear() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=0.3, max_iter=1000, tol=1e-3)


def _trees() -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    options: dict[str, Any] = {"max_iter": 60, "learning_rate": 0.07, "max_leaf_nodes": 15, "l2_regularization": 1.0}
    return HistGradientBoostingClassifier(early_stopping=False, random_state=0, **options)


def _networks(
    features: np.ndarray,
    labels: np.ndarray,
    classes: int,
    parts: list[tuple[np.ndarray, np.ndarray]],
    epochs: int,
    method: str,
    seed: int,
    watch: Watch,
) -> np.ndarray:
    """(N, C) probabilities from the networks trained without these rows."""
    x, y = torch.from_numpy(features), torch.from_numpy(labels)
    size = int(min(4096, max(32, 2 ** round(np.log2(len(y) / 50)))))
    steps = max(-(-len(rows) // size) for rows, _ in parts)
    epochs = max(2, min(epochs, STEPS // steps))
    found = np.zeros((len(y), classes), np.float32)
    for number, (rows, rest) in enumerate(parts):

        def step(done: int, before: int = number * epochs * steps) -> None:
            watch("training", before + done, len(parts) * epochs * steps)

        data = Arrays(x[torch.from_numpy(rows)], y[torch.from_numpy(rows)])
        network = _train(data, classes, epochs, size, method, derive(seed, "fold", number), step)
        found[rest] = _predict(network, x[torch.from_numpy(rest)])
    return np.clip(found, FLOOR, 1)


def _train(
    data: Arrays, classes: int, epochs: int, size: int, method: str, seed: int, step: Callable[[int], None]
) -> nn.Module:
    n = len(data)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(
            *(nn.Linear(data.x.shape[1], WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Dropout(DROP)),
            nn.Linear(WIDTH, classes),
        )
        alone = n % size == 1  # one row is too few for batch norm
        curriculum = Curriculum(
            build(method, n, epochs), data, batch_size=size, seed=seed, measure="running", drop_last=alone
        )
        optimizer = torch.optim.AdamW(network.parameters(), LR, weight_decay=DECAY)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LR, total_steps=epochs * (1 + -(-n // size)))
        done = 0
        for _ in range(epochs):
            for batch in curriculum.epoch(network):
                loss = curriculum.loss(network, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                done += 1
                step(done)
    return network


@torch.no_grad()
def _predict(network: nn.Module, x: Tensor) -> np.ndarray:
    with evaluating(network):
        return torch.cat([network(part).softmax(1) for part in x.split(CHUNK)]).numpy()
