"""Steps in one kernel are the steps of plain torch; where there is no accelerator, nobody asks for them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from torchcurriculum import Arrays, Batch, Curriculum, fast, methods
from torchcurriculum.fast import heads

from .contract.fused import (
    CASES,
    LOGITS,
    METHODS,
    NEAR,
    ROWS,
    B,
    N,
    a_step,
    begun,
    epoch_kernels,
    from_logits,
    from_losses,
    head_of,
    second_gradient,
)

needs_one = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")


@needs_one
@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", METHODS)
def test_a_fused_step_is_the_plain_one(name: str, case: str, labelled: bool) -> None:
    from_losses(name, case, labelled)


@needs_one
@pytest.mark.parametrize("kind", NEAR)
@pytest.mark.parametrize(("size", "classes"), LOGITS)
@pytest.mark.parametrize("name", METHODS)
def test_a_step_from_logits_is_the_plain_one(name: str, size: int, classes: int, kind: torch.dtype) -> None:
    from_logits(name, size, classes, kind)


@needs_one
@pytest.mark.parametrize("name", METHODS)
def test_a_gradient_has_a_gradient(name: str) -> None:
    second_gradient(name)


@needs_one
@pytest.mark.parametrize("n", ROWS)
def test_an_epoch_in_kernels_is_the_plain_one(n: int) -> None:
    epoch_kernels(n)


def test_plain_slopes_are_those_of_cross_entropy() -> None:
    logits = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    y, factors = torch.tensor([0, 2, -100, 1, 1]), torch.rand(5, dtype=torch.float64)
    loss = (factors * F.cross_entropy(logits, y, reduction="none")).sum()
    torch.testing.assert_close(heads._plain_slopes(logits, y, factors), torch.autograd.grad(loss, logits)[0])


@needs_one
def test_an_impossible_label_is_nan_and_no_crash_of_the_device() -> None:
    seen, index, y = torch.zeros(2, device="cuda"), torch.arange(2, device="cuda"), torch.tensor([1, 3], device="cuda")
    head = head_of(methods.build("apw-e", 2, 5).cuda(), Batch(None, y, index), None)
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
    step, losses = a_step("cpu")
    head = head_of(begun(name, "cpu"), step.batch, step.logits)
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
    with pytest.warns(UserWarning, match="Triton cannot compile here.*no compiler"):
        assert fast._kernel(*arguments) is None
    assert fast._kernel(*arguments) is None, "and a second warning would be an error here"
    assert len(asked) == 1
    monkeypatch.setitem(heads.HEADS, "apw", full)
    monkeypatch.setattr(fast, "_broken", [])
    with pytest.raises(torch.OutOfMemoryError):
        fast._kernel(*arguments)


def test_a_knob_may_be_changed_while_training() -> None:
    method: Any = methods.build("superloss", N, 20, **METHODS["superloss"])
    method.lam = 0.5
    assert method.strength == 0.5


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
