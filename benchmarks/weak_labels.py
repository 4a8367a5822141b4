"""Methods on TREC and YouTube with real weak labels (majority vote of rules), judged by the gold test labels.

    python benchmarks/weak_labels.py DIR [--seeds 0 1 2 3 4] [--epochs 20]

DIR holds `trec` and `youtube` in WRENCH's form. One hidden layer over hashed words; the
best epoch is chosen on the gold labels of the validation part.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import beside, epochs_of
from torch import nn

from torchcurriculum import Arrays, Curriculum, methods
from torchcurriculum.distributed import derive, evaluating
from torchcurriculum.lab.data import hashed_words, load_wrench, majority_vote


def accuracy(model: nn.Module, data: Arrays) -> float:
    with evaluating(model), torch.no_grad():
        return (model(data.x).argmax(1) == data.y).double().mean().item()


def one(
    sets: dict[str, Arrays], classes: int, name: str, options: dict[str, Any], seed: int, epochs: int
) -> list[float]:
    """Test accuracy at the best-validation and at the last epoch."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "initial weights"))
        model = nn.Sequential(nn.Linear(sets["train"].x.shape[1], 64), nn.ReLU(), nn.Linear(64, classes))
    method = methods.build(name, len(sets["train"]), epochs, **options)
    curriculum = Curriculum(method, sets["train"], batch_size=64, seed=seed, measure="running")
    scores = []
    for _ in epochs_of(model, curriculum, epochs, 0.5):
        scores.append((accuracy(model, sets["valid"]), accuracy(model, sets["test"])))
    return [max(scores, key=lambda pair: pair[0])[1], scores[-1][1]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    print("| data | method | T-ACC best | - vanilla | T-ACC last | - vanilla |\n|---|---|---|---|---|---|")
    for data in ("trec", "youtube"):
        parts = load_wrench(options.folder / data)
        classes, votes = len(parts["train"].names), majority_vote(parts["train"].weak)
        texts = [text for text, vote in zip(parts["train"].texts, votes, strict=True) if vote >= 0]
        sets = {part: Arrays(hashed_words(parts[part].texts), parts[part].labels) for part in ("valid", "test")}
        sets["train"] = Arrays(hashed_words(texts), votes[votes >= 0])
        plain: np.ndarray | None = None
        table = {"vanilla": {}, "superloss": {"tau": math.log(classes)}, "apw-e": {}, "rapw": {}}
        for name, knobs in table.items():
            found = 100 * np.array([one(sets, classes, name, knobs, seed, options.epochs) for seed in options.seeds])
            plain = found if plain is None else plain
            print(f"| {data} | `{name}` | {beside(found, plain)} |", flush=True)


if __name__ == "__main__":
    main()
