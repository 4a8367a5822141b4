"""RAPW on Fashion-MNIST, which no rule of it was chosen on, with kinds of wrong labels that it was not made for.

    OMP_NUM_THREADS=1 python benchmarks/fashion.py DIR [--seeds 0 1 2] [--jobs 2] [--out docs/results/fashion]

DIR holds the four official files, `train-images-idx3-ubyte.gz` and so on (Debian's package dataset-fashion-mnist).
8,000 rows to train on, a convolutional network of 98,666 parameters, 20 epochs, SGD 0.05 with cosine, test accuracy
at the last epoch.
"""

from __future__ import annotations

import argparse
import gzip
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import epochs_of, save_page, spread
from sklearn.linear_model import LogisticRegression
from torch import nn

from torchcurriculum import Arrays, Curriculum, methods
from torchcurriculum.distributed import evaluating
from torchcurriculum.lab.provenance import environment, write_json

ROWS, EPOCHS, CLASSES = 8000, 20, 10
METHODS: dict[str, dict[str, float]] = {"vanilla": {}, "superloss": {"lam": 0.25}, "elr": {}, "rapw": {}}
SIMILAR = np.array([6, 1, 4, 0, 2, 7, 2, 9, 8, 5])  # shirt for T-shirt, coat for pullover, sneaker for sandal, ...
KINDS = {
    "clean": "as they are",
    "random-20": "another class, drawn evenly",
    "random-40": "the same",
    "random-60": "the same",
    "next-30": "the next class",
    "similar-40": "the class that looks most alike; trousers and bags stay",
    "image-40": "a class that depends on the image: a random linear function of its pixels (after Xia et al., 2020)",
    "hard-20": "the runner-up of a linear classifier, the more often the less sure it is: mistakes of hard rows",
    "hard-35": "the same",
}


def read(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 784) in [-1, 1] and labels, of ``"train"`` or ``"t10k"``."""
    pixels = gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes())[16:]
    labels = gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())[8:]
    x = np.frombuffer(pixels, np.uint8).reshape(-1, 784).astype(np.float32) / 127.5 - 1
    return x, np.frombuffer(labels, np.uint8).astype(np.int64)


def corrupt(kind: str, x: np.ndarray, y: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """The labels of this kind."""
    name, _, rate = kind.partition("-")
    share, n = int(rate or 0) / 100, len(y)
    wrong = draw.random(n) < share
    if name == "random":
        other = (y + draw.integers(1, CLASSES, n)) % CLASSES
    elif name == "next":
        other = (y + 1) % CLASSES
    elif name == "similar":
        other = SIMILAR[y]
    elif name == "image":
        functions = draw.normal(size=(CLASSES, 784, CLASSES)) / 28
        scores = np.einsum("nd,ndc->nc", x, functions[y])
        scores[range(n), y] = -np.inf
        other = scores.argmax(1)
        wrong = draw.random(n) < draw.normal(share, 0.1, n)
    elif name == "hard":
        chances = LogisticRegression(C=0.01, max_iter=500).fit(x, y).predict_proba(x)
        own = chances[range(n), y].copy()
        chances[range(n), y] = -1
        other, order = chances.argmax(1), own.argsort()
        wrong = np.empty(n, bool)
        wrong[order] = draw.random(n) < np.linspace(2 * share, 0, n)
    else:
        return y
    return np.where(wrong, other, y)


def network() -> nn.Module:
    def block(before: int, after: int) -> list[nn.Module]:
        return [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]

    head = [nn.Flatten(), nn.Linear(64 * 9, 128), nn.ReLU(), nn.Linear(128, CLASSES)]
    return nn.Sequential(nn.Unflatten(1, (1, 28, 28)), *block(1, 16), *block(16, 32), *block(32, 64), *head)


def train(folder: Path, job: tuple[str, str, int]) -> dict[str, Any]:
    """One run: the kind of labels, the method and the seed, with its figures in per cent."""
    kind, method, seed = job
    torch.set_num_threads(1)
    draw = np.random.default_rng(seed)
    x, y = read(folder, "train")
    rows = draw.permutation(len(y))[:ROWS]
    x, y = x[rows], y[rows]
    given = corrupt(kind, x, y, draw)
    torch.manual_seed(seed)
    model, built = network(), methods.build(method, ROWS, EPOCHS, **METHODS[method])
    curriculum = Curriculum(built, Arrays(torch.from_numpy(x), torch.from_numpy(given)), batch_size=100, seed=seed)
    for _ in epochs_of(model, curriculum, EPOCHS, 0.05):
        pass
    x, truth = map(torch.from_numpy, read(folder, "t10k"))
    with evaluating(model), torch.no_grad():
        right = torch.cat([model(part).argmax(1) for part in x.split(1000)]) == truth
    found = {"accuracy": 100 * right.double().mean().item(), "wrong": 100 * float((given != y).mean())}
    if method == "rapw":
        found |= {"rho": 100 * float(built.rho), "doubt": float(built.doubt), "v": float(built.uneven)}
    return {"kind": kind, "method": method, "seed": seed, **found}


def page(runs: list[dict[str, Any]], where: dict[str, Any], seeds: list[int]) -> str:
    head = " | ".join(f"`{name}`" for name in METHODS)
    lines = [f"| labels | wrong | {head} | RAPW's estimate | doubt | v |", "|---" * (len(METHODS) + 5) + "|"]
    for kind in KINDS:
        of = {name: [run for run in runs if (run["kind"], run["method"]) == (kind, name)] for name in METHODS}
        if not all(of.values()):
            continue
        cells = [spread([run["accuracy"] for run in found], 2) for found in of.values()]
        mean = {name: np.mean([run[name] for run in of["rapw"]]) for name in ("wrong", "rho", "doubt", "v")}
        cells += [f"{mean['rho']:.1f} %", f"{mean['doubt']:.2f}", f"{mean['v']:.2f}"]
        lines.append(f"| {kind} | {mean['wrong']:.1f} % | {' | '.join(cells)} |")
    table = "\n".join(lines)
    words = "\n".join(f"- `{kind}`: {text}" for kind, text in KINDS.items())
    return f"""# Fashion-MNIST with kinds of wrong labels that no rule was made for

```
OMP_NUM_THREADS=1 python benchmarks/fashion.py DIR --out docs/results/fashion
```

{ROWS:,} rows, a small convolutional network, {EPOCHS} epochs, SGD 0.05 with cosine; no augmentation. Test accuracy at
the last epoch in per cent, mean ± standard deviation, seeds {", ".join(map(str, seeds))} (rows, wrong labels, initial
weights and order change with the seed). SuperLoss has lambda 0.25. CPU, torch {where["torch"]}. Figures of each run:
[fashion.json](fashion.json).

{table}

A wrong label is

{words}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("docs/results/fashion"))
    options = parser.parse_args()
    jobs = [(kind, method, seed) for seed in options.seeds for kind in KINDS for method in METHODS]
    runs: list[dict[str, Any]] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for run in pool.map(partial(train, options.data), jobs):
            print(
                {name: round(value, 2) if isinstance(value, float) else value for name, value in run.items()},
                flush=True,
            )
            runs.append(run)
            write_json(options.out.with_suffix(".json"), {"environment": environment(), "runs": runs})
    save_page(options.out.with_suffix(".md"), page(runs, environment(), options.seeds))


if __name__ == "__main__":
    main()
