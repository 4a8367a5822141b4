"""The options of one method in a run: the recipe's, with q and the error threshold resolved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..record import Record, RecordError
from ..thresholds import error_threshold
from .recipe import Recipe, options_of

__all__ = ["PD", "asks_for_pd", "needs_vanilla", "paper_threshold", "resolved_options"]

PD = "pd_threshold"  # in a vanilla record's meta: the estimate that ``threshold: "pd"`` reads


def resolved_options(recipe: Recipe, name: str, folder: Path) -> dict[str, Any]:
    """Options for ``methods.build``; ``folder`` is the run's, next to that of the vanilla run with the same seed."""
    options = options_of(recipe.options, name)
    if "q_epochs" in options:
        options["q"] = max(2, options.pop("q_epochs") * recipe.epochs)
    if not name.startswith(("apw-", "s-apw-", "m-apw-")):
        return options
    rule = options.get("threshold", recipe.threshold)
    if rule == "pd":
        rule = _estimated(folder.parent.parent / "vanilla" / folder.name, name)
    return {**options, "threshold": paper_threshold(recipe) if rule == "paper" else rule}


def needs_vanilla(recipe: Recipe, name: str) -> bool:
    """Whether this method's threshold comes from the vanilla run of the same seed."""
    return bool(options_of(recipe.options, name).get("threshold", recipe.threshold) == "pd")


def asks_for_pd(recipe: Recipe) -> bool:
    """Whether any method of a recipe needs the estimate of the vanilla run."""
    return any(options.get("threshold") == "pd" for options in recipe.options.values())


def paper_threshold(recipe: Recipe) -> float:
    """The paper's rule for e at the recipe's noise."""
    return error_threshold(recipe.noise_rate, recipe.noise) if recipe.noise_rate else error_threshold()


def _estimated(folder: Path, name: str) -> float:
    """The PD estimate of the vanilla run in ``folder``."""
    try:
        return float(Record.load(folder).meta[PD])
    except (RecordError, KeyError):
        raise ValueError(
            f"{name} takes its threshold from the vanilla run with the same seed, but {folder} holds no finished one; "
            "run --method vanilla with the same --out first"
        ) from None
