"""Methods on tables with 0 and 30 % wrong labels, 2 to 50 classes: data that RAPW was not made on.

    python benchmarks/noisy_tables.py [--seeds 0 1 2] [--out docs/results/noisy-tables]

scikit-learn's breast cancer table and two made-up ones. Two hidden layers of 128, Adam, 40 epochs, no tuning. Wrong
labels are drawn from the other classes, or are the next class. A quarter of the rows, with right labels, is the test.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn

from torchcurriculum import Arrays, Curriculum, methods
from torchcurriculum.lab.provenance import environment, write_json

EPOCHS = 40
NOISE = {"clean": (0.0, "any"), "30 %": (0.3, "any"), "30 %, next class": (0.3, "next")}


def tables() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Features and right labels."""
    made = {"flip_y": 0.0, "random_state": 1}
    four = make_classification(6000, 30, n_informative=12, n_classes=4, n_clusters_per_class=3, class_sep=1.2, **made)
    fifty = make_classification(12_000, 60, n_informative=25, n_classes=50, n_clusters_per_class=1, **made)
    return {"breast cancer": load_breast_cancer(return_X_y=True), "made up, 4 classes": four, "50 classes": fifty}


def chosen(classes: int) -> dict[str, dict[str, Any]]:
    """The methods and their options."""
    return {"vanilla": {}, "superloss": {"tau": math.log(classes), "lam": 0.25}, "elr": {}, "argmax": {}, "rapw": {}}


def one(x: np.ndarray, y: np.ndarray, noise: tuple[float, str], name: str, knobs: dict[str, Any], seed: int) -> float:
    """Test accuracy at the last epoch."""
    train_x, test_x, train_y, test_y = train_test_split(x, y, test_size=0.25, random_state=seed, stratify=y)
    scaler, draw, classes = StandardScaler().fit(train_x), np.random.default_rng(seed), int(y.max()) + 1
    step = draw.integers(1, classes, len(train_y)) if noise[1] == "any" else 1
    given = np.where(draw.random(len(train_y)) < noise[0], (train_y + step) % classes, train_y)
    rows = Arrays(torch.tensor(scaler.transform(train_x), dtype=torch.float32), torch.tensor(given))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        wide = [nn.Linear(x.shape[1], 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()]
        model = nn.Sequential(*wide, nn.Linear(128, classes))
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    method = methods.build(name, len(rows), EPOCHS, **knobs)
    curriculum = Curriculum(method, rows, batch_size=64, seed=seed, measure="running")
    for _ in range(EPOCHS):
        for batch in curriculum.epoch(model):
            loss = curriculum.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        answer = model(torch.tensor(scaler.transform(test_x), dtype=torch.float32)).argmax(1).numpy()
    return float((answer == test_y).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("docs/results/noisy-tables"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    lines = [
        "| table | labels | " + " | ".join(f"`{name}`" for name in chosen(2)) + " |",
        "|---|---|---|---|---|---|---|",
    ]
    for table, (x, y) in tables().items():
        for words, noise in NOISE.items():
            if noise[1] == "next" and y.max() == 1:
                continue  # the only other class
            cells = []
            for name, knobs in chosen(int(y.max()) + 1).items():
                scores = [one(x, y, noise, name, knobs, seed) for seed in options.seeds]
                found.append({"table": table, "labels": words, "method": name, "accuracy": scores})
                cells.append(f"{100 * np.mean(scores):.1f} ± {100 * np.std(scores, ddof=1):.1f}")
            lines.append(f"| {table} | {words} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    write_json(options.out.with_suffix(".json"), {"environment": environment(), "seeds": options.seeds, "runs": found})
    print("\n".join(lines))


if __name__ == "__main__":
    main()
