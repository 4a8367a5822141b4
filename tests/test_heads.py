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

N, B = 5000, 3000
METHODS: dict[str, dict[str, Any]] = {
    "apw-e": {},
    "apw-i": {},
    "apw-ei": {},
    "superloss": {"tau": 2.3, "lam": 0.25},
    "rapw": {"classes": 10},
}


def _step(device: str) -> tuple[Step, Tensor]:
    draw = torch.Generator().manual_seed(0)
    losses = torch.rand(B, dtype=torch.float64, generator=draw) * 5
    losses[:3] = torch.tensor([0.0, 60.0, 1e4])
    rows = torch.randperm(N, generator=draw)[:B].to(device)
    losses = losses.to(device).requires_grad_()
    return Step(torch.nn.Identity(), Batch(None, rows % 10, rows), torch.zeros(B, 10, device=device), losses), losses


def _begun(name: str, device: str) -> Any:
    method = methods.build(name, N, 20, **METHODS[name]).to(device)
    every = torch.rand(N, generator=torch.Generator().manual_seed(1)).to(device) * 3
    method.plan(Epoch(2, N, every, lambda: every))
    return method


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
@pytest.mark.parametrize("name", METHODS)
def test_a_fused_step_is_the_plain_one(name: str) -> None:
    step, losses = _step("cuda")
    method = _begun(name, "cuda")
    plain, seen = copy.deepcopy(method), torch.full((N,), math.inf, device="cuda")
    loss = method.fused_loss(step, seen)
    assert loss is not None
    expected = plain.loss(step)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    for mine, other in zip(*(torch.autograd.grad(value, losses) for value in (loss, expected)), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-15)
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


def test_what_triton_dislikes_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_broken", [])
    with pytest.warns(UserWarning, match="Triton cannot compile here, so a curriculum costs more.*no compiler"):
        kernels._give_up(RuntimeError("no compiler"))
    assert kernels._broken
