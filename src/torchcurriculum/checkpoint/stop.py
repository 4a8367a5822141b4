"""Ctrl-C and SIGTERM as a flag."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

from .ranks import largest

__all__ = ["GracefulStop"]


class GracefulStop(AbstractContextManager["GracefulStop"]):
    """Turns Ctrl-C and SIGTERM into a flag, so that a loop can save its state and stop.

    A second Ctrl-C interrupts at once. Restores the previous signal handlers on exit. Python delivers signals to the
    main thread only; in another thread the flag is never set.

    Example:
        >>> with GracefulStop() as stop:
        ...     for step in range(1000):
        ...         if step == 3:
        ...             signal.raise_signal(signal.SIGTERM)     # the scheduler ends the job
        ...         if stop.requested:
        ...             break                                   # after checkpoint.save(...)
        >>> step, stop.status
        (3, 143)
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._agreed = False
        self._before: dict[signal.Signals, Any] = {}
        self._process = 0

    def __enter__(self) -> GracefulStop:
        self._process = os.getpid()
        if threading.current_thread() is threading.main_thread():
            self._before = {which: signal.signal(which, self._note) for which in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for which, handler in self._before.items():
            signal.signal(which, handler)

    @property
    def requested(self) -> bool:
        """Whether to stop now. True on all ranks if any of them got a signal; all ranks must call it together."""
        if not self._agreed:
            self._agreed = bool(largest(int(self.signal is not None)))
        return self._agreed

    @property
    def status(self) -> int:
        """The exit status by convention: 128 + the signal's number; 0 if this process got none."""
        return 0 if self.signal is None else 128 + int(self.signal)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a child process inherited this handler; its parent handles Ctrl-C
            if number == signal.SIGTERM:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.raise_signal(signal.SIGTERM)
            return
        if number == signal.SIGINT and self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)
