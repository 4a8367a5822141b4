"""The shell: what it measures, in which order it visits, what it refuses, and that a state loses nothing."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from torchcurriculum import APW, Arrays, Batch, Curriculum, Epoch, Method, Record, Vanilla
from torchcurriculum.data.batches import unpack

GENERATOR = torch.Generator().manual_seed(0)
X, Y = torch.randn(22, 3, generator=GENERATOR), torch.arange(22) % 2


def net() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))


def go_through(curriculum: Curriculum, model: nn.Module, epochs: int = 1) -> list[list[int]]:
    seen = []
    for _ in range(epochs):
        for batch in curriculum.epoch(model):
            curriculum.loss(model, batch).backward()
            seen.append(batch.index.tolist())
    return seen


class Items(Dataset[Any]):
    """Row by row, as most users' datasets are; ``form`` as in the collated batch."""

    def __init__(self, form: str = "tuple") -> None:
        self.form, self.reads = form, 0

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, row: int) -> Any:
        self.reads += 1
        x, y = X[row], Y[row]
        return {"tuple": (x, y), "dict": {"x": x, "labels": y}, "three": (x, x, y)}[self.form]


# ---------------------------------------------------------------- order and measuring


def test_order_is_a_function_of_seed_and_epoch() -> None:
    runs = [go_through(Curriculum(Vanilla(), Arrays(X, Y), batch_size=4, seed=seed), net(), 2) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    assert runs[0][:6] != runs[0][6:]
    assert [len(rows) for rows in runs[0][:6]] == [4, 4, 4, 4, 4, 2]


def test_a_last_batch_of_one_row_joins_the_one_before() -> None:
    class Seven(Method):
        def plan(self, epoch: Epoch) -> torch.Tensor:
            return torch.arange(7)

    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))  # which refuses a single row
    assert [len(rows) for rows in go_through(Curriculum(Seven(), Arrays(X, Y), batch_size=3), model)] == [3, 4]
    alone = Curriculum(Seven(), Arrays(X, Y), batch_size=1)
    assert [len(rows) for rows in go_through(alone, net())] == [1] * 7


def test_drop_last_leaves_out_what_does_not_fill_a_batch() -> None:
    seen = go_through(Curriculum(Vanilla(), Arrays(X, Y), batch_size=4, drop_last=True), net())
    assert [len(rows) for rows in seen] == [4] * 5


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_and_arrays_give_the_same_run(workers: int) -> None:
    results = []
    for data, count in ((Arrays(X, Y), 0), (Items(), workers)):
        model = net().eval()
        curriculum = Curriculum(APW(22, q=4), data, batch_size=5, workers=count)
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        for _ in range(3):
            for batch in curriculum.epoch(model):
                optimizer.zero_grad()
                curriculum.loss(model, batch).backward()
                optimizer.step()
        results.append((model[0].weight.detach(), curriculum.method.weights))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


def test_the_measuring_pass_is_paid_only_by_who_asks() -> None:
    data = Items()
    go_through(Curriculum(Vanilla(), data, batch_size=4), net())
    assert data.reads == 22
    go_through(Curriculum(APW(22, q=4), data, batch_size=4), net())
    assert data.reads == 22 + 44
    go_through(Curriculum(APW(22, q=4), data, batch_size=4, measure="running"), net())
    assert data.reads == 22 + 44 + 22


def test_the_pass_measures_every_row_in_evaluation_mode_on_the_measuring_set() -> None:
    class Keep(Method):
        def plan(self, epoch: Epoch) -> None:
            self.kept = epoch.losses()

    model = net().train()
    method = Keep()
    plain = Arrays(X + 1, Y)
    go_through(Curriculum(method, Arrays(X, Y), batch_size=4, measure_set=plain, measure_batch_size=7), model)
    model.eval()
    with torch.no_grad():
        expected = nn.functional.cross_entropy(model(X + 1), Y, reduction="none")
    torch.testing.assert_close(method.kept, expected)


