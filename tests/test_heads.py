"""Steps in one kernel are the steps of plain torch; where there is no accelerator, nobody asks for them."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from torchcurriculum import Arrays, Batch, Curriculum, Epoch, Step, kernels, methods
from torchcurriculum.kernels import heads

N, B = 5000, 3000
METHODS: dict[str, dict[str, Any]] = {
    "apw-e": {},
    "apw-i": {},
    "apw-ei": {},
    "superloss": {"tau": 2.3, "lam": 0.25},
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
    method = methods.build(name, N, 20, **METHODS[name]).to(device)
    for number in (2, 3):
        every = torch.rand(N, generator=torch.Generator().manual_seed(number)).to(device) * 4.4
        if name == "rapw":
            every[::7] = math.inf
        method.plan(Epoch(number, N, every, lambda every=every: every))  # type: ignore[misc]
        method.loss(_step(device)[0])
    return method


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
    method = _begun(name, "cuda")
    plain, seen = copy.deepcopy(method), torch.full((N,), math.inf, device="cuda")
    loss = method.fused_loss(step, seen)
    assert loss is not None
    assert not kernels._broken
    expected, near = plain.loss(step), 1e-12 if kind == torch.float64 else 1e-5
    torch.testing.assert_close(loss.double(), expected.double(), rtol=near, atol=0)
    for mine, other in zip(*(torch.autograd.grad(value, losses) for value in (loss, expected)), strict=True):
        torch.testing.assert_close(mine, other, rtol=max(near, 1e-9), atol=1e-15)
    for key, value in plain.state_dict().items():
        torch.testing.assert_close(method.state_dict()[key], value, rtol=1e-9, atol=1e-12)
    assert torch.equal(seen[step.index], losses.detach().float())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
@pytest.mark.parametrize("classes", [2, 10, 1000])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
def test_fused_cross_entropy_is_torchs(kind: torch.dtype, classes: int) -> None:
    logits = (torch.randn(99, classes) * 4).to("cuda", kind).requires_grad_()
    y = torch.randint(0, classes, (99,)).cuda()
    y[7] = -100  # torch's mark for rows without a label
    with torch.autocast("cuda", torch.bfloat16, enabled=kind == torch.bfloat16):
        losses, expected = kernels.cross_entropy(logits, y), F.cross_entropy(logits, y, reduction="none")
    assert losses is not None
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-6)
    up = torch.randn(99, device="cuda").to(losses.dtype)
    (mine,), (other,) = (torch.autograd.grad(value, logits, up) for value in (losses, expected))
    torch.testing.assert_close(mine, other, rtol=1e-2 if kind == torch.bfloat16 else 1e-4, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_an_impossible_label_is_nan_and_no_crash_of_the_device() -> None:
    losses = kernels.cross_entropy(torch.randn(2, 3, device="cuda"), torch.tensor([1, 3], device="cuda"))
    assert losses is not None
    assert losses.isnan().tolist() == [False, True]


def test_cross_entropy_is_not_fused_elsewhere() -> None:
    assert kernels.cross_entropy(torch.randn(2, 3), torch.tensor([1, 2])) is None
    assert kernels.cross_entropy({"logits": 1}, torch.tensor([1, 2])) is None


@pytest.mark.parametrize("name", METHODS)
def test_on_a_cpu_there_is_none(name: str) -> None:
    step, _ = _step("cpu")
    assert _begun(name, "cpu").fused_loss(step, torch.zeros(N)) is None


def test_a_step_that_is_fused_is_not_noted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fused(torch.Tensor):
        is_cuda = True

    data = Arrays(torch.randn(4, 2), torch.tensor([0, 1, 0, 1]))
    curriculum = Curriculum(methods.build("apw-e", 4, 5), data, batch_size=4, measure="running")
    model, asked = torch.nn.Linear(2, 2), []

    def fused(step: Step, seen: Tensor) -> Tensor:
        asked.append(seen)
        return step.losses.sum()

    monkeypatch.setattr(curriculum.method, "fused_loss", fused)
    monkeypatch.setattr(curriculum, "_note", lambda _: pytest.fail("the kernel has noted the losses"))
    for batch in curriculum.epoch(model):
        step = curriculum._step(model, batch)
        held = step.losses.as_subclass(Fused)
        assert curriculum._loss(Step(model, batch, step.logits, held)).item() == pytest.approx(held.sum().item())
    assert asked[0] is curriculum._last.values


def test_what_triton_dislikes_is_reported_once_and_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere(torch.Tensor):
        is_cuda = True

    asked = []

    def fails(*_: Any) -> Tensor:
        asked.append(1)
        raise RuntimeError("no compiler")

    def full(*_: Any) -> Tensor:
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(kernels, "_broken", [])
    monkeypatch.setattr(heads, "triton", object())
    monkeypatch.setattr(heads, "apw", fails)
    losses, index = torch.ones(3).as_subclass(Elsewhere), torch.arange(3)
    with pytest.warns(UserWarning, match="Triton cannot compile here, so a curriculum costs more.*no compiler"):
        assert kernels.step("apw", losses, torch.zeros(3), index) is None
    assert kernels.step("apw", losses, torch.zeros(3), index) is None, "and a second warning would be an error here"
    assert len(asked) == 1
    monkeypatch.setattr(heads, "apw", full)
    monkeypatch.setattr(kernels, "_broken", [])
    with pytest.raises(torch.OutOfMemoryError):
        kernels.step("apw", losses, torch.zeros(3), index)


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
        return [curriculum._last.values.data_ptr(), *(buffer.data_ptr() for buffer in method.buffers())]

    before = places()
    curriculum.load_state_dict(curriculum.state_dict())
    assert places() == before
