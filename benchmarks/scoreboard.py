"""Fills our figures into the scoreboard, docs/reproducing.md, from the runs in docs/results/*.json.

    python benchmarks/scoreboard.py         rewrites the page; what was run since then is filled in

New figures come from `curriculum compare runs/NAME --json docs/results/NAME.json --md FILE`. On the page, a comment
says what stands between it and the next `<!---->`; RECIPE:METHOD names the runs, and differences are paired by seed,
with a 95 % t-interval:

    <!--gaps acc cifar10 apw-e s-apw-e-->       each method minus vanilla; acc is T-ACC, eprop is E-Prop†
    <!--gap eprop A:apw-e B:vanilla-->          one minus the other
    <!--means A:vanilla A:mixup-->              T-ACC / E-Prop† of each
    <!--row acc A:apw-e B:apw-e@4K-->           one metric of each

APWs and S-APWs are means over E-, I- and EI-weighting, as in the paper's bars. Runs that no file holds make it
"not run yet". Verdicts are a person's.
"""

from __future__ import annotations

import json
import math
import re
from functools import cache
from pathlib import Path

import numpy as np

from torchcurriculum.record.results import t_quantile

DOCS = Path(__file__).parent.parent / "docs"
COLUMNS = {"acc": "test_acc", "eprop": "test_eprop"}
BARS = {"APWs": ("apw-e", "apw-i", "apw-ei"), "S-APWs": ("s-apw-e", "s-apw-i", "s-apw-ei")}
# Runs of another recipe with the same settings, which stand in for a seed that this recipe was not run with.
SAME = {
    "cifar10n-readings:vanilla": "cifar10n-resnet18:vanilla",
    "cifar10n-readings:apw-e": "cifar10n-resnet18:apw-e",
    "cifar10n-readings:mixup": "cifar10n-resnet18:mixup",
    "cifar10n-readings:m-apw-e@weights": "cifar10n-resnet18:m-apw-e",
    "cifar10n-readings:m-apw-e@beta-log2": "cifar10n-resnet18:m-apw-beta-e@log2",
}
PLACE = re.compile(r"<!--(gaps?|means|row) ([^>]+?)-->.*?<!---->")
Seeds = dict[int, float]


@cache
def runs() -> dict[str, dict[int, dict[str, float]]]:
    """Best epochs, by RECIPE:METHOD and seed."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for path in sorted((DOCS / "results").glob("*.json")):
        held = json.loads(path.read_text(encoding="utf-8"))
        for run in held.get("runs", ()):
            if isinstance(run, dict) and isinstance(run.get("recipe"), dict):
                name, seed = f"{run['recipe']['name']}:{run['method']}", run["seed"]
                if seed in found.setdefault(name, {}):
                    raise RuntimeError(f"{path.name} has a second run of {name}, seed {seed}; rename one recipe")
                found[name][seed] = run["best"]
    for name, other in SAME.items():
        found[other] = {**found.get(name, {}), **found.get(other, {})}
    return found


def values(name: str, metric: str) -> Seeds:
    """Per cent by seed; a KeyError where there is no such run."""
    recipe, method = name.split(":", 1)
    held = [runs()[f"{recipe}:{one}"] for one in BARS.get(method, (method,))]
    seeds = [seed for seed in held[0] if all(seed in one for one in held)]
    return {seed: 100 * float(np.mean([one[seed][COLUMNS[metric]] for one in held])) for seed in seeds}


def difference(mine: Seeds, theirs: Seeds) -> str:
    """Paired by seed.

    >>> difference({0: 3.0, 1: 4.0, 2: 5.0}, {0: 1.0, 1: 1.0, 3: 0.0})     # 2 and 3; 12.706 standard errors of 0.5
    '+2.50 [-3.85, +8.85]'
    """
    gaps = np.array([mine[seed] - theirs[seed] for seed in mine if seed in theirs])
    if len(gaps) == 1:
        return f"{gaps[0]:+.2f}"
    half = t_quantile(len(gaps) - 1) * gaps.std(ddof=1) / math.sqrt(len(gaps))
    return f"{gaps.mean():+.2f} [{gaps.mean() - half:+.2f}, {gaps.mean() + half:+.2f}]"


def figures(what: str, words: str) -> str:
    """What a comment asks for, and how many seeds it is of."""
    first, *rest = words.split()
    metrics, names = (list(COLUMNS), [first, *rest]) if what == "means" else ([first], rest)
    if what == "gaps":
        names = [f"{rest[0]}:{method}" for method in ("vanilla", *rest[1:])]
    pairs = [[values(name, one) for one in metrics] for name in names]
    if what == "gap":
        cells, counted = [difference(pairs[0][0], pairs[1][0])], [set(pairs[0][0]) & set(pairs[1][0])]
    elif what == "gaps":
        cells = [
            f"{method} {difference(held, pairs[0][0])}" for method, (held,) in zip(rest[1:], pairs[1:], strict=True)
        ]
        counted = [set(held) & set(pairs[0][0]) for (held,) in pairs[1:]]
    else:
        cells = [" / ".join(f"{np.mean(list(held.values())):.2f}" for held in one) for one in pairs]
        counted = [set(one[0]) for one in pairs]
    seeds = sorted(set(map(len, counted)))
    between = ",<br>" if what == "gaps" else ", "  # a line for each method
    return f"{between.join(cells)} ({' or '.join(map(str, seeds))} seed{'s' * (seeds != [1])})"


def filled(page: str) -> str:
    """The page with today's figures."""

    def fill(match: re.Match[str]) -> str:
        try:
            text = figures(match[1], match[2])
        except (KeyError, ValueError):  # no such runs, or no seed in common
            text = "not run yet"
        return f"<!--{match[1]} {match[2]}-->{text}<!---->"

    return PLACE.sub(fill, page)


if __name__ == "__main__":
    path = DOCS / "reproducing.md"
    path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
