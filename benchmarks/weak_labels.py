"""Methods on text with wrong labels, judged by gold test labels: TREC and YouTube (majority vote of rules), SST-2.

    python benchmarks/weak_labels.py DIR [--sst2 FOLDER] [--seeds 0 1 2 3 4] [--epochs 20]

DIR holds `trec` and `youtube` in WRENCH's form. One hidden layer over hashed words; the best epoch is chosen on the
gold labels of the validation part. FOLDER holds `train.tsv` and `dev.tsv` of SST-2: 20,000 sentences with 40 % of the
labels flipped, 2,000 others to choose the epoch, and the same layer over MiniLM's embeddings, which are not trained.
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
from torchcurriculum.clean.text import text_features
from torchcurriculum.distributed import derive, evaluating
from torchcurriculum.lab.data import hashed_words, load_wrench, majority_vote


def accuracy(model: nn.Module, data: Arrays) -> float:
    with evaluating(model), torch.no_grad():
        return (model(data.x).argmax(1) == data.y).double().mean().item()


def one(
    sets: dict[str, Arrays], classes: int, name: str, options: dict[str, Any], seed: int, epochs: int, lr: float
) -> list[float]:
    """Test accuracy at the best-validation and at the last epoch."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "initial weights"))
        model = nn.Sequential(nn.Linear(sets["train"].x.shape[1], 64), nn.ReLU(), nn.Linear(64, classes))
    method = methods.build(name, len(sets["train"]), epochs, **options)
    curriculum = Curriculum(method, sets["train"], batch_size=64, seed=seed, measure="running")
    scores = []
    for _ in epochs_of(model, curriculum, epochs, lr):
        scores.append((accuracy(model, sets["valid"]), accuracy(model, sets["test"])))
    return [max(scores, key=lambda pair: pair[0])[1], scores[-1][1]]


def rules(folder: Path) -> tuple[dict[str, Arrays], int]:
    """A data set of WRENCH, with the rules' votes as training labels."""
    parts = load_wrench(folder)
    votes = majority_vote(parts["train"].weak)
    texts = [text for text, vote in zip(parts["train"].texts, votes, strict=True) if vote >= 0]
    sets = {part: Arrays(hashed_words(parts[part].texts), parts[part].labels) for part in ("valid", "test")}
    return {**sets, "train": Arrays(hashed_words(texts), votes[votes >= 0])}, len(parts["train"].names)


def sst2(folder: Path) -> tuple[dict[str, Arrays], int]:
    """SST-2 with 40 % of the training labels flipped."""
    lines = [(folder / f"{part}.tsv").read_text(encoding="utf-8").splitlines()[1:] for part in ("train", "dev")]
    draw = np.random.default_rng(0)
    pairs = [lines[0][row].rsplit("\t", 1) for row in draw.permutation(len(lines[0]))[:22_000]]
    pairs += [line.rsplit("\t", 1) for line in lines[1]]
    x = torch.from_numpy(text_features([text for text, _ in pairs], "minilm")[0]).float()
    y = torch.tensor([int(label) for _, label in pairs])
    given = torch.where(torch.from_numpy(draw.random(20_000) < 0.4), 1 - y[:20_000], y[:20_000])
    held = {"valid": slice(20_000, 22_000), "test": slice(22_000, None)}
    return {"train": Arrays(x[:20_000], given), **{part: Arrays(x[rows], y[rows]) for part, rows in held.items()}}, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sst2", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    cases = {data: rules(options.folder / data) for data in ("trec", "youtube")}
    if options.sst2:
        cases["sst2"] = sst2(options.sst2)
    print("| data | method | T-ACC best | - vanilla | T-ACC last | - vanilla |\n|---|---|---|---|---|---|")
    for data, (sets, classes) in cases.items():
        lr, plain = 0.05 if data == "sst2" else 0.5, None  # embeddings are larger than hashed words
        table = {"vanilla": {}, "superloss": {"tau": math.log(classes)}, "apw-e": {}, "rapw": {}}
        for name, knobs in table.items():
            found = 100 * np.array(
                [one(sets, classes, name, knobs, seed, options.epochs, lr) for seed in options.seeds]
            )
            plain = found if plain is None else plain
            print(f"| {data} | `{name}` | {beside(found, plain)} |", flush=True)


if __name__ == "__main__":
    main()
