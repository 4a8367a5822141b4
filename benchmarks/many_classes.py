"""Methods against 40 % wrong labels with 2 to 1,000 classes: made-up points around one centre for each class.

    OMP_NUM_THREADS=1 python benchmarks/many_classes.py [--seeds 0 1 2] [--jobs 2] [--out docs/results/many-classes]

64 columns, a hidden layer of 256 units, 30 epochs, SGD 0.1 with cosine, test accuracy at the last epoch. Wrong labels
are drawn evenly from the other classes (30 % with two classes, where 40 % leaves little). Every method has its
defaults; `elr@7` has the values that its authors take for a hundred classes.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import epochs_of, save_page, spread
from torch import nn

from torchcurriculum import Arrays, Curriculum, methods
from torchcurriculum.lab.provenance import environment, write_json

EPOCHS, COLUMNS = 30, 64
ROWS = {2: 2000, 10: 400, 100: 60, 300: 40, 1000: 24}  # of each class
METHODS: dict[str, dict[str, float]] = {
    "vanilla": {},
    "superloss": {},
    "elr": {},
    "elr@7": {"lam": 7.0, "beta": 0.9},
    "rapw": {},
}


def train(job: tuple[int, bool, str, int]) -> dict[str, Any]:
    """One run: the number of classes, whether labels are wrong, the method and the seed."""
    classes, noisy, method, seed = job
    torch.set_num_threads(1)
    draw = np.random.default_rng(seed)
    centres, width = draw.normal(size=(classes, COLUMNS)), 1.6 if classes > 2 else 4.0
    truth, test = np.arange(classes).repeat(ROWS[classes]), np.arange(classes).repeat(max(5, 2000 // classes))
    x, tests = (centres[y] + width * draw.normal(size=(len(y), COLUMNS)) for y in (truth, test))
    wrong = draw.random(len(truth)) < noisy * (0.4 if classes > 2 else 0.3)
    given = np.where(wrong, (truth + draw.integers(1, classes, len(truth))) % classes, truth)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(COLUMNS, 256), nn.ReLU(), nn.Linear(256, classes))
    built = methods.build(method.partition("@")[0], len(truth), EPOCHS, **METHODS[method])
    data = Arrays(torch.tensor(x, dtype=torch.float32), torch.from_numpy(given))
    for _ in epochs_of(model, Curriculum(built, data, batch_size=128, seed=seed), EPOCHS, 0.1):
        pass
    with torch.no_grad():
        right = model(torch.tensor(tests, dtype=torch.float32)).argmax(1) == torch.from_numpy(test)
    names = ("classes", "noisy", "method", "seed", "accuracy", "wrong")
    return dict(zip(names, (*job, 100 * right.double().mean().item(), 100 * float(wrong.mean())), strict=True))


def page(runs: list[dict[str, Any]], where: dict[str, Any], seeds: list[int]) -> str:
    lines = [f"| classes | rows | wrong | {' | '.join(f'`{name}`' for name in METHODS)} |"]
    lines.append("|---" * (len(METHODS) + 3) + "|")
    for noisy in (False, True):
        for classes, rows in ROWS.items():
            cells = []
            for name in METHODS:
                found = [r for r in runs if (r["classes"], r["noisy"], r["method"]) == (classes, noisy, name)]
                cells.append(spread([run["accuracy"] for run in found], 1))
            share = "none" if not noisy else "40 %" if classes > 2 else "30 %"
            lines.append(f"| {classes:,} | {classes * rows:,} | {share} | {' | '.join(cells)} |")
    table = "\n".join(lines)
    return f"""# Two to a thousand classes, 40 % wrong labels

```
OMP_NUM_THREADS=1 python benchmarks/many_classes.py --out docs/results/many-classes
```

Made-up points around one centre for each class, {COLUMNS} columns, a hidden layer of 256 units, {EPOCHS} epochs, SGD
0.1 with cosine. Test accuracy at the last epoch in per cent, mean ± standard deviation, seeds
{", ".join(map(str, seeds))}. Wrong labels are drawn evenly from the other classes. Every method has its defaults, which
do not ask for the number of classes; `elr@7` has lambda 7 and beta 0.9, as its authors take for a hundred classes. CPU,
torch {where["torch"]}. Figures of each run: [many-classes.json](many-classes.json).

{table}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("docs/results/many-classes"))
    options = parser.parse_args()
    jobs = [
        (c, noisy, name, seed) for seed in options.seeds for c in ROWS for noisy in (False, True) for name in METHODS
    ]
    with ProcessPoolExecutor(options.jobs) as pool:
        runs = list(pool.map(train, jobs))
    write_json(options.out.with_suffix(".json"), {"environment": environment(), "runs": runs})
    save_page(options.out.with_suffix(".md"), page(runs, environment(), options.seeds))


if __name__ == "__main__":
    main()
