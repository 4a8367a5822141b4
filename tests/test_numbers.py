"""Numbers at their limits: extreme losses and runs, half precision, compiled and deterministic steps, no leaks."""

from __future__ import annotations

import gc
import math
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from torchcurriculum import APW, Arrays, Curriculum, methods
from torchcurriculum.distributed import normalise

from .contract.problem import data, model
from .needs import build

ROWS = 12
DENORMAL = 5e-324
WEIGHTINGS: tuple[Literal["E", "I", "EI"], ...] = ("E", "I", "EI")
FAMILY = [name for name in methods.names() if "apw" in name]
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
every_weighting = pytest.mark.parametrize("weighting", WEIGHTINGS)
every_variant = pytest.mark.parametrize("name", FAMILY)


class Scripted:
    """A training set whose losses follow a table: ``table[k - 1, row]`` in epoch k, whatever the model does."""

    def __init__(self, name: str, table: Tensor, **options: Any) -> None:
        rows = table.shape[1]
        self.table, self.net = table, nn.Linear(1, 2)
        x = torch.linspace(-1, 1, rows).view(-1, 1)
        self.method = methods.build(name, rows, len(table), **options)
        self.curriculum = Curriculum(self.method, Arrays(x, torch.arange(rows)), self._losses, batch_size=5)

    def _losses(self, logits: Tensor, y: Tensor) -> Tensor:
        return self.table[self.curriculum.number - 1, y] + 0 * logits.sum(1)

    def run(self) -> Scripted:
        for _ in range(len(self.table)):
            for batch in self.curriculum.epoch(self.net):
                self.curriculum.loss(self.net, batch).backward()
            check(self.method)
        return self


def check(method: Any) -> None:
    """Weights are what they must be: finite, not negative, summing to one in float64."""
    weights = method.weights
    assert weights.dtype == torch.float64
    assert weights.isfinite().all()
    assert (weights >= 0).all()
    assert weights.sum().item() == pytest.approx(1, abs=1e-12)


# ---------------------------------------------------------------------- losses at their limits


def test_zero_denormal_and_huge_losses_are_told_apart() -> None:
    # e = log 2: 0, 5e-324 and 1e-45 are easy, 1e30 is hard. rho = 1/4, alpha = log(3) / 2: easy weights are divided by
    # sqrt(3), the hard one is multiplied by it. 1/sqrt(3) three times and sqrt(3) over 2 sqrt(3): 1/6 thrice, 1/2.
    method = APW(4, q=2)
    method.advance(torch.tensor([0.0, DENORMAL, 1e-45, 1e30], dtype=torch.float64))
    assert method.weights.tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2], abs=1e-15)
    assert method.rho.item() == 0.25


