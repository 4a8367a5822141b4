"""What a hostile user does to `Curriculum`: other knobs, forged states, repeated losses, threads, wrong words."""

from __future__ import annotations

import copy
import random
import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from torchcurriculum import APW, Arrays, Curriculum, Vanilla, methods

from ..contract.problem import Run, data, differences, method
from ..contract.table import TABLE

every = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.label)


# ---------------------------------------------------------------- wrong words


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nan_strategy": "ingore"}, "nan_strategy must be 'error', 'warn' or 'ignore', got 'ingore'"),
        ({"seed": object()}, "seed must be a whole number, got <object"),
        ({"seed": True}, "seed must be a whole number, got True"),
        ({"batch_size": 2.5}, "batch_size must be a whole number, at least 1, got 2.5"),
        ({"measure": None}, "measure must be 'pass' or 'running', got None"),
        ({"method": 3}, "method must be a name such as"),
    ],
)
def test_wrong_words_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Curriculum(**{"method": Vanilla(), "train_set": data(), **options})


def test_numbers_of_numpy_are_numbers() -> None:
    curriculum = Curriculum(Vanilla(), data(), batch_size=np.int64(3), seed=np.int32(7))  # type: ignore[arg-type]
    assert (type(curriculum.batch_size), curriculum.batch_size, curriculum.seed) == (int, 3, 7)


# ---------------------------------------------------------------- states with other knobs, and forged ones


def trained(apw: APW, **options: Any) -> Curriculum:
    curriculum = Curriculum(apw, Arrays(torch.rand(8, 2), torch.arange(8) % 2), batch_size=4, **options)
    net = nn.Linear(2, 2)
    for batch in curriculum.epoch(net):
        curriculum.loss(net, batch).backward()
    return curriculum


def test_a_state_with_other_knobs_is_refused_by_name() -> None:
    state = trained(APW(8, q=4, threshold=1.0)).state_dict()
    other = trained(APW(8, q=9, threshold=0.5, tau=0.4))
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(ValueError, match=r"knobs.q: 4 in the state, 9 now.*threshold: 1.0.*tau.*knobs='state'"):
        other.load_state_dict(state)
    assert other.method.threshold == 0.5
    assert torch.equal(other.state_dict()["method"]["log_weights"], before["method"]["log_weights"])
    other.load_state_dict(state, knobs="given")
    assert (other.method.q, float(other.method.threshold), other.method.tau) == (9, 0.5, 0.4)
    other.load_state_dict(state, knobs="state")
    assert (other.method.q, float(other.method.threshold), other.method.tau) == (4, 1.0, 0.5)


def test_the_loop_of_a_state_is_used_from_the_next_epoch_on() -> None:
    rows, net = Arrays(torch.rand(8, 2), torch.arange(8) % 2), nn.Linear(2, 2)

    def loaded(name: str, **options: Any) -> Curriculum:
        curriculum = Curriculum(name, rows, batch_size=3)
        state = Curriculum(name, rows, batch_size=3, **options).state_dict()
        curriculum.load_state_dict(state, knobs="state")
        return curriculum

    shorter = loaded("vanilla", drop_last=True)
    shorter.start(net)
    assert [len(rows) for rows in shorter.batches()] == [3, 3]
    mixed = loaded("mixup", measure="running")
    with pytest.raises(ValueError, match="trains on mixtures"):
        mixed.loss(net, next(iter(mixed.epoch(net))))


@pytest.mark.parametrize("option", [{"measure": "running"}, {"drop_last": True}])
def test_a_state_of_another_loop_is_refused(option: dict[str, Any]) -> None:
    state = trained(APW(8, q=4)).state_dict()
    with pytest.raises(ValueError, match=next(iter(option))):
        trained(APW(8, q=4), **option).load_state_dict(state)


