"""RAPW beside plain training on two classes with 0 to 40 % of the labels flipped: does it harm clean labels?

    OMP_NUM_THREADS=1 python benchmarks/doubt.py [--seeds 0 1 2 3 4]

scikit-learn's breast cancer table (455 rows to train on) and made-up classes that overlap little or much (4,000 rows,
40 columns, 10 of which are informative). Two sets are learnt late: the parity of four of eight bits, and two spirals
(4,000 rows). Two layers of 64 units for these, one for the others; 30 epochs, SGD 0.1 with cosine, test accuracy at
the last epoch. `doubt` is RAPW's at that epoch, the mean over the seeds.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from common import epochs_of
from sklearn.datasets import load_breast_cancer, make_classification
from torch import nn

from torchcurriculum import Arrays, Curriculum, methods
from torchcurriculum.distributed import evaluating

APART = {"apart": 1.0, "overlapping": 0.5}
LATE = ("parity", "spirals")
SETS = ("breast cancer", *APART, *LATE)
RATES, EPOCHS = (0.0, 0.05, 0.2, 0.3, 0.4), 30


def problem(name: str, rate: float, seed: int) -> tuple[Arrays, Arrays]:
    """Training rows with flipped labels, and test rows."""
    draw = np.random.default_rng(seed)
    n = 4000
    if name == "breast cancer":
        x, y = load_breast_cancer(return_X_y=True)
        order, n = draw.permutation(len(y)), 455
        x, y = ((x - x.mean(0)) / x.std(0))[order], y[order]
    elif name == "parity":
        bits = draw.integers(0, 2, (6000, 8))
        x, y = 2 * bits - 1 + draw.normal(0, 0.3, bits.shape), bits[:, :4].sum(1) % 2
    elif name == "spirals":
        y, turn = draw.integers(0, 2, 6000), draw.random(6000) * 3 * np.pi + 0.5
        x = turn * np.stack([np.cos(turn + np.pi * y), np.sin(turn + np.pi * y)])
        x = (x.T + draw.normal(0, 0.4, (6000, 2))) / 5
    else:
        x, y = make_classification(6000, 40, n_informative=10, class_sep=APART[name], flip_y=0, random_state=seed)
    given = np.where(draw.random(n) < rate, 1 - y[:n], y[:n])
    x = torch.tensor(x, dtype=torch.float32)
    return Arrays(x[:n], torch.tensor(given)), Arrays(x[n:], torch.tensor(y[n:]))


def accuracy(method: str, name: str, rate: float, seed: int) -> tuple[float, float]:
    """In per cent, and the doubt."""
    train, test = problem(name, rate, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        middle = (nn.Linear(64, 64), nn.ReLU()) if name in LATE else ()
        model = nn.Sequential(nn.Linear(train.x.shape[1], 64), nn.ReLU(), *middle, nn.Linear(64, 2))
    built = methods.build(method, len(train), EPOCHS)
    curriculum = Curriculum(built, train, batch_size=64, seed=seed, measure="running")
    for _ in epochs_of(model, curriculum, EPOCHS, 0.1):
        pass
    with evaluating(model), torch.no_grad():
        right = (model(test.x).argmax(1) == test.y).double().mean().item()
    return 100 * right, float(getattr(built, "doubt", 0.0))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    seeds = parser.parse_args().seeds
    print("| data | labels flipped | `vanilla` | `rapw` | doubt |\n|---|---|---|---|---|")
    for name in SETS:
        for rate in RATES:
            plain = [accuracy("vanilla", name, rate, seed)[0] for seed in seeds]
            found, doubt = zip(*(accuracy("rapw", name, rate, seed) for seed in seeds), strict=True)
            row = (f"{np.mean(one):.1f} ± {np.std(one, ddof=1):.1f}" for one in (plain, found))
            print(f"| {name} | {rate:.0%} | {' | '.join(row)} | {np.mean(doubt):.2f} |", flush=True)


if __name__ == "__main__":
    main()
