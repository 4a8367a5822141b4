"""Every method on tasks that are not classification of rows: it trains, or says in a sentence what it needs."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from torchcurriculum import APW, RAPW, Arrays, Curriculum, Then, Vanilla, indexed, methods, per_sample, weighted

from .blocks import DOCS
from .needs import build
from .task_problems import N, Problem, Table, pair, problems

PROBLEMS = problems()
SENTENCES = (
    "needs classes",
    "these views are for floating-point images",
    "SPLD groups rows by class",
    "DCL divides logits",
    "the default network reads (B, C) outputs",
    "MCL clusters outputs that are tensors",
    "mixup averages inputs",
    "mixup pairs rows",
    "CutMix cuts boxes out of images",
    "CutMix mixes the losses of whole images",
    "CBM masks floating-point images",
    "CBS blurs the outputs of convolutions",
    "EfficientTrain needs floating-point images",
    "EfficientTrain crops and augments images",
    "these views are for floating-point images",
)


def table() -> dict[str, dict[str, bool]]:
    """What docs/tasks.md says: for each method, on which tasks it trains."""
    lines = [line for line in (DOCS / "tasks.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head, found = cells[0][1:-1], {}
    for first, *rest in cells[1:]:
        answers = {task: {"yes": True, "no": False}.get(cell) for task, cell in zip(head, rest[:-1], strict=False)}
        if None not in answers.values() and len(answers) == len(head):
            found.update(dict.fromkeys(first.replace("`", "").split(", "), answers))
    return found


TABLE = table()


def test_the_page_knows_every_method_and_task() -> None:
    assert sorted(TABLE) == sorted(methods.names())
    assert set(TABLE["vanilla"]) == {task for task in PROBLEMS if "," not in task}


def curriculum_of(name: str, problem: Problem) -> tuple[Curriculum, nn.Module]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = problem.model()
    return Curriculum(build(name, N, 4), problem.rows, problem.loss_fn, batch_size=8), model


def mean_loss(curriculum: Curriculum, model: nn.Module) -> float:
    assert curriculum.task.rows is not None
    with torch.no_grad():
        return float(curriculum.task.losses(model, curriculum.task.rows(torch.arange(N)))[1].mean())


def trained(name: str, problem: Problem) -> str | None:
    """What it said where it refused; else the mean loss has fallen."""
    try:
        curriculum, model = curriculum_of(name, problem)
        optimizer = torch.optim.SGD(model.parameters(), problem.lr)
        before = mean_loss(curriculum, model)
        for _ in range(4):
            for batch in curriculum.epoch(model):
                loss = curriculum.loss(model, batch)
                assert loss.isfinite()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    except (TypeError, ValueError) as error:
        return str(error)
    assert mean_loss(curriculum, model) < before
    return None


@pytest.mark.parametrize("name", methods.names())
def test_it_trains_or_refuses_with_a_sentence(name: str) -> None:
    said = {task: trained(name, problem) for task, problem in PROBLEMS.items()}
    refusals = [words for words in said.values() if words]
    assert [words for words in refusals if not any(sentence in words for sentence in SENTENCES)] == []
    assert {task: words is None for task, words in said.items() if task in TABLE[name]} == TABLE[name], said


@pytest.mark.parametrize("task", ["multi-label", "multi-label, whole numbers", "single logit", "single logit, flat"])
def test_rapw_does_not_take_labels_for_classes_but_can_be_told(task: str) -> None:
    with pytest.raises(TypeError, match="RAPW needs classes.*; or pass classes=, which is 2 for several labels"):
        curriculum, model = curriculum_of("rapw", PROBLEMS[task])
        for batch in curriculum.epoch(model):
            curriculum.loss(model, batch)
    curriculum, model = (
        Curriculum(RAPW(N, plain=1, classes=2), PROBLEMS[task].rows, PROBLEMS[task].loss_fn),
        PROBLEMS[task].model(),
    )
    assert all(curriculum.loss(model, batch).isfinite() for batch in curriculum.epoch(model))


NEEDY = ("argmax", "c2f", "drw", "elr", "importance-sampling", "jocor", "jtt", "lgl", "rapw", "sop", "two-views")


@pytest.mark.parametrize("name", NEEDY)
def test_a_method_that_needs_classes_says_so_before_the_first_step(name: str) -> None:
    method, x = build(name, 8, 4), torch.randn(8, 2)
    whole, numbers, several = torch.arange(8) % 2, torch.rand(8), torch.rand(8, 3).round()
    words = f"^{type(method).__name__} needs classes: targets must be one whole number per row, but "
    for criterion in (nn.MSELoss(), nn.BCEWithLogitsLoss()):
        with pytest.raises(TypeError, match=words + f"the loss is {type(criterion).__name__}"):
            Curriculum(method, Table(pair, x, numbers), per_sample(criterion))
    for data in (Arrays(x, numbers), TensorDataset(x, several), Arrays(x, several.long())):
        with pytest.raises(TypeError, match=words + r"are torch\.(float32|int64) of shape \(8,"):
            Curriculum(method, data, lambda outputs, y: outputs.sum(1))
    for column in (whole.float(), whole[:, None]):
        with pytest.raises(TypeError, match=r"; if they are class numbers, pass y.flatten\(\).long\(\); otherwise use"):
            Curriculum(method, Arrays(x, column))
    Curriculum(method, Arrays(x, whole))
    Curriculum(method, Arrays(x, numbers), unpack=lambda batch: (batch[0], batch[1].long()))
    if not method.changes_batches:
        with pytest.raises(TypeError, match=words + "the loss is MSELoss"):
            weighted(nn.MSELoss(), method, n=8)


def test_a_method_inside_another_needs_classes_too() -> None:
    with pytest.raises(TypeError, match="ELR needs classes"):
        Curriculum(Then(Vanilla(), 2, methods.ELR(8)), Arrays(torch.rand(8, 2), torch.rand(8)), per_sample(nn.L1Loss()))


X, FORGOTTEN = torch.randn(8, 2), torch.arange(8) % 2


@pytest.mark.parametrize("name", ["vanilla", "apw-e"])
@pytest.mark.parametrize(
    ("y", "outputs", "words"),
    [
        (torch.rand(8), 3, r"needs class numbers, got torch.float32 targets of shape \(8,\); pass loss_fn=per_sample"),
        (torch.rand(8, 1), 1, r"needs a logit for each class, got outputs of shape \(8, 1\); pass loss_fn="),
        (FORGOTTEN, 1, r"needs a logit for each class, got outputs of shape \(8, 1\); .* for single logits"),
        (FORGOTTEN[:, None], 2, r"class numbers of shape \(8,\) for outputs of shape \(8, 2\), got \(8, 1\); reshape"),
        (FORGOTTEN.int(), 2, r"class numbers in torch.int64, got torch.int32; convert them with y.long\(\)"),
        (FORGOTTEN + 3, 2, "labels must be class numbers from 0 to 1, because the model has 2 outputs, got 3 to 4"),
        (torch.ones(8, 3), 3, "needs probabilities that sum to one, but these targets do not; pass loss_fn="),
    ],
)
def test_targets_that_are_not_classes_need_a_loss_function(
    name: str, y: torch.Tensor, outputs: int, words: str
) -> None:
    curriculum, model = Curriculum(build(name, 8, 2), Table(pair, X, y)), nn.Linear(2, outputs)
    with pytest.raises((TypeError, ValueError), match=words):
        for batch in curriculum.epoch(model):
            curriculum.loss(model, batch)


class Wrapped(nn.Linear):
    """A model that returns a dict."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
        return {"logits": super().forward(x)}


