"""The separable example over many seeds: mean ± standard deviation of every variant, and the gains seed by seed."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .separable import Separable, fit, generate, summary

__all__ = ["compare", "main"]

SHARES = {"train_eprop": "train E-Prop", "test_eprop": "test E-Prop", "test_accuracy": "test accuracy"}
COLUMNS = {**SHARES, "norm": "norm of omega", "iterations": "iterations"}
DIGITS = {"norm": 2, "iterations": 1}


def compare(recipe: Separable, seeds: Iterable[int]) -> dict[str, list[dict[str, Any]]]:
    """Ends of every variant for every seed: both models, the two optimizer readings, and every tau.

    Args:
        recipe: The example.
        seeds: Seeds of the points; every variant sees the same ones.

    Returns:
        For each variant's name a ``summary`` per seed.
    """
    searching, reweighted = replace(recipe, line_search=True), replace(recipe, pairs="reweighted")
    variants: dict[str, tuple[Separable, bool]] = {
        "standard LR": (recipe, False),
        "APW + LR": (recipe, True),
        "APW + LR, pairs reweighted": (reweighted, True),
        "standard LR, line search": (searching, False),
        "APW + LR, line search": (searching, True),
    }
    others = [tau for tau in recipe.taus if tau != recipe.tau]
    variants.update({f"APW + LR, tau = {tau}": (replace(recipe, tau=tau), True) for tau in others})
    ends: dict[str, list[dict[str, Any]]] = {name: [] for name in variants}
    for seed in seeds:
        points = generate(recipe, seed)
        for name, (variant, weighted) in variants.items():
            ends[name].append(summary(variant, points, fit(variant, points, weighted)))
    return ends


def _table(ends: dict[str, list[dict[str, Any]]]) -> str:
    lines = ["| | " + " | ".join(COLUMNS.values()) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, rows in ends.items():
        cells = [_spread([row[column] for row in rows], DIGITS.get(column, 4)) for column in COLUMNS]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _gains(ends: dict[str, list[dict[str, Any]]], name: str) -> str:
    lines = [f"{name} minus standard LR, seed by seed:"]
    for column, words in SHARES.items():
        gains = [a[column] - b[column] for a, b in zip(ends[name], ends["standard LR"], strict=True)]
        ahead, behind = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
        lines.append(
            f"- {words}: {_spread(gains)}; ahead {ahead}, behind {behind}, equal {len(gains) - ahead - behind}"
        )
    return "\n".join(lines)


def _spread(values: Sequence[float], digits: int = 4) -> str:
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=min(1, len(values) - 1)):.{digits}f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table over seeds: mean ± standard deviation of every variant, and the gains seed by seed."""
    parser = argparse.ArgumentParser(
        prog="python -m torchcurriculum.lab.recipes.separable_table", description=main.__doc__
    )
    parser.add_argument("--seeds", type=int, default=10, help="how many seeds, from 0 (default: 10)")
    seeds = parser.parse_args(arguments).seeds
    if seeds < 1:
        parser.error(f"--seeds must be at least 1, got {seeds}")
    ends = compare(Separable(), range(seeds))
    print(_table(ends), _gains(ends, "APW + LR"), _gains(ends, "APW + LR, pairs reweighted"), sep="\n\n")


if __name__ == "__main__":
    main()
