"""The jobs of decision 4 for `beyond.py`, and the table of their results.

python benchmarks/beyond_jobs.py choose > jobs.json         seeds 0-2, judged on the validation split
python benchmarks/beyond_jobs.py confirm > jobs.json        seeds 10-14, judged on the test set, once
python benchmarks/beyond_jobs.py speed > jobs.json          what docs/speed.md compares: losses, alternatives
python benchmarks/beyond_jobs.py table RESULTS.jsonl ... [--part valid|test]
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SETS = ("n40", "worse")
LOG_C = math.log(10)
SUPERLOSS = {f"superloss {lam}": ("superloss", {"tau": LOG_C, "lam": lam}) for lam in (0.25, 0.5, 1.0, 2.0)}
CONFIRMED = ("superloss 0.25", "superloss 1.0")  # the lambda that was chosen, and the usual one
CANDIDATES: dict[str, tuple[str, dict[str, Any]]] = {
    "rapw": ("rapw", {}),
    "rapw 0.95": ("rapw", {"decay": 0.95}),
    "rapw 0.98": ("rapw", {"decay": 0.98}),
    "rapw lam 3": ("rapw", {"lam": 3.0}),
}
BASELINES = {"vanilla": ("vanilla", {}), "apw-e": ("apw-e", {}), "mixup": ("mixup", {})}
SPEED = {"apw-e": BASELINES["apw-e"], "apw-e, running": BASELINES["apw-e"], "infobatch": ("infobatch", {})}
AUDITED = ("vanilla", "apw-e", "rapw")


def jobs(stage: str, epochs: int) -> list[dict[str, Any]]:
    """Everything that one stage runs."""
    if stage == "choose":
        return _jobs({**CANDIDATES, **SUPERLOSS, "vanilla": BASELINES["vanilla"]}, (0, 1, 2), SETS, epochs)
    if stage == "speed":
        slow = _jobs({"mw-net": ("mw-net", {})}, (0,), ("n40",), epochs)
        return slow + _jobs(SPEED, (0, 1, 2), ("n40",), epochs)
    methods = {**BASELINES, **{name: SUPERLOSS[name] for name in CONFIRMED}, "rapw": CANDIDATES["rapw"]}
    found = _jobs(methods, range(10, 15), (*SETS, "clean"), epochs)
    return [{**job, "audit": job["label"] in AUDITED and job["seed"] <= 12} for job in found]


def _jobs(
    methods: dict[str, tuple[str, dict[str, Any]]], seeds: Iterable[int], sets: Sequence[str], epochs: int
) -> list[dict[str, Any]]:
    return [
        {
            "set": where,
            "label": label,
            "method": method,
            "options": options,
            "seed": seed,
            "epochs": epochs,
            "measure": "pass" if label == "apw-e" else "running",  # as the paper measures
        }
        for seed in seeds
        for where in sets
        for label, (method, options) in methods.items()
    ]


def table(paths: list[Path], part: str) -> str:
    """Mean ± standard deviation over seeds, per cent, and the sum by which decision 4 chooses."""
    found: dict[tuple[str, str], dict[int, dict[str, Any]]] = defaultdict(dict)
    for path in paths:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if "best" in row:
                found[row["set"], row["label"]][row["seed"]] = row
    lines = ["| set | method | seeds | T-ACC best | E-Prop† best | ECE best | T-ACC last | E-Prop† last | sum |"]
    lines.append("|---" * 9 + "|")
    for (where, label), rows in sorted(found.items()):
        cells, total = [], 0.0
        for moment, key in (("best", "acc"), ("best", "eprop"), ("best", "ece"), ("last", "acc"), ("last", "eprop")):
            values = 100 * np.array([row[moment][f"{part}_{key}"] for row in rows.values()])
            spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
            cells.append(f"{values.mean():.2f}{spread}")
            total += values.mean() if key != "ece" else 0.0
        lines.append(f"| {where} | `{label}` | {len(rows)} | {' | '.join(cells)} | {total:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("choose", "confirm", "speed", "table"))
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--part", choices=("valid", "test"), default="valid")
    options = parser.parse_args()
    if options.what == "table":
        print(table(options.files, options.part))
    else:
        print(json.dumps(jobs(options.what, options.epochs), indent=1))


if __name__ == "__main__":
    main()
