"""Per-sample state over ranks: memory of each rank and bytes exchanged, replicated as today and sharded as proposed.

    python benchmarks/sharded.py --out docs/results/sharded [--ranks 4] [--replicated 2e7] [--sharded 4e8]

Replicated: every rank holds all log-weights; each measures its share of the losses, and ranks exchange one bit a row.
Sharded: every rank holds the rows that it measures and nothing else; ranks exchange four numbers, and one bit a row if
somebody asks for all flags. At a size where both fit, both must give the same weights. See docs/scaling.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from common import save, save_page, where
from scale import _resident
from torch import Tensor

from torchcurriculum import APW
from torchcurriculum.core import Epoch
from torchcurriculum.distributed import Sharded, derive, rank, share, world_size
from torchcurriculum.functional.apw import RHO_CLIP, joined, masses, shift_, weight_change

EPOCHS, Q = 3, 10


def losses_of(epoch: int, rows: range) -> Tensor:
    """Losses that depend on (epoch, row) only, whoever measures them: made in blocks of rows."""
    parts, block = [], 1 << 20
    for first in range(rows.start // block, -(-rows.stop // block)):
        draw = torch.Generator().manual_seed(derive(epoch, first))
        values = torch.rand(block, generator=draw)
        low, high = max(rows.start - first * block, 0), min(rows.stop - first * block, block)
        parts.append(values[low:high])
    return torch.cat(parts)


class Shard:
    """E-weighting of this rank's rows: Eqs. 2-4 need the masses of all ranks, which are four numbers of each."""

    def __init__(self, n: int, q: float) -> None:
        self.n, self.q, self.rows = n, q, share(n)
        start = -torch.tensor(float(n), dtype=torch.float64).log()
        self.log_weights = torch.full((len(self.rows),), float(start), dtype=torch.float64)

    def advance(self, losses: Tensor, threshold: float) -> Tensor:
        easy = losses <= threshold
        here = torch.zeros(world_size(), 4, dtype=torch.float64)
        here[rank()] = masses(self.log_weights, easy)
        dist.all_reduce(here)
        top, light, heavy, _ = joined(here)
        whole = light + heavy
        alpha = weight_change((heavy / whole).clamp(RHO_CLIP, 1 - RHO_CLIP), self.q)
        z = (light * torch.exp(-alpha) + heavy * torch.exp(alpha)) / whole
        scale = top + whole.log() + z.log()
        shift_(self.log_weights, easy, -alpha - scale, alpha - scale)
        return easy


@contextmanager
def counted() -> Iterator[list[int]]:
    """Bytes of everything that a rank gives to be summed."""
    sent: list[int] = []
    real = dist.all_reduce

    def noted(tensor: Tensor, *rest: Any, **options: Any) -> Any:
        sent.append(tensor.nbytes)
        return real(tensor, *rest, **options)

    dist.all_reduce = noted
    try:
        yield sent
    finally:
        dist.all_reduce = real


def _resident_peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


def replicated(n: int) -> tuple[Tensor, int, list[float]]:
    method, rows, took = APW(n, q=Q, threshold=0.5), share(n), []
    values = torch.zeros(n)
    for epoch in range(EPOCHS):
        values[rows.start : rows.stop] = losses_of(epoch, rows)
        measured = Sharded(values)
        dist.barrier()
        start = time.perf_counter()
        method.plan(Epoch(epoch + 1, n, measured.whole, measured.whole, measured.at_most))
        took.append(time.perf_counter() - start)
    return method.log_weights[rows.start : rows.stop], _resident(), took


def sharded(n: int) -> tuple[Tensor, int, list[float]]:
    shard, took = Shard(n, Q), []
    for epoch in range(EPOCHS):
        losses = losses_of(epoch, shard.rows)
        dist.barrier()
        start = time.perf_counter()
        shard.advance(losses, 0.5)
        took.append(time.perf_counter() - start)
    return shard.log_weights, _resident(), took


def work(number: int, world: int, port: int, kind: str, n: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=number, world_size=world)
    before = _resident()
    with counted() as sent:
        logs, now, took = {"replicated": replicated, "sharded": sharded}[kind](n)
    found = {"now": now - before, "peak": _resident_peak() - before, "sent": sum(sent), "seconds": sorted(took)[1]}
    if n <= 50_000_000:
        torch.save(logs, Path(folder) / f"{kind}-{number}.pt")
    (Path(folder) / f"{kind}-{number}.json").write_text(json.dumps(found))
    del logs
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()


def run(kind: str, n: int, ranks: int, folder: Path) -> dict[str, Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    mp.start_processes(work, (ranks, port, kind, n, str(folder)), nprocs=ranks)
    found = [json.loads((folder / f"{kind}-{number}.json").read_text()) for number in range(ranks)]
    return {
        "kind": kind,
        "n": n,
        "ranks": ranks,
        "epochs": EPOCHS,
        "mib_a_rank": max(one["now"] for one in found) / 2**20,
        "peak_mib_a_rank": max(one["peak"] for one in found) / 2**20,
        "peak_bytes_a_row_and_rank": max(one["peak"] for one in found) / n,
        "bytes_given_a_rank_and_epoch": max(one["sent"] for one in found) / EPOCHS,
        "bits_a_row_and_epoch": 8 * max(one["sent"] for one in found) / EPOCHS / n,
        "seconds_an_epoch": max(one["seconds"] for one in found),
    }


def difference(ranks: int, folder: Path) -> float:
    """The largest difference between the log-weights of the two, over all rows."""
    pairs = [
        [torch.load(folder / f"{kind}-{number}.pt", weights_only=True) for kind in ("replicated", "sharded")]
        for number in range(ranks)
    ]
    return max(float((a - b).abs().max()) for a, b in pairs)


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| state | N | ranks | peak MiB a rank | peak bytes a row and rank | given a rank and epoch | bits a row | s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['kind']} | {row['n']:.0e} | {row['ranks']} | {row['peak_mib_a_rank']:.0f} | "
            f"{row['peak_bytes_a_row_and_rank']:.1f} | {row['bytes_given_a_rank_and_epoch']:.3g} B | "
            f"{row['bits_a_row_and_epoch']:.2g} | {row['seconds_an_epoch']:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--replicated", type=float, default=2e7)
    parser.add_argument("--sharded", type=float, default=4e8)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    small, large = int(options.replicated), int(options.sharded)
    command = f"python benchmarks/sharded.py --ranks {options.ranks} --replicated {small:.0e} --sharded {large:.0e}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [run(kind, small, options.ranks, folder) for kind in ("replicated", "sharded")]
        apart = difference(options.ranks, folder)
        rows.append(run("sharded", large, options.ranks, folder))
    print(table(rows), f"\nlargest difference of log-weights at N = {small:.0e}: {apart:.2e}")
    if options.out:
        head = where(command)
        save(options.out.with_suffix(".json"), {"environment": head, "rows": rows, "difference": apart})
        words = f"{head['cpu']}, gloo, torch {head['torch']}, commit {head['commit']}"
        notes = f"Largest difference of the log-weights of both at N = {small:.0e}, over all rows: {apart:.1e}."
        page = f"# State over ranks\n\n```\n{command}\n```\n\n{words}; {EPOCHS} epochs of `apw-e`. {notes} See"
        save_page(options.out.with_suffix(".md"), f"{page} [scaling](../scaling.md).\n\n{table(rows)}\n")


if __name__ == "__main__":
    main()
