"""What a run shows while it goes: everything on a terminal, little in a log, and the time that is left."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from torchcurriculum.lab.progress import Progress, describe, duration


class Clock:
    """Seconds that go on by a step with every look."""

    def __init__(self, step: float) -> None:
        self.now, self.step = -step, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def row(epoch: int, **values: Any) -> dict[str, Any]:
    known = {"phase": "later", "rho": 0.25, "alpha": 0.0549, "eprop": 0.8, "ess": 0.9, "valid_acc": 0.75}
    return {"epoch": epoch} | known | values


def lines_of(runs: int, epochs: int, seconds: float) -> list[str]:
    lines: list[str] = []
    with Progress({("digits", "apw-e", run): epochs for run in range(runs)}, lines.append, Clock(seconds)) as progress:
        for run in range(runs):
            for epoch in range(1, epochs + 1):
                progress.watch("digits", "apw-e", run, row(epoch))
    return lines


def test_a_line_holds_what_there_is_to_know() -> None:
    assert describe(row(1)) == "later  rho  0.250  alpha +0.0549  E-Prop  80.0%  ESS  90%  valid  75.0%"
    assert describe({}) == "    -  rho -  alpha -  E-Prop -  ESS -  valid -"


def test_a_log_gets_one_line_for_each_short_run() -> None:
    lines = lines_of(runs=3, epochs=40, seconds=0.5)
    assert [line.split()[:5] for line in lines] == [["apw-e", "seed", str(run), "epoch", "40/40"] for run in range(3)]
    ends = ["1 of 3 runs, 40 s left", "2 of 3 runs, 20 s left", "3 of 3 runs, 0 s left"]
    assert [line.rsplit("  ", 1)[1] for line in lines] == ends


def test_a_log_of_a_long_run_says_now_and_then_that_it_lives() -> None:
    lines = lines_of(runs=1, epochs=50, seconds=30.0)  # 25 minutes: every 75 seconds is enough
    assert len(lines) == 17  # every third epoch, and the last
    assert "epoch   3/50" in lines[0]
    assert lines[0].endswith("23 min 30 s left")
    assert len(lines_of(runs=1, epochs=1000, seconds=30.0)) == 20


def test_one_display_for_a_table_counts_each_recipe_by_what_its_epochs_take() -> None:
    lines: list[str] = []
    runs = {("fast", "vanilla", 0): 2, ("slow", "vanilla", 0): 2, ("slow", "apw-e", 0): 2}
    clock = Clock(0.0)
    progress = Progress(runs, lines.append, clock)
    for recipe, epoch, seconds in (("fast", 1, 1.0), ("fast", 2, 1.0), ("slow", 1, 30.0)):
        clock.now += seconds
        progress.watch(recipe, "vanilla", 0, row(epoch, seconds=seconds))
    assert progress.left(clock.now) == pytest.approx(90)  # three slow epochs, not three of the mean
    progress.fail("slow", "apw-e", 0, "no room\nand more")
    assert progress.left(clock.now) == pytest.approx(30)  # what failed is not waited for
    assert lines[0].startswith("fast  vanilla    seed 0  epoch   2/2")
    assert lines[0].endswith("1 of 3 runs, 4 s left")
    assert lines[1] == "slow  apw-e      seed 0  FAILED: no room; the other runs continue"
    progress.fail("fast", "vanilla", 0, "no room at the very end")
    progress.watch("slow", "vanilla", 0, row(2))
    assert lines[-1].endswith("3 of 3 runs, 0 s left")


def test_the_time_left_does_not_count_the_start_for_every_epoch() -> None:
    lines: list[str] = []
    clock = Clock(0.0)
    progress = Progress({("digits", "apw-e", run): 10 for run in range(4)}, lines.append, clock)
    clock.now += 60.0  # reading data
    progress.watch("digits", "apw-e", 0, row(1, seconds=2.0))
    assert progress.left(clock.now) == pytest.approx(39 * 2.0)


def test_nothing_but_text_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert Progress({})._live is None
    assert all(line.isprintable() for line in lines_of(1, 2, 1.0))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_live_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich", reason="the live line needs rich")
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "160")
    lines: list[str] = []
    with Progress({("digits", "apw-e", 0): 2}, lines.append) as progress:
        assert "0 of 1 runs" in screen.getvalue(), "the first epoch may take minutes"
        for epoch in (1, 2):
            progress.watch("digits", "apw-e", 0, row(epoch))
    shown = screen.getvalue()
    assert lines == []
    for words in ("later", "rho  0.250", "alpha +0.0549", "E-Prop  80.0%", "ESS  90%", "epoch   2/2"):
        assert words in shown
    assert "1 of 1 runs, 0 s left" in shown


@pytest.mark.parametrize("columns", [40, 80])
def test_a_narrow_terminal_shows_the_time_left_and_a_bar(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    pytest.importorskip("rich", reason="the live line needs rich")
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(columns))
    with Progress({("digits", "apw-e", run): 9 for run in range(12)}, clock=Clock(500.0)) as progress:
        progress.watch("digits", "apw-e", 0, row(1))
    shown = screen.getvalue()
    assert "0 of 12 runs, 14 h 51 min left" in shown
    assert "━━━" in shown


def test_a_closed_output_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert Progress({})._live is None


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert Progress({})._live is None


def test_durations() -> None:
    assert [duration(value) for value in (0, 59.6, 3600, -3)] == ["0 s", "1 min 00 s", "1 h 00 min", "0 s"]
