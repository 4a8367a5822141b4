"""Steps in one kernel are the steps of plain torch; where there is no accelerator, nobody asks for them."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from torchcurriculum import Arrays, Batch, Curriculum, Epoch, Step, fast, methods
from torchcurriculum.checks import at_least_float32
from torchcurriculum.fast import heads

N, B = 5000, 3000
METHODS: dict[str, dict[str, Any]] = {
    "apw-e": {},
    "apw-i": {},
    "apw-ei": {},
    "superloss": {"tau": 2.3, "lam": 0.25},
    "superloss running": {"tau": "running"},
    "superloss average": {"tau": "average"},
    "rapw": {"classes": 10},
}


def _step(device: str, size: int = B, kind: torch.dtype = torch.float64) -> tuple[Step, Tensor]:
    draw = torch.Generator().manual_seed(0)
    losses = torch.rand(size, dtype=kind, generator=draw) * 5
    losses[:3] = torch.tensor([0.0, 60.0, 1e4])[:size]
    rows = torch.randperm(N, generator=draw)[:size].to(device)
    losses = losses.to(device).requires_grad_()
    batch = Batch(None, torch.stack([rows % 10, rows], 1)[:, 0], rows)  # labels that do not lie side by side
    return Step(torch.nn.Identity(), batch, torch.zeros(size, 10, device=device), losses), losses


def _begun(name: str, device: str) -> Any:
    """A method in its third epoch; RAPW has rows that it has no loss of."""
    method = methods.build(name.partition(" ")[0], N, 20, **METHODS[name]).to(device)
    for number in (2, 3):
        every = torch.rand(N, generator=torch.Generator().manual_seed(number)).to(device) * 4.4
        if name == "rapw":
            every[::7] = math.inf
        method.plan(Epoch(number, N, every, lambda every=every: every))  # type: ignore[misc]
        method.loss(_step(device)[0])
    return method


def _head(method: Any, batch: Batch, logits: Any) -> Any:
    found, known = fast.active(method, batch.epoch)
    assert found is method
    assert known is not None
    assert known.head is not None
    return known.head(method, batch, logits)


def test_the_method_that_is_compared_uses_all_of_its_parts() -> None:
    method = _begun("rapw", "cpu")
    assert 0 < method.trust < 1
    assert method.sums[1].sum() == B
    assert method.memory.isnan().any()


CASES = {"many rows": (B, torch.float64), "one row": (1, torch.float64), "float32": (100, torch.float32)}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", METHODS)
def test_a_fused_step_is_the_plain_one(name: str, case: str, labelled: bool) -> None:
    size, kind = CASES[case]
    step, losses = _step("cuda", size, kind)
    if not labelled:
        step = Step(step.model, step.batch.with_(y=None), step.logits, losses)
    _compare(name, step, losses, None, 1e-12 if kind == torch.float64 else 1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("size", "classes"), [(1, 10), (99, 2), (99, 10), (128, 100), (1000, 10)])
@pytest.mark.parametrize("name", METHODS)
def test_a_step_from_logits_is_the_plain_one(name: str, size: int, classes: int, kind: torch.dtype) -> None:
    """RAPW was told of ten classes, whatever the logits."""
    step, _ = _step("cuda", size)
    logits = (torch.randn(size, classes, generator=torch.Generator().manual_seed(0)) * 4).to("cuda", kind)
    logits.requires_grad_()
    y = step.batch.y % classes
    y[size // 2] = -100  # torch's mark for rows without a label
    losses = F.cross_entropy(at_least_float32(logits), y, reduction="none")
    step = Step(step.model, step.batch.with_(y=y), logits, losses)
    near = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 1e-2, torch.float16: 1e-2}[kind]
    _compare(name, step, logits, y, near)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
@pytest.mark.parametrize("name", METHODS)
def test_a_gradient_has_a_gradient(name: str) -> None:
    """Of (0.5 x)^2 summed, through the fused step and through the plain one."""
    step, _ = _step("cuda", 50)
    x = torch.randn(50, 10, device="cuda", dtype=torch.float64, requires_grad=True)
    found = []
    for fused in (True, False):
        method, logits = _begun(name, "cuda"), (0.5 * x) ** 2
        y, seen = step.batch.y % 10, torch.zeros(N, device="cuda")
        losses = F.cross_entropy(logits, y, reduction="none")
        batch = step.batch.with_(y=y)
        head = _head(method, batch, logits)
        plain = Step(step.model, batch, logits, losses)
        loss = fast._kernel(logits, y, seen, step.index, head) if fused else method.loss(plain)
        (slopes,) = torch.autograd.grad(loss, x, create_graph=True)
        found.append(torch.autograd.grad((slopes**2).sum(), x)[0])
    torch.testing.assert_close(*found, rtol=1e-7, atol=1e-10)


def test_plain_slopes_are_those_of_cross_entropy() -> None:
    logits = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    y, factors = torch.tensor([0, 2, -100, 1, 1]), torch.rand(5, dtype=torch.float64)
    loss = (factors * F.cross_entropy(logits, y, reduction="none")).sum()
    torch.testing.assert_close(heads._plain_slopes(logits, y, factors), torch.autograd.grad(loss, logits)[0])


def _compare(name: str, step: Step, source: Tensor, y: Tensor | None, near: float) -> None:
    method = _begun(name, "cuda")
    plain, seen = copy.deepcopy(method), torch.full((N,), math.inf, device="cuda")
    head = _head(method, step.batch, step.logits)
    assert head is not None
    loss = fast._kernel(source, y, seen, step.index, head)
    assert loss is not None
    assert not fast._broken
    expected = plain.loss(step)
    torch.testing.assert_close(loss.double(), expected.double(), rtol=min(near, 1e-5), atol=0)
    exact = near < 1e-8
    for mine, other in zip(*(torch.autograd.grad(value, source) for value in (loss, expected)), strict=True):
        torch.testing.assert_close(mine, other, rtol=max(near, 1e-9), atol=1e-15 if exact else 1e-6)
    bounds = {"rtol": 1e-9, "atol": 1e-12} if exact else {"rtol": near, "atol": 1e-5}
    for key, value in plain.state_dict().items():
        torch.testing.assert_close(method.state_dict()[key], value, equal_nan=True, **bounds)
    if y is None:
        assert torch.equal(seen[step.index], step.losses.detach().float())
    else:
        torch.testing.assert_close(seen[step.index], step.losses.detach().float(), rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_an_impossible_label_is_nan_and_no_crash_of_the_device() -> None:
    seen, index, y = torch.zeros(2, device="cuda"), torch.arange(2, device="cuda"), torch.tensor([1, 3], device="cuda")
    head = _head(methods.build("apw-e", 2, 5).cuda(), Batch(None, y, index), None)
    assert head is not None
    assert fast._kernel(torch.randn(2, 3, device="cuda"), y, seen, index, head) is not None
    assert seen.isnan().tolist() == [False, True]


@pytest.mark.parametrize(
    ("shape", "taken"),
    [
        *(((100,), True), ((4096,), True), ((4097,), False), ((0,), False)),
        *(((100, 10), True), ((128, 100), True), ((128, 1000), False), ((100, 1), False)),
    ],
)
def test_how_much_one_block_of_threads_takes(
    shape: tuple[int, ...], taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Triton:
        @staticmethod
        def next_power_of_2(n: int) -> int:
            return 1 << (n - 1).bit_length()

    monkeypatch.setattr(heads, "triton", Triton)
    assert heads.fits(torch.zeros(shape)) == taken


@pytest.mark.parametrize("name", METHODS)
def test_on_a_cpu_there_is_none(name: str) -> None:
    step, losses = _step("cpu")
    head = _head(_begun(name, "cpu"), step.batch, step.logits)
    assert head is not None
    assert fast._kernel(losses, None, torch.zeros(N), step.index, head) is None
    assert fast._kernel(torch.zeros(B, 10), step.batch.y, torch.zeros(N), step.index, head) is None
    assert fast._kernel({"logits": 1}, step.batch.y, torch.zeros(N), step.index, head) is None


class Elsewhere(torch.Tensor):
    """A tensor that says it lies on an accelerator."""

    is_cuda = True


class Net(torch.nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).as_subclass(Elsewhere)


@pytest.mark.parametrize("own", [True, False])
def test_a_step_that_is_fused_is_not_noted_twice(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    data, asked = Arrays(torch.randn(4, 2), torch.tensor([0, 1, 0, 1])), []
    options: dict[str, Any] = {"loss_fn": lambda z, y: F.cross_entropy(z, y, reduction="none") * 2} if own else {}
    curriculum = Curriculum(methods.build("apw-e", 4, 5), data, batch_size=4, measure="running", **options)
    model = Net(2, 2)

    def fused(source: Tensor, y: Any, seen: Tensor, index: Tensor, head: tuple[Any, ...]) -> Tensor:
        asked.append((source.ndim, y is None, head[0]))
        assert seen.data_ptr() == curriculum.last.data_ptr()
        return source.sum()

    monkeypatch.setattr(fast, "_kernel", fused)
    monkeypatch.setattr(curriculum._steps, "_note", lambda _: pytest.fail("the kernel has noted the losses"))
    for batch in curriculum.epoch(model):
        curriculum.loss(model, batch).backward()
    assert asked == [(1, True, "apw") if own else (2, False, "apw")], "of losses of the user's own, or of logits"
    assert curriculum.number == 1


def test_rows_and_logits_must_be_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "triton", object())
    monkeypatch.setattr(heads, "fits", lambda _: True)
    monkeypatch.setitem(heads.HEADS, "apw", lambda *_: pytest.fail("it would read past the end of the index"))
    logits, y = torch.zeros(6, 2).as_subclass(Elsewhere), torch.zeros(6, dtype=torch.int64)
    head = ("apw", torch.zeros(9), None)
    assert fast._kernel(logits, y, torch.zeros(9), torch.arange(3), head) is None


def test_outputs_without_labels_are_no_losses() -> None:
    data = Arrays(torch.randn(4, 2), torch.zeros(4))
    curriculum = Curriculum(methods.build("apw-e", 4, 5), data, batch_size=4, unpack=lambda raw: (raw[0], None))
    model = Net(2, 2)
    with pytest.raises((TypeError, ValueError)):
        for batch in curriculum.epoch(model):
            curriculum.loss(model, batch)


def test_what_no_kernel_takes_goes_the_plain_way(monkeypatch: pytest.MonkeyPatch) -> None:
    data, asked = Arrays(torch.randn(4, 2), torch.tensor([0, 1, 0, 1])), []
    curriculum = Curriculum(methods.build("apw-e", 4, 5), data, batch_size=4, measure="running")
    model = Net(2, 2)
    monkeypatch.setattr(fast, "_kernel", lambda source, *_: asked.append(source.ndim))
    for batch in curriculum.epoch(model):
        expected = F.cross_entropy(torch.nn.Linear.forward(model, batch.x), batch.y)
        torch.testing.assert_close(torch.Tensor(curriculum.loss(model, batch)), expected)
    assert asked == [2], "asked once, and then no more in this step"
    assert curriculum.last.isfinite().all()


def test_what_triton_dislikes_is_reported_once_and_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fails(*_: Any) -> Tensor:
        asked.append(1)
        raise RuntimeError("no compiler")

    def full(*_: Any) -> Tensor:
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(fast, "_broken", [])
    monkeypatch.setattr(heads, "triton", object())
    monkeypatch.setattr(heads, "fits", lambda _: True)
    monkeypatch.setitem(heads.HEADS, "apw", fails)
    losses, index = torch.ones(3).as_subclass(Elsewhere), torch.arange(3)
    arguments = (losses, None, torch.zeros(3), index, ("apw", torch.zeros(3), None))
    with pytest.warns(UserWarning, match="Triton cannot compile here, so a curriculum costs more.*no compiler"):
        assert fast._kernel(*arguments) is None
    assert fast._kernel(*arguments) is None, "and a second warning would be an error here"
    assert len(asked) == 1
    monkeypatch.setitem(heads.HEADS, "apw", full)
    monkeypatch.setattr(fast, "_broken", [])
    with pytest.raises(torch.OutOfMemoryError):
        fast._kernel(*arguments)


@pytest.mark.parametrize("name", ["superloss", "rapw"])
def test_knobs_may_be_changed_while_training(name: str) -> None:
    method: Any = methods.build(name, N, 20, **METHODS[name])
    method.lam = 0.5
    if name == "rapw":
        method.decay = 0.25
    held = method.strength if name == "superloss" else method.knobs
    assert held.tolist() == (0.5 if name == "superloss" else [0.25, 0.5])


def test_a_state_is_loaded_into_the_tensors_that_a_captured_step_uses() -> None:
    data = Arrays(torch.randn(6, 2), torch.tensor([0, 1, 0, 1, 0, 1]))
    curriculum = Curriculum(methods.build("rapw", 6, 5), data, batch_size=3, measure="running")
    model, method = torch.nn.Linear(2, 2), curriculum.method
    for batch in curriculum.epoch(model):
        curriculum.loss(model, batch)

    def places() -> list[int]:
        return [curriculum.last.data_ptr(), *(buffer.data_ptr() for buffer in method.buffers())]

    before = places()
    curriculum.load_state_dict(curriculum.state_dict())
    assert places() == before
