"""Then and Both: who acts when, epochs counted anew, draws that differ, and resuming across the switch."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from torchcurriculum import APW, Batch, Curriculum, Method, Mixed, Mixup, Sampled, Step, Vanilla, methods
from torchcurriculum.core import Epoch, Task, distributed
from torchcurriculum.methods import CBM, CBS, Both, InfoBatch, Then

from ..contract.problem import BATCH, EPOCHS, N, Run, data, model
from ..contract.row import Row

VANILLA = Row("vanilla")
Maker = Callable[[], Method]


class Spy(Method):
    """Plans three rows by a draw and notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[int] = []
        self.draws: list[list[int]] = []
        self.calls: list[str] = []
        self.steps: list[tuple[int, int]] = []
        self.add_rows("seen", torch.zeros(N))

    def plan(self, epoch: Epoch) -> Tensor:
        self.numbers.append(epoch.number)
        rows = torch.randperm(epoch.n, generator=epoch.generator("spy"))[:3]
        self.draws.append(rows.tolist())
        return rows

    def view(self, model: nn.Module, batch: Batch) -> Batch:
        self.calls.append("view")
        return batch

    def weigh(self, step: Step) -> Tensor:
        self.calls.append("weigh")
        return super().weigh(step)

    def loss(self, step: Step) -> Tensor:
        self.calls.append("loss")
        self.steps.append((step.epoch, step.batch.epoch))
        return super().loss(step)

    def report(self) -> dict[str, int]:
        self.calls.append("report")
        return {"planned": len(self.numbers)}


def plan(method: Method, numbers: range, n: int = 100) -> None:
    for number in numbers:
        method.plan(Epoch(number, n, torch.zeros(n), losses=lambda: torch.zeros(n), seed=11))


def test_the_second_counts_its_own_epochs_and_draws_its_own_rows() -> None:
    first, second = Spy(), Spy()
    plan(Then(first, 3, second), range(1, 8))
    assert first.numbers == [1, 2, 3]
    assert second.numbers == [1, 2, 3, 4]
    draws = [tuple(draw) for draw in first.draws + second.draws]
    assert len(set(draws)) == 7  # numbers repeat, draws do not


def test_it_may_be_nested_either_way() -> None:
    for chain in (
        lambda a, b, c: Then(a, 2, Then(b, 3, c)),
        lambda a, b, c: Then(Then(a, 2, b), 5, c),
    ):
        spies = Spy(), Spy(), Spy()
        method = chain(*spies)
        stages = []
        for number in range(1, 9):
            plan(method, range(number, number + 1))
            stages.append(method.report()["stage"])
        assert [spy.numbers for spy in spies] == [[1, 2], [1, 2, 3], [1, 2, 3]]
        assert stages == [1, 1, 2, 2, 2, 3, 3, 3]
        assert len({tuple(draw) for spy in spies for draw in spy.draws}) == 8


def test_every_verb_goes_to_the_method_of_the_epoch() -> None:
    first, second = Spy(), Spy()
    net, curriculum = model(), Curriculum(Then(first, 1, second), data(), batch_size=3)
    for count, spy in ((1, first), (2, second)):
        for batch in curriculum.epoch(net):
            curriculum.loss(net, batch)
        assert spy.calls == ["view", "loss", "weigh", "report"]
        assert spy.steps == [(1, 1)], "epochs as the method counts them"
        assert curriculum.record.epochs[-1]["stage"] == count
        assert curriculum.record.epochs[-1]["planned"] == 1


