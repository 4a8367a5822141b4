"""The page of every method and loss on CIFAR-10 (N-40), from the figures of `curriculum run cifar10-every-method`.

curriculum run cifar10-every-method --data DIR --jobs 12 --precision bfloat16 --compile --no-audit --out RUNS
curriculum compare RUNS --json FIGURES
python benchmarks/every_method.py FIGURES [--out docs/results/cifar10-every-method]
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import save_page
from digits import slim

from torchcurriculum import methods
from torchcurriculum.lab.provenance import write_json
from torchcurriculum.lab.recipe import base_name
from torchcurriculum.lab.recipes.every_method import NOT_RUN, every_method

RESULTS = Path(__file__).parents[1] / "docs" / "results"
COLUMNS = [("last", "test_acc"), ("last", "test_eprop"), ("best", "test_acc"), ("best", "test_eprop")]


def costs(folder: Path = RESULTS) -> dict[str, str]:
    """CPU time beside vanilla, by method; an asterisk marks those that only the digits were timed on."""
    digits = json.loads((folder / "digits.json").read_text(encoding="utf-8"))["every"]
    timed = json.loads((folder / "method-cost.json").read_text(encoding="utf-8"))["results"]
    rough = {row["method"]: f"{row['cost']:.2f}*" for row in digits if "cost" in row}
    known = {**rough, **{row["method"]: f"{row['epoch']:.2f}" for row in timed}, "vanilla": "1"}
    variants = [name for name in every_method().methods if "@" in name and base_name(name) in known]
    return {**known, **{name: known[base_name(name)] for name in variants if base_name(name) != "vanilla"}}


def lines(runs: list[dict[str, Any]], cost: dict[str, str]) -> Iterator[str]:
    """A line for each method that was run, the best at the last epoch first; then those that were not, and why."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for run in runs:
        found.setdefault(run["method"], {})[run["seed"]] = run
    plain = found.get("vanilla", {})
    for name, mine in sorted(found.items(), key=lambda item: -_mean(item[1], *COLUMNS[0])):
        both = [seed for seed in mine if seed in plain]
        gap = sum(mine[seed]["last"]["test_acc"] - plain[seed]["last"]["test_acc"] for seed in both) / max(1, len(both))
        shown = [_value(mine, *column) for column in COLUMNS]
        words = [str(len(mine)), shown[0], f"{100 * gap:+.2f}" if both and name != "vanilla" else "", *shown[1:]]
        yield f"| `{name}` | {' | '.join([*words, cost.get(name, '')])} |"
    for name in dict.fromkeys((*every_method().methods, *methods.names())):
        if name not in found:
            yield f"| `{name}` | 0 | {NOT_RUN.get(name, 'not finished')} | | | | | {cost.get(name, '')} |"


def _mean(runs: dict[int, dict[str, Any]], moment: str, metric: str) -> float:
    return statistics.mean(run[moment][metric] for run in runs.values())


def _value(runs: dict[int, dict[str, Any]], moment: str, metric: str) -> str:
    spread = [run[moment][metric] for run in runs.values()]
    return f"{100 * _mean(runs, moment, metric):.2f}" + (
        f" ± {100 * statistics.stdev(spread):.2f}" if len(spread) > 1 else ""
    )


def finished(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs that have all their epochs."""
    return [run for run in runs if run["last"]["epoch"] == run["recipe"]["epochs"]]


def page(runs: list[dict[str, Any]], cost: dict[str, str]) -> str:
    """The page."""
    where = {(run["environment"]["accelerator"], run["environment"]["torch"]) for run in runs}
    machines = "; ".join(f"{gpu or 'CPU'}, torch {torch}" for gpu, torch in sorted(where, key=str))
    recipe = runs[0]["recipe"]
    rows, command = "\n".join(lines(runs, cost)), (__doc__ or "").partition("\n\n")[2].strip()
    return f"""# CIFAR-10 with 40 % wrong labels: every method

```
{command}
```

Simple-CNN, {recipe["epochs"]} epochs, batch {recipe["batch_size"]}, {recipe["precision"]}, {machines}. Per cent.
`rapw` and `two-views` were run before RAPW's [first epochs changed](better-labels.md#the-sixth-round).
Most methods have one seed, so differences of a point mean little. Those that [which method](../which-method.md)
recommends against wrong labels have three, mean ± standard deviation. The best epoch is chosen on clean validation
rows, which users with noisy labels seldom have; the last needs none. Every method has its defaults, except:

- `small-loss`, `co-teaching` and `jocor` forget 40 %, the true rate. APW's e is also set by it, and `vanilla@forward`
  has the true matrix.
- `vanilla@LOSS` is plain training with that loss. `superloss` has tau = log C, `superloss@running` a tau that follows
  the mean loss, `superloss@0.25` lambda 0.25.
- `mw-net@clean`, `lre@clean`, `dds@clean` and `rho-loss` are given the 5,000 clean validation rows; their best epoch is
  chosen on rows that they have used.
- `group-dro` has the labels as groups. `ema` is evaluated with averaged weights.
- `efficient-train` and `efficient-train-plus` keep the image size, since Simple-CNN takes no other, so they save no
  time.
- Classes are even: `drw`, `vanilla@logit-adjusted` and `vanilla@class-balanced` have nothing to balance.

"cost" is the time of an epoch on a CPU beside `vanilla` ([method cost](method-cost.md)); \\* of a whole run on
[digits](digits.md). The runs here shared one GPU, so their times mean little. Figures of every run:
[cifar10-every-method.json](cifar10-every-method.json).

| method | seeds | T-ACC last | - vanilla | E-Prop† last | T-ACC best | E-Prop† best | cost |
|---|---|---|---|---|---|---|---|
{rows}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "cifar10-every-method")
    options = parser.parse_args()
    runs = finished(json.loads(options.figures.read_text(encoding="utf-8"))["runs"])
    kept = [{**slim(run["recipe"]["name"], run), "seconds": run["seconds"]} for run in runs]
    write_json(options.out.with_suffix(".json"), {"environment": runs[0]["environment"], "runs": kept})
    save_page(options.out.with_suffix(".md"), page(runs, costs()))


if __name__ == "__main__":
    main()