def test_running_losses_are_those_of_the_last_visit_and_rows_never_seen_are_hard() -> None:
    class Half(Method):
        def plan(self, epoch: Epoch) -> torch.Tensor:
            self.last = epoch.losses().clone()
            return torch.arange(11)

    model, method = net().eval(), Half()
    curriculum = Curriculum(method, Arrays(X, Y), batch_size=4, measure="running")
    go_through(curriculum, model, 2)
    with torch.no_grad():
        losses = nn.functional.cross_entropy(model(X), Y, reduction="none")
    torch.testing.assert_close(method.last[:11], losses[:11])
    assert method.last[11:].isinf().all()


def test_forward_unpack_and_dict_batches() -> None:
    curriculum = Curriculum(Vanilla(), Items("dict"), forward=lambda model, x: model(x["x"]), batch_size=4)
    assert len(go_through(curriculum, net())) == 6
    three = Curriculum(Vanilla(), Items("three"), forward=lambda model, x: model(x[0] + x[1]), batch_size=4)
    assert len(go_through(three, net())) == 6
    with pytest.raises(ValueError, match="needs its target under one of labels, label, target, targets, y, got a, b"):
        unpack({"a": 1, "b": 2})
    with pytest.raises(TypeError, match="cannot tell input from target in a batch of type float; pass unpack="):
        unpack(1.0)


def test_leaving_an_epoch_early_begins_the_next_one() -> None:
    curriculum, model = Curriculum(Vanilla(), Arrays(X, Y), batch_size=4), net()
    for batch in curriculum.epoch(model):
        curriculum.loss(model, batch)
        break
    assert len(go_through(curriculum, model)) == 6
    assert [(row["epoch"], row["steps"]) for row in curriculum.record.epochs] == [(1, 1), (2, 6)]


def test_rows_can_be_asked_for_by_a_method() -> None:
    class Peek(Method):
        def weigh(self, step: Any) -> torch.Tensor:
            assert step.batch.task.rows is not None
            held: Batch = step.batch.task.rows(torch.tensor([3, 1]))
            assert torch.equal(held.x, X[[3, 1]])
            assert torch.equal(held.y, Y[[3, 1]])
            return super().weigh(step)

    for data in (Arrays(X, Y), Items()):
        go_through(Curriculum(Peek(), data, batch_size=4), net())


# ---------------------------------------------------------------- the record


def test_a_row_for_every_epoch_with_everything_in_it() -> None:
    curriculum = Curriculum(APW(22, q=4), Arrays(X, Y), batch_size=4, samples=True)
    go_through(curriculum, net(), 3)
    row = curriculum.record.epochs[-1]
    for name in ("rho", "alpha", "z", "phase", "eprop", "ess", "weight_quantiles", "loss_quantiles", "seconds"):
        assert name in row
    assert curriculum.record.history("losses").shape == (3, 22)
    assert curriculum.record.history("easy").mean(1).tolist() == pytest.approx(
        curriculum.record.column("eprop").tolist()
    )
    weights = curriculum.method.weights
    assert row["ess"] == pytest.approx(1 / (22 * (weights**2).sum().item()))
    assert row["loss_quantiles"][0] == pytest.approx(curriculum.record.history("losses")[-1].min())


def test_a_record_in_a_folder_is_whole_after_every_epoch(tmp_path: Any) -> None:
    curriculum, model = Curriculum(APW(22, q=4), Arrays(X, Y), batch_size=4, samples=True, record=tmp_path), net()
    for epochs in (1, 2, 3):
        go_through(curriculum, model)
        curriculum.record.annotate(test_acc=epochs / 10)
        read = Record.load(tmp_path)
        assert read.column("test_acc").tolist() == [k / 10 for k in range(1, epochs + 1)]
        assert np.array_equal(read.history("losses"), curriculum.record.history("losses"))
        assert np.array_equal(read.history("easy"), curriculum.record.history("easy"))


# ---------------------------------------------------------------- bad input


