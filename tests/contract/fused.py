"""Steps in one kernel against the same steps in plain torch; needs no pytest."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcurriculum import Batch, Epoch, Step, fast, methods
from torchcurriculum.checks import at_least_float32
from torchcurriculum.functional import apw as equations

N, B = 5000, 3000
METHODS: dict[str, dict[str, Any]] = {
    "apw-e": {},
    "apw-i": {},
    "apw-ei": {},
    "superloss": {"tau": 2.3, "lam": 0.25},
    "superloss running": {"tau": "running"},
    "superloss average": {"tau": "average"},
}
CASES = {"many rows": (B, torch.float64), "one row": (1, torch.float64), "float32": (100, torch.float32)}
LOGITS = [(1, 10), (99, 2), (99, 10), (128, 100), (1000, 10)]
NEAR = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 1e-2, torch.float16: 1e-2}
ROWS = (1, 4095, 4097, 1_000_003)


def a_step(device: str, size: int = B, kind: torch.dtype = torch.float64) -> tuple[Step, Tensor]:
    """A step of made-up losses, and the losses."""
    draw = torch.Generator().manual_seed(0)
    losses = torch.rand(size, dtype=kind, generator=draw) * 5
    losses[:3] = torch.tensor([0.0, 60.0, 1e4])[:size]
    rows = torch.randperm(N, generator=draw)[:size].to(device)
    losses = losses.to(device).requires_grad_()
    batch = Batch(None, torch.stack([rows % 10, rows], 1)[:, 0], rows)  # labels that do not lie side by side
    return Step(torch.nn.Identity(), batch, torch.zeros(size, 10, device=device), losses), losses


def begun(name: str, device: str) -> Any:
    """A method in its third epoch."""
    method = methods.build(name.partition(" ")[0], N, 20, **METHODS[name]).to(device)
    for number in (2, 3):
        every = torch.rand(N, generator=torch.Generator().manual_seed(number)).to(device) * 4.4
        method.plan(Epoch(number, N, every, lambda every=every: every))  # type: ignore[misc]
        method.loss(a_step(device)[0])
    return method


def head_of(method: Any, batch: Batch, logits: Any) -> Any:
    """The kernel of a method's step, and what it reads."""
    found, known = fast.active(method, batch.epoch)
    assert found is method
    assert known is not None
    assert known.head is not None
    return known.head(method, batch, logits)


def from_losses(name: str, case: str, labelled: bool) -> None:
    """Raises if a fused step from losses is not the plain one."""
    size, kind = CASES[case]
    step, losses = a_step("cuda", size, kind)
    if not labelled:
        step = Step(step.model, step.batch.with_(y=None), step.logits, losses)
    _compare(name, step, losses, None, 1e-12 if kind == torch.float64 else 1e-5)


def from_logits(name: str, size: int, classes: int, kind: torch.dtype) -> None:
    """Raises if a fused step from logits is not the plain one."""
    step, _ = a_step("cuda", size)
    logits = (torch.randn(size, classes, generator=torch.Generator().manual_seed(0)) * 4).to("cuda", kind)
    logits.requires_grad_()
    y = step.batch.y % classes
    y[size // 2] = -100  # torch's mark for rows without a label
    losses = F.cross_entropy(at_least_float32(logits), y, reduction="none")
    step = Step(step.model, step.batch.with_(y=y), logits, losses)
    _compare(name, step, logits, y, NEAR[kind])


def second_gradient(name: str) -> None:
    """Raises if the gradient of a gradient differs: of (0.5 x)^2 summed, through the fused step and the plain one."""
    step, _ = a_step("cuda", 50)
    x = torch.randn(50, 10, device="cuda", dtype=torch.float64, requires_grad=True)
    found = []
    for fused in (True, False):
        method, logits = begun(name, "cuda"), (0.5 * x) ** 2
        y, seen = step.batch.y % 10, torch.zeros(N, device="cuda")
        losses = F.cross_entropy(logits, y, reduction="none")
        batch = step.batch.with_(y=y)
        head = head_of(method, batch, logits)
        plain = Step(step.model, batch, logits, losses)
        loss = fast._kernel(logits, y, seen, step.index, head) if fused else method.loss(plain)
        assert loss is not None
        (slopes,) = torch.autograd.grad(loss, x, create_graph=True)
        found.append(torch.autograd.grad((slopes**2).sum(), x)[0])
    torch.testing.assert_close(*found, rtol=1e-7, atol=1e-10)


def epoch_kernels(n: int) -> None:
    """Raises if the two passes of APW's epoch over ``n`` rows are not those of plain torch."""
    from torchcurriculum.fast import apw_epoch

    draw = torch.Generator().manual_seed(n)
    weights = (torch.randn(n, dtype=torch.float64, generator=draw) * 5).cuda()
    easy = (torch.rand(n, generator=draw) < 0.3).cuda()
    torch.testing.assert_close(apw_epoch.masses(weights, easy), equations.masses(weights, easy), rtol=1e-10, atol=1e-12)
    up, down = torch.tensor([0.3, -0.7], dtype=torch.float64, device="cuda")
    mine = apw_epoch.shift_(weights.clone(), easy, up, down)
    torch.testing.assert_close(mine, equations.shift_(weights.clone(), easy, up, down), rtol=0, atol=1e-14)


def _compare(name: str, step: Step, source: Tensor, y: Tensor | None, near: float) -> None:
    method = begun(name, "cuda")
    plain, seen = copy.deepcopy(method), torch.full((N,), math.inf, device="cuda")
    head = head_of(method, step.batch, step.logits)
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
