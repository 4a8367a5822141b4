"""What reading through the library costs: `indexed(loader)` and `BatchReader` beside the loader itself.

    python benchmarks/loaders.py --out docs/results/loaders

The data set reads CIFAR-shaped rows one by one, crops and flips them, and makes floats of them, as image data sets do.
Epochs take turns in one process; time is CPU time of the process and its workers together, since others may be using
the machine, and the ratio is within a turn.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import ratios, save, save_page, where
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from torchcurriculum import indexed
from torchcurriculum.distributed import derive
from torchcurriculum.shell.reader import BatchReader

WORKERS = (0, 2, 4)


class Pictures(Dataset[tuple[Tensor, int]]):
    """uint8 pictures that are padded, cropped, flipped and normalised one at a time."""

    def __init__(self, rows: int) -> None:
        self.x = np.random.default_rng(0).integers(0, 256, (rows, 32, 32, 3), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        picture = np.pad(self.x[row], ((4, 4), (4, 4), (0, 0)))
        top, left = random.randint(0, 8), random.randint(0, 8)
        picture = picture[top : top + 32, left : left + 32]
        if random.random() < 0.5:
            picture = picture[:, ::-1]
        x = torch.from_numpy(np.ascontiguousarray(picture.transpose(2, 0, 1))).float().div_(255)
        return x.sub_(0.47).div_(0.25), row % 10


class Shuffled:
    """A batch sampler with an order of its own for every epoch, as tensors' rows."""

    def __init__(self, rows: int, batch: int) -> None:
        self.rows, self.batch, self.epoch = rows, batch, 0

    def order(self) -> list[Tensor]:
        self.epoch += 1
        draw = torch.Generator().manual_seed(derive(0, "order", self.epoch))
        return list(torch.randperm(self.rows, generator=draw).split(self.batch))

    def __iter__(self) -> Any:
        return (rows.tolist() for rows in self.order())

    def __len__(self) -> int:
        return -(-self.rows // self.batch)


def cpu_seconds() -> float:
    """CPU time of this process and its workers so far; the kernel counts nanoseconds for each thread."""
    total = time.process_time()
    for worker in multiprocessing.active_children():
        for thread in Path(f"/proc/{worker.pid}/task").glob("*/schedstat"):
            total += int(thread.read_text().split()[0]) / 1e9
    return total


def measure(workers: int, rows: int, batch: int, repeats: int) -> list[dict[str, Any]]:
    data = Pictures(rows)

    def loader() -> DataLoader[Any]:
        generator = torch.Generator()
        options: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0, "generator": generator}
        return DataLoader(data, batch_sampler=Shuffled(rows, batch), **options)

    plain, other, reader, sampler = (
        loader(),
        loader(),
        BatchReader(data, workers=workers, persistent=True),
        Shuffled(rows, batch),
    )
    loops = {
        "loader": lambda: iter(plain),
        "loader again": lambda: iter(plain),
        "indexed(loader)": lambda: iter(indexed(other)),
        "curriculum's feed": lambda: reader.read(sampler.order(), lambda place: derive(0, sampler.epoch, place)),
    }
    found: dict[str, list[float]] = {name: [] for name in loops}
    for turn in range(-1, repeats):
        for name in list(loops) if turn % 2 else list(loops)[::-1]:
            start = cpu_seconds()
            seen = sum(1 for _ in loops[name]())
            assert seen == len(sampler)
            if turn >= 0:
                found[name].append(cpu_seconds() - start)
    return [{"workers": workers, "rows": rows, "batch": batch, **row} for row in ratios(found, "loader")]


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| workers | loop | s an epoch | ratio (quartiles) | of the best epochs | n |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        low, high = row["quartiles"]
        lines.append(
            f"| {row['workers']} | {row['loop']} | {row['seconds']:.3f} | {row['ratio']:.3f} ({low:.3f}-{high:.3f}) | "
            f"{row['best']:.3f} | {row['n']} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--workers", type=int, nargs="+", default=list(WORKERS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    command = f"python benchmarks/loaders.py --rows {options.rows} --batch {options.batch} --repeats {options.repeats}"
    head, rows = where(command), []
    for workers in options.workers:
        rows += measure(workers, options.rows, options.batch, options.repeats)
        print(table(rows[-4:]), flush=True)
    if options.out:
        save(options.out.with_suffix(".json"), {"environment": head, "rows": rows})
        words = f"{head['cpu']}, torch {head['torch']}, commit {head['commit']}, load {head['load']:.1f}"
        notes = " ".join(str(__doc__).partition("The data set")[2].split())
        page = f"# What reading through the library costs\n\n```\n{command}\n```\n\n{words}. The data set {notes} The "
        page += "loader against itself (`loader again`) shows the noise.\n"
        save_page(options.out.with_suffix(".md"), f"{page}\n{table(rows)}\n")


if __name__ == "__main__":
    main()
