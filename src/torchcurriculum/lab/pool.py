"""Several runs of a recipe at once, each in its own process: a GPU has room for more than one small network."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import torch

from ..checkpoint import GracefulStop
from .recipe import Recipe
from .trainer import Interrupted, Watch, train

__all__ = ["train_together"]

PATIENCE = 0.2  # seconds between checks for signals and finished epochs
ORPHAN = 30.0  # the same for a process whose parent is gone, whatever it is doing
LEAVE = 120.0  # seconds that a process may take to save its state
EXPECTED = (ValueError, TypeError, OSError, ImportError)  # their message is enough, without a traceback

_news: Any = None  # in a worker process: the queue to which finished epochs go


def train_together(
    recipe: Recipe,
    todo: Sequence[tuple[str, int]],
    place: Callable[[str, int], Path],
    watch: Watch,
    data: Path | None,
    stop: GracefulStop,
    save_seconds: float,
    jobs: int,
) -> None:
    """Trains (method, seed) pairs, ``jobs`` at a time; each leaves its record in ``place(method, seed)``.

    A run that fails does not end the others; all failures are raised together at the end. A signal ends all runs; each
    saves its state first, and the same call resumes from there. Worker processes end with this process.

    Args:
        recipe: What to do.
        todo: Which runs, in the order in which they begin.
        place: The folder of a run.
        watch: Called after every epoch of any run.
        data: Folder of the data set.
        stop: Checked a few times a second.
        save_seconds: How old the saved state of a run may get.
        jobs: How many processes.

    Raises:
        Interrupted: After a signal.
        ValueError: If runs failed, with their names and messages, or if a worker process died.
    """
    context = multiprocessing.get_context("spawn")  # CUDA does not work in forked processes
    threads = max(1, torch.get_num_threads() // jobs)  # the same when few runs are left: sums depend on it
    news, others = context.SimpleQueue(), set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(min(jobs, len(todo)), context, _begin, (news, threads))
    try:
        with _without_ctrl_c():
            runs = {pool.submit(_train, recipe, *pair, place(*pair), data, save_seconds): pair for pair in todo}
        failed = _follow(runs, news, watch, stop)
    except BaseException:
        _terminate([child for child in multiprocessing.active_children() if child not in others], pool)
        raise
    pool.shutdown()
    if failed:
        raise ValueError("\n".join(failed))


@contextlib.contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Processes started here never see Ctrl-C, which a terminal sends to all of them: their parent ends them."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _follow(
    runs: Mapping[Future[str | None], tuple[str, int]], news: Any, watch: Watch, stop: GracefulStop
) -> list[str]:
    """Passes finished epochs to ``watch`` until all runs have ended; returns the failures in words."""
    pending, failed = set(runs), []
    while pending:
        done, pending = wait(pending, PATIENCE, FIRST_COMPLETED)
        while not news.empty():
            watch(*news.get())
        if stop.requested:
            ended = len(runs) - len(pending) - sum(isinstance(run.exception(), BrokenProcessPool) for run in done)
            words = f"stopped with {ended} of {len(runs)} runs done; the others resume from their last saved state"
            raise Interrupted(words, stop.status)
        for run in done:
            try:
                problem = run.result()
            except BrokenProcessPool:
                raise ValueError(
                    "a worker process died, perhaps for lack of memory; give the same command again to resume, with "
                    "fewer --jobs"
                ) from None
            failed += [f"{runs[run][0]}, seed {runs[run][1]}: {problem}"] if problem is not None else []
    return failed


def _terminate(children: Sequence[Any], pool: ProcessPoolExecutor) -> None:
    """Tells processes to save their states and end; kills those that take too long."""
    for child in children:
        child.terminate()
    late = threading.Timer(LEAVE, lambda: [child.kill() for child in children])
    late.start()
    pool.shutdown(cancel_futures=True)
    late.cancel()


def _begin(news: Any, threads: int) -> None:
    """Prepares a worker process."""
    global _news
    _news = news
    torch.set_num_threads(threads)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave_with_parent() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(ORPHAN)  # a measuring pass or an evaluation may take hours and look at no signal
        os._exit(128 + signal.SIGTERM)  # states are written whole or not at all

    threading.Thread(target=leave_with_parent, daemon=True).start()


def _train(recipe: Recipe, name: str, seed: int, folder: Path, data: Path | None, save_seconds: float) -> str | None:
    """One run in a worker process; returns what went wrong. After a signal it saves a state, then the process dies."""

    def tell(*epoch: Any) -> None:
        _news.put(epoch)

    try:
        with GracefulStop() as stop:
            train(recipe, name, seed, folder, tell, data, stop, save_seconds)
    except Interrupted:
        signal.raise_signal(signal.SIGTERM)
    except EXPECTED as error:
        return str(error)
    except Exception:
        return f"failed\n{traceback.format_exc()}"
    return None
