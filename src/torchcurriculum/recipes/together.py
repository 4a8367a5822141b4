"""Several runs of a recipe at once, each in a process of its own: a GPU has room for more than one small network."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from ..checkpoint import GracefulStop
from .recipe import Recipe
from .trainer import Interrupted, Watch, train

__all__ = ["train_together"]

PATIENCE = 0.2  # seconds between looks at signals and at processes that died
LEAVE = 120.0  # seconds that a process may take to save its state
CAN_HOLD = hasattr(signal, "pthread_sigmask")  # not on Windows
EXPECTED = (ValueError, TypeError, OSError, ImportError)  # whose words are enough

Place = Callable[[str, int], Path]


def train_together(
    recipe: Recipe,
    todo: Sequence[tuple[str, int]],
    place: Place,
    watch: Watch,
    data: Path | None,
    stop: GracefulStop,
    save_seconds: float,
    jobs: int,
) -> None:
    """Trains (method, seed) pairs, ``jobs`` at a time; each leaves its record in ``place(method, seed)``.

    A run that fails, and a signal, end all of them; each saves its state first, and goes on from there next time.

    Args:
        recipe: What to do.
        todo: Which runs, in the order in which they begin.
        place: The folder of a run.
        watch: Called after every epoch of any run, as they come.
        data: Folder of the data set.
        stop: Looked at now and then.
        save_seconds: How old the saved state of a run may get.
        jobs: How many processes.

    Raises:
        Interrupted: After a signal.
        ValueError: If a run failed, with its words.
    """
    context = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA
    tasks: Any = context.Queue()
    news: Any = context.Queue()
    threads = max(1, torch.get_num_threads() // jobs)  # as many when few are left: sums depend on it
    jobs = min(jobs, len(todo))
    for name, seed in todo:
        tasks.put((name, seed, place(name, seed)))
    for _ in range(jobs):
        tasks.put(None)
    arguments = (tasks, news, recipe, data, save_seconds, os.getpid(), threads)
    crew = [context.Process(target=_work, args=arguments, daemon=True) for _ in range(jobs)]
    started: list[Any] = []
    try:
        with _held_back():
            for process in crew:
                try:
                    process.start()
                except BrokenPipeError as error:
                    raise ValueError("a process ended before it began; give the same command again") from error
                started.append(process)
        _follow(started, news, watch, stop, len(todo))
    finally:
        _end(started, news)
        tasks.cancel_join_thread()  # what nobody will take any more


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Ctrl-C, which a terminal sends to all processes, waits for those that start now until they can obey it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if CAN_HOLD else None
    try:
        yield
    finally:
        if before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _follow(crew: Sequence[Any], news: Any, watch: Watch, stop: GracefulStop, total: int) -> None:
    """Hands on what the processes tell until all have ended; the first failure ends it."""
    done, ended = 0, 0
    while ended < len(crew):
        if stop.requested:
            words = f"stopped with {done} of {total} runs done; the others go on from their last saved state"
            raise Interrupted(words, stop.status)
        dead = [process.exitcode for process in crew if process.exitcode not in (None, 0)]
        if dead:
            raise ValueError(
                f"a process ended by itself (status {dead[0]}; if -9, memory may be short): give the same command "
                "again, with fewer --jobs"
            )
        try:
            kind, *what = news.get(timeout=PATIENCE)
        except queue.Empty:
            if all(process.exitcode == 0 for process in crew) and news.empty():
                raise ValueError("the processes ended without a word; give the same command again") from None
            continue
        if kind == "epoch":
            watch(*what)
        elif kind == "failed":
            raise ValueError(what[0])
        done += kind == "done"
        ended += kind == "ended"
    if done < total:
        words = (
            f"a process was told to stop with {done} of {total} runs done; the others go on from their last saved state"
        )
        raise Interrupted(words, 128 + signal.SIGTERM)


def _end(crew: Sequence[Any], news: Any) -> None:
    """Tells the processes to save and leave, and waits for them; a queue that nobody reads would hold them up."""
    for process in crew:
        process.terminate()  # nothing to those that have ended
    until = time.monotonic() + LEAVE
    while any(process.is_alive() for process in crew):
        with contextlib.suppress(queue.Empty):
            news.get(timeout=PATIENCE)
        if time.monotonic() > until:
            for process in crew:
                process.kill()
    for process in crew:
        process.join()


def _work(
    tasks: Any, news: Any, recipe: Recipe, data: Path | None, save_seconds: float, parent: int, threads: int
) -> None:
    """What a process does: one run after another, until there are none or it is told to stop."""
    torch.set_num_threads(threads)
    with GracefulStop() as stop:
        if CAN_HOLD:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

        def tell(name: str, seed: int, row: dict[str, Any]) -> None:
            news.put(("epoch", name, seed, row))
            if os.getppid() != parent:  # killed in a way that it could not tell
                stop.signal = signal.SIGTERM

        while not stop.requested and (task := tasks.get()) is not None:
            name, seed, folder = task
            try:
                train(recipe, name, seed, folder, tell, data, stop, save_seconds)
            except Interrupted:
                break
            except EXPECTED as error:
                news.put(("failed", f"{name}, seed {seed}: {error}"))
                break
            except Exception:
                news.put(("failed", f"{name}, seed {seed} failed:\n{traceback.format_exc()}"))
                break
            news.put(("done",))
        news.put(("ended",))