def test_data_sets_that_cannot_be_weighed_are_refused() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter([])

    with pytest.raises(TypeError, match=r"^train_set is a DataLoader; pass its data set, loader\.dataset$"):
        Curriculum(Vanilla(), DataLoader(Arrays(X, Y)))
    with pytest.raises(TypeError, match="^train_set is a dict with the keys train, test; pass one of its data sets$"):
        Curriculum(Vanilla(), {"train": Arrays(X, Y), "test": Arrays(X, Y)})
    with pytest.raises(TypeError, match="train_set is Stream, which has no length or no row numbers"):
        Curriculum(Vanilla(), Stream())
    with pytest.raises(ValueError, match="train_set is empty"):
        Curriculum(Vanilla(), Arrays(X[:0], Y[:0]))
    with pytest.raises(ValueError, match="the method was made for 5 rows and the training set has 22"):
        Curriculum(APW(5, q=2), Arrays(X, Y))
    with pytest.raises(ValueError, match="measure_set has 3 rows and train_set 22"):
        Curriculum(Vanilla(), Arrays(X, Y), measure_set=Arrays(X[:3], Y[:3]))
    with pytest.raises(ValueError, match="measure must be 'pass' or 'running', got 'guess'"):
        Curriculum(Vanilla(), Arrays(X, Y), measure="guess")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="batch_size must be .*got 0"):
        Curriculum(Vanilla(), Arrays(X, Y), batch_size=0)
    with pytest.raises(ValueError, match="there are 3 inputs and 22 targets"):
        Arrays(X[:3], Y)
    with pytest.raises(TypeError, match=r"^y must be a tensor, got ndarray; pass torch.as_tensor\(y\)$"):
        Arrays(X, Y.numpy())  # type: ignore[arg-type]


def sorting(samples: list[Any]) -> Any:
    return default_collate(sorted(samples, key=lambda sample: -float(sample[0][0])))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_collate_function_that_sorts_is_refused(workers: int) -> None:
    curriculum = Curriculum(Vanilla(), Items(), batch_size=8, collate_fn=sorting, workers=workers)
    with pytest.raises(ValueError, match="changes the order of its samples, so row numbers would not match"):
        go_through(curriculum, net())


def test_a_second_model_on_a_batch_is_refused() -> None:
    first, second = net(), net()
    curriculum = Curriculum("superloss", Arrays(X, Y), epochs=2, batch_size=8)
    for batch in curriculum.epoch(first):
        curriculum.loss(first, batch)
        curriculum.loss(first, batch)  # as LBFGS does
        with pytest.raises(ValueError, match="computed with another model.*; make a Curriculum for each model"):
            curriculum.loss(second, batch)


def test_rows_come_from_the_data_set_s_own_functions() -> None:
    class Plates(Items):
        batch = torch.zeros(22)  # no function

    class Zeros(Arrays):
        def __getitem__(self, row: int) -> Any:
            return torch.zeros(3), self.y[row]

    class Ones(Zeros):
        def batch(self, index: torch.Tensor, generator: torch.Generator | None = None) -> Any:
            return torch.ones(len(index), 3), self.y[index]

    expected = {Plates(): X, Zeros(X, Y): torch.zeros_like(X), Ones(X, Y): torch.ones_like(X), Arrays(X, Y): X}
    for data, inputs in expected.items():
        for batch in Curriculum(Vanilla(), data, batch_size=8).epoch(net()):
            assert torch.equal(batch.x, inputs[batch.index])


@pytest.mark.parametrize("kind", [torch.Tensor.clone, torch.Tensor.numpy, torch.Tensor.tolist])
@pytest.mark.parametrize("rows", [22, 200])
def test_a_state_with_other_values_for_each_row_is_refused(kind: Any, rows: int) -> None:
    def made(weights: torch.Tensor) -> Curriculum:
        data = Arrays(torch.zeros(rows, 3), torch.zeros(rows, dtype=torch.int64))
        return Curriculum("given-weights", data, method_options={"weights": kind(weights)})

    weights = torch.linspace(0.1, 1, rows)
    made(weights).load_state_dict(made(weights).state_dict())
    with pytest.raises(ValueError, match="other knobs .*weights") as caught:
        made(weights).load_state_dict(made(weights.flip(0)).state_dict())
    assert rows == 22 or len(str(caught.value)) < 300


