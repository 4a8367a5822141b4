"""Several runs at once give the records of one after another; signals end all of them, failures only their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from torchcurriculum import Record
from torchcurriculum.cli import main
from torchcurriculum.lab import pool, trainer
from torchcurriculum.lab.method_options import needs_vanilla
from torchcurriculum.lab.recipes import RECIPES

QUIET = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}


def command(out: Path, *extra: str) -> list[str]:
    base = ["run", "digits", "--method", "vanilla", "--method", "apw-e", "--seeds", "0", "1", "--out", str(out)]
    return [*base, *extra]


def start(arguments: list[str], **options: Any) -> subprocess.Popen[str]:
    whole = [sys.executable, "-m", "torchcurriculum.cli", *arguments]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(whole, env={**os.environ, **QUIET}, **pipes, **options)


def same(one: Path, other: Path) -> None:
    for path in sorted(one.rglob("record.json")):
        mine, theirs = (Record.load(folder / path.parent.relative_to(one)) for folder in (one, other))
        assert len(mine.epochs) == len(theirs.epochs)
        for a, b in zip(mine.epochs, theirs.epochs, strict=True):
            assert {**a, "seconds": 0} == {**b, "seconds": 0}
        assert np.array_equal(mine.history("losses"), theirs.history("losses"))


def workers(process: int) -> list[int]:
    """Its children that train."""
    children = map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())
    return [child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def alive(process: int) -> bool:
    stat = Path(f"/proc/{process}/stat")
    return stat.exists() and ") Z " not in stat.read_text()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone") / "runs"
    done = start(command(out, "--epochs", "6"))
    _, errors = done.communicate(timeout=600)
    assert done.returncode == 0, errors
    return out


def test_two_at_once_are_the_same_runs(alone: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    done = start(command(out, "--epochs", "6", "--jobs", "2"))
    printed, errors = done.communicate(timeout=600)
    assert done.returncode == 0, errors
    assert "4 runs of 6 epochs" in printed
    assert printed.count("epoch   6/6") == 4
    assert (out / "report.html").exists()
    same(alone, out)


def test_a_signal_ends_all_and_the_same_command_goes_on(alone: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    arguments = command(out, "--epochs", "6", "--jobs", "2", "--save-seconds", "0")
    begun = start(arguments, start_new_session=True)
    deadline = time.monotonic() + 600
    while len(list(out.rglob("epochs.jsonl"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    begun.send_signal(signal.SIGTERM)
    _, errors = begun.communicate(timeout=600)
    if begun.returncode != 0:  # a fast machine may have been done before
        assert begun.returncode == 143
        assert "of 4 runs done; the others resume from their last saved state. To resume, run the same" in errors
    done = start(arguments)
    _, errors = done.communicate(timeout=600)
    assert done.returncode == 0, errors
    same(alone, out)


def test_ctrl_c_while_processes_begin(tmp_path: Path) -> None:
    process = start(command(tmp_path / "runs", "--epochs", "2000", "--jobs", "2"), start_new_session=True)
    try:
        while not workers(process.pid):
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, errors = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "stopped with 0 of 4 runs done" in errors


def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixed = ["run", "digits", "--method", "mixup", "--method", "vanilla", "--seeds", "0", "1", "--epochs", "2"]
    assert main([*mixed, "--measure", "running", "--jobs", "2", "--out", str(tmp_path / "runs")]) == 2
    error = capsys.readouterr().err
    for seed in (0, 1):
        assert f"mixup, seed {seed}: measure='running' takes the losses seen while training" in error
        assert Record.load(tmp_path / "runs" / "vanilla" / f"seed-{seed}").meta["finished"]
    assert "Traceback" not in error


def test_an_error_without_text_is_named_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer.methods.build

    def build(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "apw-e":
            raise ValueError
        return made(name, *arguments, **options)

    monkeypatch.setattr(trainer.methods, "build", build)
    assert main(command(tmp_path / "runs", "--epochs", "1")) == 2
    printed, error = capsys.readouterr()
    assert "apw-e      seed 0  FAILED: ValueError; the other runs continue" in printed
    assert "apw-e, seed 1: ValueError" in error
    assert Record.load(tmp_path / "runs" / "vanilla" / "seed-1").meta["finished"]
    assert main(["run", "digits", "--method", "apw-e", "--out", str(tmp_path / "other")]) == 2
    assert capsys.readouterr().err == "curriculum: ValueError\n"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_workers_end_with_their_parent_and_save_first(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    arguments = command(out, "--epochs", "2000", "--jobs", "2", "--save-seconds", "1000")
    begun = start(arguments, start_new_session=True)
    try:
        while len(list(out.rglob("epochs.jsonl"))) < 2:
            assert begun.poll() is None
            time.sleep(0.05)
        crew = workers(begun.pid)
    finally:
        begun.kill()
    begun.communicate(timeout=600)
    deadline = time.monotonic() + 600
    while any(map(alive, crew)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(crew) == 2
    assert not any(map(alive, crew))
    assert len(list(out.rglob("states/*"))) >= 2


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_a_killed_process_costs_its_run_alone_and_the_same_command_goes_on(alone: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    arguments = command(out, "--epochs", "6", "--jobs", "2", "--save-seconds", "0")
    begun = start(arguments, start_new_session=True)
    victim = out / "vanilla" / "seed-0"
    while not list(victim.glob("states/*/*")):  # a whole state
        assert begun.poll() is None
        time.sleep(0.01)
    (process,) = [one for one in workers(begun.pid) if str(victim) in holds(one)]
    os.kill(process, signal.SIGKILL)
    printed, errors = begun.communicate(timeout=600)
    assert begun.returncode == 2
    assert "failed runs: 1; the same command retries them\nvanilla, seed 0: a worker process died (SIGKILL)" in errors
    assert "vanilla    seed 0  FAILED: a worker process died (SIGKILL)" in printed
    assert "1 of the 4 runs of 'digits'" in printed
    others = [Record.load(out / name).meta["finished"] for name in ("vanilla/seed-1", "apw-e/seed-0", "apw-e/seed-1")]
    assert others == [True] * 3
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*/seed-1/record.json")}
    again = start(arguments)
    printed, errors = again.communicate(timeout=600)
    assert again.returncode == 0, errors
    assert "already finished: 3 of them" in printed
    assert {path: path.stat().st_mtime_ns for path in before} == before
    same(alone, out)


def holds(process: int) -> set[str]:
    """The files and folders that a process has open."""
    found = set()
    for entry in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(os.readlink(entry))
    return found


def test_several_gpus_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    monkeypatch.setattr(pool, "_exit_with_parent", lambda: None)
    for place in range(3):
        mine, its = Pipe()
        mine.close()  # no runs
        pool._work(its, place, None, 5.0, 1)
    assert chosen == [0, 1, 0]


def test_jobs_are_a_number_of_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "digits", "--jobs", "0", "--out", str(tmp_path)]) == 2
    assert "--jobs (jobs=) must be at least 1, got 0" in capsys.readouterr().err


def test_more_jobs_than_runs_cost_nothing(tmp_path: Path) -> None:
    asked = ["run", "digits", "--method", "vanilla", "--seeds", "0", "1", "--epochs", "1", "--no-audit"]
    assert main([*asked, "--jobs", str(10**9), "--out", str(tmp_path / "runs")]) == 0


def test_estimated_thresholds_wait_for_vanilla() -> None:
    recipe = RECIPES["nci1"]
    assert [needs_vanilla(recipe, name) for name in ("vanilla", "apw-e", "apw-e@pd")] == [False, False, True]
