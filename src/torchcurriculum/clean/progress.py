"""Progress of a command: a live bar with rich on a terminal, a few lines in a log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["Progress"]

EVERY = 20.0  # seconds between the lines of a log


class Progress(AbstractContextManager["Progress"]):
    """Shows the progress of a task; call it as ``progress(what, done, total)``.

    Args:
        echo: Called with plain lines.
        clock: A monotonic clock, in seconds.

    Example:
        >>> with Progress(print, clock=iter([0.0, 1.0, 30.0]).__next__) as progress:
        ...     progress("training", 1, 9)
        ...     progress("training", 2, 9)
        ...     progress("training", 6, 9)
        training: 1 of 9
        training: 6 of 9
    """

    def __init__(self, echo: Callable[[str], None] = print, clock: Callable[[], float] = time.monotonic) -> None:
        self.echo, self.clock = echo, clock
        self._what, self._said = "", 0.0
        live = sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._bar: Any = _bar() if live else None

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Shows progress; the first call for ``what`` immediately."""
        new, self._what = what != self._what, what
        if self._bar is not None:
            if new:
                for task in self._bar.task_ids:
                    self._bar.remove_task(task)
                self._bar.add_task(what, total=total)
            self._bar.update(self._bar.task_ids[-1], completed=done, total=total)
            return
        now = self.clock()
        if new or now - self._said >= EVERY:
            self._said = now
            self.echo(f"{what}: {done:,} of {total:,}")


def _bar() -> Any:
    try:
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
    except ImportError:
        return None
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Bar(*columns, transient=True)
