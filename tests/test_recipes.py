"""The paper's tables as recipes: each is complete, runs on tiny files of the official form, and says what is wrong."""

from __future__ import annotations

import csv
import json
import math
import re
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from torchcurriculum import Record, methods
from torchcurriculum.audit import audit
from torchcurriculum.cli import main
from torchcurriculum.lab import compare, evaluation, trainer
from torchcurriculum.lab.compare import format_markdown, format_published, format_table, table_of
from torchcurriculum.lab.data import cifar_n
from torchcurriculum.lab.given import LOSSES
from torchcurriculum.lab.literature import SOURCES, figures, published
from torchcurriculum.lab.recipe import Recipe, base_name
from torchcurriculum.lab.recipes import RECIPES, TABLES
from torchcurriculum.lab.recipes.every_method import NOT_RUN
from torchcurriculum.lab.sources import (
    LOADERS,
    MODELS,
    Problem,
    load_data,
    make_model,
    make_optimizer,
    make_schedule,
)

from . import official
from .test_models import tiny_encoder

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def run(*arguments: str | Path) -> int:
    return main([str(argument) for argument in arguments])


# ---------------------------------------------------------------------- what a recipe says


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_complete_and_can_be_written_as_json(name: str) -> None:
    recipe = RECIPES[name]
    assert recipe.name == name
    assert recipe.data in LOADERS
    assert recipe.methods[0] == "vanilla"
    for method in recipe.methods:
        methods.entry(base_name(method))
        assert "@" not in method or method in recipe.options
    assert json.loads(json.dumps(recipe.as_dict()))["methods"] == list(recipe.methods)


def test_every_table_of_the_paper_is_there() -> None:
    wanted = {"cifar", "q-sensitivity", "nlp-graph", "loss-reweighting", "mixup-ablation", "webvision"}
    assert wanted <= {*RECIPES, *TABLES}
    assert len(TABLES["loss-reweighting"]) == len(TABLES["mixup-ablation"]) == 12
    for table in TABLES.values():
        for recipe in table:  # so a smoke run of every recipe is one of every table
            whole = RECIPES[recipe.name]
            assert set(recipe.methods) <= set(whole.methods)
            assert recipe.with_(methods=whole.methods) == whole


def test_recipes_follow_the_papers_appendix() -> None:
    nci1, rte, webvision = (RECIPES[name] for name in ("nci1-n40", "rte", "webvision"))
    assert (nci1.optimizer, nci1.lr, nci1.schedule, nci1.epochs, nci1.noise_rate) == (
        "adam",
        0.01,
        "constant",
        200,
        0.4,
    )
    assert (rte.optimizer, rte.lr, rte.schedule, rte.epochs, rte.clip, rte.one_set) == (
        ("adamw", 2e-5, "constant", 3, 5.0, True)
    )
    assert (webvision.lr, webvision.schedule, webvision.epochs, webvision.one_set) == (0.02, "step", 100, True)
    cell = RECIPES["cifar10n-resnet18"]
    assert (cell.lr, cell.epochs, cell.noise, cell.noise_rate, cell.one_set) == (0.01, 50, "inherent", 0.4021, False)


def test_learning_rates_by_epoch() -> None:
    def rates(recipe: Recipe) -> list[float]:
        optimizer = make_optimizer(recipe, torch.nn.Linear(1, 1))
        schedule = make_schedule(recipe, optimizer)
        found = []
        for _ in range(recipe.epochs):
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        return found

    steps = rates(RECIPES["webvision"].with_(epochs=6))
    assert steps == pytest.approx([0.02] * 3 + [0.002] * 3)
    assert rates(RECIPES["nci1"].with_(epochs=4)) == [0.01] * 4
    cosine = rates(RECIPES["cifar10"].with_(epochs=4))
    assert cosine == pytest.approx([0.1, 0.0854, 0.05, 0.0146], abs=1e-4)


def test_gradients_are_clipped_inside_the_step() -> None:
    recipe = RECIPES["rte"].with_(optimizer="sgd", lr=1.0, momentum=0.0, weight_decay=0.0, clip=5.0)
    model = torch.nn.Linear(2, 1, bias=False)
    before = model.weight.detach().clone()
    optimizer = make_optimizer(recipe, model)
    model.weight.grad = torch.tensor([[30.0, 40.0]])  # norm 50
    optimizer.step()
    assert torch.allclose(before - model.weight.detach(), torch.tensor([[3.0, 4.0]]), atol=1e-4)


