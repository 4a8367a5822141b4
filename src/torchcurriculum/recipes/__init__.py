"""One file for each table or figure: functions that return a complete, frozen recipe."""

from collections.abc import Callable
from functools import partial

from .cifar import noisy_cifar
from .digits import recipe as digits_recipe
from .nlp_graph import nci1, nlp_graph
from .recipe import Recipe
from .runner import run

__all__ = ["RECIPES", "TABLES", "Recipe", "run"]

TABLES: dict[str, Callable[[], tuple[Recipe, ...]]] = {"nlp-graph": nlp_graph}
RECIPES: dict[str, Callable[[], Recipe]] = {
    "digits": digits_recipe,
    "cifar10-n40": noisy_cifar,
    "nci1": nci1,
    "nci1-n40": partial(nci1, 0.4),
}
