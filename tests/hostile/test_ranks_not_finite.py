"""Two processes and a row that is not finite: all ranks go on without it as one process does, or the run ends."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from torchcurriculum import Arrays, Curriculum

from ..distributed.launch import start

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="gloo is tested on Linux and macOS")
N, BAD = 22, 11


CASES = [(name, value) for name in ("vanilla", "apw-e", "superloss") for value in (float("nan"), 1e3)]


class Net(nn.Linear):
    """Infinite outputs for inputs above 100."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * torch.where(x[:, :1] > 100, torch.inf, 1.0)


def train(name: str, strategy: Any, value: float, ddp: bool) -> dict[str, Tensor]:
    x = torch.randn(N, 3, generator=torch.Generator().manual_seed(0)).double()
    data = Arrays(x, (x[:, 0] > 0).long())
    data.x[BAD, 0] = value
    torch.manual_seed(1)
    net = Net(3, 2).double()
    model: Any = DistributedDataParallel(net) if ddp else net
    options: dict[str, Any] = {"epochs": 3, "batch_size": 6, "nan_strategy": strategy}
    curriculum = Curriculum(name, data, **options)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        for batch in curriculum.epoch(model):
            loss = curriculum.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return {**net.state_dict(), "last": curriculum.last}


def go_on(rank: int, world: int, folder: Path) -> None:
    torch.save([train(name, "ignore", value, ddp=True) for name, value in CASES], folder / f"{rank}.pt")


def stop(rank: int, world: int) -> None:
    train("apw-e", "error", float("nan"), ddp=True)


def test_ranks_go_on_without_the_row_as_one_process_does(tmp_path: Path) -> None:
    """An input that is not finite, and one of which only the loss is not."""
    start(go_on, 2, tmp_path)
    ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for case, *both in zip(CASES, *ranks, strict=True):
        expected = train(case[0], "ignore", case[1], ddp=False)
        assert all(tensor.isfinite().all() for tensor in expected.values()), case
        for found in both:
            assert max((found[key] - expected[key]).abs().max().item() for key in expected) < 1e-12, case


def test_the_run_ends_with_a_sentence() -> None:
    with pytest.raises(Exception, match=r"NaN or infinite, at rows \[11\]"):
        start(stop, 2)
