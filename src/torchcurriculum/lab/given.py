"""What a recipe's options ask for by a word: a loss function, trusted rows, groups, a model trained on other rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .. import losses, methods
from ..curriculum import Curriculum
from ..data import Rows
from ..fast.graphs import GraphedStep
from .evaluation import Autocast
from .recipe import Recipe
from .sources import make_optimizer, make_schedule

__all__ = ["LOSSES", "loss_named", "rows_given"]

LOSSES: dict[str, Callable[[Recipe, Tensor], nn.Module]] = {
    "gce": lambda recipe, counts: losses.GeneralisedCrossEntropy(),
    "sce": lambda recipe, counts: losses.SymmetricCrossEntropy(),
    "bootstrap-soft": lambda recipe, counts: losses.Bootstrapped(),
    "bootstrap-hard": lambda recipe, counts: losses.Bootstrapped(hard=True),
    "forward": lambda recipe, counts: losses.ForwardCorrected(_transition(len(counts), recipe.noise_rate)),
    "focal": lambda recipe, counts: losses.Focal(),
    "class-balanced": lambda recipe, counts: losses.ClassBalanced(counts),
    "logit-adjusted": lambda recipe, counts: losses.LogitAdjusted(counts),
    "ldam": lambda recipe, counts: losses.LDAM(counts),
}


def loss_named(name: str, recipe: Recipe, labels: Tensor, classes: int) -> nn.Module:
    """A loss function by the word in a recipe's options; counts and the true noise rate come from the recipe's data."""
    if name not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {name!r}")
    return LOSSES[name](recipe, labels.cpu().bincount(minlength=classes).clamp_min(1))  # noise may empty a class


def _transition(classes: int, rate: float) -> Tensor:
    """Flips to every other class with the same probability."""
    return torch.full((classes, classes), rate / (classes - 1)).fill_diagonal_(1 - rate)


def rows_given(
    options: Mapping[str, Any],
    recipe: Recipe,
    sets: Mapping[str, Rows],
    seed: int,
    network: Callable[[], nn.Module],
    autocast: Autocast,
) -> dict[str, Any]:
    """The options with ``"valid"`` and ``"labels"`` replaced by what they stand for."""
    made = dict(options)
    if made.get("meta") == "valid":
        made["meta"] = sets["valid"]
    if made.get("groups") == "labels":
        made["groups"] = sets["train"].y.cpu()
    if made.get("irreducible") == "valid":
        made["irreducible"] = _trained(network(), recipe, sets["valid"], seed, autocast)
    return made


def _trained(model: nn.Module, recipe: Recipe, rows: Rows, seed: int, autocast: Autocast) -> nn.Module:
    """The network after plain training on ``rows``, as the recipe trains."""
    curriculum = Curriculum(methods.Vanilla(), rows, batch_size=recipe.batch_size, seed=seed)
    optimizer = make_optimizer(recipe, model)
    schedule, step = make_schedule(recipe, optimizer), GraphedStep(curriculum, model, optimizer, autocast)
    model.train()
    for _ in range(recipe.epochs):
        for batch in curriculum.epoch(model):
            step(batch)
        schedule.step()
    return model.eval()
