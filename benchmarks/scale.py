"""Per-sample state at N = 1e6 to 1e8: time of `advance` and of a draw against N, beside the memory-bandwidth floor.

    python benchmarks/scale.py --out docs/results/scale                   # a CPU, to 5e7
    python benchmarks/scale.py --device cuda --out results/scale          # an accelerator, to 1e8

The floor is what must move: log-weights read and written (float64), losses read (float32), 20 bytes a row, at the speed
of a copy measured in the same run. `advance` also checks the losses, compares them with e and reads the log-weights
once more for rho: 35 bytes a row. A draw takes 5 % of the rows without replacement, with the weights that the epochs
before it left.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from common import save, save_page, seconds, where
from torch import Tensor

from torchcurriculum import APW
from torchcurriculum.distributed import derive
from torchcurriculum.functional import draw
from torchcurriculum.functional.sampling import _first, _race

CPU = (1_000_000, 10_000_000, 50_000_000)
CUDA = (1_000_000, 10_000_000, 100_000_000)
MUST_MOVE, STATE_LIMIT = 20, 24
MULTINOMIAL_LIMIT = 2**24


def times(work: Callable[[], Any], repeats: int, device: str) -> list[float]:
    work()
    return [seconds(work, device) for _ in range(repeats)]


def copy_bandwidth(n: int, device: str, repeats: int) -> float:
    """Bytes a second of a copy, read and written both counted."""
    source = torch.ones(n, dtype=torch.float64, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / statistics.median(times(lambda: target.copy_(source), repeats, device))


class Peak:
    """Bytes by which memory in use grew at most inside the block: the allocator's count, or the process's size."""

    def __init__(self, device: str) -> None:
        self.device, self.bytes = device, 0

    def __enter__(self) -> Peak:
        if self.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()
        else:
            _own_mappings(True)
            self.before, self.open = _resident(), True
            self.watch = threading.Thread(target=self._look)
            self.watch.start()
        return self

    def _look(self) -> None:
        while self.open:
            self.bytes = max(self.bytes, _resident() - self.before)
            time.sleep(0.0005)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.device == "cuda":
            self.bytes = torch.cuda.max_memory_allocated() - self.before
        else:
            self.open = False
            self.watch.join()
            _own_mappings(False)


def _own_mappings(on: bool) -> None:
    """Makes glibc return freed memory and map large blocks separately, so that the process's size shows the use."""
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 1 << 17 if on else 1 << 25)  # M_MMAP_THRESHOLD
    libc.malloc_trim(0)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def state_bytes(method: APW) -> int:
    """Bytes that a method keeps, and the newest losses and those measured that the curriculum keeps beside it."""
    return sum(buffer.nbytes for buffer in method.buffers()) + method.n * (4 + 4)


def one(n: int, device: str, repeats: int) -> dict[str, Any]:
    bandwidth = copy_bandwidth(n, device, repeats)
    generator = torch.Generator(device=device).manual_seed(0)
    losses = torch.empty(n, device=device).exponential_(generator=generator)
    method = APW(n, q=10, weighting="EI").to(device)
    took = times(lambda: method.advance(losses), repeats, device)
    floor = MUST_MOVE * n / bandwidth
    row: dict[str, Any] = {
        "n": n,
        "copy_gb_s": bandwidth / 1e9,
        "floor_s": floor,
        "advance_s": statistics.median(took),
        "advance_range_s": [min(took), max(took)],
        "times_floor": statistics.median(took) / floor,
        "ns_a_row": statistics.median(took) / n * 1e9,
        "state_bytes_a_row": state_bytes(method) / n,
    }
    row.update(drawn(method, device, repeats))
    with Peak(device) as peak:
        method.advance(losses)
    row["temporary_bytes_a_row"] = peak.bytes / n
    generator.manual_seed(0)
    with Peak(device) as peak:
        draw(method.log_weights, n // 20, generator)
    return {**row, "draw_bytes_a_row": peak.bytes / n}


def drawn(method: APW, device: str, repeats: int) -> dict[str, Any]:
    """Times of a draw, in turns with ``torch.multinomial`` where that can."""
    n, log_weights = method.n, method.log_weights
    size, number = n // 20, iter(range(10**9))

    def ours() -> Tensor:
        return draw(log_weights, size, torch.Generator(device=device).manual_seed(derive(0, next(number))))

    def theirs() -> Tensor:
        generator = torch.Generator(device=device).manual_seed(derive(0, next(number)))
        return torch.multinomial(weights, size, generator=generator)

    weights = method.weights if n <= MULTINOMIAL_LIMIT else None
    ours()
    took, other = [], []
    for _ in range(repeats):
        took.append(seconds(ours, device))
        if weights is not None:
            other.append(seconds(theirs, device))
    return {
        "draw_s": statistics.median(took),
        "draw_range_s": [min(took), max(took)],
        "multinomial_s": statistics.median(other) if other else None,
        "draw_is_the_race": same_as_all_timed(log_weights, size, device),
    }


def same_as_all_timed(log_weights: Tensor, size: int, device: str) -> bool:
    """Whether the draw is the one that timing every row gives."""
    if len(log_weights) > 10_000_000:
        log_weights, size = log_weights[:10_000_000], 500_000
    generator = torch.Generator(device=device).manual_seed(7)
    rows = draw(log_weights, size, generator)
    generator.manual_seed(7)
    torch.randint(len(log_weights), (4096,), generator=generator, device=device)
    return torch.equal(rows, _first(*_race(log_weights, generator, None), size))


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| N | copy GB/s | floor ms | advance ms (range) | times floor | ns a row | state B/row | temporary B/row |"
        " draw 5 % ms | draw B/row | multinomial ms |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        low, high = row["advance_range_s"]
        other = "-" if row["multinomial_s"] is None else f"{row['multinomial_s'] * 1e3:.1f}"
        lines.append(
            f"| {row['n']:.0e} | {row['copy_gb_s']:.1f} | {row['floor_s'] * 1e3:.3g} | {row['advance_s'] * 1e3:.3g} "
            f"({low * 1e3:.3g}-{high * 1e3:.3g}) | {row['times_floor']:.2f} | {row['ns_a_row']:.3g} | "
            f"{row['state_bytes_a_row']:.1f} | {row['temporary_bytes_a_row']:.1f} | {row['draw_s'] * 1e3:.3g} | "
            f"{row['draw_bytes_a_row']:.1f} | {other} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rows", type=float, nargs="+")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    sizes = [int(n) for n in options.rows or (CUDA if options.device == "cuda" else CPU)]
    command = f"python benchmarks/scale.py --device {options.device} --repeats {options.repeats}"
    head, rows = where(command), []
    for n in sizes:
        rows.append(one(n, options.device, options.repeats))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
        if options.out:
            save(options.out.with_suffix(".json"), {"environment": head, "rows": rows})
    if options.out:
        words = f"{head['accelerator'] or head['cpu']}, {head['threads']} thread, torch {head['torch']}"
        notes = " ".join(str(__doc__).partition("The floor")[2].split())
        page = f"# Per-sample state against N\n\n```\n{command}\n```\n\n{words}, commit {head['commit']}. Medians of "
        page += f"{options.repeats}; ranges in brackets. The floor {notes}\n"
        save_page(options.out.with_suffix(".md"), f"{page}\n{table(rows)}\n")


if __name__ == "__main__":
    main()