@every
def test_a_forged_state_changes_nothing_and_gives_a_sentence(row: Any) -> None:
    run = Run(method(row), row).train(stop_after=7)
    state = run.curriculum.state_dict()
    forged = [{key: value for key, value in state.items() if key != name} for name in state]
    forged += [{**state, name: wrong} for name in state for wrong in ("x", None, [1], torch.zeros(3, 3))]
    inner = state["method"]
    forged += [{**state, "method": {k: v for k, v in inner.items() if k != name}} for name in inner]
    forged += [{**state, "method": {**inner, name: wrong}} for name in inner for wrong in ("x", torch.zeros(2, 5, 3))]
    victim = Run(method(row), row).train(stop_after=3)
    before = copy.deepcopy(victim.tensors()), position(victim.curriculum)
    refused = 0
    for one in forged:
        words = ""
        try:
            victim.curriculum.load_state_dict(one)
        except (ValueError, RuntimeError) as error:
            words = str(error)
        if words:
            assert len(words) > 20
            assert max([0.0, *differences(before[0], victim.tensors()).values()]) == 0
            assert position(victim.curriculum) == before[1]
            refused += 1
            continue
        victim.curriculum.method.report()  # it was no forgery: None where None may be, or the value that was there
        victim = Run(method(row), row).train(stop_after=3)
        before = copy.deepcopy(victim.tensors()), position(victim.curriculum)
    assert refused >= len(forged) - 8


def position(curriculum: Curriculum) -> tuple[Any, ...]:
    last = curriculum.last.tolist()
    return curriculum.number, curriculum.steps_done, curriculum.is_open, len(curriculum.record.epochs), last


# ---------------------------------------------------------------- the loss of a batch more than once


@every
def test_asking_three_times_is_asking_once(row: Any) -> None:
    runs = [Run(method(row), row) for _ in range(2)]
    for run, times in zip(runs, (1, 3), strict=True):
        for _ in range(2):
            for batch in run.curriculum.epoch(run.net):
                losses = [run.curriculum.loss(run.net, batch) for _ in range(times)]
                assert all(torch.equal(loss, losses[0]) for loss in losses) or "dcl" in row.label
                run.optimizer.zero_grad()
                losses[0].backward()
                run.optimizer.step()
    found = differences(runs[0].tensors(), runs[1].tensors())
    assert max(found.values()) == 0, found


def test_lbfgs_and_sharpness_aware_steps_train() -> None:
    for name in ("apw-i", "superloss", "rapw", "m-apw-i"):
        run = Run(methods.build(name, 37, 4), TABLE[0])
        optimizer = torch.optim.LBFGS(run.net.parameters(), lr=0.1, max_iter=4)
        for batch in run.curriculum.epoch(run.net):

            def closure(batch: Any = batch, run: Run = run, optimizer: Any = optimizer) -> Tensor:
                optimizer.zero_grad()
                loss = run.curriculum.loss(run.net, batch)
                loss.backward()
                return loss

            optimizer.step(closure)
        for batch in run.curriculum.epoch(run.net):  # SAM: up the slope, then down from there
            run.optimizer.zero_grad()
            run.curriculum.loss(run.net, batch).backward()
            moves = [0.01 * p.grad for p in run.net.parameters() if p.grad is not None]
            with torch.no_grad():
                for p, move in zip(run.net.parameters(), moves, strict=True):
                    p.add_(move)
            run.optimizer.zero_grad()
            run.curriculum.loss(run.net, batch).backward()
            with torch.no_grad():
                for p, move in zip(run.net.parameters(), moves, strict=True):
                    p.sub_(move)
            run.optimizer.step()
        assert all(value.isfinite().all() for value in run.net.state_dict().values())
        assert [row["steps"] for row in run.curriculum.record.epochs] == [5, 5]


# ---------------------------------------------------------------- threads


class Drawing(torch.utils.data.Dataset[Any]):
    """Rows that draw from all global generators."""

    def __init__(self) -> None:
        self.rows = data()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        x, y = self.rows[row]
        return x + 0.01 * (torch.randn(()) + random.random() + float(np.random.rand())), y


def one_run(seed: int) -> Run:
    run = Run(methods.build("apw-e", 37, 4), TABLE[0])
    run.curriculum = Curriculum(methods.build("apw-e", 37, 4), Drawing(), batch_size=8, seed=seed)
    return run


def parameters(run: Run) -> Tensor:
    run.train(epochs=3)
    return torch.cat([p.detach().flatten() for p in run.net.parameters()])


def test_trainings_in_threads_are_those_of_running_alone() -> None:
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    alone = [parameters(one_run(seed)) for seed in range(3)]
    found: dict[int, Tensor] = {}
    runs = [one_run(seed) for seed in range(3)]
    threads = [threading.Thread(target=lambda s=s: found.update({s: parameters(runs[s])})) for s in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(3):
        assert torch.equal(found[seed], alone[seed])
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before
