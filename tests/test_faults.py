"""Runs that are killed at any moment, resumed, and compared bit for bit with an undisturbed one.

One warm process forks a child for every run, so that a kill costs a training of a tenth of a second and not the import
of torch. ``FAULT_KILLS=500 FAULT_SEED=1 pytest tests/test_faults.py`` draws more moments, and others.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import torchcurriculum.checkpoint.disk as checkpoint_module
import torchcurriculum.record.files as files_module
from torchcurriculum import APW, Arrays, Checkpoint, Curriculum, GracefulStop, Record
from torchcurriculum.cli import main as command_line
from torchcurriculum.lab import trainer
from torchcurriculum.lab.recipes import RECIPES

N, BATCH, EPOCHS, EVERY = 50, 8, 5, 3
KILLS, SEED = (int(os.environ.get(name, default)) for name, default in (("FAULT_KILLS", 30), ("FAULT_SEED", 0)))
PLAN = ("clock", "event", "tensors", "event", "clock", "event", "json", "event")
EVENTS = ("open", "os.mkdir", "os.rename", "os.truncate", "os.remove", "os.rmdir", "shutil.rmtree")
COMMAND = ["run", "digits", "--method", "vanilla", "--method", "s-apw-e", "--seeds", "0", "--epochs", "3"]
COMMAND += ["--save-seconds", "0", "--out"]
Task = Callable[[Path], None]

# ---------------------------------------------------------------- what is killed


def train(folder: Path) -> None:
    """EI-weighting, Adam, dropout, samples in the record, a state every few steps and after every epoch."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(N, 6, generator=generator)
    data = Arrays(x, ((x[:, 0] > 0) ^ (torch.rand(N, generator=generator) < 0.2)).long())
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 2))
    method = APW(N, q=EPOCHS, weighting="EI")
    curriculum = Curriculum(
        method, data, batch_size=BATCH, seed=4, record=folder / "record", overwrite=True, samples=True
    )
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    seen: dict[str, Any] = {"steps": 0, "random": torch.get_rng_state()}
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "curriculum": curriculum, "seen": seen}
    checkpoint = Checkpoint(folder / "states")
    checkpoint.load(**parts)
    torch.set_rng_state(seen["random"])

    def save() -> None:
        seen["random"] = torch.get_rng_state()
        checkpoint.save(seen["steps"], **parts)

    while len(curriculum.record.epochs) < EPOCHS:
        for batch in curriculum.epoch(model):
            loss = curriculum.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen["steps"] += 1
            if seen["steps"] % EVERY == 0:
                save()
        schedule.step()
        curriculum.record.annotate(norm=float(sum(p.detach().norm() for p in model.parameters())))
        save()
    final = {f"model.{name}": value for name, value in model.state_dict().items()}
    adam = optimizer.state_dict()["state"]
    final |= {f"adam.{number}.{name}": value for number in adam for name, value in adam[number].items()}
    final |= {"weights": method.weights, "log_weights": method.log_weights, "random": torch.get_rng_state()}
    save_file(final, folder / "final.part")
    os.replace(folder / "final.part", folder / "final.safetensors")


def run_command(folder: Path) -> None:
    """``curriculum run`` as a user types it."""
    assert command_line([*COMMAND, str(folder / "out")]) == 0
    (folder / "final.safetensors").write_bytes(b"done")


# ---------------------------------------------------------------- how it is killed


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kind_of(path: str) -> str:
    """The name of a file, the same for all temporary ones."""
    return re.sub(r"^\.[0-9a-f]{16}\.part$", "temporary", Path(path).name)


def watch_files(folder: Path, note: Callable[[str], None]) -> None:
    """Calls ``note`` before every change that Python makes to a file in ``folder``, and before every sync."""
    prefix, real = str(folder), os.fsync

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in EVENTS or (event == "open" and not (isinstance(arguments[1], str) and arguments[1] != "r")):
            return
        path = str(arguments[0])
        if path.startswith(prefix) or event in ("os.remove", "os.rmdir"):  # rmtree names files from inside a folder
            note(f"{event} {kind_of(path)}")

    def synced(descriptor: int) -> None:
        note(f"fsync {kind_of(os.readlink(f'/proc/self/fd/{descriptor}'))}")
        real(descriptor)

    sys.addaudithook(hook)
    os.fsync = synced


