"""Which reading of the paper's Appendix A.4 is M-APW? Each of the three, with two thresholds and two alphas."""

from __future__ import annotations

import math

from ...functional.mixup import READINGS
from ..recipe import Recipe
from . import digits
from .comparison_cl import reweighting

__all__ = ["readings"]

LOG_2, FIFTH = {"threshold": math.log(2)}, {"alpha": 0.2}  # e as on clean data; the paper states no alpha
VARIANTS = {
    "mixup@fifth": FIFTH,
    "m-apw-e@half": {"reading": "weights", "q": 1e12},  # weights that never change: every mixture is half and half
    **{f"m-apw-e@{reading}": {"reading": reading} for reading in READINGS},
    **{f"m-apw-e@{reading}-log2": {"reading": reading, **LOG_2} for reading in READINGS},
    "m-apw-e@beta-fifth": {"reading": "beta", **FIFTH},
    "m-apw-e@beta-fifth-log2": {"reading": "beta", **FIFTH, **LOG_2},
}


def readings() -> tuple[Recipe, ...]:
    """Digits as in ``digits``, and CIFAR-10N with ResNet-18 as in ``loss-reweighting``.

    The variants are named after their reading; those with ``-log2`` have e = log 2 instead of the paper's default,
    those with ``fifth`` mixup's alpha = 0.2 instead of 1. ``m-apw-e@half`` is the control: APW's weights stay equal.
    """
    small, large = digits.recipe(), reweighting("cifar10n", "resnet18")
    words = "M-APW-E in its three readings, with two thresholds and alphas, against APW-E and mixup"
    return (
        _with_variants(small, "digits-readings", f"digits with 40 % of the training labels flipped: {words}"),
        _with_variants(large, "cifar10n-readings", f"CIFAR-10N with ResNet-18: {words} (needs --data)"),
    )


def _with_variants(recipe: Recipe, name: str, summary: str) -> Recipe:
    return recipe.with_(name=name, summary=summary, methods=("vanilla", "apw-e", "mixup", *VARIANTS), options=VARIANTS)
