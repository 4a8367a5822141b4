"""What each method costs, as a ratio to vanilla in the same process on the same data, interleaved epoch by epoch.

Digits as 3x32x32, Simple-CNN, batch 100, one thread. Time is the process's CPU time of an epoch, from the plan to the
last step; the first epoch is left out of the medians and shown by itself, because some methods begin with a pass.

    python benchmarks/methods.py [--epochs 6] [--rows 700] [--method NAME ...] [--out docs/results/method-cost]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from common import needs, save_page

from torchcurriculum import Arrays, Curriculum, methods
from torchcurriculum.lab.data import load_digits
from torchcurriculum.lab.models import simple_cnn
from torchcurriculum.lab.provenance import environment

# The peers' own cost per sample on the same kind of data, as they measured it against their vanilla (CPU time): CurML's
# ConvNet and CurBench's LeNet. None: it crashed or has no row there.
PEERS = {
    "baby-step": (1.05, None),
    "lambda-step": (0.89, None),
    "spl": (1.33, 1.44),
    "ttcl": (1.06, 1.12),
    "rl-teacher": (1.39, 1.8),
    "mcl": (0.91, 1.05),
    "dcl": (1.02, 1.19),
    "lgl": (0.94, 0.99),
    "screenernet": (3.56, 2.08),
    "lre": (4.87, 4.45),
    "mw-net": (5.22, 4.61),
    "dds": (None, 5.38),
    "dihcl": (1.04, 1.06),
    "superloss": (0.96, 1.00),
    "cbs": (1.28, 1.28),
    "c2f": (0.97, 1.14),
    "adaptive-cl": (1.52, 1.40),
    "efficient-train": (None, 1.58),
}
OPTIONS: dict[str, dict[str, Any]] = {name: {"keep_size": True} for name in ("efficient-train", "efficient-train-plus")}


def data(rows: int) -> Arrays:
    x, y = load_digits(0)["train"]
    x = F.interpolate(x[:rows], size=32, mode="bilinear").expand(-1, 3, -1, -1).contiguous()
    return Arrays(x, y[:rows])


class Run:
    """A method under way, to be driven one epoch at a time."""

    def __init__(self, name: str, train_set: Arrays, epochs: int) -> None:
        torch.manual_seed(0)
        self.model = simple_cnn().train()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)
        method = methods.build(name, len(train_set), epochs, **OPTIONS.get(name, {}), **needs(name, len(train_set)))
        self.curriculum = Curriculum(method, train_set, batch_size=100)

    def epoch(self) -> tuple[float, int]:
        """CPU seconds and rows visited."""
        started, rows = time.process_time(), 0
        for batch in self.curriculum.epoch(self.model):
            loss = self.curriculum.loss(self.model, batch)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            rows += len(batch.index)
        return time.process_time() - started, rows


def measure(name: str, train_set: Arrays, epochs: int) -> dict[str, Any]:
    """Ratios of one method to a vanilla run that takes turns with it."""
    vanilla, mine = Run("vanilla", train_set, epochs), Run(name, train_set, epochs)
    turns = [(vanilla.epoch(), mine.epoch()) for _ in range(epochs)]
    per_epoch = [m / v for (v, _), (m, _) in turns]
    per_row = [(m / rows) / (v / all_rows) for (v, all_rows), (m, rows) in turns]
    return {
        "method": name,
        "first": per_epoch[0],
        "epoch": statistics.median(per_epoch[1:]),
        "epoch_range": [min(per_epoch[1:]), max(per_epoch[1:])],
        "row": statistics.median(per_row[1:]),
        "peers": PEERS.get(name, (None, None)),
    }


def table(results: list[dict[str, Any]]) -> str:
    lines = [
        "| method | first epoch | later epochs (range) | per row trained | CurML, CurBench per row |",
        "|---|---|---|---|---|",
    ]
    for one in results:
        low, high = one["epoch_range"]
        peers = ", ".join("-" if value is None else f"{value:.2f}" for value in one["peers"])
        later = f"{one['epoch']:.2f} ({low:.2f}-{high:.2f})"
        lines.append(f"| `{one['method']}` | {one['first']:.2f} | {later} | {one['row']:.2f} | {peers} |")
    return "\n".join(lines)


def page(results: list[dict[str, Any]], rows: int, epochs: int) -> str:
    where = environment()
    return f"""# What each method costs

```
python benchmarks/methods.py --rows {rows} --epochs {epochs} --out docs/results/method-cost
```

CPU time as a ratio to a vanilla run that takes turns with it in the same process, epoch by epoch: digits as 3x32x32
({rows} rows), Simple-CNN, batch 100, one thread, torch {where["torch"]}. Medians over the epochs after the first (range
in brackets); the row of `vanilla` against itself shows the noise. "Per row" divides by the rows that were trained on: a
method that measures all rows and trains on some of them (S-APW, SPL, MCL, RL teacher, adaptive CL) is expensive per
row and cheap per epoch. The peers' figures are their cost per row in their own libraries on the same kind of data
(CurML's ConvNet, CurBench's LeNet); they measure less often (MCL every 20 epochs) or train on all rows where ours train
on some.

{table(results)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rows", type=int, default=700)
    parser.add_argument("--method", action="append")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    train_set, results = data(options.rows), []
    for name in options.method or methods.names():
        results.append(measure(name, train_set, options.epochs))
        print(table(results[-1:]).splitlines()[-1], flush=True)
    if options.out:
        head = {"environment": environment(), "rows": options.rows, "epochs": options.epochs}
        options.out.with_suffix(".json").write_text(json.dumps({**head, "results": results}, indent=1) + "\n")
        save_page(options.out.with_suffix(".md"), page(results, options.rows, options.epochs))


if __name__ == "__main__":
    main()
