"""Progress of runs: a live line with rich on a terminal, plain lines in a log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["Progress", "describe", "duration"]

MINUTE = 60.0
LINES = 20  # of a run in a log, approximately at most


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
    """Shows the progress of all runs of a command; a trainer calls ``watch`` after every epoch.

    A terminal gets one live line. A log gets a line when a run ends and, before that, at most one a minute and about
    twenty per run. The time left is estimated from the mean epoch of each recipe so far.

    Args:
        runs: The epochs of each run to come, by recipe, method and seed.
        echo: Called with plain lines.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        runs: Mapping[tuple[str, str, int], int],
        echo: Callable[[str], None] = print,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runs, self.echo, self.clock = dict(runs), echo, clock
        self.trained = 0  # epochs
        self._at = dict.fromkeys(runs, 0)  # the last epoch of each run; several may run at once
        self._took = {recipe: [0.0, 0] for recipe, _, _ in runs}  # seconds and number of its epochs so far
        self._started = self._said = clock()
        live = sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._live = _rich_live(f"0 of {len(runs)} runs") if live else None

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def watch(self, recipe: str, method: str, seed: int, row: dict[str, Any]) -> None:
        """Shows an epoch."""
        run, epoch, now = (recipe, method, seed), row["epoch"], self.clock()
        epochs, done = self.runs[run], row["epoch"] == self.runs[run]
        self._at[run] = epoch
        if not self.trained and row.get("seconds"):
            self._started = max(self._started, now - row["seconds"])  # reading data and compiling happen once
        self.trained += 1
        taken = self._took[recipe]
        taken[0], taken[1] = taken[0] + (row.get("seconds") or 1.0), taken[1] + 1
        words = f"{self._name(run)}  epoch {epoch:>3}/{epochs}  {describe(row)}"
        ended = sum(self._at[one] == epochs for one, epochs in self.runs.items())
        state = f"{ended} of {len(self.runs)} runs, {duration(self.left(now))} left"
        if self._live is not None:
            at, whole = sum(self._at.values()), sum(self.runs.values())
            self._live.update(self._live.task_ids[0], completed=at, total=whole, state=state, description=words)
            if done:
                self._live.console.print(words, highlight=False)
        elif done or now - self._said >= max(MINUTE, (now - self._started) / self.trained * epochs / LINES):
            self._said = now
            self.echo(f"{words}  {state}")

    def left(self, now: float) -> float:
        """Estimated seconds until all runs have ended."""
        seen = sum(seconds for seconds, _ in self._took.values())
        cost = {recipe: seconds / n if n else seen / self.trained for recipe, (seconds, n) in self._took.items()}
        rest = sum((epochs - self._at[run]) * cost[run[0]] for run, epochs in self.runs.items())
        return (now - self._started) / seen * rest

    def fail(self, recipe: str, method: str, seed: int, words: str) -> None:
        """Reports a failed run; the others continue."""
        run = (recipe, method, seed)
        self.runs[run] = self._at[run]
        self.echo(f"{self._name(run)}  FAILED: {words.splitlines()[0].rstrip('.')}; the other runs continue")

    def _name(self, run: tuple[str, str, int]) -> str:
        recipe, method, seed = run
        return (f"{recipe}  " if len(self._took) > 1 else "") + f"{method:<10} seed {seed}"


def _rich_live(state: str) -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar
        from rich.table import Column
    except ImportError:
        return None
    console = Console()  # rich's own console keeps the width that the terminal had when it was first used
    bar = BarColumn(bar_width=min(20, console.width // 7))
    rest = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True))  # cut on a narrow terminal
    live = Bar(TextColumn("{task.fields[state]}"), bar, rest, console=console, transient=True, expand=True)
    live.add_task("", total=None, state=state)
    return live
