"""Published results for our recipes (``published.csv``), of the paper and its peers, in per cent."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from .recipe import base_name

__all__ = ["SOURCES", "Figure", "published"]

SOURCES = {
    "paper": "Li et al., Adaptively Point-weighting Curriculum Learning: tables nlp_and_graph, mixup_details and "
    "details_webvision; 5 runs, no spread given. Its figures CIFAR_10_100 and different_q, and its bar charts "
    "comparison_CL, give no numbers",
    "CurBench": "Zhou et al., CurBench, ICML 2024, tables 3 and 9-11: mean ± standard deviation of 5 seeds",
    "CurML": "Zhou et al., CurML, ACM MM 2022, figure 3: read from its bars, within 0.1",
}


@dataclass(frozen=True)
class Figure:
    """One published result.

    Attributes:
        source: A key of ``SOURCES``.
        recipe: Our recipe with the same setting.
        method: A method or variant of it.
        metric: ``"T-ACC"`` or ``"E-Prop†"``.
        value: Per cent.
        std: Standard deviation, if given.
    """

    source: str
    recipe: str
    method: str
    metric: str
    value: float
    std: float | None = None

    def __str__(self) -> str:
        return f"{self.value:.2f}" + (f" ± {self.std:.2f}" if self.std is not None else "")


@cache
def figures() -> tuple[Figure, ...]:
    """All published results."""
    _, *rows = csv.reader((files(__package__) / "published.csv").read_text(encoding="utf-8").splitlines())
    return tuple(
        Figure(source, recipe, method, metric, float(value), float(std) if std else None)
        for source, recipe, method, metric, value, std in rows
    )


def published(recipe: str, method: str) -> list[Figure]:
    """The published results of a method or variant in a recipe; most have none.

    Example:
        >>> [(figure.source, str(figure)) for figure in published("nci1-n40", "vanilla")]
        [('paper', '55.67'), ('CurBench', '55.23 ± 3.21')]
    """
    if recipe == "cifar10n-readings" and not method.endswith("@half"):  # @half is a control, not a reading
        recipe, method = "cifar10n-resnet18", base_name(method)
    # The paper's results are compared with either reading and either threshold.
    method = method.replace("m-apw-beta-", "m-apw-").removesuffix("@log2")
    return [figure for figure in figures() if (figure.recipe, figure.method) == (recipe, method)]