# ---------------------------------------------------------------------- runs on tiny official files


def test_nci1_with_default_and_estimated_thresholds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    official.nci1(tmp_path / "data" / "NCI1" / "raw")
    out = tmp_path / "runs"
    asked = ["run", "nci1-n40", "--seeds", "0", "1", "--epochs", "3", "--data", tmp_path / "data", "--out", out]
    assert run(*asked) == 0
    vanilla, default, estimated = (Record.load(out / name / "seed-0") for name in ("vanilla", "apw-e", "apw-e@pd"))
    assert default.epochs[0]["threshold"] == pytest.approx(math.log(2) - math.log(0.6))
    assert estimated.epochs[0]["threshold"] == pytest.approx(vanilla.meta["pd_threshold"])
    assert vanilla.meta["pd_epoch"] in (2, 3)
    assert vanilla.n == 32
    assert np.array_equal(vanilla.arrays["labels"], estimated.arrays["labels"])
    assert (vanilla.arrays["labels"] != vanilla.arrays["clean"]).any()
    assert set(vanilla.arrays["names"].tolist()) < {f"NCI1, graph {number}".encode() for number in range(1, 41)}
    printed = capsys.readouterr().out
    assert "beside published figures" in printed
    assert "58.03" in printed
    assert "55.23 ± 3.21" in printed


def test_estimated_thresholds_need_the_vanilla_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    official.nci1(tmp_path / "data")
    asked = ["run", "nci1", "--seeds", "0", "--epochs", "2", "--data", tmp_path / "data", "--out", tmp_path / "runs"]
    assert run(*asked, "--method", "apw-e@pd") == 2
    assert "takes its threshold from the vanilla run with the same seed" in capsys.readouterr().err
    assert run(*asked, "--method", "apw-e@pd", "--method", "vanilla") == 0, "vanilla is trained first"
    capsys.readouterr()
    assert run(*asked[:5], "1", *asked[6:-1], tmp_path / "short") == 2
    assert "needs at least 2 epochs, got 1" in capsys.readouterr().err
    assert not (tmp_path / "short").exists()


def test_dropout_is_a_function_of_the_seed(tmp_path: Path) -> None:
    official.nci1(tmp_path / "data")
    before = torch.get_rng_state()
    for name in ("one", "two"):
        asked = ["run", "nci1", "--method", "vanilla", "--seeds", "0", "--epochs", "2", "--data", tmp_path / "data"]
        assert run(*asked, "--out", tmp_path / name) == 0
        torch.rand(7)  # somebody else draws
    torch.set_rng_state(before)
    one, two = (Record.load(tmp_path / name / "vanilla" / "seed-0") for name in ("one", "two"))
    assert np.array_equal(one.history("losses"), two.history("losses"))


