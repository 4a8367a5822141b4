"""What a curriculum costs: an epoch with it as a ratio to the same loop without, in turns, in one process.

    python benchmarks/overhead.py --out docs/results/overhead            # the CPU's table
    python benchmarks/overhead.py --device cuda --out results/overhead   # an accelerator's (benchmarks/gpu.py does it)

Both loops read the same rows in the same order with the same augmentation, and train the same network with the same
optimizer. `running` takes losses seen while training, `pass` measures all rows before each epoch. Time is CPU time of
the process on a CPU, wall time on an accelerator.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from common import Plain, Setting, Trained, With, images, ratios, save, save_page, turns, where

LOOPS = (
    *((name, "running") for name in ("apw-e", "apw-i", "apw-ei", "rapw")),
    *((name, "pass") for name in ("apw-e", "apw-i", "apw-ei")),
)
CPU = (
    Setting(rows=700),
    Setting(rows=700, precision="bfloat16"),
    Setting(rows=700, mode="compile"),
    Setting(model="resnet-18", rows=32, batch=16),
    Setting(model="resnet-18", rows=32, batch=16, mode="compile"),
)
CUDA = (
    Setting(mode="graph", device="cuda"),
    Setting(mode="graph", precision="bfloat16", device="cuda"),
    Setting("resnet-18", "graph", "bfloat16", 10_000, 100, "cuda"),
    Setting(mode="eager", rows=15_000, device="cuda"),
    Setting("resnet-18", "eager", "float32", 5_000, 100, "cuda"),
    Setting("resnet-18", "eager", "bfloat16", 5_000, 100, "cuda"),
    Setting(mode="compile", rows=15_000, device="cuda"),
    Setting(mode="compile", precision="bfloat16", rows=15_000, device="cuda"),
    Setting(mode="eager", precision="bfloat16", rows=15_000, device="cuda"),
    Setting("resnet-18", "compile", "bfloat16", 5_000, 100, "cuda"),
    Setting("resnet-18", "compile", "float32", 5_000, 100, "cuda"),
)


def measure(setting: Setting, loops: Sequence[tuple[str, str]], repeats: int, until: float) -> list[dict[str, Any]]:
    """Rows of the table for one setting. All loops train one network: what it has learnt does not change its time."""
    data, trained = images(setting.rows, setting.device), Trained(setting)
    made: dict[str, Any] = {"plain": Plain(setting, data, trained)}
    for name, how in loops:
        made[f"{name} {how}"] = With(setting, data, trained, name, how)
    found = turns(made, repeats, setting.device, until)
    gc.collect()
    return [{**vars(setting), **row} for row in ratios(found)]


def sweep(
    settings: Sequence[Setting],
    loops: Sequence[tuple[str, str]],
    repeats: int,
    seconds: float,
    each: Callable[[list[dict[str, Any]]], None],
) -> list[dict[str, Any]]:
    """All settings, as far as ``seconds`` allow; ``each`` sees the rows so far after every setting."""
    rows: list[dict[str, Any]] = []
    end = time.monotonic() + seconds
    for setting in settings:
        if time.monotonic() > end:
            break
        try:
            few = (
                setting.device == "cpu" and setting.model == "resnet-18"
            )  # an epoch takes long, and more steps add no information
            rows += measure(setting, loops[::4] if few else loops, repeats, end)
        except Exception as error:
            rows.append({**vars(setting), "error": f"{type(error).__name__}: {error}"[:300]})
        torch._dynamo.reset()
        each(rows)
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| network | mode | precision | loop | s an epoch | ratio (quartiles) | of the best | n |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        head = f"| {row['model']} | {row['mode']} | {row['precision']} |"
        if "error" in row:
            lines.append(f"{head} {row['error']} | | | | |")
            continue
        low, high = row["quartiles"]
        lines.append(
            f"{head} {row['loop']} | {row['seconds']:.3f} | {row['ratio']:.3f} ({low:.3f}-{high:.3f}) | "
            f"{row['best']:.3f} | {row['n']} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=600.0, help="no new setting is begun after this")
    parser.add_argument("--setting", type=int, nargs="+", help="only these of the settings, counted from 0")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings = CUDA if options.device == "cuda" else CPU
    settings = tuple(settings[place] for place in options.setting or range(len(settings)))
    command = f"python benchmarks/overhead.py --device {options.device} --repeats {options.repeats}"
    command += f" --setting {' '.join(map(str, options.setting))}" if options.setting else ""
    head = where(command)

    def each(rows: list[dict[str, Any]]) -> None:
        print(table([row for row in rows if row["mode"] == rows[-1]["mode"]]), flush=True)
        if options.out:
            save(options.out.with_suffix(".json"), {"environment": head, "rows": rows})

    rows = sweep(settings, LOOPS, options.repeats, options.seconds, each)
    if options.out:
        words = f"{head['accelerator'] or head['cpu']}, torch {head['torch']}, commit {head['commit']}"
        notes = "Both loops " + " ".join(str(__doc__).partition("Both loops")[2].split())
        page = f"# What a curriculum costs\n\n```\n{command}\n```\n\n{words}. {notes}\n"
        save_page(options.out.with_suffix(".md"), f"{page}\n{table(rows)}\n")


if __name__ == "__main__":
    main()
