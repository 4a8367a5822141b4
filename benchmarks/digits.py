"""Eleven methods on digits with 0, 20 and 40 % of the labels flipped, five seeds each: the small table of the docs.

The recipe is `curriculum run digits` with another noise rate; the records stay in RUNS for `benchmarks/pictures.py`.

    python benchmarks/digits.py RUNS [--out docs/results/digits]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from common import save_page

from torchcurriculum import Record
from torchcurriculum.lab.compare import figures, format_markdown, table_of
from torchcurriculum.lab.provenance import environment, write_json
from torchcurriculum.lab.recipe import Recipe
from torchcurriculum.lab.recipes.digits import recipe
from torchcurriculum.lab.runner import run
from torchcurriculum.record.results import summarise

SUPERLOSS = {"superloss@running": {"tau": "running"}}  # tau follows the mean loss; plain "superloss" has log C
METHODS = ("vanilla", "apw-e", "s-apw-e", "m-apw-beta-e", *SUPERLOSS, "superloss", "rapw", "mixup", "random", "spl")
METHODS += ("infobatch",)
FRESH = (5, 6, 7, 8, 9)  # seeds that nobody had looked at when RAPW was made
PAIRS = (("s-apw-e", "random"), ("m-apw-beta-e", "mixup"))
PAIRS += tuple(("rapw, running", rival) for rival in ("superloss@running", "superloss", "mixup"))
RUNNING = "rapw"  # once more, with the losses seen while training
RATES = (0.0, 0.2, 0.4)


def at(rate: float) -> Recipe:
    """The recipe of the demo at this noise rate."""
    words = f"{rate:.0%} of the training labels flipped" if rate else "clean labels"
    return recipe().with_(
        name=f"digits-n{rate * 100:.0f}", summary=words, methods=METHODS, options=SUPERLOSS, noise_rate=rate
    )


def page(found: dict[str, dict[str, list[Record]]]) -> str:
    where, seeds, epochs = environment(), recipe().seeds, recipe().epochs
    sections = "\n".join(format_markdown(name, runs, table_of(runs)) for name, runs in found.items())
    return f"""# Digits with 0, 20 and 40 % wrong labels

```
OMP_NUM_THREADS=1 python benchmarks/digits.py RUNS --out docs/results/digits
```

scikit-learn's digits, 1,078 training images of 8 x 8, a network of 10,026 parameters, {epochs} epochs, seeds {seeds[0]}
to {seeds[-1]} (split, flips, initial weights and order change with the seed), every method with its defaults and a
measuring pass; "running" takes the losses seen while training instead. APW's e is the paper's for the true rate.
`random` grows the set as a curriculum does, in no order: it is a control for the growing ones, as `mixup` is for
`m-apw-beta-e`. `superloss` has tau = log C and `superloss@running` a tau that follows the mean loss. The last section
has other seeds: RAPW's memory was chosen with a look at seeds 0 to 2 of this set. CPU,
torch {where["torch"]}, float32.

Per cent, mean ± standard deviation; differences to vanilla are paired by seed, with a 95 % t-interval that is not
corrected for the number of comparisons. The best epoch is chosen on a clean validation part, which users with noisy
labels seldom have; the last epoch needs none. What it says: [at a glance](digits-at-a-glance.md). Raw
figures of every run: [digits.json](digits.json).

{sections}
## Beside controls and rivals

{beside(found)}
"""


def beside(found: dict[str, dict[str, list[Record]]]) -> str:
    """A table of paired differences at the last epoch between methods and their controls or rivals."""
    lines = ["| at the last epoch | of | T-ACC [95 %] | E-Prop† [95 %] |", "|---|---|---|---|"]
    for name, runs in found.items():
        for mine, other in PAIRS:
            if mine in runs and other in runs:
                rows = summarise({other: runs[other], mine: runs[mine]}, baseline=other)
                last = {row.metric: row for row in rows if row.method == mine and row.moment == "last"}
                cells = [f"{100 * r.difference:+.2f} [{100 * r.low:+.2f}, {100 * r.high:+.2f}]" for r in last.values()]
                lines.append(f"| `{mine}` - `{other}` | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def both(one: Recipe, folder: Path) -> dict[str, list[Record]]:
    """The records of a recipe, and those of RAPW with the losses seen while training."""
    runs = run(one, folder / one.name)
    other = one.with_(name=f"{one.name}-running", methods=(RUNNING,), measure="running")
    runs[f"{RUNNING}, running"] = run(other, folder / other.name)[RUNNING]
    return runs


def slim(recipe: str, row: dict[str, Any]) -> dict[str, Any]:
    """A run's figures without what all runs have in common, and without its losses and weights."""
    scores = ("epoch", "valid_acc", "test_acc", "test_eprop", "test_ece", "rho", "alpha", "rows")
    kept = {moment: {name: row[moment][name] for name in scores if name in row[moment]} for moment in ("best", "last")}
    measure = row["recipe"]["measure"]
    return {"recipe": recipe, "method": row["method"], "measure": measure, "seed": row["seed"], **kept}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/results/digits"))
    options = parser.parse_args()
    found = {one.name: both(one, options.runs) for one in map(at, RATES)}
    fresh = at(RATES[-1]).with_(
        methods=("vanilla", *SUPERLOSS, "superloss", "mixup"), seeds=FRESH, name="digits-n40-fresh"
    )
    found[fresh.name] = both(fresh.with_(summary=f"{fresh.summary}, seeds {FRESH[0]} to {FRESH[-1]}"), options.runs)
    table = [{"recipe": name, **vars(row)} for name, runs in found.items() for row in table_of(runs)]
    runs = [slim(name, row) for name, runs in found.items() for row in figures(runs)]
    write_json(options.out.with_suffix(".json"), {"environment": environment(), "table": table, "runs": runs})
    save_page(options.out.with_suffix(".md"), page(found))


if __name__ == "__main__":
    main()
