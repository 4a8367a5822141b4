"""Figures that others have published for our recipes: the paper's, and the peers' it compares with. Per cent."""

from __future__ import annotations

from dataclasses import dataclass

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
    """One published figure.

    Attributes:
        source: A key of ``SOURCES``.
        metric: ``"T-ACC"`` or ``"E-Prop†"``.
        value: Per cent.
        std: Standard deviation, where one is given.
    """

    source: str
    metric: str
    value: float
    std: float | None = None

    def __str__(self) -> str:
        return f"{self.value:.2f}" + (f" ± {self.std:.2f}" if self.std is not None else "")


def published(recipe: str, method: str) -> list[Figure]:
    """What is published for a method or variant in a recipe; nothing for most.

    Example:
        >>> [(figure.source, str(figure)) for figure in published("nci1-n40", "vanilla")]
        [('paper', '55.67'), ('CurBench', '55.23 ± 3.21')]
    """
    if recipe == "cifar10n-readings" and not method.endswith("@half"):  # the control is no reading of the paper
        recipe, method = "cifar10n-resnet18", base_name(method)
    found = []
    paper = PAPER.get(recipe, {}).get(method, ())
    found += [Figure("paper", metric, value) for metric, value in zip(("T-ACC", "E-Prop†"), paper, strict=False)]
    if method in CURBENCH and recipe in COLUMNS:
        value, std = CURBENCH[method][COLUMNS.index(recipe)]
        found.append(Figure("CurBench", "T-ACC", value, std))
    if method in CURML and recipe in ("cifar10", "cifar10-n40"):
        found.append(Figure("CurML", "T-ACC", CURML[method][recipe != "cifar10"]))
    return found


# T-ACC, and E-Prop† where the paper gives it (for two classes both are the same).
PAPER: dict[str, dict[str, tuple[float, ...]]] = {
    "rte": {"vanilla": (64.40,), "apw-e": (65.20,), "apw-e@pd": (65.49,)},
    "rte-n40": {"vanilla": (54.42,), "apw-e": (57.13,), "apw-e@pd": (56.32,)},
    "nci1": {"vanilla": (69.99,), "apw-e": (71.70,), "apw-e@pd": (71.94,)},
    "nci1-n40": {"vanilla": (55.67,), "apw-e": (58.03,), "apw-e@pd": (57.24,)},
    "webvision": {
        "vanilla": (66.13, 51.80),
        "apw-e": (66.23, 53.41),
        "apw-i": (66.15, 52.54),
        "apw-ei": (66.14, 52.95),
        "s-apw-a": (66.02, 51.76),
        "s-apw-e": (66.20, 53.47),
        "s-apw-i": (66.14, 53.24),
        "s-apw-ei": (66.25, 53.20),
        "m-apw-e": (66.13, 62.86),
        "m-apw-i": (66.20, 62.94),
        "m-apw-ei": (66.16, 62.89),
    },
}
MIXUP = ("vanilla", "mixup", "m-apw-e", "m-apw-i", "m-apw-ei")
ABLATION: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "cifar10n-resnet18": ((77.37, 80.49, 82.36, 82.24, 82.39), (51.17, 52.83, 60.73, 60.56, 60.99)),
    "cifar10n-efficientnet": ((83.45, 85.23, 86.74, 86.63, 86.74), (61.42, 64.70, 73.18, 72.92, 73.28)),
    "cifar10n-convnext": ((86.64, 88.35, 89.87, 89.81, 89.95), (64.98, 64.14, 71.83, 71.56, 71.98)),
    "cifar10n-maxvit": ((88.44, 89.39, 89.90, 89.76, 89.96), (69.06, 65.26, 70.57, 70.26, 70.95)),
    "cifar100n-resnet18": ((57.29, 59.10, 59.37, 59.35, 59.28), (34.24, 36.04, 39.16, 39.09, 38.21)),
    "cifar100n-efficientnet": ((62.98, 64.57, 65.27, 65.21, 65.16), (40.77, 45.66, 51.31, 51.42, 50.55)),
    "cifar100n-convnext": ((67.12, 68.53, 69.48, 69.47, 69.46), (45.02, 46.08, 51.74, 51.72, 50.32)),
    "cifar100n-maxvit": ((67.12, 68.63, 69.15, 68.96, 68.98), (46.27, 44.28, 47.11, 47.13, 46.27)),
    "mini-webvision-resnet18": ((75.39, 76.58, 77.12, 77.09, 77.18), (67.29, 65.37, 68.90, 68.86, 68.90)),
    "mini-webvision-efficientnet": ((82.52, 83.01, 83.12, 83.15, 83.18), (76.43, 76.92, 79.78, 79.76, 79.61)),
    "mini-webvision-convnext": ((85.97, 86.43, 86.67, 86.71, 86.78), (81.83, 81.10, 83.69, 83.65, 83.57)),
    "mini-webvision-maxvit": ((86.74, 86.90, 86.71, 86.77, 86.70), (84.01, 82.15, 82.24, 82.29, 82.07)),
}
PAPER |= {
    recipe: dict(zip(MIXUP, zip(accuracies, shares, strict=True), strict=True))
    for recipe, (accuracies, shares) in ABLATION.items()
}

# BERT on RTE and GCN on NCI1, clean and with 40 % noise.
COLUMNS = ("rte", "rte-n40", "nci1", "nci1-n40")
CURBENCH: dict[str, tuple[tuple[float, float], ...]] = {
    "vanilla": ((64.62, 3.33), (54.22, 3.14), (69.59, 1.23), (55.23, 3.21)),
    "spl": ((61.37, 3.63), (51.34, 3.48), (68.42, 1.90), (60.05, 2.38)),
    "ttcl": ((66.35, 1.76), (56.32, 5.04), (70.90, 2.21), (67.98, 2.01)),
    "mcl": ((66.35, 2.02), (55.09, 2.22), (68.56, 1.04), (54.50, 2.85)),
    "screenernet": ((64.69, 1.62), (52.49, 5.06), (69.78, 2.22), (56.06, 5.14)),
    "lre": ((58.94, 1.34), (53.36, 1.24), (58.23, 1.60), (51.22, 2.38)),
    "mw-net": ((66.28, 0.81), (53.86, 2.73), (68.71, 1.78), (56.01, 1.37)),
    "dcl": ((66.21, 2.58), (53.79, 4.20), (70.51, 0.66), (56.69, 1.58)),
    "dds": ((64.55, 1.03), (55.45, 3.89), (71.39, 1.29), (58.10, 3.28)),
    "dihcl": ((64.48, 1.22), (54.80, 2.44), (67.40, 1.71), (57.86, 2.04)),
    "superloss": ((66.06, 1.98), (53.79, 4.85), (70.22, 2.00), (57.17, 3.38)),
    "adaptive-cl": ((65.85, 1.18), (54.80, 4.51), (69.88, 2.17), (58.44, 5.29)),
}

# Simple-CNN on CIFAR-10, clean and with 40 % noise.
CURML: dict[str, tuple[float, float]] = {
    "vanilla": (83.2, 76.5),
    "baby-step": (83.0, 75.7),
    "lambda-step": (82.0, 75.3),
    "spl": (81.8, 75.1),
    "ttcl": (81.8, 74.8),
    "rl-teacher": (82.9, 76.6),
    "mcl": (80.6, 75.0),
    "dcl": (83.4, 53.9),
    "lgl": (76.9, 71.5),
    "superloss": (83.5, 79.4),
    "cbs": (83.1, 76.2),
    "c2f": (83.2, 76.7),
    "adaptive-cl": (78.2, 67.9),
}
