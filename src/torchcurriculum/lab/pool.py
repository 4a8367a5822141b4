"""Several runs at once, each in its own process: a GPU has room for more than one small network."""

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
ORPHAN = 30.0  # the same for a process whose parent is gone, whatever it is doing
LEAVE = 120.0  # seconds that a process may take to save its state
EXPECTED = (ValueError, TypeError, OSError, ImportError)  # their message is enough, without a traceback


@dataclass(frozen=True)
class Run:
    """One method with one seed, and the folder for its record."""

    recipe: Recipe
    method: str
    seed: int
    folder: Path

    def follows(self, other: Run) -> bool:
        """Whether this run needs what the other one finds out."""
        same = (other.recipe.name, other.method, other.seed) == (self.recipe.name, "vanilla", self.seed)
        return same and needs_vanilla(self.recipe, self.method)


def reason(error: Exception) -> str:
    """Why a run failed, in words."""
    return str(error) if isinstance(error, EXPECTED) else f"failed\n{''.join(traceback.format_exception(error))}"


def train_together(
    todo: Sequence[Run],
    watch: Callable[[Run, dict[str, Any]], None],
    fail: Callable[[Run, str], None],
    data: Path | None,
    stop: GracefulStop,
    save_seconds: float,
    jobs: int,
) -> None:
    """Trains runs, ``jobs`` at a time, each in a new process; each leaves its record in its folder.

    A run that fails, or whose process dies, does not end the others. A signal ends all runs; each saves its state
    first, and the same call resumes from there. The processes end with this one.

    Args:
        todo: The runs, in the order in which they begin; those that need a vanilla run wait for it.
        watch: Called after every epoch of any run.
        fail: Called with each run that fails, and why.
        data: Folder of the data set.
        stop: Checked a few times a second.
        save_seconds: How old the saved state of a run may get.
        jobs: How many processes at a time.

    Raises:
        Interrupted: After a signal.
    """
    context = multiprocessing.get_context("spawn")  # CUDA does not work in forked processes
    threads = max(1, torch.get_num_threads() // jobs)  # the same when few runs are left: sums depend on it
    waiting, active = list(todo), dict[Connection, tuple[Run, Any]]()
    failed = set[Connection]()
    try:
        while waiting or active:
            others = [*waiting, *(run for run, _ in active.values())]
            ready = [run for run in waiting if not any(map(run.follows, others))]
            for run in ready[: jobs - len(active)]:
                receive, send = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(send, run, data, save_seconds, threads))
                with _without_ctrl_c():
                    process.start()
                send.close()  # the process has its own
                active[receive] = run, process
                waiting.remove(run)
            for pipe in wait(list(active), PATIENCE):
                assert isinstance(pipe, Connection)
                run, process = active[pipe]
                try:
                    news = pipe.recv()
                except (EOFError, OSError):  # it has ended, or was killed
                    process.join()
                    del active[pipe]
                    if process.exitcode and pipe not in failed and not stop.requested:
                        fail(run, _death(process.exitcode))
                    continue
                if isinstance(news, str):
                    failed.add(pipe)
                    fail(run, news)
                else:
                    watch(run, news)
            if stop.requested:
                ended = len(todo) - len(waiting) - len(active)
                words = f"stopped with {ended} of {len(todo)} runs done; the others resume from their last saved state"
                raise Interrupted(words, stop.status)
    finally:
        _terminate([process for _, process in active.values()])


def _death(status: int) -> str:
    name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return f"its process died ({name}), perhaps for lack of memory; fewer --jobs need less"


@contextlib.contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Processes started here never see Ctrl-C, which a terminal sends to all of them: their parent ends them."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    resource_tracker.ensure_running()  # the first process would start it, which unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _terminate(processes: Sequence[Any]) -> None:
    """Tells processes to save their states and end; kills those that take too long."""
    for process in processes:
        process.terminate()
    end = time.monotonic() + LEAVE
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
        process.kill()


def _work(send: Connection, run: Run, data: Path | None, save_seconds: float, threads: int) -> None:
    """One run in a new process; sends its epochs and what went wrong. After a signal it saves a state, then dies."""
    torch.set_num_threads(threads)
    threading.Thread(target=_leave_with_parent, daemon=True).start()

    def tell(*news: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # the parent is gone: this process saves a state and ends soon
            send.send(news[-1])

    try:
        with GracefulStop() as stop:
            train(run.recipe, run.method, run.seed, run.folder, tell, data, stop, save_seconds)
    except Interrupted:
        signal.raise_signal(signal.SIGTERM)
    except Exception as error:
        tell(reason(error))


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN)  # a measuring pass or an evaluation may take hours and look at no signal
    os._exit(128 + signal.SIGTERM)  # states are written whole or not at all
