"""Progress of runs: a live line with rich on a terminal, plain lines in a log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["Progress", "describe", "duration"]

MINUTE = 60.0
LINES = 20  # of a run in a log, roughly at most


def _number(row: dict[str, Any], name: str, form: str) -> str:
    value = row.get(name)
    return format(value, form) if isinstance(value, int | float) else "-"


def describe(row: dict[str, Any]) -> str:
    """One epoch in words: phase, rho, alpha, E-Prop, effective sample size, validation accuracy."""
    return (
        f"{row.get('phase', '-'):>5}  rho {_number(row, 'rho', '6.3f')}  alpha {_number(row, 'alpha', '+7.4f')}  "
        f"E-Prop {_number(row, 'eprop' if 'eprop' in row else 'eprop_log2', '6.1%')}  "
        f"ESS {_number(row, 'ess', '4.0%')}  valid {_number(row, 'valid_acc', '6.1%')}"
    )


def duration(seconds: float) -> str:
    """A duration in words.

    Example:
        >>> duration(7), duration(125), duration(7320)
        ('7 s', '2 min 05 s', '2 h 02 min')
    """
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


class Progress(AbstractContextManager["Progress"]):
    """Shows the progress of runs; a trainer calls ``watch`` after every epoch.

    A terminal gets one live line. A log gets a line when a run ends and, before that, at most one a minute and about
    twenty in all.

    Args:
        runs: How many runs there will be.
        epochs: Epochs of each.
        echo: Where plain lines go.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        runs: int,
        epochs: int,
        echo: Callable[[str], None] = print,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runs, self.epochs, self.echo, self.clock = runs, epochs, echo, clock
        self._trained = 0
        self._at: dict[tuple[str, int], int] = {}  # the last epoch of each run; several may run at once
        self._started = self._said = clock()
        live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._live = _rich_live(runs * epochs) if live else None

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def watch(self, method: str, seed: int, row: dict[str, Any]) -> None:
        """Shows an epoch."""
        epoch, now = row["epoch"], self.clock()
        self._at[method, seed] = epoch
        done = sum(self._at.values())
        self._trained += 1
        each = (now - self._started) / self._trained
        line = f"{method:<10} seed {seed}  epoch {epoch:>3}/{self.epochs}  {describe(row)}"
        left = each * (self.runs * self.epochs - done)
        if self._live is not None:
            self._live.update(self._live.task_ids[0], completed=done, description=line)
            if epoch == self.epochs:
                self._live.console.print(line, highlight=False)
        elif epoch == self.epochs or now - self._said >= max(MINUTE, each * self.epochs / LINES):
            self._said = now
            self.echo(f"{line}  {duration(left)} left")


def _rich_live(total: int) -> Any:
    try:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
    except ImportError:
        return None
    bar = Bar(TextColumn("{task.description}"), BarColumn(bar_width=20), TimeRemainingColumn(), transient=True)
    bar.add_task("", total=total)
    return bar
