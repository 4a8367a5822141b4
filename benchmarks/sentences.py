"""Sentences with wrong labels and a small network that memorises them: TREC, YouTube and SST-2 (gold labels, flipped).

    OMP_NUM_THREADS=1 python benchmarks/sentences.py WRENCH SST2 [--methods vanilla elr rapw] [--seeds 0 1 2]

WRENCH holds `trec` and `youtube` in WRENCH's form, SST2 the files `train.tsv` and `dev.tsv`, of which 8,000 sentences
train. A convolution over embeddings that are learnt, the first 32 tokens, 30 epochs of Adam 0.001 without a schedule,
batches of 64; test accuracy at the last and at the best epoch. `settled` is the epoch in which RAPW's memory settled.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor, nn

from torchcurriculum import Arrays, Curriculum
from torchcurriculum.lab.data import load_wrench

CASES = (
    ("trec", "random", 0.3),
    ("sst2", "random", 0.3),
    ("youtube", "random", 0.3),
    ("trec", "next", 0.3),
    ("trec", "random", 0.5),
    ("sst2", "random", 0.15),
)
EPOCHS, TOKENS, LENGTH = 30, 20_000, 32


class Network(nn.Module):
    """The largest answer of each filter over the sentence."""

    def __init__(self, words: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, 64, padding_idx=0)
        self.filters, self.head = nn.Conv1d(64, 96, 3, padding=1), nn.Linear(96, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.relu(self.filters(self.embedding(x).transpose(1, 2))).amax(2))
        return logits


def tokens(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+|[^ \w]", text.lower())


Data = tuple[Arrays, Arrays, int]


def read(name: str, wrench: Path, sst2: Path) -> Data:
    """Training and test part with their gold labels, and the number of different tokens."""
    if name == "sst2":
        lines = [(sst2 / f"{part}.tsv").read_text(encoding="utf-8").splitlines()[1:] for part in ("train", "dev")]
        lines[0] = [lines[0][row] for row in random.Random(0).sample(range(len(lines[0])), 8000)]
        parts = [
            ([line.split("\t")[0] for line in part], [int(line.split("\t")[1]) for line in part]) for part in lines
        ]
    else:
        held = load_wrench(wrench / name)
        parts = [(held[part].texts, held[part].labels.tolist()) for part in ("train", "test")]
    common = Counter(word for text in parts[0][0] for word in tokens(text)).most_common(TOKENS)
    number = {word: place for place, (word, _) in enumerate(common, 2)}

    def encode(text: str) -> list[int]:
        return ([number.get(word, 1) for word in tokens(text)][:LENGTH] + [0] * LENGTH)[:LENGTH]

    train, test = (Arrays(torch.tensor([encode(text) for text in texts]), torch.tensor(y)) for texts, y in parts)
    return train, test, len(number) + 2


def train(case: tuple[str, str, float], method: str, seed: int, data: Data) -> tuple[float, float, int]:
    """Accuracy in per cent at the last and at the best epoch, and when RAPW's memory settled (0: never)."""
    (x, y), (tests, truth) = ((part.x, part.y) for part in data[:2])
    classes, draw = int(y.max()) + 1, torch.Generator().manual_seed(seed + 70)
    wrong = torch.rand(len(y), generator=draw) < case[2]
    step = 1 if case[1] == "next" else torch.randint(1, classes, (len(y),), generator=draw)
    torch.manual_seed(seed)
    model = Network(data[2], classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    given = Arrays(x, torch.where(wrong, (y + step) % classes, y))
    curriculum = Curriculum(method, given, batch_size=64, epochs=EPOCHS, seed=seed)
    found, settled = [], 0
    for epoch in range(1, EPOCHS + 1):
        for batch in curriculum.epoch(model):
            loss = curriculum.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            found.append(100 * (model(tests).argmax(1) == truth).double().mean().item())
        settled = settled or epoch * int(getattr(curriculum.method, "settled", 0))
    return found[-1], max(found), settled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wrench", type=Path)
    parser.add_argument("sst2", type=Path)
    parser.add_argument("--methods", nargs="+", default=["vanilla", "elr", "rapw"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    print("| data | wrong | method | last epoch | best epoch | settled |\n|---|---|---|---|---|---|")
    for case in CASES:
        data = read(case[0], options.wrench, options.sst2)
        for method in options.methods:
            runs = [train(case, method, seed, data) for seed in options.seeds]
            cells = (", ".join(f"{value:.1f}" for value in column) for column in list(zip(*runs, strict=True))[:2])
            when = ", ".join(str(run[2] or "-") for run in runs)
            print(f"| {case[0]} | {case[1]} {case[2]:.0%} | `{method}` | {' | '.join(cells)} | {when} |", flush=True)


if __name__ == "__main__":
    main()
