"""Rare classes: digits where half of the classes keep a tenth of their rows, clean and with 20 % of the labels wrong.

    OMP_NUM_THREADS=1 python benchmarks/uneven.py [--seeds 0 1 2 3 4] [--balance]

A method that takes hard rows for wrong ones takes rare ones for wrong first. Figures are recalls on the clean test set,
whose classes are even: their mean over all classes, and over the rare ones, at the last epoch.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import torch
from common import beside, epochs_of

from torchcurriculum import Arrays, Curriculum, losses, methods
from torchcurriculum.distributed import derive, evaluating
from torchcurriculum.lab.data import load_digits
from torchcurriculum.lab.models import digits_cnn

METHODS = {"vanilla": {}, "superloss": {"tau": math.log(10)}, "apw-e": {}, "rapw": {}}
BALANCED = {"vanilla": {}, "drw": {}, "superloss": {"tau": math.log(10)}}  # those beside which classes are evened out
LOSSES = {"LogitAdjusted": losses.LogitAdjusted, "ClassBalanced": losses.ClassBalanced}
WAYS = ("", "weights", "rows", *LOSSES)
RARE = torch.arange(5)
KEPT, EPOCHS = 0.1, 40


def uneven(seed: int, rate: float) -> tuple[Arrays, Arrays]:
    """Training rows with rare classes and wrong labels, and the test part."""
    parts = load_digits(seed)
    (x, y), test = parts["train"], Arrays(*parts["test"])
    draw = torch.Generator().manual_seed(derive(seed, "uneven"))
    kept = ~torch.isin(y, RARE) | (torch.rand(len(y), generator=draw) < KEPT)
    x, y = x[kept], y[kept]
    wrong = torch.rand(len(y), generator=draw) < rate
    other = (y + torch.randint(1, 10, (len(y),), generator=draw)) % 10
    return Arrays(x, torch.where(wrong, other, y)), test


def recalls(name: str, seed: int, rate: float, way: str = "") -> tuple[float, float]:
    """Of all and of the rare classes; ``way`` says how classes are evened out."""
    train, test = uneven(seed, rate)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "initial weights"))
        model = digits_cnn()
    method = methods.build(name, len(train), EPOCHS, **{**METHODS, **BALANCED}[name])
    if way in ("weights", "rows"):
        method = methods.Balanced(method, train.y, way)
    loss = {"loss_fn": LOSSES[way](train.y.bincount(minlength=10))} if way in LOSSES else {}
    curriculum = Curriculum(method, train, batch_size=64, seed=seed, measure="running", **loss)
    for _ in epochs_of(model, curriculum, EPOCHS, 0.05):
        pass
    with evaluating(model), torch.no_grad():
        right = (model(test.x).argmax(1) == test.y).double()
    found = torch.stack([right[test.y == label].mean() for label in range(10)])
    return found.mean().item(), found[RARE].mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--balance", action="store_true", help="compare ways to even out the classes")
    options = parser.parse_args()
    cases = [(name, "") for name in METHODS]
    if options.balance:
        cases = [(name, way) for name in BALANCED for way in (WAYS if name != "drw" else ("",))]
    print("| wrong labels | method | recall, all classes | - vanilla | recall, rare classes | - vanilla |")
    print("|---" * 6 + "|")
    for rate in (0.0, 0.2):
        plain: np.ndarray | None = None
        for name, way in cases:
            found = 100 * np.array([recalls(name, seed, rate, way) for seed in options.seeds])
            plain = found if plain is None else plain
            print(f"| {rate:.0%} | `{name}`{f', {way}' if way else ''} | {beside(found, plain)} |", flush=True)


if __name__ == "__main__":
    main()
