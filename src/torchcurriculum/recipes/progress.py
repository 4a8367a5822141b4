"""What a run shows while it goes: a live line with rich on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["Progress"]


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


class Progress(AbstractContextManager["Progress"]):
    """Shows runs of ``epochs`` epochs as they go; ``watch`` is what a trainer calls.

    Args:
        runs: How many runs there will be.
        epochs: Epochs of each.
        every: Without a terminal, print every so many epochs.
        echo: Where plain lines go.
    """

    def __init__(self, runs: int, epochs: int, every: int = 10, echo: Callable[[str], None] = print) -> None:
        self.runs, self.epochs, self.every, self.echo = runs, epochs, every, echo
        self._done = self._trained = 0
        self._started = time.perf_counter()
        self._live = _rich_live(runs * epochs) if sys.stdout.isatty() else None

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, run: int) -> None:
        """Takes note that run number ``run``, counted from 0, begins or goes on; those before it are done."""
        self._done = run * self.epochs

    def watch(self, method: str, seed: int, row: dict[str, Any]) -> None:
        """Takes note of an epoch."""
        epoch = row["epoch"]
        done = self._done + epoch
        self._trained += 1
        head = f"{method:<10} seed {seed}  epoch {epoch:>3}/{self.epochs}"
        if self._live is not None:
            self._live.update(self._live.task_ids[0], completed=done, description=f"{head}  {describe(row)}")
            if epoch == self.epochs:
                self._live.console.print(f"{head}  {describe(row)}", highlight=False)
        elif epoch % self.every == 0 or epoch == self.epochs:
            spent = time.perf_counter() - self._started
            left = spent / self._trained * (self.runs * self.epochs - done)
            self.echo(f"{head}  {describe(row)}  {left:4.0f} s left")


def _rich_live(total: int) -> Any:
    try:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
    except ImportError:
        return None
    bar = Bar(TextColumn("{task.description}"), BarColumn(bar_width=20), TimeRemainingColumn(), transient=True)
    bar.add_task("", total=total)
    return bar
