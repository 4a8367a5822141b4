"""A trainer with a loop of its own: `start`, `batches`, `batch` or `reduce`, `finish` give the run of `epoch`."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import Subset, TensorDataset

from torchcurriculum import Curriculum, GraphedStep, methods

from .contract.problem import BATCH, CLASSES, N, data, model


def _make(name: str, measure: str = "pass") -> tuple[Curriculum, torch.nn.Module, torch.optim.Optimizer]:
    net = model()
    # A loop that gives losses alone cannot count the classes, so tau is said.
    options = {"tau": math.log(CLASSES)} if name == "superloss" else {}
    curriculum = Curriculum(methods.build(name, N, 4, **options), data(), batch_size=BATCH, seed=5, measure=measure)  # type: ignore[arg-type]
    return curriculum, net, torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)


def _own(name: str, epochs: int = 3, measure: str = "pass") -> tuple[Curriculum, torch.nn.Module]:
    curriculum, net, optimizer = _make(name, measure)
    for _ in range(epochs):
        for batch in curriculum.epoch(net):
            loss = curriculum.loss(net, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return curriculum, net


def _hosted(name: str, way: str, measure: str = "pass") -> tuple[Curriculum, torch.nn.Module]:
    curriculum, net, optimizer = _make(name, measure)
    rows = data()
    for _ in range(3):
        curriculum.start(net)
        for index in curriculum.batches():
            x, y = rows.batch(index)
            if way == "batch":
                loss = curriculum.loss(net, curriculum.batch((x, y)))
            else:
                given = index if way == "reduce with rows" else None
                loss = curriculum.reduce(F.cross_entropy(net(x), y, reduction="none"), given)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        curriculum.finish()
    return curriculum, net


def _assert_same(a: tuple[Curriculum, torch.nn.Module], b: tuple[Curriculum, torch.nn.Module]) -> None:
    for name, value in a[1].state_dict().items():
        assert torch.equal(value, b[1].state_dict()[name])
    state, other = a[0].state_dict(), b[0].state_dict()
    for rows in (state["epochs"], other["epochs"]):
        for row in rows:
            del row["seconds"]
    assert state["epochs"] == other["epochs"]
    assert all(torch.equal(value, other["method"][name]) for name, value in state["method"].items())


@pytest.mark.parametrize("measure", ["pass", "running"])
@pytest.mark.parametrize("way", ["batch", "reduce", "reduce with rows"])
@pytest.mark.parametrize("name", ["vanilla", "apw-e", "apw-ei", "s-apw-e", "superloss"])
def test_a_hosted_loop_is_the_own_loop(name: str, way: str, measure: str) -> None:
    _assert_same(_own(name, measure=measure), _hosted(name, way, measure))


@pytest.mark.parametrize("name", ["mixup", "m-apw-e", "screenernet"])
def test_a_hosted_batch_serves_every_method(name: str) -> None:
    _assert_same(_own(name), _hosted(name, "batch"))


@pytest.mark.parametrize("name", ["mixup", "m-apw-e", "screenernet", "efficient-train"])
def test_losses_alone_are_refused_where_a_method_needs_more(name: str) -> None:
    with pytest.raises(TypeError, match=r"(changes the batch|needs the model).*loss\(model, batch\)"):
        _hosted(name, "reduce")


def test_losses_must_be_one_for_each_row() -> None:
    curriculum, net, _ = _make("apw-e")
    curriculum.start(net)
    with pytest.raises(ValueError, match=r"one loss per sample, shape \(8,\), but returned .*\(\)"):
        curriculum.reduce(torch.tensor(0.5), torch.arange(8))


def test_a_start_without_a_finish_ends_the_epoch_before() -> None:
    curriculum, net, _ = _make("apw-e")
    curriculum.start(net)
    curriculum.start(net)
    assert curriculum.number == 2
    assert len(curriculum.record.epochs) == 1


def _accumulated(name: str, batch_size: int, parts: int) -> torch.nn.Module:
    """Trains with ``parts`` batches to a step."""
    net = model()
    # A loop that gives losses alone cannot count the classes, so tau is said.
    options = {"tau": math.log(CLASSES)} if name == "superloss" else {}
    curriculum = Curriculum(methods.build(name, N, 4, **options), data(), batch_size=batch_size, seed=5)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for _ in range(4):
        curriculum.start(net)
        loader = curriculum.batches()
        for first in range(0, len(loader), parts):
            curriculum.accumulate(parts)
            optimizer.zero_grad()
            for index in loader[first : first + parts]:
                curriculum.loss(net, curriculum.batch(data().batch(index))).backward()
            optimizer.step()
        curriculum.finish()
    return net


@pytest.mark.parametrize("name", ["vanilla", "apw-e", "s-apw-e", "infobatch", "spl", "lambda-step"])
def test_parts_of_a_batch_add_up_to_it(name: str) -> None:
    """Also at the end of an epoch, where 5 rows are two parts of 2 and 3."""
    whole, parts = _accumulated(name, BATCH, 1), _accumulated(name, BATCH // 4, 4)
    for key, value in whole.state_dict().items():
        assert (value - parts.state_dict()[key]).abs().max() < 1e-13


def test_parts_of_a_batch_have_shares_of_the_weight() -> None:
    curriculum, net, _ = _make("apw-e")
    curriculum.start(net)
    curriculum.method.log_weights[:] = torch.arange(N).double().log1p()  # type: ignore[index, operator]
    curriculum.accumulate(2)
    first, second = (1 + rows.double() for rows in curriculum.batches()[:2])
    expected = [(part.sum() / (first.sum() + second.sum())).item() for part in (first, second)]
    rows = curriculum.batches()[:2]
    found = [curriculum.reduce(torch.ones(len(part), dtype=torch.float64), part).item() for part in rows]
    assert found == pytest.approx(expected, rel=1e-12)
    curriculum.accumulate(1)
    assert not curriculum.accumulates


class _Listed(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self) -> None:
        self.rows = data()

    def __len__(self) -> int:
        return N

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.rows.x[row], self.rows.y[row]


def test_the_loader_hands_out_the_batches_of_the_epoch() -> None:
    net = model()
    curriculum = Curriculum(methods.build("s-apw-e", N, 4, fraction=0.4), _Listed(), batch_size=BATCH, seed=5)
    loader = curriculum.loader()
    assert len(loader) == 5  # of an epoch over everything
    curriculum.start(net)
    assert curriculum.loader() is loader
    assert len(loader) == 2
    for (x, y), rows in zip(loader, curriculum.batches(), strict=True):
        assert torch.equal(x, data().x[rows])
        assert torch.equal(y, data().y[rows])


def test_progress_ends_an_epoch_that_is_done() -> None:
    curriculum, net, _ = _make("apw-e")
    assert curriculum.progress() == (0, 0)
    curriculum.start(net)
    for number, index in enumerate(curriculum.batches(), 1):
        curriculum.loss(net, curriculum.batch(data().batch(index)))
        assert curriculum.progress() == ((0, number) if number < 5 else (1, 0))
    assert len(curriculum.record.epochs) == 1
    other, _, _ = _make("apw-e")
    other.load_state_dict(curriculum.state_dict())
    assert other.progress() == (1, 0)


@pytest.mark.parametrize("name", ["vanilla", "apw-ei", "mixup", "spl"])
def test_a_graphed_step_without_an_accelerator_is_the_plain_step(name: str) -> None:
    curriculum, net, optimizer = _make(name)
    step = GraphedStep(curriculum, net, optimizer)
    for _ in range(3):
        for batch in curriculum.epoch(net):
            step(batch)
    _assert_same(_own(name), (curriculum, net))


def test_a_trainer_reads_what_epoch_reads() -> None:
    curriculum, net, _ = _make("s-apw-e")
    other = _make("s-apw-e")[0]
    curriculum.start(net)
    raw = list(curriculum.read())
    assert len(raw) == len(curriculum.batches())
    for (x, y), batch in zip(raw, other.epoch(net), strict=True):
        assert torch.equal(x, batch.x)
        assert torch.equal(y, batch.y)
    curriculum.done(len(raw) - 2)
    assert [torch.equal(x, raw[-1][0]) for x, _ in curriculum.read()] == [True]


def test_a_training_set_that_changes_its_length_is_refused() -> None:
    rows = [*range(N)]
    curriculum = Curriculum(methods.build("vanilla", N, 4), rows, batch_size=BATCH)
    curriculum.start(model())
    rows.append(N)
    with pytest.raises(ValueError, match="the training set had 37 rows and now has 38"):
        curriculum.start(model())


@pytest.mark.parametrize("subset", [False, True])
def test_labels_of_tensor_datasets_and_subsets_are_told_apart(subset: bool) -> None:
    def state(y: torch.Tensor) -> tuple[Curriculum, dict[str, object]]:
        whole = TensorDataset(data().x, y)
        rows = Subset(whole, range(1, N)) if subset else whole
        made = Curriculum(methods.build("vanilla", len(rows), 4), rows)
        return made, made.state_dict()

    changed = data().y.clone()
    changed[3] = (changed[3] + 1) % 3
    curriculum, own = state(data().y)
    curriculum.load_state_dict(own)
    with pytest.raises(ValueError, match="a training set with other labels"):
        curriculum.load_state_dict(state(changed)[1])


class _Wrapping(torch.nn.Module):
    """A user's model that happens to call a part of itself ``module``."""

    def __init__(self) -> None:
        super().__init__()
        self.module = model()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -self.module(x)


def test_a_part_called_module_is_not_the_model() -> None:
    net = _Wrapping()
    curriculum = Curriculum(methods.build("apw-e", N, 4), data(), batch_size=BATCH, samples=True)
    curriculum.start(net)
    curriculum.finish()
    expected = F.cross_entropy(net(data().x), data().y, reduction="none").detach().float()
    assert torch.allclose(torch.from_numpy(curriculum.record.history("losses")[0]), expected)