def test_labels_that_are_words_and_outputs_that_are_tuples() -> None:
    words = [(X[row], ("cat", "dog")[row % 2]) for row in range(8)]
    curriculum, model = Curriculum(Vanilla(), words), nn.Linear(2, 2)
    with pytest.raises(
        TypeError, match=r"needs a tensor of class numbers, got \('(cat|dog)', .*; number the classes from 0"
    ):
        curriculum.loss(model, next(iter(curriculum.epoch(model))))
    curriculum, model = Curriculum(Vanilla(), Arrays(X, FORGOTTEN)), nn.LSTM(2, 2)
    with pytest.raises(TypeError, match="needs the model to return logits, got tuple; pass forward=lambda"):
        curriculum.loss(model, next(iter(curriculum.epoch(model))))
    curriculum, named = Curriculum(Vanilla(), Arrays(X, FORGOTTEN)), Wrapped(2, 2)
    with pytest.raises(TypeError, match=r"got dict; pass forward=lambda model, x: model\(x\)\['logits'\], or what"):
        curriculum.loss(named, next(iter(curriculum.epoch(named))))


def test_a_pair_of_tensors_is_not_a_data_set() -> None:
    with pytest.raises(TypeError, match=r"train_set is a tuple of 2 arrays, not a data set; pass Arrays\(x, y\)"):
        Curriculum(Vanilla(), (X, FORGOTTEN))