def test_rte_selects_and_reports_on_one_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    tiny_encoder(encoder)
    official.rte(tmp_path / "data")
    out = tmp_path / "runs"
    asked = ["run", "rte-n40", "--seeds", "0", "--epochs", "2", "--model", encoder, "--data", tmp_path / "data"]
    assert run(*asked, "--out", out) == 0
    last = Record.load(out / "apw-e" / "seed-0").epochs[-1]
    assert last["valid_acc"] == last["test_acc"]
    found = audit(Record.load(out / "apw-e" / "seed-0"))
    assert sorted(found.name(row) for row in range(len(found.score))) == sorted(
        " / ".join(line.split("\t")[1:3]) for line in (tmp_path / "data" / "train.tsv").read_text().splitlines()[1:]
    )
    capsys.readouterr()
    assert run("compare", out, "--md", tmp_path / "table.md") == 0
    words = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "The validation set both selects the epoch and reports" in words
    assert "| `apw-e` | T-ACC |" in words


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network called ``small`` that takes images of any size."""

    def make(problem: Problem) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, problem.classes)
        )

    monkeypatch.setitem(MODELS, "small", make)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("name", ["image-folder", "csv"])
def test_data_of_your_own(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = official.image_folder(tmp_path / "x") if name == "image-folder" else official.csv_file(tmp_path / "x.csv")
    asked = ["run", name, "--seeds", "0", "--epochs", "2", "--data", data, "--out", tmp_path / "runs"]
    asked += ["--model", "small"] if name == "image-folder" else []
    assert run(*asked, "--method", "vanilla", "--method", "apw-e") == 0
    record = Record.load(tmp_path / "runs" / "apw-e" / "seed-0")
    assert "clean" not in record.arrays
    assert len(record.epochs) == 2

    said = capsys.readouterr().out
    assert "most suspicious labels (vanilla, first seed): given -> suggested" in said
    assert not re.search(r"AUROC|really wrong|\(right\)|\(wrong\)", said)  # nobody knows
    # A person finds every row again: by its class, its file or its line, in the ranking and in the page.
    written = tmp_path / "audit.csv"
    assert run("audit", tmp_path / "runs" / "apw-e" / "seed-0", "--export", "csv", "--out", written) == 0
    with open(written, newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert {row["given_label"] for row in found} == set(record.meta["classes"])
    for row in found:
        if name == "csv":
            lines = data.read_text(encoding="utf-8").splitlines()
            assert lines[int(row["name"].removeprefix("line ")) - 1].split(",")[-1] == row["given_label"]
        else:
            assert Path(row["name"]).parent.name == row["given_label"]
    page = tmp_path / "report.html"
    assert run("report", tmp_path / "runs" / "apw-e" / "seed-0", "--out", page) == 0
    words = page.read_text(encoding="utf-8")
    assert escape(found[0]["name"]) in words
    assert ("<img src=" in words.split('class="gallery"')[1]) == (name == "image-folder")


@pytest.mark.usefixtures("_small")
def test_mini_webvision_runs_without_true_labels(tmp_path: Path) -> None:
    official.webvision(tmp_path / "data")
    asked = ["run", "mini-webvision-resnet18", "--model", "small", "--seeds", "0", "--epochs", "1"]
    asked += ["--method", "vanilla", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "runs")]
    assert run(*asked) == 0
    record = Record.load(tmp_path / "runs" / "vanilla" / "seed-0")
    assert sorted(record.arrays["labels"].tolist()) == [0] * 4 + [49] * 4
    assert "clean" not in record.arrays


def test_human_labels_stand_in_the_training_part_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official.cifar100n(tmp_path, monkeypatch)
    recipe = RECIPES["cifar100n-resnet18"]
    problem = load_data(recipe, 0, tmp_path)
    assert problem.clean is not None
    wrong = (problem.sets["train"].y != problem.clean).float().mean()
    assert 0.3 < wrong < 0.5  # not flipped a second time
    assert problem.sets["test"].y.tolist() == list(range(100))
    model = make_model(recipe, problem)
    assert model(problem.sets["test"].batch(torch.arange(2))[0]).shape == (2, 100)
    content = torch.load(tmp_path / "CIFAR-100_human.pt", weights_only=False)
    content["clean_label"] = content["clean_label"][::-1].copy()
    torch.save(content, tmp_path / "CIFAR-100_human.pt")
    with pytest.raises(ValueError, match="belongs to other images: its clean_label differs"):
        load_data(recipe, 0, tmp_path)


def test_the_human_labels_of_the_other_set_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official.cifar100n(tmp_path / "100", monkeypatch)
    official.cifar10n(tmp_path / "10", monkeypatch)
    monkeypatch.setattr(cifar_n, "ROWS", 200)
    (tmp_path / "100" / "CIFAR-100_human.pt").replace(tmp_path / "10" / "CIFAR-10_human.pt")
    with pytest.raises(ValueError, match=r"CIFAR-10_human.pt .*no worse_label.*get it again from https:"):
        load_data(RECIPES["cifar10n-resnet18"], 0, tmp_path / "10")


def test_q_variants_change_q_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official.cifar100(tmp_path / "data", monkeypatch)
    out = tmp_path / "runs"
    asked = ["run", "q-sensitivity", "--seeds", "0", "--epochs", "4", "--data", tmp_path / "data", "--out", out]
    assert run(*asked, "--method", "apw-e@0.5K", "--method", "apw-e@4K") == 0
    half, four = (Record.load(out / name / "seed-0") for name in ("apw-e@0.5K", "apw-e@4K"))
    assert (half.meta["q"], four.meta["q"]) == (2, 16)
    assert half.epochs[0]["threshold"] == four.epochs[0]["threshold"]


def test_a_table_is_run_recipe_by_recipe_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    official.nci1(tmp_path / "data")
    monkeypatch.setitem(TABLES, "graphs", (RECIPES["nci1"], RECIPES["nci1-n40"]))
    asked = ["run", "graphs", "--method", "vanilla", "--seeds", "0", "--epochs", "1", "--data", tmp_path / "data"]
    assert run(*asked, "--model", "gcn", "--out", tmp_path / "runs") == 2
    assert "a table uses its own networks" in capsys.readouterr().err
    assert run(*asked, "--out", tmp_path / "runs") == 0
    capsys.readouterr()
    assert run("compare", tmp_path / "runs", "--json", tmp_path / "table.json") == 0
    printed = capsys.readouterr().out
    assert printed.index("nci1\n") < printed.index("nci1-n40\n")
    table = json.loads((tmp_path / "table.json").read_text())["table"]
    assert {row["recipe"] for row in table} == {"nci1", "nci1-n40"}
    assert {row["metric"] for row in table} == {"T-ACC", "E-Prop†", "E-Prop", "ECE"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nlp-grap"], "unknown recipe 'nlp-grap'; did you mean 'nlp-graph'"),
        (["run", "nci1"], "the recipe 'nci1' needs --data DIR"),
        (["run", "nci1", "--data", "nowhere"], "NCI1_graph_indicator.txt is missing; get it from https://"),
        (
            ["run", "nci1", "--data", __file__],
            f"--data {__file__} is a file; give the folder that holds the files of nci1",
        ),
        (["run", "digits", "--weights", "."], " is not a file; --weights needs a local .safetensors or PyTorch file"),
        (["run", "nci1", "--method", "apw-e@dp"], "has no variant called 'apw-e@dp'; it has apw-e@pd"),
        (["run", "digits", "--method", "apw-e@pd"], "has no variant called 'apw-e@pd'; it has no variants"),
        (["run", "digits", "--method", "apx-e@pd"], "unknown method 'apx-e'; did you mean 'apw-e'"),
        (["run", "digits", "--model", "digit-cnn"], "unknown network 'digit-cnn'; did you mean 'digits-cnn'"),
        (["run", "digits", "--weights", "nowhere.pth"], "nowhere.pth is missing"),
    ],
)
def test_mistakes_get_one_sentence(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_a_claim_without_a_run_can_be_corrected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    official.nci1(tmp_path / "data")
    asked = ["run", "nci1", "--method", "vanilla", "--seeds", "0", "--data", tmp_path / "data", "--out", tmp_path / "r"]
    assert run(*asked, "--epochs", "1", "--model", "gnc") == 2
    assert run(*asked, "--epochs", "1") == 0
    assert run(*asked, "--epochs", "2") == 2
    assert "with other settings: epochs 1 there and 2 here" in capsys.readouterr().err


# ---------------------------------------------------------------------- published figures


def test_published_figures_are_of_recipes_and_methods_that_exist() -> None:
    assert len(figures()) == 228
    for figure in figures():
        assert figure.source in SOURCES
        assert figure.metric in ("T-ACC", "E-Prop†")
        assert figure.recipe in RECIPES
        methods.entry(base_name(figure.method))
        assert figure.source != "paper" or figure.method in RECIPES[figure.recipe].methods, figure
    found = {(figure.metric, figure.value) for figure in published("cifar10n-resnet18", "m-apw-e")}
    assert found == {("T-ACC", 82.36), ("E-Prop†", 60.73)}
    assert published("cifar10n-readings", "m-apw-e@beta-log2") == published("cifar10n-resnet18", "m-apw-e")
    assert published("cifar10n-readings", "m-apw-e@half") == []
    assert published("cifar10n-resnet18", "m-apw-beta-e") == published("cifar10n-resnet18", "m-apw-e")
    assert published("cifar10n-resnet18", "m-apw-beta-e@log2") == published("cifar10n-resnet18", "m-apw-e")
    assert published("digits", "vanilla") == []


def record(recipe: str, method: str, seed: int, accuracy: float) -> Record:
    one = Record(2, {"method": method, "seed": seed, "recipe": {"name": recipe, "summary": "x", "one_set": False}})
    one.append({"epoch": 1, "valid_acc": 0.5, "test_acc": accuracy, "test_eprop": 0.4, "test_ece": 0.1})
    return one


def test_ours_stand_beside_theirs_and_pairs_are_of_one_seed() -> None:
    vanilla = [record("nci1", "vanilla", seed, 0.5 + seed / 100) for seed in (0, 1, 2)]
    runs = {"vanilla": vanilla, "apw-e": [record("nci1", "apw-e", seed, 0.6 + seed / 100) for seed in (2, 1)]}
    rows = table_of(runs)
    row = next(row for row in rows if row.method == "apw-e" and row.metric == "T-ACC")
    assert row.pairs == 2
    assert row.difference == pytest.approx(0.1)  # seed 2 with seed 2, seed 1 with seed 1
    assert row.low == pytest.approx(0.1)
    text = format_published("nci1", rows)
    assert "71.70" in text
    assert "69.59 ± 1.23" in text
    assert "CurBench: Zhou et al." in text
    assert format_published("digits", rows) == ""
    words = format_markdown("nci1", runs, rows)
    assert "| `apw-e` | 2 | 61.50 ± 0.71 | +10.00 [+10.00, +10.00] |" in words
    assert "selects the epoch" not in words


def test_a_table_has_room_for_a_long_name() -> None:
    name = "m-apw-e@weights-log2"
    rows = table_of({one: [record("nci1", one, 0, 0.5)] for one in ("vanilla", name)})
    head, rule, *lines = format_table(rows).splitlines()[:4]
    assert [line.split()[:3] for line in lines] == [["vanilla", "1", "seed"], [name, "1", "seed"]]
    assert len({len(head), len(rule), *map(len, lines)}) == 1, "all columns end alike"


def test_every_model_name_of_a_recipe_is_known() -> None:
    from torchcurriculum.clean.networks import NAMES

    for recipe in RECIPES.values():
        assert recipe.model in MODELS or recipe.model in NAMES or recipe.model == "minilm"


class Compiled(nn.Module):
    """What ``torch.compile`` makes, without the compiling: it counts what goes through."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._orig_mod, self.seen = model, []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append((len(x), torch.is_grad_enabled()))
        return self._orig_mod(x)


