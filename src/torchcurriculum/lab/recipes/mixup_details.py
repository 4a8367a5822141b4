"""The paper's table mixup_details: mixup against M-APW in two readings, in the settings of ``loss-reweighting``."""

from __future__ import annotations

from ..recipe import Recipe
from .comparison_cl import MIXED, loss_reweighting

__all__ = ["mixup_ablation"]

METHODS = ("vanilla", "mixup", *MIXED)


def mixup_ablation() -> tuple[Recipe, ...]:
    """The twelve rows of the table; reuses runs of ``loss-reweighting`` in the same folder."""
    return tuple(recipe.with_(methods=METHODS) for recipe in loss_reweighting())
