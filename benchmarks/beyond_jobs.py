"""The jobs of decision 4 for `beyond.py`, and the table of their results.

python benchmarks/beyond_jobs.py choose > jobs.json         seeds 0-2, judged on the validation split
python benchmarks/beyond_jobs.py confirm > jobs.json        seeds 10-14, judged on the test set, once
python benchmarks/beyond_jobs.py speed > jobs.json          what docs/speed.md compares: losses, alternatives
python benchmarks/beyond_jobs.py table RESULTS ... [--part valid|test]        means, and the sum that chooses
python benchmarks/beyond_jobs.py versus RESULTS ... [--part valid|test]       paired differences of RAPW to the others

RESULTS are files of `beyond.py`, or docs/results/beyond.json with --stage choose|confirm|speed.
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
from scipy.stats import t as student

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
MEASURED = ("apw-e", "mixup")  # apw-e as in the paper; mixup because mixed rows have no separate losses
AUDITED = ("vanilla", "apw-e", "rapw")


def jobs(stage: str, epochs: int) -> list[dict[str, Any]]:
    """Everything that one stage runs."""
    if stage == "choose":
        return _jobs({**CANDIDATES, **SUPERLOSS, "vanilla": BASELINES["vanilla"]}, (0, 1, 2), SETS, epochs)
    if stage == "speed":
        slow = _jobs({"mw-net": ("mw-net", {})}, (0,), ("n40",), epochs)
        return slow + _jobs(SPEED, (0, 1, 2), ("n40",), epochs)
    methods = {**BASELINES, **{name: SUPERLOSS[name] for name in CONFIRMED}, "rapw": CANDIDATES["rapw"]}
    found = _jobs(methods, range(10, 15), SETS, epochs)
    found += _jobs({name: methods[name] for name in ("vanilla", "rapw")}, range(10, 15), ("clean",), epochs)
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
            "measure": "pass" if label in MEASURED else "running",
        }
        for seed in seeds
        for where in sets
        for label, (method, options) in methods.items()
    ]


FIGURES = (("best", "acc"), ("best", "eprop"), ("best", "ece"), ("last", "acc"), ("last", "eprop"), ("last", "ece"))
Found = dict[tuple[str, str], dict[int, dict[str, Any]]]  # set and label -> seed -> row


def read(paths: list[Path], stage: str | None) -> Found:
    found: Found = defaultdict(dict)
    for path in paths:
        text = path.read_text()
        rows = json.loads(text)["runs"] if path.suffix == ".json" else map(json.loads, text.splitlines())
        for row in rows:
            if "best" in row and stage in (None, row.get("stage")):
                found[row["set"], row["label"]][row["seed"]] = row
    return found


def table(found: Found, part: str) -> str:
    """Mean ± standard deviation over seeds, per cent, and the sum by which decision 4 chooses."""
    names = "T-ACC best | E-Prop† best | ECE best | T-ACC last | E-Prop† last | ECE last"
    lines = [f"| set | method | seeds | {names} | sum |", "|---" * 10 + "|"]
    for (where, label), rows in sorted(found.items()):
        cells, chosen = [], 0.0
        for moment, key in FIGURES:
            values = 100 * np.array([row[moment][f"{part}_{key}"] for row in rows.values()])
            spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
            cells.append(f"{values.mean():.2f}{spread}")
            chosen += values.mean() if key != "ece" else 0.0
        lines.append(f"| {where} | `{label}` | {len(rows)} | {' | '.join(cells)} | {chosen:.2f} |")
    return "\n".join(lines)


def versus(found: Found, part: str, mine: str = "rapw") -> str:
    """RAPW minus each other method, paired by seed, in points, with a 95 % t-interval."""
    names = "T-ACC best | E-Prop† best | T-ACC last | E-Prop† last"
    lines = [f"| set | `{mine}` minus | seeds | {names} |", "|---" * 7 + "|"]
    for where, label in sorted(found):
        other = found[where, label] if label != mine else {}
        pairs = [(found[where, mine][seed], row) for seed, row in other.items() if seed in found[where, mine]]
        if len(pairs) < 2:
            continue
        cells = []
        for moment, key in (figure for figure in FIGURES if figure[1] != "ece"):
            gaps = 100 * np.array([a[moment][f"{part}_{key}"] - b[moment][f"{part}_{key}"] for a, b in pairs])
            half = float(student.ppf(0.975, len(gaps) - 1)) * gaps.std(ddof=1) / math.sqrt(len(gaps))
            cells.append(f"{gaps.mean():+.2f} [{gaps.mean() - half:+.2f}, {gaps.mean() + half:+.2f}]")
        lines.append(f"| {where} | `{label}` | {len(pairs)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("choose", "confirm", "speed", "table", "versus"))
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--part", choices=("valid", "test"), default="valid")
    parser.add_argument("--stage", choices=("choose", "confirm", "speed", "resnet-18"))
    options = parser.parse_args()
    if options.what in ("table", "versus"):
        found = read(options.files, options.stage)
        print(table(found, options.part) if options.what == "table" else versus(found, options.part))
    else:
        print(json.dumps(jobs(options.what, options.epochs), indent=1))


if __name__ == "__main__":
    main()
