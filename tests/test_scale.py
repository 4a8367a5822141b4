"""Passes over all rows: chunked as at once, no large temporaries; a draw that is the whole race; one graph a step."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torchcurriculum import APW, Batch, Step, fast, functional, methods
from torchcurriculum.fast import apw_epoch as fused
from torchcurriculum.functional import apw as reference
from torchcurriculum.functional import sampling
from torchcurriculum.shell.reader import BatchReader

N = 150_001  # three chunks on a CPU


def _logs(seed: int = 0, n: int = N, spread: float = 5.0) -> Tensor:
    return torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * spread


# ---------------------------------------------------------------- the two passes of an epoch


def test_masses_of_chunks_are_those_of_all_rows() -> None:
    logs, easy = _logs(), torch.rand(N, generator=torch.Generator().manual_seed(1)) < 0.3
    logs[:70_000] = -torch.inf  # a whole chunk without weight
    top, light, heavy, count = reference.masses(logs, easy).tolist()
    assert top == logs.max()
    assert light * math.exp(top) == pytest.approx(logs[easy].exp().sum().item(), rel=1e-12)
    assert heavy * math.exp(top) == pytest.approx(logs[~easy].exp().sum().item(), rel=1e-12)
    assert count == easy.sum()


@pytest.mark.parametrize("weighting", ["E", "I", "EI"])
def test_an_epoch_is_the_equations(weighting: Any) -> None:
    method = APW(N, q=4, threshold=1.0, weighting=weighting)
    method.log_weights.copy_(_logs())
    losses = torch.rand(N, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) * 2
    before, beta = method.weights, functional.easiness(losses, 1.0)
    rho = functional.difficulty(before, beta)
    alpha = functional.weight_change(rho, 4)
    method.advance(losses)
    after = before if weighting == "I" else functional.reweight(before, alpha, beta)
    assert method.rho.item() == pytest.approx(rho.item(), rel=1e-12)
    assert method.alpha.item() == pytest.approx(alpha.item(), rel=1e-12)
    torch.testing.assert_close(method.weights, after, rtol=1e-11, atol=0)
    assert method.log_weights.exp().sum().item() == pytest.approx(1.0, abs=1e-12), "kept normalised"


class _Largest(TorchDispatchMode):
    """Notes the bytes of new tensors of more than half of N elements."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        held = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.numel() > N // 2 and leaf.untyped_storage().data_ptr() not in held:
                self.made.append((str(func), leaf.nbytes))
        return result


@pytest.mark.parametrize("weighting", ["E", "I", "EI"])
def test_an_epoch_makes_one_byte_a_row_and_no_more(weighting: Any) -> None:
    method, losses = APW(N, q=4, weighting=weighting), torch.rand(N)
    with _Largest() as seen:
        method.advance(losses)
    assert [size for _, size in seen.made] == [N], seen.made
    state = sum(buffer.nbytes for buffer in method.buffers()) + losses.nbytes * 2  # newest and measured losses
    assert state <= 24 * N


