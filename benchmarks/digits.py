"""Methods on digits with 0, 20 and 40 % of the labels flipped, five seeds; all of them once, with what they cost.

The recipe is `curriculum run digits` with another noise rate; the records stay in RUNS for `benchmarks/pictures.py`.

    python benchmarks/digits.py RUNS [--out docs/results/digits]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from common import save_page

from torchcurriculum import Record, methods
from torchcurriculum.lab.compare import figures, format_markdown, table_of
from torchcurriculum.lab.provenance import environment, write_json
from torchcurriculum.lab.recipe import Recipe
from torchcurriculum.lab.recipes.digits import recipe
from torchcurriculum.lab.runner import run
from torchcurriculum.record.results import summarise

SUPERLOSS = {"superloss@running": {"tau": "running"}}  # tau follows the mean loss; plain "superloss" has log C
METHODS = ("vanilla", "apw-e", "s-apw-e", "m-apw-beta-e", *SUPERLOSS, "superloss", "rapw", "mixup", "random", "spl")
METHODS += ("infobatch", "elr", "argmax")
FRESH = (5, 6, 7, 8, 9)  # seeds that nobody had looked at when RAPW was made
PAIRS = (("s-apw-e", "random"), ("m-apw-beta-e", "mixup"))
PAIRS += tuple(("rapw", rival) for rival in ("superloss@running", "superloss", "mixup", "elr", "argmax"))
RATES = (0.0, 0.2, 0.4)


def at(rate: float) -> Recipe:
    """The recipe of the demo at this noise rate."""
    words = f"{rate:.0%} of the training labels flipped" if rate else "clean labels"
    return recipe().with_(
        name=f"digits-n{rate * 100:.0f}", summary=words, methods=METHODS, options=SUPERLOSS, noise_rate=rate
    )


def page(found: dict[str, dict[str, list[Record]]], others: list[dict[str, Any]]) -> str:
    where, seeds, epochs = environment(), recipe().seeds, recipe().epochs
    sections = "\n".join(format_markdown(name, runs, table_of(runs)) for name, runs in found.items())
    return f"""# Digits with 0, 20 and 40 % wrong labels

```
OMP_NUM_THREADS=1 python benchmarks/digits.py RUNS --out docs/results/digits
```

scikit-learn's digits, 1,078 training images of 8 x 8, a network of 10,026 parameters, {epochs} epochs, seeds {seeds[0]}
to {seeds[-1]} (split, flips, initial weights and order change with the seed), every method with its defaults and, if
it asks for losses, a measuring pass. APW's e is the paper's for the true rate.
`random` grows the set in random order: it is a control for the methods that grow it, as `mixup` is for
`m-apw-beta-e`. `superloss` has tau = log C and `superloss@running` a tau that follows the mean loss. The section
"fresh" has other seeds, because digits were used while RAPW was developed. CPU,
torch {where["torch"]}, float32.

Per cent, mean ± standard deviation; differences to vanilla are paired by seed, with a 95 % t-interval that is not
corrected for the number of comparisons. The best epoch is chosen on a clean validation part, which users with noisy
labels seldom have; the last epoch needs none. What it says: [at a glance](digits-at-a-glance.md). Raw
figures of every run: [digits.json](digits.json).

{sections}
## Beside controls and rivals

{beside(found)}

## Every other method, once

40 % of the labels flipped, seed 0 only, so differences of a few points mean nothing. The time is that of the whole run
with evaluation. The cost in a larger network: [method cost](method-cost.md).

{every_table(others)}
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


def every(folder: Path) -> list[dict[str, Any]]:
    """Every other method once, at 40 %: its accuracy, and its CPU time as a ratio to vanilla's in the same process."""
    one, rows, plain = at(RATES[-1]).with_(seeds=(0,), options={}), [], []
    for name in ("vanilla", "vanilla", *(name for name in methods.names() if name not in METHODS)):
        single, begun = one.with_(name=f"every-{name}-{len(plain)}", methods=(name,)), time.process_time()
        try:
            record = run(single, folder / single.name)[name][0]
        except (TypeError, ValueError) as error:
            rows.append({"method": name, "refused": str(error)})
            continue
        seconds = time.process_time() - begun
        plain = [seconds] if name == "vanilla" else plain  # of the second: the first also pays for imports
        best = max(record.epochs, key=lambda epoch: epoch["valid_acc"])
        cost = seconds / plain[0]
        rows.append({"method": name, "last": record.epochs[-1]["test_acc"], "best": best["test_acc"], "cost": cost})
    return rows[1:]


def every_table(rows: list[dict[str, Any]]) -> str:
    """The same as Markdown."""
    lines = ["| method | T-ACC last | T-ACC best | CPU time, vanilla = 1 |", "|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: -row.get("last", 0)):
        cells = [f"{100 * row['last']:.1f}", f"{100 * row['best']:.1f}", f"{row['cost']:.2f}"] if "last" in row else []
        lines.append(f"| `{row['method']}` | {' | '.join(cells or [row['refused'], '', ''])} |")
    return "\n".join(lines)


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
    found = {one.name: run(one, options.runs / one.name) for one in map(at, RATES)}
    fresh = at(RATES[-1]).with_(
        methods=("vanilla", *SUPERLOSS, "superloss", "mixup", "rapw", "elr", "argmax"),
        seeds=FRESH,
        name="digits-n40-fresh",
    )
    fresh = fresh.with_(summary=f"{fresh.summary}, seeds {FRESH[0]} to {FRESH[-1]}")
    found[fresh.name] = run(fresh, options.runs / fresh.name)
    others = every(options.runs)
    table = [{"recipe": name, **vars(row)} for name, runs in found.items() for row in table_of(runs)]
    runs = [slim(name, row) for name, runs in found.items() for row in figures(runs)]
    results = {"environment": environment(), "table": table, "runs": runs, "every": others}
    write_json(options.out.with_suffix(".json"), results)
    save_page(options.out.with_suffix(".md"), page(found, others))


if __name__ == "__main__":
    main()
