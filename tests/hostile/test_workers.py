"""Worker processes end soon after their parent, whatever they are doing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from torchcurriculum.lab import pool
from torchcurriculum.lab.recipes import RECIPES

from ..test_pool import alive

ROOT = Path(__file__).parents[2]


def work(pipe: Connection, place: str, orphan: float) -> None:
    """A worker in a measuring pass that takes hours: the flag of a signal is not looked at."""

    def busy(*_: object) -> None:
        Path(place).write_text(str(os.getpid()))
        time.sleep(3600)

    pool.ORPHAN, pool.train = orphan, busy  # type: ignore[assignment]
    pool._work(pipe, 0, None, 5.0, 1)


def parent(place: str, orphan: float) -> None:
    context = multiprocessing.get_context("spawn")
    mine, its = context.Pipe()
    worker = context.Process(target=work, args=(its, place, orphan))
    worker.start()
    mine.send(pool.Run(RECIPES["digits"], "vanilla", 0, Path()))
    worker.join()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("orphan", [1.0, pytest.param(pool.ORPHAN, marks=pytest.mark.hostile)])
def test_a_busy_worker_does_not_outlive_its_parent(orphan: float, tmp_path: Path) -> None:
    place = tmp_path / "pid"
    code = f"from tests.hostile.test_workers import parent\nif __name__ == '__main__': parent({str(place)!r}, {orphan})"
    (tmp_path / "start.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    begun = subprocess.Popen([sys.executable, tmp_path / "start.py"], env=environment, stderr=subprocess.DEVNULL)
    try:
        while not place.exists() or not place.read_text():
            assert begun.poll() is None
            time.sleep(0.05)
    finally:
        begun.kill()
        begun.wait()
    worker, end = int(place.read_text()), time.monotonic() + 600
    while alive(worker) and time.monotonic() < end:
        time.sleep(0.1)
    left = alive(worker)
    if left:
        os.kill(worker, signal.SIGKILL)
    assert not left