def test_a_draw_makes_nothing_of_the_size_n() -> None:
    logs = _logs()
    with _Largest() as seen:
        functional.draw(logs, N // 20, torch.Generator().manual_seed(0))
    assert seen.made == []


def test_a_kernel_that_fails_is_reported_once_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Tensor:
        raise RuntimeError("no compiler")

    logs, easy = _logs(), torch.ones(N, dtype=torch.bool)
    plain = reference.masses(logs, easy)
    monkeypatch.setattr(fast, "_broken", [])
    monkeypatch.setattr(fused, "triton", object())
    monkeypatch.setattr(fused, "masses", fails)
    monkeypatch.setitem(reference.KERNELS, "cpu", reference.KERNELS["cuda"])
    with pytest.warns(UserWarning, match="Triton cannot compile here.*no compiler"):
        first = reference.masses(logs, easy)
    assert torch.equal(first, plain)
    assert torch.equal(reference.masses(logs, easy), plain), "and no second warning, which would be an error here"
    assert fast._broken == ["RuntimeError('no compiler')"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
@pytest.mark.parametrize("n", [1, 4095, 4097, N])
def test_fused_passes_are_the_reference(n: int) -> None:
    logs, easy = _logs(n=n).cuda(), torch.rand(n).cuda() < 0.3
    torch.testing.assert_close(fused.masses(logs, easy), reference.masses(logs, easy), rtol=1e-12, atol=0)
    up, down = torch.tensor([0.3, -0.7], dtype=torch.float64, device="cuda")
    moved = fused.shift_(logs.clone(), easy, up, down)
    assert torch.equal(moved, reference.shift_(logs.clone(), easy, up, down))


# ---------------------------------------------------------------- the draw

WEIGHTS: dict[str, Callable[[], Tensor]] = {
    "equal": lambda: torch.zeros(N, dtype=torch.float64),
    "spread": _logs,
    "far apart": lambda: _logs(spread=300.0),
    "a few": lambda: torch.where(torch.arange(N) < 20_000, 0.0, -torch.inf).double(),
    "sorted": lambda: torch.linspace(-30, 30, N, dtype=torch.float64),
    "float32": lambda: _logs().float(),
}


def _all_timed(logs: Tensor, size: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    torch.randint(len(logs), (sampling.LOOKED_AT,), generator=generator)
    return sampling._first(*sampling._race(logs, generator, None), size)


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("size", [1, 7500])
def test_a_draw_is_the_race_in_which_every_row_is_timed(name: str, size: int) -> None:
    logs = WEIGHTS[name]()
    rows = functional.draw(logs, size, torch.Generator().manual_seed(3))
    assert torch.equal(rows, _all_timed(logs, size, 3))
    assert len(rows) == size
    assert bool((rows[1:] > rows[:-1]).all())


@pytest.mark.parametrize("deadline", [-1e3, -2.99573, 1e3])
def test_a_bad_deadline_costs_time_and_changes_nothing(deadline: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_deadline", lambda *_: deadline)
    rows = functional.draw(_logs(), 7500, torch.Generator().manual_seed(3))
    assert torch.equal(rows, _all_timed(_logs(), 7500, 3))


def test_a_large_draw_follows_the_weights() -> None:
    # Rows of weight 3 and 1 in turn. A row of weight w finishes before t with probability 1 - exp(-w t), and 5 % of all
    # have finished at the t with (1 - x) + (1 - x^3) = 0.1, x = exp(-t): by x^3 + x = 1.9 the shares are 2.53 % and
    # 7.40 % of the rows of weight 1 and 3, to within 0.01 %.
    x = np.roots([1, 0, 1, -1.9]).real.max()
    logs = torch.tensor([3.0, 1.0], dtype=torch.float64).log().repeat(500_000)
    rows = functional.draw(logs, 50_000, torch.Generator().manual_seed(0))
    heavy = int((rows % 2 == 0).sum())
    assert 1 - x**3 == pytest.approx(0.074, abs=1e-3)
    # Five standard deviations of a count of 37,000 with the rest of 50,000 on the other side are below 500.
    assert heavy == pytest.approx(500_000 * (1 - x**3), abs=500)


# ---------------------------------------------------------------- a step as one graph


def _step(method: Any) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def step(logits: Tensor, y: Tensor, index: Tensor) -> Tensor:
        losses = F.cross_entropy(logits, y, reduction="none")
        return method.loss(Step(None, Batch(None, y, index), logits, losses))  # type: ignore[arg-type]

    return step


def _three_steps(name: str, backend: str | None) -> list[Tensor]:
    method = methods.build(name, 60, 20)
    if isinstance(method, APW):
        method.advance(torch.linspace(0, 3, 60))
    step = _step(method)
    run = torch.compile(step, fullgraph=True, backend=backend) if backend else step
    draw, got = torch.Generator().manual_seed(0), []
    for start in (0, 20, 40):
        logits = torch.randn(20, 5, generator=draw).requires_grad_()
        loss = run(logits, torch.arange(20) % 5, torch.arange(start, start + 20))
        loss.backward()
        assert logits.grad is not None
        got += [loss.detach(), logits.grad]
    return got + list(method.state_dict().values())


@pytest.mark.parametrize("name", ["apw-e", "apw-i", "apw-ei", "superloss"])
def test_a_step_compiles_as_one_graph_and_is_the_plain_step(name: str) -> None:
    torch._dynamo.reset()
    for compiled, plain in zip(_three_steps(name, "aot_eager"), _three_steps(name, None), strict=True):
        torch.testing.assert_close(compiled, plain, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_a_step_compiles_to_machine_code() -> None:
    torch._dynamo.reset()
    for compiled, plain in zip(_three_steps("apw-ei", "inductor"), _three_steps("apw-ei", None), strict=True):
        torch.testing.assert_close(compiled, plain, rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------- reading row by row


class _Drawing:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, row: int) -> Tensor:
        if row == 3:
            raise OSError("row 3 cannot be read")
        return torch.tensor([np.random.rand(), random.random(), torch.rand(()).item()], dtype=torch.float64)


def test_rows_draw_from_their_batch_seed_and_leave_the_generators_alone() -> None:
    def states() -> tuple[Any, ...]:
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    before, reader = states(), BatchReader(_Drawing())
    (first,) = reader.read([torch.tensor([0, 1])], lambda _: 11)
    assert states() == before
    with pytest.raises(OSError, match="row 3"):
        list(reader.read([torch.tensor([0, 3])], lambda _: 11))
    assert states() == before
    own = np.random.RandomState(11)
    assert first[:, 0].tolist() == [own.rand(), own.rand()]
    assert torch.equal(reader.rows(torch.tensor([0, 1]), 11), first)