@pytest.mark.parametrize("wrap", [lambda a, b: Then(a, 1, b), Both])
def test_ranks_agree_on_the_rows_of_the_methods_inside(
    wrap: Callable[[Method, Method], Method], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Spy(), Spy()
    method = wrap(first, second)
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(distributed, "merge_rows", lambda values, written: values + written.to(values.dtype))
    method.visited(torch.tensor([3, 5]))
    method.agree()
    for spy in (first, second):
        assert spy.seen.nonzero().flatten().tolist() == [3, 5]
    method.agree()
    assert first.seen.sum() == 2, "rows are exchanged once"


def test_weights_and_reports_are_those_of_the_epochs_method() -> None:
    method = Then(Vanilla(), 1, APW(N, q=3))
    assert method.n == N
    assert not hasattr(method, "weights")
    run = Run(method, VANILLA).train(epochs=2)
    assert method.weights.shape == (N,)
    first, second = run.curriculum.record.epochs
    assert "rho" not in first
    assert {"rho", "ess", "stage"} <= set(second)


def test_losses_are_measured_only_for_a_method_that_asks() -> None:
    passes = []

    def forward(net: nn.Module, x: Tensor) -> Tensor:
        passes.append(net.training)
        return net(x)

    task, net = Task(forward, lambda out, y: out[:, 0].square()), nn.Linear(1, 1)
    for first, asks in ((APW(4, q=3), False), (APW(4, q=3, weighting="I"), True)):
        method = Then(first, 1, Mixup())
        for number in (1, 2):
            passes.clear()
            method.weigh(Step(net, Batch(torch.ones(4, 1), torch.zeros(4), torch.arange(4), task=task, epoch=number)))
            assert passes == ([False] if asks and number == 1 else [])


def test_it_works_under_the_wrappers() -> None:
    for method in (Sampled(Then(APW(N, q=3), 2, APW(N, q=9)), 0.4), Mixed(Then(APW(N, q=3), 2, APW(N, q=9)))):
        assert Run(method, VANILLA).train().curriculum.number == EPOCHS


def test_it_equals_its_first_and_its_own_second_run() -> None:
    alone = Run(APW(N, q=3), VANILLA).train(epochs=2)
    under = Run(Then(APW(N, q=3), 2, Vanilla()), VANILLA).train(epochs=2)
    for name, value in alone.net.state_dict().items():
        assert torch.equal(value, under.net.state_dict()[name])


def test_hooks_of_the_first_are_taken_off_at_the_switch() -> None:
    run = Run(Then(CBS(interval=5), 2, Vanilla()), VANILLA)
    run.train(epochs=2)
    assert len(run.net[0]._forward_hooks) == 1
    run.train(epochs=3)
    assert len(run.net[0]._forward_hooks) == 0


CHAINS: dict[str, Maker] = {
    "blur-apw": lambda: Then(CBS(decay=0.8, interval=1), 2, APW(N, q=3, weighting="EI")),
    "prune-mask": lambda: Then(InfoBatch(N, epochs=2, delta=1.0), 2, CBM(epochs=2, schedule="linear")),
    "three": lambda: Then(Vanilla(), 1, Then(InfoBatch(N, epochs=2, delta=1.0), 2, APW(N, q=3))),
    "both": lambda: Both(Then(CBS(interval=5), 1, InfoBatch(N, epochs=3, delta=1.0)), Then(APW(N, q=3), 2, Vanilla())),
}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("stop_after", [1, 5, 7, 9, 10, 11, 13])
def test_resuming_is_bit_equal_across_the_switch(chain: str, stop_after: int) -> None:
    make = CHAINS[chain]
    whole = Run(make(), VANILLA).train()
    buffer = io.BytesIO()
    torch.save(Run(make(), VANILLA).train(stop_after=stop_after).state(), buffer)
    buffer.seek(0)
    resumed = Run(make(), VANILLA).load(torch.load(buffer, weights_only=True)).train()
    for name, value in whole.tensors().items():
        assert torch.equal(value, resumed.tensors()[name]), name
    rows = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in run.curriculum.record.epochs]
        for run in (whole, resumed)
    ]
    assert rows[0] == rows[1]


def test_both_plans_by_one_and_weighs_by_the_other() -> None:
    planner, apw = Spy(), APW(N, q=2, threshold=1.1)
    method = Both(planner, apw)
    net, curriculum = model(), Curriculum(method, data(), batch_size=BATCH)
    for _ in range(2):
        for batch in curriculum.epoch(net):
            assert sorted(batch.index.tolist()) == sorted(planner.draws[-1])
            curriculum.loss(net, batch)
    assert "loss" not in planner.calls
    assert "weigh" not in planner.calls
    assert torch.equal(method.weights, apw.weights)
    assert not torch.equal(apw.weights, APW(N, q=2).weights)
    assert {"rho", "rows"} <= set(curriculum.record.epochs[-1])


def test_both_is_the_weigher_under_a_planner_that_does_nothing() -> None:
    alone = Run(APW(N, q=3), VANILLA).train()
    under = Run(Both(Vanilla(), APW(N, q=3)), VANILLA).train()
    for name, value in alone.net.state_dict().items():
        assert torch.equal(value, under.net.state_dict()[name])


def test_bad_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="epochs must be the number of epochs of the first method.* got 0"):
        Then(Vanilla(), 0, Vanilla())
    with pytest.raises(TypeError, match="second of Then must be .*got 3"):
        Then(Vanilla(), 2, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="weigher of Both must be .*got 'apw'"):
        Both(Vanilla(), "apw")  # type: ignore[arg-type]
    for pair in (lambda a, b: Then(a, 1, b), Both):
        with pytest.raises(ValueError, match="different numbers of rows: .*4.*5"):
            pair(APW(4, q=2), APW(5, q=2))
    with pytest.raises(ValueError, match="Spy chooses rows itself and cannot weigh under Vanilla"):
        plan(Both(Vanilla(), Spy()), range(1, 2))
    assert "then" not in methods.names()
