"""Whole tables: every recipe runs on made-up official files, failures cost only themselves, gaps are named."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from torchcurriculum import Record
from torchcurriculum.cli import main
from torchcurriculum.lab import runner, trainer
from torchcurriculum.lab.models import digits_cnn
from torchcurriculum.lab.recipes import RECIPES
from torchcurriculum.lab.sources import LOADERS, MODELS, Problem

from . import official
from .test_models import tiny_encoder

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


LARGE = ("resnet18-3x3", "simple-cnn")


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def small(problem: Problem) -> nn.Module:
    """For images of any size: the recipes' own networks take minutes, and have tests of their own."""
    return nn.Sequential(nn.Conv2d(3, 4, 3, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, problem.classes))


def made_up(name: str, folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """A few rows of a data set, in the files that its authors publish."""
    if name in ("cifar10", "cifar10n", "cifar100", "cifar100n"):
        return getattr(official, name)(folder, patch)
    if name in ("webvision", "mini-webvision"):
        return official.webvision(folder)
    makers = {"nci1": official.nci1, "rte": official.rte, "sst2": official.sst2, "image-folder": official.image_folder}
    return makers[name](folder) if name in makers else official.csv_file(folder.with_suffix(".csv"))


@pytest.mark.parametrize("name", RECIPES)
def test_a_smoke_run_of_every_recipe(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = RECIPES[name]
    asked: list[object] = ["run", name, "--seeds", 0, "--epochs", 2, "--no-audit", "--out", tmp_path / "runs"]
    if recipe.data == "digits":
        monkeypatch.setitem(LOADERS, "digits", few_digits)
    else:
        asked += ["--data", made_up(recipe.data, tmp_path / "data", monkeypatch)]
    if recipe.model == "minilm":
        (tmp_path / "encoder").mkdir()
        tiny_encoder(tmp_path / "encoder")
        asked += ["--model", tmp_path / "encoder"]
    elif recipe.model not in MODELS or (recipe.model in LARGE and name != "cifar10"):
        monkeypatch.setitem(MODELS, "small", small)
        asked += ["--model", "small"]
    if recipe.size is not None and recipe.data.startswith("cifar"):
        asked += ["--size", 32]
    monkeypatch.setattr(runner, "_report", lambda *_: "")  # it has tests of its own
    variants = [variant for variant in recipe.options if "@" in variant]  # also those on request
    every = list(dict.fromkeys([*recipe.methods, *variants]))
    if len(every) > len(recipe.methods):
        asked += [word for method in every for word in ("--method", method)]
    assert run(*asked) == 0
    table = json.loads((tmp_path / "runs" / "summary.json").read_text())["table"]
    found = {row["method"]: row["mean"] for row in table if (row["metric"], row["moment"]) == ("T-ACC", "last")}
    assert list(found) == every
    assert all(0 <= value <= 1 for value in found.values())


def few_digits(*_: Any) -> Problem:
    problem = official_digits(*_)
    for held in problem.sets.values():
        held.x, held.y = held.x[:60], held.y[:60]  # type: ignore[attr-defined]
    return Problem(problem.sets, problem.sets["train"].y, 10)


official_digits = LOADERS["digits"]


def test_the_papers_resnet_runs_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = official.cifar10n(tmp_path / "data", monkeypatch)
    asked = ("run", "cifar10n-resnet18", "--seeds", 0, "--epochs", 1, "--data", data, "--out", tmp_path / "runs")
    assert run(*asked, "--method", "vanilla", "--no-audit") == 0
    record = Record.load(tmp_path / "runs" / "vanilla" / "seed-0")
    assert "probabilities" not in record.arrays  # that is what --no-audit leaves out


# ---------------------------------------------------------------------- failures


def graphs(folder: Path) -> list[object]:
    return ["--epochs", 2, "--data", official.nci1(folder / "data"), "--out", folder / "runs"]


def test_several_recipes_are_one_table_and_a_failure_costs_one_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer.methods.build

    def build(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "apw-e" and not (tmp_path / "mended").exists():
            raise RuntimeError("no room left")
        return made(name, *arguments, **options)

    monkeypatch.setattr(trainer.methods, "build", build)
    monkeypatch.setattr(runner, "_report", lambda *_: "")
    asked = ["run", "nci1", "nci1-n40", "--seeds", 0, "--method", "vanilla", "--method", "apw-e", *graphs(tmp_path)]
    assert run(*asked, "--method", "superloss") == 2
    printed, errors = capsys.readouterr()
    assert "4 of 6 runs, " in printed
    assert "nci1  apw-e      seed 0  FAILED: RuntimeError: no room left; the other runs continue" in printed
    reason = "nci1, apw-e, seed 0: RuntimeError: no room left\nTraceback"
    assert f"failed runs: 2; the same command retries them\n{reason}" in errors
    assert errors.count("RuntimeError: no room left") == 4, "as the reason and in the traceback, for each"
    assert len(re.findall(r"^superloss +1 seed", printed, re.MULTILINE)) == 4, "both tables have what is finished"

    # What the table lacks is printed with the command that makes it; the command does so, and nothing else.
    assert run("compare", tmp_path / "runs") == 0
    printed = capsys.readouterr().out
    gaps = re.findall(
        r"1 of the 3 runs of '(nci1|nci1-n40)' in .* are missing or unfinished:\n  apw-e, seed 0", printed
    )
    assert gaps == ["nci1", "nci1-n40"]
    commands = re.findall(r"^  (curriculum run .*)$", printed, re.MULTILINE)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("vanilla/seed-0/record.json")}
    (tmp_path / "mended").touch()
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    capsys.readouterr()
    assert run("compare", tmp_path / "runs") == 0
    assert "missing" not in capsys.readouterr().out


def test_commands_for_missing_runs_keep_every_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "nci1", "--measure", "running", "--precision", "bfloat16", "--no-audit", *graphs(tmp_path)]
    for methods, seeds in ((("vanilla",), (0, 1)), (("vanilla", "superloss"), (1,)), (("apw-e",), (0,))):
        chosen = [word for name in methods for word in ("--method", name)]
        assert run(*words, *chosen, "--seeds", *seeds) == 0
    for lost in ("vanilla/seed-0", "superloss/seed-1", "apw-e/seed-0"):
        (tmp_path / "runs" / lost / "record.json").unlink()
    capsys.readouterr()
    assert run("compare", tmp_path / "runs") == 0
    commands = re.findall(r"^  (curriculum run .*)$", capsys.readouterr().out, re.MULTILINE)
    rest = f"--epochs 2 --measure running --precision bfloat16 --no-audit --data {tmp_path}/data --out {tmp_path}/runs"
    assert commands == [
        f"curriculum run nci1 --method vanilla --method apw-e --seeds 0 {rest}",
        f"curriculum run nci1 --method superloss --seeds 1 {rest}",
    ]


def test_commands_for_missing_runs_work_when_pasted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From another folder, with a tab as separator and a column whose name begins with a dash."""
    (tmp_path / "there").mkdir()
    text = official.csv_file(tmp_path / "there" / "x.csv").read_text()
    (tmp_path / "there" / "x.csv").write_text(text.replace("label", "-y", 1).replace(",", "\t"))
    monkeypatch.chdir(tmp_path / "there")
    chosen = ["--method", "vanilla", "--seeds", 0, "--epochs", 2, "--no-audit"]
    assert run("run", "csv", "--data", "x.csv", "--sep", "\t", "--label=-y", *chosen, "--out", tmp_path / "runs") == 0
    (tmp_path / "runs" / "vanilla" / "seed-0" / "epochs.jsonl").write_text("")
    head = tmp_path / "runs" / "vanilla" / "seed-0" / "record.json"
    head.write_text(json.dumps({**json.loads(head.read_text()), "meta": {}}))
    assert str(tmp_path) not in (tmp_path / "runs" / "summary.json").read_text()
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert run("compare", "runs") == 0
    monkeypatch.chdir(tmp_path / "there")
    (command,) = re.findall(r"^  curriculum (run .*)$", capsys.readouterr().out, re.MULTILINE)
    pasted = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, text=True, check=True)
    words = pasted.stdout.split("\0")[:-1]
    assert words[words.index("--sep") :][:2] == ["--sep", "\t"]
    assert main(words) == 0
    assert len(Record.load(tmp_path / "runs" / "vanilla" / "seed-0").epochs) == 2


def test_damage_costs_one_run_and_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs"
    asked = ["run", "nci1", "--method", "vanilla", "--seeds", 0, 1, 2, "--no-audit", *graphs(tmp_path)]
    assert run(*asked) == 0
    (out / "vanilla" / "seed-1" / "record.json").write_text("{")
    cut = out / "vanilla" / "seed-2" / "epochs.jsonl"
    cut.write_bytes(cut.read_bytes().splitlines(keepends=True)[0])
    capsys.readouterr()
    assert run("compare", out) == 0
    printed, errors = capsys.readouterr()
    assert printed.count("2 seeds") == 2
    assert "  vanilla, seed 1, 2\nTo make them:" in printed
    assert errors.startswith(f"curriculum: {out}/vanilla/seed-1/record.json is damaged: ")
    assert errors.endswith("; it is not in the table, and the same `curriculum run` command makes it again\n")
    assert len(errors.splitlines()) == 1
    (command,) = re.findall(r"^  curriculum (run .*)$", printed, re.MULTILINE)
    assert main(shlex.split(command)) == 0
    capsys.readouterr()
    assert run("compare", out) == 0
    assert capsys.readouterr().out.count("3 seeds") == 2
    held = json.loads((out / "recipe.json").read_text())
    lost = [{**held, "seeds": [math.inf]}, {**held, "asked": [["vanilla", math.inf]]}, {**held, "asked": 3}]
    for text in ["{", *map(json.dumps, lost)]:
        (out / "recipe.json").write_text(text)
        assert run("compare", out) == 0
        assert f"{out}/recipe.json is damaged (" in capsys.readouterr().out
    assert run(*asked) == 2
    assert f"{out}/recipe.json is damaged (" in capsys.readouterr().err
    for path in out.rglob("record.json"):
        path.write_text("{")
    assert run("compare", out) == 2
    assert capsys.readouterr().err.count("record.json is damaged: ") == 3


def test_a_damaged_array_costs_one_audit_and_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["run", "nci1", "--method", "vanilla", "--seeds", 0, 1, *graphs(tmp_path)]
    assert run(*asked) == 0
    folder = tmp_path / "runs" / "vanilla" / "seed-0"
    np.save(folder / "labels.npy", np.load(folder / "labels.npy") + 7)
    capsys.readouterr()
    assert run(*asked) == 2
    printed, errors = capsys.readouterr()
    assert printed.count("2 seeds") == 2
    assert "most suspicious labels" in printed
    assert errors.startswith(f"curriculum: {folder} is damaged: ")
    assert errors.endswith("; delete this folder, and the same command makes the run again\n")
    shutil.rmtree(folder)
    assert run(*asked) == 0


def test_what_a_later_version_wrote_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs"
    asked = ["run", "nci1", "--method", "vanilla", "--seeds", 0, 1, "--no-audit", *graphs(tmp_path)]
    assert run(*asked) == 0
    held, head = out / "recipe.json", out / "vanilla" / "seed-1" / "record.json"
    known, record = held.read_text(), head.read_text()
    later = json.dumps({**json.loads(known), "depth": 3})
    held.write_text(later)
    head.unlink()
    capsys.readouterr()
    assert run(*asked) == 2
    words = "recipe.json has settings of a later version (depth); update torchcurriculum, or choose another folder\n"
    assert capsys.readouterr().err == f"curriculum: {out}/{words}"
    assert run("compare", out) == 0
    printed = capsys.readouterr().out
    assert "  vanilla, seed 1\nThis version does not know its settings (depth); update torchcurriculum." in printed
    assert "curriculum run" not in printed
    assert held.read_text() == later

    held.write_text(known)
    head.write_text(json.dumps({**json.loads(record), "format": 2}))
    assert run(*asked) == 2
    words = "has format 2, and this version reads format 1; a later version wrote it, so update torchcurriculum"
    assert capsys.readouterr().err == f"curriculum: {head} {words}\n"
    assert run("compare", out) == 0
    assert capsys.readouterr().err == f"curriculum: {head} {words}; it is not in the table\n"
    assert json.loads(head.read_text())["format"] == 2


def test_relative_weights_are_kept_with_their_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    save_file(digits_cnn().state_dict(), "w.safetensors")
    asked = ["run", "digits", "--method", "vanilla", "--epochs", 1, "--weights", "w.safetensors", "--out", "runs"]
    assert run(*asked, "--seeds", 0) == 0
    held = tmp_path / "runs" / "recipe.json"
    earlier = json.loads(held.read_text())
    assert earlier["weights"] == str(tmp_path / "w.safetensors")
    held.write_text(json.dumps({**earlier, "weights": "w.safetensors"}))  # as earlier versions wrote it
    assert run(*asked, "--seeds", 0) == 0
    assert json.loads((tmp_path / "runs" / "summary.json").read_text())["recipe"]["weights"] == "w.safetensors"


def test_a_relative_encoder_is_kept_with_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    official.rte(tmp_path / "data")
    (tmp_path / "encoder").mkdir()
    tiny_encoder(tmp_path / "encoder")
    asked = ["run", "rte", "--method", "vanilla", "--seeds", 0, 1, "--epochs", 1, "--data", "data", "--out", "runs"]
    assert run(*asked, "--model", "encoder", "--no-audit") == 0
    assert json.loads((tmp_path / "runs" / "summary.json").read_text())["recipe"]["model"] == "encoder"
    (tmp_path / "runs" / "vanilla" / "seed-1" / "record.json").unlink()
    capsys.readouterr()
    assert run("compare", "runs") == 0
    monkeypatch.chdir(tmp_path / "data")
    (pasted,) = re.findall(r"^  curriculum (run .*)$", capsys.readouterr().out, re.MULTILINE)
    assert main(shlex.split(pasted)) == 0
    assert Record.load(tmp_path / "runs" / "vanilla" / "seed-1").meta["finished"]


def test_failures_are_named_although_the_disk_is_full(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, value: Any) -> None:
        if path.name == "summary.json":
            raise OSError(28, "No space left on device", str(path))
        write(path, value)

    write = runner.write_json
    monkeypatch.setattr(runner, "write_json", full)
    asked = ["run", "nci1", "--seeds", 0, "--method", "vanilla", "--method", "mixup", "--measure", "running"]
    assert run(*asked, *graphs(tmp_path)) == 2
    printed, errors = capsys.readouterr()
    assert re.search(r"^vanilla +1 seed", printed, re.MULTILINE)
    assert "To make them:" in printed
    assert f"No space left on device: '{tmp_path}/runs/summary.json'\nfailed runs: 1; " in errors
    assert "\nmixup, seed 0: " in errors


def test_the_first_seed_of_every_recipe_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["run", "nci1", "nci1-n40", "--seeds", 3, 1, "--method", "apw-e@pd", "--method", "vanilla", "--no-audit"]
    assert run(*asked, *graphs(tmp_path)) == 0
    ended = re.findall(r"^(nci1(?:-n40)?)  (\S+) +seed (\d)  epoch   2/2", capsys.readouterr().out, re.MULTILINE)
    pairs = [(name, seed) for seed in "31" for name in ("nci1", "nci1-n40")]
    assert ended == [(name, method, seed) for method in ("vanilla", "apw-e@pd") for name, seed in pairs]


def test_a_mistake_in_the_command_ends_it_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for jobs in (1, 2):
        asked = [
            "run",
            "nci1",
            "--seeds",
            0,
            "--data",
            tmp_path / "nowhere",
            "--jobs",
            jobs,
            "--out",
            tmp_path / "runs",
        ]
        assert run(*asked, "--method", "vanilla", "--method", "apw-e") == 2
        error = capsys.readouterr().err
        assert error.startswith(
            f"curriculum: {tmp_path}/nowhere/NCI1_graph_indicator.txt is missing; get it from https:"
        )
        assert len(error.splitlines()) == 1
        assert not (tmp_path / "runs" / "recipe.json").exists(), "the folder stays usable"


@pytest.mark.parametrize(
    ("name", "path", "address"),
    [
        ("rte", "train.tsv", "https://dl.fbaipublicfiles.com/glue/data/RTE.zip"),
        ("sst2-n40", "dev.tsv", "https://dl.fbaipublicfiles.com/glue/data/SST-2.zip"),
        ("nci1", "NCI1_A.txt", "https://www.chrsmrrs.com/graphkerneldatasets/NCI1.zip"),
        ("cifar10", "cifar-10-batches-bin/data_batch_3.bin", "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"),
        ("cifar100", "cifar-100-binary/test.bin", "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"),
        ("cifar10n-resnet18", "CIFAR-10_human.pt", "https://github.com/UCSC-REAL/cifar-10-100n"),
        ("cifar100n-resnet18", "CIFAR-100_human.pt", "https://github.com/UCSC-REAL/cifar-10-100n"),
        ("mini-webvision-resnet18", "info/val_filelist.txt", "https://data.vision.ee.ethz.ch/cvl/webvision"),
    ],
)
def test_damaged_and_missing_files_are_named_with_their_address(
    name: str,
    path: str,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = made_up(RECIPES[name].data, tmp_path / "data", monkeypatch) / path
    asked = ["run", name, "--seeds", 0, "--method", "vanilla", "--data", tmp_path / "data", "--out", tmp_path / "runs"]
    content = file.read_bytes()
    for damaged in (content[: len(content) // 2] + b"\xff", b"", None):
        if damaged is None:
            file.unlink()
        else:
            file.write_bytes(damaged)
        assert run(*asked) == 2
        error = capsys.readouterr().err
        assert str(file) in error, error
        assert address in error, error
        assert "Traceback" not in error


def test_sst2_is_read_as_it_is_published(tmp_path: Path) -> None:
    from torchcurriculum.lab.data import load_glue

    official.sst2(tmp_path / "glue" / "SST-2")
    sentences, y = load_glue(tmp_path, "SST-2")["train"]
    assert sentences[:2] == ["the cat ran ", "the cat sat on a mat "]
    assert torch.equal(y, torch.tensor([0, 1] * 6))
    assert isinstance(y, Tensor)
