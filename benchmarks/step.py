"""What a step through `Curriculum` costs on the host beside the same step without: microseconds, in turns, in one run.

    python benchmarks/step.py [--rounds 40] [--out docs/results/step.json]

A linear model, batch 128, one thread, ``measure="running"``: the model costs next to nothing, so what is left is the
host's own work, which an accelerator would wait for. Epochs of the plain loop and of each method follow each other in
turn; a figure is the median over epochs, of CPU time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from common import save, where
from torch import nn

from torchcurriculum import Arrays, Curriculum, methods

STEPS, BATCH, CLASSES, WIDTH = 200, 128, 10, 64
METHODS = ("vanilla", "apw-e", "apw-i", "superloss", "rapw")
TARGETS = {"vanilla": 60, "apw-e": 80, "apw-i": 150, "superloss": 250, "rapw": 350}
Epoch = Callable[[], None]


def problem() -> tuple[Arrays, nn.Module, torch.optim.Optimizer]:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(STEPS * BATCH, WIDTH, generator=draw)
    y = torch.randint(CLASSES, (STEPS * BATCH,), generator=draw)
    model = nn.Linear(WIDTH, CLASSES)
    return Arrays(x, y), model, torch.optim.SGD(model.parameters(), 0.01)


def plain() -> Epoch:
    data, model, optimizer = problem()

    def epoch() -> None:
        for rows in torch.randperm(len(data)).split(BATCH):
            loss = F.cross_entropy(model(data.x[rows]), data.y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return epoch


def through(name: str) -> Epoch:
    data, model, optimizer = problem()
    curriculum = Curriculum(methods.build(name, len(data), 50), data, batch_size=BATCH, measure="running")

    def epoch() -> None:
        for batch in curriculum.epoch(model):
            loss = curriculum.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return epoch


def microseconds(loops: dict[str, Epoch], rounds: int) -> dict[str, list[float]]:
    """CPU time of a step in each epoch of each loop, in turns; the first three rounds warm up."""
    found: dict[str, list[float]] = {name: [] for name in loops}
    for number in range(rounds + 3):
        for name, epoch in loops.items():
            began = time.process_time()
            epoch()
            if number >= 3:
                found[name].append((time.process_time() - began) / STEPS * 1e6)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = microseconds({"plain": plain(), **{name: through(name) for name in METHODS}}, options.rounds)
    base = statistics.median(found["plain"])
    rows = [{"loop": "plain", "microseconds": base, "more": 0.0, "target": 0}]
    for name in METHODS:
        more = statistics.median(a - b for a, b in zip(found[name], found["plain"], strict=True))
        rows.append({"loop": name, "microseconds": base + more, "more": more, "target": TARGETS[name]})
    lines = ["| loop | microseconds a step | more than plain | aim |", "|---|---|---|---|"]
    lines += [f"| {r['loop']} | {r['microseconds']:.0f} | {r['more']:.0f} | {r['target'] or ''} |" for r in rows]
    print("\n".join(lines))
    save(options.out, {**where(f"python benchmarks/step.py --rounds {options.rounds}"), "rows": rows})


if __name__ == "__main__":
    main()