def test_a_network_that_cannot_be_compiled_gets_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failure = type("InductorError", (RuntimeError,), {"__module__": "torch._inductor.exc"})

    class Uncompilable(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            raise failure("No working C++ compiler found\n\nSet TORCHDYNAMO_VERBOSE=1")

    monkeypatch.setattr(trainer, "_compiled", lambda model: Uncompilable(1, 1))
    words = r"cannot compile the network 'digits-cnn' \(No working C\+\+ compiler found\); install .* or omit --compile"
    with pytest.raises(ValueError, match=words):
        trainer.train(RECIPES["digits"].with_(epochs=1, compile=True), "vanilla", 0, tmp_path, lambda *_: None)


def test_a_compiled_network_also_evaluates_and_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Compiled] = []

    def compiled(model: nn.Module) -> Compiled:
        made.append(Compiled(model))
        return made[-1]

    monkeypatch.setattr(trainer, "_compiled", compiled)
    monkeypatch.setattr(evaluation, "CHUNKS", {"cpu": 50})
    recipe = RECIPES["digits"].with_(epochs=1, batch_size=50)
    plain = trainer.train(recipe, "apw-e", 0, tmp_path / "plain", lambda *_: None)
    record = trainer.train(recipe.with_(compile=True), "apw-e", 0, tmp_path / "compiled", lambda *_: None)
    sizes = {size for size, gradients in made[0].seen if not gradients}
    assert sizes == {50}, "for batches of other sizes it would be compiled again"
    parts = {name: len(part) // 50 for name, part in load_data(recipe, 0, None).sets.items()}
    passes = 2 * parts["train"] + parts["valid"] + parts["test"]  # it measures, and predicts for the audit
    assert sum(not gradients for _, gradients in made[0].seen) == passes
    assert {key: record.epochs[0][key] for key in ("valid_acc", "loss_mean")} == {
        key: plain.epochs[0][key] for key in ("valid_acc", "loss_mean")
    }


# ---------------------------------------------------------------------- every method and every loss


def test_every_method_and_loss_is_run_or_has_a_reason() -> None:
    recipe = RECIPES["cifar10-every-method"]
    assert {base_name(name) for name in recipe.methods} | set(NOT_RUN) == set(methods.names())
    assert {options["loss"] for options in recipe.options.values() if "loss" in options} == set(LOSSES)


def test_what_options_ask_for_by_a_word(tmp_path: Path) -> None:
    given = RECIPES["cifar10-every-method"].options
    recipe = RECIPES["digits"].with_(epochs=1, options={**given, "vanilla@none": {"loss": "none"}}, audit=False)

    def row(name: str) -> dict[str, Any]:
        return trainer.train(recipe, name, 0, tmp_path / name, lambda *_: None).epochs[0]

    plain, averaged = row("vanilla"), row("ema")
    assert averaged["loss_mean"] == plain["loss_mean"], "the training is the same"
    assert averaged["test_ece"] != plain["test_ece"], "the evaluated weights are the averaged ones"
    assert row("vanilla@gce")["loss_mean"] < 1 / 0.7 < plain["loss_mean"]  # its largest value
    assert row("lre@clean")["rows"] == plain["rows"] > row("lre")["rows"], "no training rows are held out"
    groups = trainer._Run(recipe, "group-dro", 0, tmp_path / "groups", None)
    assert groups.method.groups.tolist() == groups.train_set.y.tolist()
    assert row("group-dro")["rows"] == plain["rows"]
    model = trainer._Run(recipe, "rho-loss", 0, tmp_path / "rho", None).method._model[0]
    first = trainer._Run(recipe, "vanilla", 0, tmp_path / "first", None).model
    moved = [not torch.equal(a, b) for a, b in zip(model.parameters(), first.parameters(), strict=True)]
    assert all(moved), "it starts from the same weights and was trained"
    with pytest.raises(ValueError, match="loss must be one of gce, .* got 'none'"):
        row("vanilla@none")


def test_figures_do_not_say_where_the_weights_lay(tmp_path: Path) -> None:
    path = str(tmp_path / "weights.safetensors")
    one = record("x", "vanilla", 0, 0.5)
    one.append({**one.epochs[0], "epoch": 2, "seconds": 1.0})
    one.meta["recipe"]["weights"] = path
    (row,) = compare.figures({"vanilla": [one]})
    assert row["recipe"]["weights"] == "weights.safetensors"
    assert one.meta["recipe"]["weights"] == path


def test_the_page_of_every_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    import every_method

    def run(name: str, seed: int, accuracy: float, seconds: float, epoch: int = 2) -> dict[str, Any]:
        scores = {"epoch": epoch, "test_acc": accuracy, "test_eprop": accuracy / 2}
        environment = {"accelerator": None, "torch": "2"}
        settings = {"epochs": 2, "batch_size": 100, "precision": "float32"}
        both = {"best": {**scores, "test_acc": accuracy + 0.1}, "last": scores}
        return {"method": name, "seed": seed, "seconds": seconds, "recipe": settings, "environment": environment} | both

    runs = [run("vanilla", 0, 0.5, 10.0), run("rapw", 0, 0.6, 12.0), run("rapw", 1, 0.7, 9.0)]
    text = every_method.page(every_method.finished([*runs, run("elr", 0, 0.9, 5.0, epoch=1)]), {"rapw": "1.30"})
    assert "| `rapw` | 2 | 65.00 ± 7.07 | +10.00 | 32.50 ± 3.54 | 75.00 ± 7.07 | 32.50 ± 3.54 | 1.30 |" in text
    assert text.index("`rapw` | 2") < text.index("| `vanilla` | 1 | 50.00 |  | 25.00 | 60.00 | 25.00 |  |")
    assert "| `elr` | 0 | not finished |" in text, "an unfinished run has no figures"
    assert "| `length-warmup` | 0 | cuts sequences, and images have no length |" in text
