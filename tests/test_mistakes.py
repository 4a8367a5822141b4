"""What people do wrong with `curriculum run` and `compare`, with knobs and with hooks of version 0.1.

They get a sentence that says what to do, and no result that is not theirs.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from torchcurriculum import APW, Method, Record, methods
from torchcurriculum.clean.tables import read_table
from torchcurriculum.cli import main
from torchcurriculum.lab import provenance
from torchcurriculum.lab.data import load_image_folder
from torchcurriculum.lab.lock import lock_folder
from torchcurriculum.lab.provenance import environment
from torchcurriculum.lab.recipes import RECIPES
from torchcurriculum.lab.trainer import train

from .needs import build, needed


def table(path: Path, seed: int = 0, rows: int = 60) -> Path:
    draw = np.random.default_rng(seed)
    lines = [f"{a:.3f},{b:.3f},{'yes' if a > 0 else 'no'}" for a, b in draw.normal(size=(rows, 2))]
    path.write_text("\n".join(["a,b,label", *lines]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return table(tmp_path / "a.csv")


def command(data: Path, out: Path, *more: str, method: str = "vanilla", epochs: int = 2, seed: int = 0) -> list[str]:
    fixed = ["--epochs", str(epochs), "--seeds", str(seed), "--method", method]
    return ["run", "csv", "--data", str(data), "--out", str(out), *fixed, *more]


def epochs_of(out: Path, method: str = "vanilla") -> int:
    return len(Record.load(out / method / "seed-0").epochs)


def test_other_data_in_the_same_folder_are_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, other = tmp_path / "out", table(tmp_path / "b.csv", seed=1)
    assert main(command(data, out)) == 0
    assert main(command(other, out)) == 2
    assert f"{out} holds runs of 'csv' on other data; choose another folder" in capsys.readouterr().err
    assert main(command(tmp_path / "nowhere.csv", out, method="rapw")) == 2
    assert main(command(other, out, method="rapw")) == 2, "a mistake does not make it forget"
    assert main(command(shutil.copy(data, tmp_path / "same.csv"), out, method="rapw")) == 0, "the same in another place"
    assert main(command(other, tmp_path / "other")) == 0
    capsys.readouterr()
    assert main(["compare", str(out), str(tmp_path / "other")]) == 0
    assert capsys.readouterr().out.count("csv, digest ") == 2, "two tables, not two seeds"
    page = tmp_path / "page.html"
    assert main(["report", str(out), str(tmp_path / "other"), "--out", str(page)]) == 0
    assert page.read_text(encoding="utf-8").count("vanilla (csv, digest ") >= 2


def test_a_run_is_counted_once(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main([*command(data, out, "--method", "vanilla"), "--seeds", "0", "0", "1"]) == 0
    table = json.loads((out / "summary.json").read_text())["table"]
    assert {row["n"] for row in table} == {2}
    capsys.readouterr()
    assert main(["compare", str(out), str(out / "vanilla"), "--json", str(tmp_path / "t.json")]) == 0
    assert "2 seeds" in capsys.readouterr().out
    shutil.copytree(out / "vanilla" / "seed-0", out / "vanilla" / "seed-0-backup")
    assert main(["compare", str(out)]) == 2
    assert "are both runs of vanilla, seed 0, with the same settings; omit one of them" in capsys.readouterr().err


def test_runs_with_other_settings_have_tables_of_their_own(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(data, tmp_path / "short", epochs=1)) == 0
    assert main(command(data, tmp_path / "long", epochs=3)) == 0
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "short"), str(tmp_path / "long"), "--md", str(tmp_path / "t.md")]) == 0
    assert "2 seeds" not in capsys.readouterr().out
    words = (tmp_path / "t.md").read_text(encoding="utf-8")
    assert "## csv, epochs 1\n" in words
    assert "## csv, epochs 3\n" in words


def test_options_of_a_method_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, q in enumerate((2, 50)):
        recipe = {"name": "mine", "options": {"apw-e": {"q": q}, "other": seed}}
        record = Record(3, {"method": "apw-e", "seed": seed, "recipe": recipe}, tmp_path / "own" / str(q))
        record.append({"epoch": 1, "valid_acc": 0.5, "test_acc": 0.5})
    assert main(["compare", str(tmp_path / "own")]) == 2
    assert "are runs of apw-e with the options {'q': 2} and {'q': 50}" in capsys.readouterr().err
    for name, rate in (("one", 1), ("two", 1.0)):
        record = Record(3, {"recipe": {"name": "mine", "lr": rate}}, tmp_path / "plain" / name)
        record.append({"epoch": 1, "valid_acc": 0.5, "test_acc": 0.5})
    assert main(["compare", str(tmp_path / "plain")]) == 0, "records without a seed may be of different ones"
    assert "2 seeds" in capsys.readouterr().out


def test_an_unexpected_error_of_the_first_run_begins_with_a_sentence(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_method.py").write_text(
        "from torchcurriculum import Method\n"
        "class Broken(Method):\n"
        "    def weigh(self, step):\n"
        "        return step.losses @ step.losses[1:]\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(command(data, tmp_path / "out", method="broken_method:Broken")) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("curriculum: broken_method:Broken, seed 0: RuntimeError: inconsistent tensor size")
    assert "\nTraceback" in errors, "which names the line of the method"
    assert "broken_method.py" in errors


def test_a_run_that_another_process_has_finished_is_not_trained_again(data: Path, tmp_path: Path) -> None:
    recipe = RECIPES["csv"].with_(epochs=3)
    first = train(recipe, "vanilla", 0, tmp_path / "run", lambda *_: None, data)
    told: list[int] = []
    again = train(recipe, "vanilla", 0, tmp_path / "run", lambda *_: told.append(1), data)
    assert told == []
    assert again.epochs == first.epochs


def test_commands_that_claim_a_folder_at_the_same_time_are_all_remembered(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(command(data, out)) == 0
    path = out / "recipe.json"
    before = json.loads(path.read_text(encoding="utf-8"))
    second = Thread(target=main, args=[[*command(data, out, method="vanilla", seed=1)]])
    with lock_folder(out):  # as another command does while it reads and writes
        second.start()
        second.join(timeout=2)
        provenance.write_json(path, before | {"asked": [*before["asked"], ["ema", 7]]})
    second.join()
    asked = json.loads(path.read_text(encoding="utf-8"))["asked"]
    assert asked == [["vanilla", 0], ["ema", 7], ["vanilla", 1]]


def test_a_run_is_not_finished_before_all_of_it_is_written(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, before = tmp_path / "out", resource.getrlimit(resource.RLIMIT_FSIZE)
    long = command(data, out, "--save-seconds", "0", epochs=40)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 * 1024, before[1]))
    try:
        with pytest.warns(UserWarning, match="could not be"):
            assert main(long) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert f"File too large: '{out / 'vanilla' / 'seed-0'}" in capsys.readouterr().err
    assert "finished" not in Record.load(out / "vanilla" / "seed-0").meta
    assert main(long) == 0
    assert epochs_of(out) == 40


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to find the processes")
def test_a_worker_that_is_told_to_stop_does_not_count_as_done(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [*command(data, out, "--jobs", "2", epochs=100_000), "--seeds", "0", "1"]
    started = subprocess.Popen([sys.executable, "-m", "torchcurriculum.cli", *words], stderr=subprocess.PIPE, text=True)
    try:
        while not all((out / "vanilla" / f"seed-{seed}" / "epochs.jsonl").exists() for seed in (0, 1)):
            assert started.poll() is None
            time.sleep(0.1)
        children = map(int, Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split())
        for child in [one for one in children if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]:
            os.kill(child, signal.SIGTERM)
        _, errors = started.communicate(timeout=600)
    finally:
        started.kill()
    assert started.returncode == 2, errors
    assert "a worker process died" in errors
    assert not (out / "summary.json").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--model", "gcn"], "the network 'gcn' cannot take these data"),
        (["--model", "simple-cnn"], "the network 'simple-cnn' cannot take these data"),
        (["--model", ""], "unknown network ''"),
        (["--weights", ""], "is not a file; --weights needs"),
        (["--save-seconds", "nan"], "must be at least 0, got nan"),
        (["--save-seconds", "-1"], "must be at least 0, got -1"),
    ],
)
def test_options_that_cannot_be(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], words: str
) -> None:
    assert main(command(data, tmp_path / "out", *more)) == 2
    assert words in capsys.readouterr().err
    assert main(command(data, tmp_path / "out")) == 0, "a mistake does not keep the folder"


def test_a_fixed_recipe_says_what_it_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more in (["--seeds", "0", "1"], ["--jobs", "2"], ["--data", "x"]):
        assert main(["run", "separable", "--out", str(tmp_path / "out"), *more]) == 2
        assert "takes --seeds (one) and --out only" in capsys.readouterr().err


def test_a_table_asks_for_all_of_its_data_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "m-apw-readings", "--out", str(tmp_path / "out")]) == 2
    assert "the recipe 'cifar10n-readings' needs --data DIR" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert main(["run", "csv", "--out", str(tmp_path / "out")]) == 2
    assert "needs --data FILE" in capsys.readouterr().err


def test_a_terminal_without_daggers_and_a_reader_that_leaves(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [sys.executable, "-m", "torchcurriculum.cli"]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*words, *command(data, out)], env=ascii_only, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "E-Prop?" in done.stdout
    assert (out / "report.html").exists()
    listed = subprocess.Popen([*words, "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert listed.stdout is not None
    assert listed.stderr is not None
    listed.stdout.close()
    assert listed.stderr.read() == b""
    assert listed.wait(timeout=600) == 141
    listed.stderr.close()


def test_tables_of_spreadsheets(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv")
    plain = read_table(path)
    text = path.read_text()
    path.write_text("label,a,b\n" + "".join(f"{n % 2},{n % 7},{n}\n" for n in range(20)), encoding="utf-8-sig")
    assert read_table(path).classes == ["0", "1"], "the mark at a file's beginning is no part of a name"
    path.write_text(text.replace("yes", "", 1))
    assert read_table(path).skipped == [(f"line {2 + text[: text.index('yes')].count(chr(10)) - 1}", "it has no label")]
    with pytest.raises(ValueError, match=r"1 rows that cannot be used \(--strict\); line \d+: it has no label"):
        read_table(path, strict=True)
    path.write_text("a,b\n" + "".join(f"{n},{n / 7}\n" for n in range(20)))
    with pytest.raises(
        ValueError, match="the column 'b' has 20 different values in 20 rows, so it does not hold classes"
    ):
        read_table(path)
    path.write_text(text)
    assert np.array_equal(read_table(path).features, plain.features)


def test_folders_that_are_no_classes(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")

    def images(folder: str, count: int) -> None:
        (tmp_path / folder).mkdir(parents=True)
        for number in range(count):
            image.new("RGB", (4, 4)).save(tmp_path / folder / f"{number}.png")

    images("cat", 4)
    images("dog", 4)
    with pytest.raises(ValueError, match="holds 8 images; a split of 8:1:1 needs at least 10"):
        load_image_folder(tmp_path)
    shutil.rmtree(tmp_path / "dog")
    images("dog", 8)
    (tmp_path / ".cache").mkdir()
    assert load_image_folder(tmp_path)[1] == ["cat", "dog"]
    (tmp_path / "runs").mkdir()
    assert load_image_folder(tmp_path)[1] == ["cat", "dog"], "an empty folder is no class"


def test_the_commit_is_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    inside = tmp_path / "site" / "provenance.py"
    inside.parent.mkdir()
    inside.touch()
    (tmp_path / "theirs.txt").touch()
    for words in (["init", "-q"], ["add", "theirs.txt"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *who, "commit", "-q", "-m", "theirs"], cwd=tmp_path, check=True)
    monkeypatch.setattr(provenance, "__file__", str(inside))
    assert environment()["commit"] is None
    subprocess.run(["git", "add", "site"], cwd=tmp_path, check=True)
    assert len(environment()["commit"]) == 40


# ---------------------------------------------------------------------- methods: knobs, and hooks that are gone

ROWS, EPOCHS = 12, 10
# What constructors ask for because it depends on the run; ``for_run`` knows it.
ASKED = {"n": ROWS, "epochs": EPOCHS, "q": 3, "interval": 2, "decay": 0.5, "warmup": 1, "factor": 1.2, "refresh": 2}
ASKED |= {"buckets": 2, "grow": 3, "gradual": 2, "start": 2, "plain": 2, "ramp": 1}
REMOVED = {
    "views": "view",
    "view_exchanges": "view",
    "weighs_by_loss": r"step\.losses",
    "plan_whole": r"epoch\.whole",
    "sync": "add_rows",
    "fused": r"torchcurriculum\.fast",
    "graph_key": r"torchcurriculum\.fast",
}


def asked(kind: type[Method]) -> dict[str, Any]:
    """Arguments that the constructor cannot do without."""
    given = {**ASKED, "method": APW(ROWS, q=3), "first": 1, "groups": [0, 1] * 6, "irreducible": [0.5] * ROWS}
    given["weights"] = [1.0] * ROWS
    parameters = inspect.signature(kind).parameters
    return {word: given[word] for word, parameter in parameters.items() if parameter.default is parameter.empty}


def routes(name: str) -> dict[str, tuple[Callable[..., Method], dict[str, Any]]]:
    """The three ways to make a method, each with the options it takes and their type hints."""
    known = methods.entry(name)
    kind, taken = known.method, {word: parameter.annotation for word, parameter in known.options().items()}
    own = {word: parameter.annotation for word, parameter in inspect.signature(kind).parameters.items()}
    needs = {word: value for word, value in needed(name, ROWS).items() if word in asked(kind)}
    return {
        "build": (lambda **options: build(name, ROWS, EPOCHS, **options), taken),
        "for_run": (lambda **options: kind.for_run(ROWS, EPOCHS, **{**known.fixed, **needs, **options}), taken),
        "constructor": (lambda **options: kind(**{**asked(kind), **options}), own),
    }


def refusals(name: str, value: Any) -> Iterator[tuple[str, str, Any, str]]:
    """What every way to make the method says about ``value`` in every knob: way, knob, hint and the refusal."""
    for way, (make, knobs) in routes(name).items():
        for knob, hint in knobs.items():
            said = "accepted"
            try:
                make(**{knob: value})
            except (TypeError, ValueError) as error:
                said = f"{type(error).__name__}: {error}"
            yield way, knob, hint, said


@pytest.mark.parametrize("name", methods.names())
def test_every_way_to_make_a_method_works_and_takes_the_same_knobs(name: str) -> None:
    ways = routes(name)
    made = {way: make() for way, (make, _) in ways.items()}
    assert len({type(one) for one in made.values()}) == 1
    shared = set(ways["build"][1]) & set(ways["constructor"][1])
    for knob in shared:
        told, own = ways["build"][1][knob], ways["constructor"][1][knob]
        assert told in (own, f"{own} | None"), f"{knob} has another type by name than by constructor"


@pytest.mark.parametrize("name", methods.names())
def test_a_knob_of_a_wrong_type_is_refused_by_name(name: str) -> None:
    for way, knob, hint, said in refusals(name, object()):
        where = f"{way}({knob}=object()) says {said}"
        if hint == "Any":  # rows of numbers, which may be a list, an array or a tensor, or a data set
            assert re.match(rf"(Type|Value)Error: {knob} .*must .*object", said), where
        else:
            assert re.match(rf"TypeError: {knob} of \w+ must be .*got <object", said), where


@pytest.mark.parametrize("name", methods.names())
def test_nan_is_refused_by_name(name: str) -> None:
    for way, knob, _, said in refusals(name, math.nan):
        assert re.match(rf"(Type|Value)Error: {knob} .*(is NaN|got nan)", said), f"{way}({knob}=nan) says {said}"


@pytest.mark.parametrize("name", methods.names())
def test_an_option_that_nobody_knows_is_refused_by_name(name: str) -> None:
    known = methods.entry(name)
    for make, _ in routes(name).values():
        with pytest.raises(TypeError, match="nonsense"):
            make(nonsense=1)
    with pytest.raises(TypeError, match=f"'{name}' has no option 'nonsense'; its options are "):
        methods.build(name, ROWS, EPOCHS, nonsense=1)
    for word, value in known.fixed.items():
        with pytest.raises(TypeError, match=f"'{name}' has no option '{word}'"):
            methods.build(name, ROWS, EPOCHS, **{word: value})


@pytest.mark.parametrize("name", methods.names())
def test_an_argument_that_is_missing_is_named(name: str) -> None:
    kind = methods.entry(name).method
    whole = asked(kind)
    for word in whole:
        with pytest.raises(TypeError, match=f"missing .*'{word}'"):
            kind(**{other: value for other, value in whole.items() if other != word})


@pytest.mark.parametrize("value", [0, -1, 2.5, math.nan, "12", None, True])
@pytest.mark.parametrize("word", ["n", "epochs"])
@pytest.mark.parametrize("way", ["build", "for_run"])
def test_rows_and_epochs_that_cannot_be(way: str, word: str, value: Any) -> None:
    numbers = {"n": ROWS, "epochs": EPOCHS, word: value}
    for name in methods.names():
        known = methods.entry(name)
        with pytest.raises((TypeError, ValueError), match=f"^{word} .*must .*got {re.escape(repr(value))}"):
            methods.build(name, **numbers) if way == "build" else known.method.for_run(**numbers, **known.fixed)


def hooked(hook: str, how: str) -> type[Method]:
    """A method of version 0.1, whose hook is set in one of the ways in which methods did."""

    class Early(Method):
        def __init__(self) -> None:
            setattr(self, hook, True)
            super().__init__()

    class Late(Method):
        def __init__(self) -> None:
            super().__init__()
            setattr(self, hook, True)

    def function(self: Method) -> bool:
        return True

    parents: dict[str, tuple[type, ...]] = {"mixin": (type("Mixin", (), {hook: True}), Method), "subclass": (APW,)}
    own = {"method": function, "property": property(function)}.get(how, True)
    if how in ("early", "late"):
        return {"early": Early, "late": Late}[how]
    return type("Old", parents.get(how, (Method,)), {} if how == "mixin" else {hook: own})


@pytest.mark.parametrize("how", ["attribute", "method", "property", "mixin", "subclass", "early", "late"])
@pytest.mark.parametrize(("hook", "instead"), REMOVED.items())
def test_a_hook_that_is_gone_is_refused_and_says_what_to_do(hook: str, instead: str, how: str) -> None:
    kind = hooked(hook, how)
    with pytest.raises(TypeError, match=rf"{kind.__name__}\.{hook} .*Instead: .*{instead}"):
        kind(4, 2) if how == "subclass" else kind()


def test_a_hook_that_is_gone_is_refused_later_as_well() -> None:
    method = APW(4, q=2)
    for hook in REMOVED:
        with pytest.raises(TypeError, match=f"APW.{hook} "):
            setattr(method, hook, True)
        assert not hasattr(method, hook)


@pytest.mark.parametrize("how", ["method", "mixin", "grandchild"])
@pytest.mark.parametrize("name", ["weight", "weights", "weigh_", "planning", "losses"])
def test_a_misspelt_verb_is_refused(name: str, how: str) -> None:
    def verb(self: Method, *given: Any) -> None: ...

    if how == "mixin":
        kind = type("Mine", (type("Mixin", (), {name: verb}), Method), {})
    else:
        kind = type("Mine", (Method,), {name: verb})
    if how == "grandchild":
        kind = type("Mine", (kind,), {})
    with pytest.raises(TypeError, match=rf"Mine overrides none of plan, view, weigh, loss, report, .*{name}"):
        kind()


@pytest.mark.parametrize("verb", ["plan", "view", "weigh", "loss", "report"])
def test_helpers_beside_a_verb_and_methods_without_either_are_fine(verb: str) -> None:
    def function(self: Method, *given: Any) -> None: ...

    for body in ({verb: function, "weights_of": function}, {"share": 0.5}, {}):
        assert isinstance(type("Mine", (Method,), body)(), Method)
