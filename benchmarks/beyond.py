"""Trains many variants of methods on CIFAR-10 N-40 and CIFAR-10N, several at once on one GPU: the search of decision 4.

    python benchmarks/beyond.py JOBS.json --data DIR --out RESULTS.jsonl [--workers 12]

``JOBS.json`` holds a list of {"set": "n40" | "worse" | "clean", "label": ..., "method": ..., "options": {...},
"seed": 0, "epochs": 60, "measure": "pass" | "running"}; a set called n40-right or worse-right has only the rows whose
label is right. One line of results for each job, with the figures of its best and last epoch and the curve of its
validation accuracy. A job with "audit": true is also judged as benchmarks/audit.py does, and leaves what cleanlab needs
in RESULTS-shares/ (`python benchmarks/audit.py --judged RESULTS.jsonl`).
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import multiprocessing
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import audit
import numpy as np
import torch

from torchcurriculum.lab import trainer
from torchcurriculum.lab.data import Images
from torchcurriculum.lab.provenance import environment
from torchcurriculum.lab.recipes import RECIPES
from torchcurriculum.lab.sources import MODELS, Problem, load_data
from torchcurriculum.record.results import best_epoch

KEYS = [f"{part}_{name}" for part in ("valid", "test") for name in ("acc", "eprop", "ece")]


SETS: dict[str, dict[str, Any]] = {
    "n40": {"data": "cifar10", "noise": "synthetic", "noise_rate": 0.4},
    "worse": {"data": "cifar10n", "noise": "inherent", "noise_rate": 0.4},
    "clean": {"data": "cifar10", "noise_rate": 0.0},
}


@functools.cache
def problem(name: str, seed: int, folder: Path) -> Problem:
    base, _, part = name.partition("-")
    found = load_data(RECIPES["cifar10-n40"].with_(**SETS[base]), seed, folder)
    return found if not part else _right_only(found)


def _right_only(found: Problem) -> Problem:
    """What a perfect filter would leave: an upper bound for weighting."""
    train = found.sets["train"]
    assert found.clean is not None
    right = train.y == found.clean
    return Problem({**found.sets, "train": Images(train.x[right], train.y[right])}, found.clean[right], found.classes)


@functools.cache
def _kept(name: str) -> torch.nn.Module:
    return MODELS[name](Problem({}, None, 10))


def reused(recipe: Any, _: Problem) -> torch.nn.Module:
    """The same module for every job of a worker, with fresh parameters, so that compiled code is reused."""
    model = _kept(recipe.model)
    model.load_state_dict(MODELS[recipe.model](Problem({}, None, 10)).state_dict())
    model.zero_grad(set_to_none=True)
    return model


@functools.cache
def compiled(model: torch.nn.Module) -> torch.nn.Module:
    return torch.compile(model, dynamic=False)  # type: ignore[return-value]


def work(job: dict[str, Any], folder: Path, extra: dict[str, Any], shares: Path) -> dict[str, Any]:
    recipe = RECIPES["cifar10-n40"].with_(
        epochs=job["epochs"],
        measure=job.get("measure", "pass"),
        **SETS[job["set"].partition("-")[0]],
        model=job.get("model", "simple-cnn"),
        options={job["method"]: job.get("options", {})},
        **{**extra, **job.get("recipe", {})},
    )
    trainer.load_data = lambda *_: problem(job["set"], job["seed"], folder)  # type: ignore[assignment]
    trainer.make_model, trainer._compiled = reused, compiled
    trainer.LARGEST = 10**8 if job.get("audit") else 0  # only the audit needs a pass over the training set
    started = time.time()
    with tempfile.TemporaryDirectory() as out:
        record = trainer.train(recipe, job["method"], job["seed"], Path(out), lambda *_: None, save_seconds=1e9)
    best = best_epoch(record) or 0
    rows = {
        "best": {"epoch": best + 1, **{key: record.epochs[best][key] for key in KEYS}},
        "last": {key: record.epochs[-1][key] for key in KEYS},
    }
    end = {key: record.epochs[-1].get(key) for key in ("rho", "alpha", "ess", "weight_quantiles")}
    curve = [round(float(row["valid_acc"]), 4) for row in record.epochs]
    found = {**job, **rows, "end": end, "valid_curve": curve, "seconds": time.time() - started}
    if job.get("audit"):
        found["judged"] = audit.judge(f"{job['set']}, {recipe.model}", job["method"], record)
        shares.mkdir(parents=True, exist_ok=True)
        kept = {name: record.arrays[name].astype(np.uint8) for name in ("labels", "clean")}
        np.savez_compressed(shares / f"{name_of(job)}.npz", p=record.arrays["probabilities"].astype(np.float16), **kept)
    return found


def name_of(job: dict[str, Any]) -> str:
    """A file's name for a job."""
    return f"{job['set']}-{job.get('model', 'simple-cnn')}-{job['method']}-{job['seed']}"


def attempt(job: dict[str, Any], *arguments: Any) -> dict[str, Any]:
    """The results of a job, or the error that ended it."""
    torch.set_num_threads(1)
    try:
        return work(job, *arguments)
    except Exception as error:
        return {**job, "error": repr(error), "trace": traceback.format_exc()[-1500:]}


def told(row: dict[str, Any]) -> str:
    """A job's figures, or its error, in a line."""
    pairs = itertools.product(("best", "last"), ("valid_acc", "valid_eprop"))
    figures = row.get("error") or " ".join(f"{100 * row[moment][key]:.2f}" for moment, key in pairs)
    return f"{row['set']} {row['label']} {row['seed']}: {figures}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    extra = {"precision": options.precision, "compile": options.compile}
    todo = json.loads(options.jobs.read_text())
    started = time.time()
    shares = options.out.with_name(f"{options.out.stem}-shares")
    spawn = multiprocessing.get_context("spawn")  # CUDA does not work in forked processes
    with ProcessPoolExecutor(options.workers, spawn) as pool, open(options.out, "a") as file:
        file.write(json.dumps({"environment": environment(), "extra": extra}) + "\n")
        runs = [pool.submit(attempt, job, options.data, extra, shares) for job in todo]
        for done, run in enumerate(as_completed(runs), 1):
            row = run.result()
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(f"{time.time() - started:6.0f} s {done}/{len(todo)} {told(row)}", flush=True)


if __name__ == "__main__":
    main()