@every_weighting
@pytest.mark.parametrize("value", [0.0, DENORMAL, 1e-45, math.log(2), 1.0, 1e30, 1e300])
def test_equal_losses_leave_the_weights_equal(weighting: Literal["E", "I", "EI"], value: float) -> None:
    method = APW(ROWS, q=2, weighting=weighting)
    losses = torch.full((ROWS,), value, dtype=torch.float64)
    for _ in range(20):
        method.advance(losses)
        for index in torch.arange(ROWS).split(5):
            weights = method.batch_weights(losses[index], index)
            assert weights.tolist() == pytest.approx([1 / len(index)] * len(index), rel=1e-12)
    check(method)
    assert method.weights.tolist() == pytest.approx([1 / ROWS] * ROWS, rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@every_weighting
def test_every_precision_gives_the_same_flags(weighting: Literal["E", "I", "EI"], dtype: torch.dtype) -> None:
    """A probability of exactly one half is easy at e = log 2 in every precision."""
    losses = -torch.tensor([0.5, 0.25, 1.0, 1e-4], dtype=dtype).log()
    method = APW(4, q=2, weighting=weighting)
    method.advance(losses)
    assert method.eprop.item() == 0.5
    weights = method.batch_weights(losses, torch.arange(4))
    assert weights.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert weights.sum().item() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("spread", [10.0, 700.0, 1e4, 1e300])
def test_normalising_any_spread(spread: float) -> None:
    logs = torch.tensor([0.0, spread, -spread], dtype=torch.float64)
    weights, _ = normalise(logs)
    assert weights.isfinite().all()
    assert weights.sum().item() == pytest.approx(1, abs=1e-15)
    assert weights.argmax() == 1
    empty, log_z = normalise(logs[:0])
    assert (len(empty), log_z.item()) == (0, -math.inf)


# ---------------------------------------------------------------------- long and short runs


def patterns() -> Iterator[tuple[str, Tensor]]:
    """Losses over 200 epochs: with q = 2 that is K / q = 100."""
    generator = torch.Generator().manual_seed(0)
    easy, hard = 0.1, 3.0
    shape = (200, 7)
    yield "all easy", torch.full(shape, easy)
    yield "all hard", torch.full(shape, hard)
    yield "random", torch.where(torch.rand(shape, generator=generator) < 0.5, easy, hard)
    yield "one hard", torch.where(torch.arange(7) == 3, hard, easy).expand(shape)
    yield "one easy", torch.where(torch.arange(7) == 3, easy, hard).expand(shape)
    yield "in turn", torch.where((torch.arange(200)[:, None] + torch.arange(7)) % 2 == 0, easy, hard)
    yield "learnt and forgotten", torch.where(torch.arange(200)[:, None] // 20 % 2 == 0, easy, hard).expand(shape)
    yield "extremes", torch.tensor([0.0, 1e-45, 1e30])[torch.randint(0, 3, shape, generator=generator)]


@pytest.mark.parametrize("pattern", [name for name, _ in patterns()])
@pytest.mark.parametrize("name", ["apw-e", "apw-i", "apw-ei"])
def test_a_hundred_epochs_for_each_unit_of_q(name: str, pattern: str) -> None:
    run = Scripted(name, dict(patterns())[pattern], q=2).run()
    assert len(run.curriculum.record.epochs) == 200
    scalars = [row[word] for row in run.curriculum.record.epochs for word in ("rho", "alpha", "z", "ess")]
    assert all(map(math.isfinite, scalars))
    logs = run.method.state_dict()["log_weights"]
    assert logs.abs().max() < 1e4  # I writes back at the scale of the whole vector, so nothing drifts away


@pytest.mark.parametrize("name", ["s-apw-a", "s-apw-ei", "m-apw-e", "m-apw-ei"])
def test_the_wrappers_over_long_runs(name: str) -> None:
    options = {"fraction": 0.3} if name.startswith("s") else {}
    Scripted(name, dict(patterns())["random"][:60], q=2, **options).run()


@pytest.mark.parametrize("kind", ["all easy", "all hard"])
@every_weighting
def test_all_easy_and_all_hard_by_hand(weighting: str, kind: str) -> None:
    # All easy: the hard weight 0 is clipped to rho = 1e-4, all hard: 1 to 1 - 1e-4; alpha = +-log(9999) / 5. All
    # samples move alike, so the weights stay 1/N.
    losses = dict(patterns())[kind][:5]
    run = Scripted(f"apw-{weighting.lower()}", losses, q=5).run()
    row = run.curriculum.record.epochs[-1]
    sign = 1 if kind == "all easy" else -1
    assert row["rho"] == pytest.approx(1e-4 if sign > 0 else 1 - 1e-4, abs=1e-15)
    assert row["alpha"] == pytest.approx(sign * math.log(9999) / 5, rel=1e-9)
    assert run.method.weights.tolist() == pytest.approx([1 / 7] * 7, rel=1e-12)  # type: ignore[union-attr]


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("name", list(methods.names()))
def test_one_and_two_rows_train_or_are_refused(name: str, rows: int) -> None:
    images = data()
    net = model()
    try:
        method = build(name, rows, 3)
    except ValueError as error:
        assert "rows" in str(error) or "at least" in str(error)  # noqa: PT017, both outcomes are right
        return
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    curriculum = Curriculum(method, Arrays(images.x[:rows], images.y[:rows]), batch_size=2)
    if name.startswith("efficient-train"):
        method.keep_size = True  # type: ignore[assignment]
    for _ in range(3):
        for batch in curriculum.epoch(net):
            optimizer.zero_grad()
            curriculum.loss(net, batch).backward()
            optimizer.step()
    assert all(value.isfinite().all() for value in net.state_dict().values())
    if hasattr(method, "weights"):
        check(method)


# ---------------------------------------------------------------------- half precision


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("device", DEVICES)
def test_losses_have_full_precision_where_logits_have_half(device: str, inside: bool) -> None:
    images = data()
    net = model().float().to(device)
    train_set = Arrays(images.x.float().to(device), images.y.to(device))
    curriculum = Curriculum(methods.build("vanilla", len(images), 4), train_set, batch_size=8, measure="running")
    half = torch.autocast(device, dtype=torch.bfloat16)
    for batch in curriculum.epoch(net):
        with half:
            logits = net(batch.x)
            if inside:
                curriculum.loss(net, batch)
        if not inside:
            curriculum.reduce(curriculum.task.loss_fn(logits, batch.y), batch.index)
        assert logits.dtype == torch.bfloat16
        exact = torch.nn.functional.cross_entropy(logits.double(), batch.y, reduction="none")
        torch.testing.assert_close(curriculum.last[batch.index].double(), exact, rtol=1e-5, atol=1e-6)


@every_variant
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("device", DEVICES)
def test_autocast_with_a_gradient_scaler(name: str, dtype: torch.dtype, device: str) -> None:
    images = data()
    net = model().float().to(device)
    method = methods.build(name, len(images), 4)
    train_set = Arrays(images.x.float().to(device), images.y.to(device))

    def forward(net: nn.Module, x: Tensor) -> Tensor:
        with torch.autocast(device, dtype=dtype):
            return net(x)

    curriculum = Curriculum(method, train_set, batch_size=8, forward=forward)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    # So large a scale overflows at first: the scaler must skip those steps and find its scale, as always.
    largest = 2.0**127
    scaler = torch.amp.GradScaler(device, init_scale=largest, backoff_factor=2.0**-16)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    for _ in range(8):
        for batch in curriculum.epoch(net):
            loss = curriculum.loss(net, batch)
            assert loss.dtype == torch.float32
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        check(method)
    assert scaler.get_scale() < largest or dtype == torch.bfloat16  # which has the range of float32
    assert all(value.isfinite().all() for value in net.state_dict().values())
    assert any(not torch.equal(before[key], value) for key, value in net.state_dict().items())


def test_losses_in_half_precision_lose_no_weight() -> None:
    """Weights of 1/4096 each vanish in a float16 sum; they are summed in float32 at least."""
    n = 4096
    method = APW(n, q=2)
    losses = torch.ones(n, dtype=torch.float16)
    method.advance(losses)
    weights = method.batch_weights(losses, torch.arange(n))
    assert (weights * losses).sum().item() == pytest.approx(1, abs=1e-5)


# ---------------------------------------------------------------------- compiled and deterministic


@every_weighting
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_compiled_step_is_the_step(weighting: Literal["E", "I", "EI"], dtype: torch.dtype) -> None:
    plain, compiled = (APW(ROWS, q=3, weighting=weighting) for _ in range(2))

    def step(losses: Tensor, index: Tensor) -> Tensor:
        return (compiled.batch_weights(losses.detach(), index) * losses).sum()

    torch._dynamo.reset()
    whole = torch.compile(step, fullgraph=True, backend="aot_eager")
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        losses = torch.rand(ROWS, generator=generator).to(dtype) * 2
        for method in (plain, compiled):
            method.advance(losses)
        for index in torch.randperm(ROWS, generator=generator).split(6):
            ours = losses[index].clone().requires_grad_()
            theirs = losses[index].clone().requires_grad_()
            expected = (plain.batch_weights(ours.detach(), index) * ours).sum()
            got = whole(theirs, index)
            expected.backward()
            got.backward()
            torch.testing.assert_close(got, expected, rtol=1e-12 if dtype == torch.float64 else 1e-6, atol=0)
            torch.testing.assert_close(theirs.grad, ours.grad)
        torch.testing.assert_close(compiled.log_weights, plain.log_weights, rtol=1e-12, atol=1e-12)


@pytest.fixture
def deterministic() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)


@every_variant
@pytest.mark.usefixtures("deterministic")
def test_deterministic_algorithms_on(name: str) -> None:
    def final() -> tuple[Tensor, Tensor]:
        net, images = model(), data()
        method = methods.build(name, len(images), 2)
        curriculum = Curriculum(method, images, batch_size=8)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(2):
            for batch in curriculum.epoch(net):
                optimizer.zero_grad()
                curriculum.loss(net, batch).backward()
                optimizer.step()
        return net[0].weight.detach(), method.weights  # type: ignore[index, return-value]

    (net, weights), (again, weights_again) = final(), final()
    assert torch.equal(net, again)
    assert torch.equal(weights, weights_again)


def test_determinism_was_left_as_found() -> None:
    assert not torch.are_deterministic_algorithms_enabled()


# ---------------------------------------------------------------------- no graph, no tensor is left behind


@every_weighting
def test_losses_with_a_graph_leave_none_in_the_state(weighting: Literal["E", "I", "EI"]) -> None:
    net = nn.Linear(3, 1)
    x, index = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0)), torch.arange(ROWS)
    method = APW(ROWS, q=2, weighting=weighting)
    method.advance(net(x).square()[:, 0])  # with gradients, as a careless loop passes them
    weights = method.batch_weights(net(x).square()[:, 0], index)
    assert not weights.requires_grad
    for value in [*method.buffers(), method.weights]:
        assert not value.requires_grad
        assert value.grad_fn is None


def _alive() -> int:
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # looking at some of torch's lazy objects makes them warn
        return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())


@pytest.mark.parametrize("name", ["apw-e", "apw-ei", "s-apw-e", "m-apw-ei"])
def test_many_steps_leave_no_tensor_behind(name: str) -> None:
    net, images = model(), data()
    method = methods.build(name, len(images), 30)
    curriculum = Curriculum(method, images, batch_size=8, samples=True)
    counts = []
    for number in range(30):
        for batch in curriculum.epoch(net):
            curriculum.loss(net, batch).backward()
        if number in (9, 29):
            counts.append(_alive())
    assert counts[1] <= counts[0]  # the first epochs make what is made once
