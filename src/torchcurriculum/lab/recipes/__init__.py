"""One file per table or figure, named as in the paper's source: functions that return frozen recipes."""

from ..recipe import Recipe
from . import digits
from .cifar_10_100 import cifar
from .comparison_cl import loss_reweighting, reweighting
from .details_webvision import webvision
from .different_q import q_sensitivity
from .every_method import every_method
from .m_apw_readings import readings
from .mixup_details import mixup_ablation
from .nlp_and_graph import nlp_graph, sst2
from .own_data import own_csv, own_images

__all__ = ["RECIPES", "TABLES"]

TABLES: dict[str, tuple[Recipe, ...]] = {
    "cifar": cifar(),
    "nlp-graph": nlp_graph(),
    "loss-reweighting": loss_reweighting(),
    "mixup-ablation": mixup_ablation(),
    "m-apw-readings": readings(),
}
_ALL = [digits.recipe(), *cifar(), every_method(), q_sensitivity(), *nlp_graph(), *sst2(), *readings()]
_ALL += [reweighting(*recipe.name.rsplit("-", 1)) for recipe in loss_reweighting()]
_ALL += [webvision(), own_images(), own_csv()]
RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _ALL}
