"""Seconds for an epoch of the CIFAR trainer on one GPU, alone and with several runs at once.

    python benchmarks/gpu_epoch.py --out results.json [--together 1 4 8]

Images are random: time does not depend on what is in them. An epoch is the measuring pass of APW-E, 450 steps of batch
100, validation, test and the record, as `curriculum run cifar10-n40` does it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from torchcurriculum.data import Rows
from torchcurriculum.lab import trainer
from torchcurriculum.lab.data import Images
from torchcurriculum.lab.provenance import environment
from torchcurriculum.lab.recipes import RECIPES
from torchcurriculum.lab.sources import Problem


def fake_data(*_: object) -> Problem:
    draw = torch.Generator().manual_seed(0)
    sizes = {"train": 45_000, "valid": 5_000, "test": 10_000}
    sets: dict[str, Rows] = {
        name: Images(
            torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, generator=draw),
            torch.randint(0, 10, (n,), generator=draw),
        )
        for name, n in sizes.items()
    }
    return Problem(sets, sets["train"].y, 10)


def one(method: str, epochs: int, precision: str, compiled: bool) -> None:
    """Prints the moments at which epochs ended."""
    trainer.load_data = fake_data  # type: ignore[assignment]
    trainer.LARGEST = 0  # in a run of many epochs, few have a pass for the audit
    recipe = RECIPES["cifar10-n40"].with_(epochs=epochs, precision=precision, compile=compiled)
    ends = []
    with tempfile.TemporaryDirectory() as folder:
        trainer.train(recipe, method, 0, Path(folder), lambda *_: ends.append(time.time()))
    print(json.dumps(ends))


def together(count: int, method: str, epochs: int, precision: str, compiled: bool) -> dict[str, object]:
    command = [sys.executable, __file__, "--one", method, "--epochs", str(epochs), "--precision", precision]
    command += ["--compile"] if compiled else []
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    ends = [json.loads(run.communicate()[0].splitlines()[-1]) for run in runs]
    first, last = max(e[1] for e in ends), min(e[-1] for e in ends)  # while all of them ran
    within = [b - a for e in ends for a, b in itertools.pairwise(e[1:]) if a >= first and b <= last]
    if not within:
        within = [b - a for e in ends for a, b in itertools.pairwise(e[2:])]
    median = statistics.median(within)
    return {
        "together": count,
        "method": method,
        "precision": precision,
        "compile": compiled,
        "epoch_s": median,
        "per_run_s": median / count,
        "spread": [min(within), max(within)],
        "n": len(within),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--one")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--method", nargs="+", default=["vanilla", "apw-e"])
    parser.add_argument("--together", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.one:
        one(options.one, options.epochs, options.precision, options.compile)
        return
    rows = []
    for count in options.together:
        for method in options.method:
            rows.append(together(count, method, options.epochs, options.precision, options.compile))
            print(rows[-1], flush=True)
    if options.out:
        options.out.write_text(json.dumps({"environment": environment(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
