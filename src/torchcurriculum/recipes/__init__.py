"""One file for each table or figure: functions that return a complete, frozen recipe."""

from collections.abc import Callable

from .cifar import cifar
from .digits import recipe as digits_recipe
from .loss_reweighting import loss_reweighting, reweighting
from .mixup_ablation import mixup_ablation
from .nlp_graph import nlp_graph
from .own import own_csv, own_images
from .q_sensitivity import q_sensitivity
from .readings import readings
from .recipe import Recipe
from .runner import run
from .webvision import webvision

__all__ = ["RECIPES", "TABLES", "Recipe", "run"]

TABLES: dict[str, Callable[[], tuple[Recipe, ...]]] = {
    "cifar": cifar,
    "nlp-graph": nlp_graph,
    "loss-reweighting": loss_reweighting,
    "mixup-ablation": mixup_ablation,
    "m-apw-readings": readings,
}


def _returning(recipe: Recipe) -> Callable[[], Recipe]:
    return lambda: recipe


_ALL = [digits_recipe(), *cifar(), q_sensitivity(), *nlp_graph(), *readings()]
_ALL += [reweighting(*recipe.name.rsplit("-", 1)) for recipe in loss_reweighting()]
_ALL += [webvision(), own_images(), own_csv()]
RECIPES: dict[str, Callable[[], Recipe]] = {recipe.name: _returning(recipe) for recipe in _ALL}
