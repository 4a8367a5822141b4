"""One file for each table or figure: functions that return a complete, frozen recipe."""

from collections.abc import Callable

from .cifar import noisy_cifar
from .digits import recipe as digits_recipe
from .recipe import Recipe
from .runner import run

__all__ = ["RECIPES", "Recipe", "run"]

RECIPES: dict[str, Callable[[], Recipe]] = {"digits": digits_recipe, "cifar10-n40": noisy_cifar}
