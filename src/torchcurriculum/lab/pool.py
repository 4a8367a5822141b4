"""Several runs in parallel processes, since a GPU has room for more than one small network."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from ..checkpoint import GracefulStop
from .method_options import needs_vanilla
from .recipe import Recipe
from .trainer import Interrupted, train

__all__ = ["Run", "reason", "train_together"]

PATIENCE = 0.2  # seconds between checks for signals
ORPHAN = 30.0  # the same for a process whose parent is gone
LEAVE = 120.0  # seconds for a process to save its state
EXPECTED = (ValueError, TypeError, OSError, ImportError)  # their message is enough, without a traceback


@dataclass(frozen=True)
class Run:
    """One method with one seed, and the folder for its record."""

    recipe: Recipe
    method: str
    seed: int
    folder: Path

    def follows(self, other: Run) -> bool:
        """Whether this run needs a result of the other one."""
        same = (other.recipe.name, other.method, other.seed) == (self.recipe.name, "vanilla", self.seed)
        return same and needs_vanilla(self.recipe, self.method)


Watch = Callable[[Run, dict[str, Any]], None]


def reason(error: Exception) -> str:
    """Why a run failed, in words; the first line is enough unless the error is unexpected."""
    if isinstance(error, EXPECTED):
        return str(error) or type(error).__name__
    return f"{type(error).__name__}: {error}\n{''.join(traceback.format_exception(error))}"


def train_together(
    todo: Sequence[Run],
    watch: Watch,
    fail: Callable[[Run, str], None],
    data: Path | None,
    stop: GracefulStop,
    save_seconds: float,
    jobs: int,
) -> None:
    """Trains runs in ``jobs`` processes at a time; each writes its record to its folder.

    Runs are distributed over all GPUs. A run that fails, or whose process dies, does not stop the others. A signal
    stops all runs after saving their states, and the same call resumes them. The processes end with this one.

    Args:
        todo: The runs, in the order in which they begin; those that need a vanilla run wait for it.
        watch: Called after every epoch of any run.
        fail: Called with each failed run and the reason.
        data: Folder of the data set.
        stop: Checked a few times a second.
        save_seconds: Seconds between saved states of a run.
        jobs: Number of processes.

    Raises:
        Interrupted: After a signal.
    """
    context = multiprocessing.get_context("spawn")  # CUDA does not work in forked processes
    threads = max(1, torch.get_num_threads() // jobs)  # not changed when few runs are left, because sums depend on it
    waiting, workers = list(todo), list[_Worker]()
    try:
        while waiting or any(worker.run for worker in workers):
            for run in _ready(waiting, workers, jobs):
                worker = next((worker for worker in workers if worker.run is None), None)
                if worker is None:
                    taken = {worker.place for worker in workers}
                    place = next(place for place in range(jobs) if place not in taken)
                    worker = _begin(context, place, data, save_seconds, threads)
                    workers.append(worker)
                worker.pipe.send(run)
                worker.run = run
                waiting.remove(run)
            wait([part for worker in workers for part in (worker.pipe, worker.process.sentinel)], PATIENCE)
            workers = [worker for worker in workers if not _ended(worker, watch, fail, stop)]
            if stop.requested:
                ended = len(todo) - len(waiting) - sum(worker.run is not None for worker in workers)
                words = f"stopped with {ended} of {len(todo)} runs done; the others resume from their last saved state"
                raise Interrupted(words, stop.status)
    finally:
        _leave(workers)


@dataclass
class _Worker:
    """A process, its connection, its slot among ``jobs``, and its current run."""

    process: Any
    pipe: Connection
    place: int
    run: Run | None = None


def _ready(waiting: Sequence[Run], workers: Sequence[_Worker], jobs: int) -> list[Run]:
    """Runs that can start now."""
    busy = [worker.run for worker in workers if worker.run is not None]
    return [run for run in waiting if not any(map(run.follows, [*waiting, *busy]))][: jobs - len(busy)]


def _begin(context: Any, place: int, *arguments: Any) -> _Worker:
    mine, its = context.Pipe()
    process = context.Process(target=_work, args=(its, place, *arguments))
    with _without_ctrl_c():
        process.start()
    its.close()  # the process has its own copy
    return _Worker(process, mine, place)


def _ended(worker: _Worker, watch: Watch, fail: Callable[[Run, str], None], stop: GracefulStop) -> bool:
    """Handles new messages of a process, and its end; returns whether it has ended."""
    alive = worker.process.is_alive()
    with contextlib.suppress(EOFError, OSError):  # it was killed while sending
        while worker.run is not None and worker.pipe.poll():
            news = worker.pipe.recv()
            if isinstance(news, dict):
                watch(worker.run, news)
                continue
            if news is not None:
                fail(worker.run, news)
                worker.process.join()  # after an error the process is not reused
                alive = False
            worker.run = None
    if not alive and worker.run is not None and not stop.requested:
        fail(worker.run, _exit_reason(worker.process.exitcode))
    return not alive


def _exit_reason(status: int) -> str:
    name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return f"a worker process died ({name}), perhaps for lack of memory; fewer --jobs need less"


@contextlib.contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Blocks Ctrl-C in processes started here; a terminal sends it to all, but the parent stops them."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    resource_tracker.ensure_running()  # the first process would start it, which unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _leave(workers: Sequence[_Worker]) -> None:
    """Asks processes to save their states and exit; kills those that take too long."""
    for worker in workers:
        worker.pipe.close()
        if worker.run is not None:
            worker.process.terminate()
    end = time.monotonic() + LEAVE
    for worker in workers:
        worker.process.join(max(0.0, end - time.monotonic()))
        worker.process.kill()


def _work(pipe: Connection, place: int, data: Path | None, save_seconds: float, threads: int) -> None:
    """Trains the runs it receives, and sends their epochs, None at the end of each, or the error.

    Exits after an error. After a signal it saves its state first.
    """
    torch.set_num_threads(threads)
    if torch.cuda.device_count() > 1:
        torch.cuda.set_device(place % torch.cuda.device_count())
    threading.Thread(target=_exit_with_parent, daemon=True).start()

    def tell(*news: Any) -> None:
        with contextlib.suppress(OSError):  # the parent is gone: this process saves its state and exits soon
            pipe.send(news[-1])

    with contextlib.suppress(EOFError, OSError):  # there are no more runs
        while True:
            run = pipe.recv()
            try:
                with GracefulStop() as stop:
                    train(run.recipe, run.method, run.seed, run.folder, tell, data, stop, save_seconds)
            except Interrupted:
                signal.raise_signal(signal.SIGTERM)
            except Exception as error:
                tell(reason(error))
                return
            tell(None)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN)  # a long measuring pass or evaluation does not check for signals
    os._exit(128 + signal.SIGTERM)  # safe, since states are written atomically