def test_a_method_may_have_a_scalar_tensor() -> None:
    class Sharp(Method):
        def __init__(self, power: torch.Tensor) -> None:
            super().__init__()
            self.register_buffer("power", power)

        def weigh(self, step: Any) -> torch.Tensor:
            return step.normalise(-self.power * step.losses.detach())

    curriculum = Curriculum(Sharp(torch.tensor(0.5)), Arrays(X, Y), batch_size=8)
    go_through(curriculum, net())
    with pytest.raises(ValueError, match="power"):
        Curriculum(Sharp(torch.tensor(0.25)), Arrays(X, Y), batch_size=8).load_state_dict(curriculum.state_dict())


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "planned no rows for epoch 1"),
        ([1, 1], "planned rows twice"),
        ([22], "outside range\\(22\\)"),
        ([-1], "outside"),
    ],
)
def test_bad_plans_are_refused(rows: list[int], message: str) -> None:
    class Bad(Method):
        def plan(self, epoch: Epoch) -> torch.Tensor:
            return torch.tensor(rows, dtype=torch.int64)

    with pytest.raises(ValueError, match=message):
        go_through(Curriculum(Bad(), Arrays(X, Y)), net())


def test_nan_strategies_of_the_shell() -> None:
    x = X.clone()
    x[3] = math.nan
    for measure in ("pass", "running"):
        model = nn.Sequential(nn.Linear(3, 2))
        curriculum = Curriculum(APW(22, q=2), Arrays(x, Y), batch_size=4, measure=measure, nan_strategy="warn")
        with pytest.warns(UserWarning, match=r"rows \[3\].* NaN or infinite|NaN or infinite, at rows \[3\]"):
            go_through(curriculum, model, 2)
        assert curriculum.method.weights.isfinite().all()
        assert all(value.isfinite().all() for value in model.state_dict().values())
    quiet = Curriculum(APW(22, q=2), Arrays(x, Y), batch_size=4, nan_strategy="ignore")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch in quiet.epoch(model):
            assert quiet.loss(model, batch).isfinite()


def test_foreign_states_are_refused_and_change_nothing() -> None:
    curriculum = Curriculum(APW(22, q=4), Arrays(X, Y), batch_size=4)
    go_through(curriculum, net())
    state = curriculum.state_dict()
    cases = [
        (Curriculum(APW(21, q=4), Arrays(X[1:], Y[1:])), state, "a training set of 22 rows, and this one has 21"),
        (Curriculum(APW(22, q=4), Arrays(X, 1 - Y)), state, "with other labels"),
        (Curriculum(Vanilla(), Arrays(X, Y)), state, "the state is of APW, and this method is Vanilla"),
        (curriculum, {**state, "format": 1}, "has format 1; this version reads 2"),
        (curriculum, {**state, "open": True, "seed": 9}, "inside an epoch with seed 9"),
    ]
    for other, foreign, message in cases:
        before = {name: value.clone() for name, value in other.method.state_dict().items()}
        with pytest.raises(ValueError, match=message):
            other.load_state_dict(foreign)
        assert all(torch.equal(before[name], value) for name, value in other.method.state_dict().items())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_on_an_accelerator_it_gives_the_same_weights() -> None:
    weights = []
    for device in ("cpu", "cuda"):
        model = net().eval().double().to(device)
        curriculum = Curriculum(APW(22, q=4, weighting="EI"), Arrays(X.double(), Y), batch_size=4)
        go_through(curriculum, model, 3)
        weights.append(curriculum.method.weights.cpu())
    torch.testing.assert_close(weights[0], weights[1])