def die_at_event(folder: Path, number: int) -> None:
    left = [number]

    def note(event: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            (folder.parent / f"{folder.name}.where").write_text(event)
            die()

    watch_files(folder, note)


def die_inside_tensors(folder: Path, number: int) -> None:
    """In the ``number``-th state, half of the tensor file is on the disk."""
    left, real = [number], checkpoint_module.save_file

    def half(tensors: Any, path: Path) -> None:
        real(tensors, path)
        left[0] -= 1
        if left[0] == 0:
            os.truncate(path, path.stat().st_size // 2)
            die()

    checkpoint_module.save_file = half


def die_inside_json(folder: Path, number: int) -> None:
    """In the ``number``-th state, half of state.json is on the disk."""
    left = [number]

    def half(path: Path, mode: str, **options: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            path.write_bytes(b'{"kind": "torchcurriculum state", "format": 1, "sha256"')
            die()
        return files_module.overwrite(path, mode, **options)

    checkpoint_module.overwrite = half


# ---------------------------------------------------------------- the campaign, in a process of its own


def child(task: Task, folder: Path, prepare: Callable[[], None] = lambda: None) -> int:
    """Forks; the child prepares, does the task, and leaves without a trace in this process."""
    number = os.fork()
    if number:
        return number
    status = 1
    try:
        quiet = os.open(folder.parent / f"{folder.name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        torch.set_num_threads(1)
        prepare()
        task(folder)
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def end_of(number: int, kill_after: float | None = None, limit: float = 600.0) -> int:
    """Waits for a child, kills it at its moment, and returns its exit code (-9 when killed)."""
    begun = time.monotonic()
    deadline = begun + (limit if kill_after is None else kill_after)
    while True:
        done, status = os.waitpid(number, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            os.kill(number, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
        time.sleep(0.001)


def undisturbed(task: Task, folder: Path) -> tuple[list[str], float]:
    """Runs the task once; every change it makes to files, and how long it takes."""
    log, begun = folder.parent / "events.txt", time.monotonic()

    def write_down() -> None:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        watch_files(folder, lambda event: (os.write(file, f"{event}\n".encode()), None)[1])

    folder.mkdir(parents=True)
    assert end_of(child(task, folder, write_down)) == 0, (folder.parent / f"{folder.name}.log").read_text()
    return log.read_text().splitlines(), time.monotonic() - begun


def moments(events: list[str], draw: random.Random) -> Iterator[int]:
    """Numbers of events: every kind in turn, at random within the kind; rare ones are met as often as others."""
    by_kind: dict[str, list[int]] = {}
    for number, event in enumerate(events, 1):
        by_kind.setdefault(re.sub(r"\d+", "#", event), []).append(number)
    kinds = draw.sample(sorted(by_kind), len(by_kind))
    kinds.sort(key=lambda kind: len(by_kind[kind]) == 1)  # what happens once is the beginning or the end
    return (draw.choice(by_kind[kind]) for kind in itertools.cycle(kinds))


def campaign(root: Path, kills: int, seed: int) -> list[dict[str, Any]]:
    """``kills`` runs killed once each and resumed: by the clock, before a change to a file, and inside a write.

    Then one run that is killed again and again, and the command line.
    """
    for task in (train, run_command):  # what torch imports and sets up at its first use is shared by all children
        (root / "warm" / task.__name__).mkdir(parents=True)
        with contextlib.redirect_stdout(io.StringIO()):
            task(root / "warm" / task.__name__)
    draw, done = random.Random(seed), []
    events, seconds = undisturbed(train, root / "undisturbed")
    places = moments(events, draw)
    states = sum(event == "fsync tensors.safetensors" for event in events)
    for number in range(kills):
        folder = root / f"killed-{number:02d}"
        folder.mkdir()
        kind = PLAN[number % len(PLAN)]
        code, after = 0, None
        while code != -signal.SIGKILL:  # a child that the clock finds at its end is no kill: draw again
            if kind == "clock":
                after = draw.uniform(0, seconds)
                code = end_of(child(train, folder), after)
            else:
                hook = {"event": die_at_event, "tensors": die_inside_tensors, "json": die_inside_json}[kind]
                turn = next(places) if kind == "event" else draw.randint(1, states)
                code = end_of(child(train, folder, lambda h=hook, t=turn, f=folder: h(f, t)))
            assert code in (0, -signal.SIGKILL), (root / f"{folder.name}.log").read_text()
            if code == 0 and kind == "clock":
                subprocess.run(["rm", "-r", str(folder)], check=True)
                folder.mkdir()
        where = root / f"{folder.name}.where"
        word = where.read_text() if where.exists() else f"{after:.3f} s" if after is not None else f"inside {kind}"
        done.append({"run": folder.name, "kind": kind, "where": word, "resumed": end_of(child(train, folder))})
    done.append(again_and_again(root / "often", draw, events))
    return done + commands(root / "commands", draw)


def again_and_again(folder: Path, draw: random.Random, events: list[str]) -> dict[str, Any]:
    """One run, killed after each few file events, until it comes to its end."""
    folder.mkdir()
    code, kills = -signal.SIGKILL, 0
    while code == -signal.SIGKILL:
        turn = draw.randint(1, len(events) // 4)
        code = end_of(child(train, folder, lambda t=turn: die_at_event(folder, t)))
        kills += code == -signal.SIGKILL
    return {"run": folder.name, "kind": "often", "where": f"{kills} kills", "resumed": code, "kills": kills}


def commands(root: Path, draw: random.Random, kills: int = 4) -> list[dict[str, Any]]:
    events, _ = undisturbed(run_command, root / "undisturbed")
    done = []
    for number in range(kills):
        folder = root / f"killed-{number:02d}"
        folder.mkdir()
        turn = draw.randint(number * len(events) // kills + 1, (number + 1) * len(events) // kills)
        code = end_of(child(run_command, folder, lambda f=folder, t=turn: die_at_event(f, t)))
        assert code == -signal.SIGKILL, (root / f"{folder.name}.log").read_text()
        where = (root / f"{folder.name}.where").read_text()
        resumed = end_of(child(run_command, folder))
        done.append({"run": f"commands/{folder.name}", "kind": "command", "where": where, "resumed": resumed})
    return done


# ---------------------------------------------------------------- the tests


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the undisturbed command leaves."""
    out = tmp_path_factory.mktemp("faults") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        assert command_line([*COMMAND, str(out)]) == 0
    return out


def same_record(a: Path, b: Path) -> None:
    one, two = Record.load(a), Record.load(b)
    rows = [[{**row, "seconds": None} for row in record.epochs] for record in (one, two)]
    assert rows[0] == rows[1]
    assert one.meta == two.meta
    assert one.arrays.keys() == two.arrays.keys()
    assert all(np.array_equal(one.arrays[name], two.arrays[name]) for name in one.arrays)
    for name in ("losses", "easy"):
        assert np.array_equal(one.history(name), two.history(name))


def test_no_kill_changes_anything(tmp_path: Path) -> None:
    """One test, so that one worker runs the campaign."""
    arguments = [sys.executable, __file__, str(tmp_path), str(KILLS), str(SEED)]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}  # an accelerator does not survive a fork
    campaign = subprocess.run(arguments, capture_output=True, text=True, timeout=max(600, 30 * KILLS), env=hidden)
    assert campaign.returncode == 0, campaign.stderr[-3000:]
    runs = json.loads(campaign.stdout)
    for run in runs:
        log = (tmp_path / f"{run['run']}.log").read_text()
        assert run["resumed"] == 0, (run, log[-3000:])
        assert "falling back to the state before it" not in log, (
            "a kill must not leave a damaged state under its own name"
        )
        check = check_command if run["kind"] == "command" else check_training
        check(tmp_path, tmp_path / run["run"])
    kinds = Counter(run["kind"] for run in runs)
    assert kinds == Counter([*(PLAN[number % len(PLAN)] for number in range(KILLS)), "often", *["command"] * 4])
    assert next(run["kills"] for run in runs if run["kind"] == "often") >= 3
    # The last of the commands was killed in the last quarter of its work.
    assert "already finished: " in (tmp_path / f"{runs[-1]['run']}.log").read_text()


def check_training(root: Path, folder: Path) -> None:
    whole = root / "undisturbed"
    assert (folder / "final.safetensors").read_bytes() == (whole / "final.safetensors").read_bytes(), folder
    same_record(whole / "record", folder / "record")


def check_command(root: Path, folder: Path) -> None:
    out, whole = folder / "out", root / "commands" / "undisturbed" / "out"
    for method in ("vanilla", "s-apw-e"):
        same_record(whole / method / "seed-0", out / method / "seed-0")
        assert not (out / method / "seed-0" / "states").exists()
    assert (out / "summary.json").read_bytes() == (whole / "summary.json").read_bytes()


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_told_command_saves_and_goes_on(
    which: signal.Signals,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Told three times, in the middle and at the last step of an epoch; the record is that of the undisturbed run."""
    out = tmp_path / "out"
    arguments = [*COMMAND, str(out)]
    real, calls = Curriculum.viewed_loss, Counter[str]()

    def told(self: Curriculum, *values: Any) -> Any:
        calls["loss"] += 1
        if calls["loss"] in (7, 20, 52):  # vanilla takes 51 steps; the 52nd is all of the next run's first epoch
            signal.raise_signal(which)
        return real(self, *values)

    monkeypatch.setattr(Curriculum, "viewed_loss", told)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # as in the undisturbed run
    for words in ("in epoch 1 of vanilla, seed 0", "in epoch 2 of vanilla, seed 0", "in epoch 2 of s-apw-e, seed 0"):
        assert command_line(arguments) == 128 + which
        message = capsys.readouterr().err
        assert words in message
        assert "its state is saved. To resume, run the same command again:" in message
        assert (
            f"curriculum run digits --method vanilla --method s-apw-e --seeds 0 --epochs 3 --save-seconds 0 --out {out}"
            in message
        )
    assert command_line(arguments) == 0
    trained = calls["loss"]
    for method in ("vanilla", "s-apw-e"):
        same_record(whole / method / "seed-0", out / method / "seed-0")
        calls["steps"] += int(Record.load(out / method / "seed-0").column("steps").sum())
    assert trained == calls["steps"], "no step is taken twice"
    assert command_line(arguments) == 0
    assert calls["loss"] == trained, "a finished run is not trained again"
    assert re.findall(r"already finished: (\d) of them", capsys.readouterr().out) == ["1", "2"]


def test_what_the_best_epoch_predicted_survives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = itertools.count(1)
    monkeypatch.setattr(trainer, "evaluate", lambda *_: [("acc", 1 / next(scores))])  # the first is the best
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    recipe, stop = RECIPES["digits"].with_(epochs=3), GracefulStop()

    def watch(name: str, seed: int, row: dict[str, Any]) -> None:
        if row["epoch"] == 2:
            stop.signal = signal.SIGTERM

    whole = trainer.train(recipe, "vanilla", 0, tmp_path / "whole", watch)
    stop.signal = None
    with pytest.raises(trainer.Interrupted, match="in epoch 3 of vanilla, seed 0; its state is saved"):
        trainer.train(recipe, "vanilla", 0, tmp_path / "told", watch, stop=stop)
    again = trainer.train(recipe, "vanilla", 0, tmp_path / "told", watch)
    assert np.array_equal(whole.arrays["predicted"], again.arrays["predicted"])
    assert again.arrays["predicted"].any()


def test_two_processes_do_not_train_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    command = ["run", "digits", "--epochs", "2", "--seeds", "0", "--out", str(out), "--method"]
    held = "from pathlib import Path; import sys; from torchcurriculum.lab.lock import lock_folder\n"
    held += "with lock_folder(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    place = out / "vanilla" / "seed-0"
    assert command_line([*command, "apw-e"]) == 0
    other = subprocess.Popen(
        [sys.executable, "-c", held, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert command_line([*command, "apw-i"]) == 0, "another run of the same folder is free"
        capsys.readouterr()
        assert command_line([*command, "vanilla"]) == 2
        assert f"another process is training the run in {place}; wait for it" in capsys.readouterr().err
        assert command_line([*command, "vanilla", "--method", "superloss"]) == 2
        assert "failed runs: 1" in capsys.readouterr().err
        assert Record.load(out / "superloss" / "seed-0").meta["finished"], "the other runs go on"
        other.kill()
    assert command_line([*command, "vanilla"]) == 0, "a lock goes with its process"


def test_a_folder_with_other_settings_is_refused_by_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    recipe = RECIPES["digits"].with_(epochs=3).as_dict()
    (out / "recipe.json").write_text(json.dumps(recipe))
    assert command_line(["run", "digits", "--epochs", "4", "--out", str(out)]) == 2
    assert "holds runs of 'digits' with other settings: epochs 3 there and 4 here" in capsys.readouterr().err
    (out / "recipe.json").write_text(json.dumps({**recipe, "lr": 0.5, "threshold": "auto"}))
    assert command_line([*COMMAND, str(out)]) == 2
    assert "lr 0.5 there and 0.05 here, threshold 'auto' there and 'paper' here" in capsys.readouterr().err
    (out / "recipe.json").write_text('{"name": "digi')
    assert command_line([*COMMAND, str(out)]) == 2
    assert "recipe.json is damaged" in capsys.readouterr().err


if __name__ == "__main__":
    print(json.dumps(campaign(Path(sys.argv[1]), *map(int, sys.argv[2:]))))
