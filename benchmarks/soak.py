"""Many short epochs: does memory grow, does an epoch take longer, are objects left behind?

APW-EI, S-APW-E and M-APW-E through `Curriculum`, with and without every sample's history, each in a process of its own.
256 rows, a linear model, four steps an epoch, one thread. Resident memory is that of /proc/self/statm at the end of
each block; time is the median CPU time of an epoch in it. What is expected to grow is the record: a dict per epoch, and
with samples=True 4 1/8 bytes per sample and epoch.

    python benchmarks/soak.py [--epochs 2000] [--block 200] [--method NAME ...] [--record memory|disk]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import torch
from common import needs

from torchcurriculum import Arrays, Curriculum, methods

METHODS = ("apw-ei", "s-apw-e", "m-apw-beta-e")
ROWS, WIDTH, CLASSES, BATCH = 256, 16, 4, 64


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def tensors() -> int:
    """Tensors that are alive."""
    gc.collect()
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


def weight(thing: Any) -> int:
    """Bytes that a row of the record takes in memory, without the names, which all rows share."""
    parts = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, list) else ()
    return sys.getsizeof(thing) + sum(map(weight, parts))


def soak(name: str, samples: bool, epochs: int, block: int, folder: str | None) -> list[dict[str, float]]:
    """A row for each block of epochs."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, WIDTH, generator=generator)
    y = (x @ torch.randn(WIDTH, CLASSES, generator=generator)).argmax(1)
    y[::5] = torch.randint(0, CLASSES, (len(y[::5]),), generator=generator)
    torch.manual_seed(0)
    model = torch.nn.Linear(WIDTH, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    method = methods.build(name, ROWS, epochs, **needs(name, ROWS))
    curriculum = Curriculum(method, Arrays(x, y), batch_size=BATCH, samples=samples, record=folder, overwrite=True)
    rows, seconds = [], []
    for number in range(1, epochs + 1):
        started = time.process_time()
        for batch in curriculum.epoch(model):
            optimizer.zero_grad()
            curriculum.loss(model, batch).backward()
            optimizer.step()
        seconds.append(time.process_time() - started)
        if number % block == 0:
            started = time.process_time()
            curriculum.state_dict()
            state = time.process_time() - started
            last = seconds[-block:]
            rows.append(
                {
                    "epoch": number,
                    "milliseconds": 1000 * statistics.median(last),
                    "slowest": 1000 * max(last),
                    "resident_kb": resident() / 1024,
                    "tensors": tensors(),
                    "state_ms": 1000 * state,
                    "row_bytes": weight(curriculum.record.epochs[-1]),
                }
            )
    return rows


def summary(name: str, samples: bool, rows: list[dict[str, float]]) -> list[str]:
    """Growth over the second half: the first holds what is made once, and memory that Python keeps for later."""
    first, last = rows[(len(rows) - 1) // 2], rows[-1]
    span = max(last["epoch"] - first["epoch"], 1)
    grown = 1024 * (last["resident_kb"] - first["resident_kb"]) / span
    record = last["row_bytes"] + (ROWS * 4 + ROWS // 8 if samples else 0)
    return [
        f"{name}, samples {'on' if samples else 'off'}, second half: memory {grown:+.0f} bytes an epoch (the record's "
        f"own part: {record:.0f}), time {last['milliseconds'] / first['milliseconds']:.2f} of the middle block's, "
        f"tensors {last['tensors'] - first['tensors']:+.0f}"
    ]


def table(rows: list[dict[str, float]]) -> list[str]:
    lines = ["| epoch | ms (CPU) | slowest | resident KiB | tensors | state_dict ms |", "|---|---|---|---|---|---|"]
    for row in rows:
        figures = (row["milliseconds"], row["slowest"])
        lines.append(
            f"| {row['epoch']:.0f} | {figures[0]:.2f} | {figures[1]:.1f} | {row['resident_kb']:.0f} | "
            f"{row['tensors']:.0f} | {row['state_ms']:.2f} |"
        )
    return lines


def in_process(name: str, samples: bool, options: argparse.Namespace) -> list[dict[str, float]]:
    """One soak in a separate process, so that only its memory is measured."""
    command = [sys.executable, __file__, "--epochs", str(options.epochs), "--block", str(options.block)]
    command += ["--record", options.record, "--one", name, "--samples" if samples else "--no-samples"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=3600)
    rows: list[dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=2000)
    parser.add_argument("--block", type=int, default=200)
    parser.add_argument("--method", action="append", choices=list(methods.names()))
    parser.add_argument("--record", choices=["memory", "disk"], default="memory")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--samples", action=argparse.BooleanOptionalAction, default=False, help=argparse.SUPPRESS)
    options: Any = parser.parse_args()
    torch.set_num_threads(1)
    if options.one:
        with tempfile.TemporaryDirectory() as folder:
            place = folder if options.record == "disk" else None
            print(json.dumps(soak(options.one, options.samples, options.epochs, options.block, place)))
        return
    for name in options.method or METHODS:
        for samples in (False, True):
            rows = in_process(name, samples, options)
            print("\n".join(["", *summary(name, samples, rows), "", *table(rows)]), flush=True)


if __name__ == "__main__":
    main()