def test_probabilities_are_targets_of_cross_entropy() -> None:
    curriculum, model = Curriculum(Vanilla(), Table(pair, X, torch.full((8, 3), 1 / 3))), nn.Linear(2, 3)
    assert all(curriculum.loss(model, batch).isfinite() for batch in curriculum.epoch(model))


def test_a_forgotten_advance_gets_a_sentence() -> None:
    loader = torch.utils.data.DataLoader(Table(pair, X, FORGOTTEN), batch_size=4)
    criterion, model = weighted(nn.CrossEntropyLoss(), APW(8, q=2)), nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match=r"called before advance\(\); call criterion.advance\(\) in every epoch"):
        criterion(model(X), FORGOTTEN, torch.arange(8))
    forgetful = APW(8, q=2)
    with pytest.warns(UserWarning, match=r"call advance\(losses\) in every epoch"):
        forgetful.batch_weights(torch.ones(8), torch.arange(8))
    forgetful.batch_weights(torch.ones(8), torch.arange(8))  # said once
    criterion.advance()
    with pytest.warns(UserWarning, match=r"20 losses of 8 rows since the last advance\(\)"):
        [criterion(model(x), y, index) for _ in range(3) for index, (x, y) in indexed(loader)]
    made = APW(8, q=2)
    made.advance(torch.ones(8))
    other = APW(8, q=2)
    other.load_state_dict(made.state_dict())
    torch.testing.assert_close(other.batch_weights(torch.ones(2), torch.arange(2)), torch.full((2,), 0.5))


class Named(nn.Linear):
    def forward(self, features: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(features)


def test_a_dict_that_nobody_unpacks_gets_a_sentence() -> None:
    rows = Table(lambda x, y: {"features": x, "answer": y}, X, FORGOTTEN)
    with pytest.raises(ValueError, match=r"got features, answer; or pass unpack=lambda batch: \(x, y\)"):
        next(iter(Curriculum(Vanilla(), rows).epoch(nn.Linear(2, 2))))
    rows = Table(lambda x, y: {"features": x, "labels": y}, X, FORGOTTEN)
    curriculum, model = Curriculum(Vanilla(), rows), Named(2, 2)
    with pytest.raises(TypeError, match=r"Named was called with a dict of features .* pass forward=lambda model, x: "):
        curriculum.loss(model, next(iter(curriculum.epoch(model))))
    unpacked = Curriculum(Vanilla(), rows, unpack=lambda batch: (batch["features"], batch["labels"]))
    assert all(unpacked.loss(model, batch).isfinite() for batch in unpacked.epoch(model))


def test_masks_are_not_left_behind() -> None:
    kept, cropped = ({"keep_size": True, "magnitude": 0.0}, {"keep_size": True})
    for options, words in (
        (kept, None),
        (cropped, "pass keep_size=True and magnitude=0.0"),
        ({}, "targets that belong"),
    ):
        method = methods.build("efficient-train", N, 4, **options)
        problem = PROBLEMS["segmentation"]
        curriculum, model = Curriculum(method, problem.rows, problem.loss_fn, batch_size=8), problem.model()
        if words is None:
            assert all(curriculum.loss(model, batch).isfinite() for batch in curriculum.epoch(model))
        else:
            with pytest.raises(TypeError, match=words):
                for _ in range(4):
                    for batch in curriculum.epoch(model):
                        curriculum.loss(model, batch)
