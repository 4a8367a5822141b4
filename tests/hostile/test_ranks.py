"""Ranks that were not told the same, and ranks that would get a single row."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from torchcurriculum import APW, Arrays, Curriculum, Vanilla, methods

from ..distributed.launch import start


def told_otherwise(rank: int, world: int) -> None:
    cases: dict[str, Any] = {
        "seed": lambda: Curriculum(APW(16, q=4), rows(16), seed=rank),
        "batch_size": lambda: Curriculum(APW(16, q=4), rows(16), batch_size=4 + 4 * rank),
        "n": lambda: Curriculum(APW(16 + rank, q=4), rows(16 + rank)),
        "labels": lambda: Curriculum(APW(16, q=4), Arrays(rows(16).x, (rows(16).y + rank) % 2)),
        "method_class": lambda: Curriculum(APW(16, q=4) if rank else Vanilla(), rows(16)),
        "knobs": lambda: Curriculum(APW(16, q=4 + rank), rows(16)),
    }
    for name, make in cases.items():
        with pytest.raises(ValueError, match=rf"agree on all ranks.*{name}.* differ; on rank {rank}"):
            make().start(nn.Linear(2, 2))


def rows(n: int) -> Arrays:
    return Arrays(torch.rand(n, 2, generator=torch.Generator().manual_seed(0)), torch.arange(n) % 2)


def through_batch_norm(rank: int, world: int) -> None:
    for n, batch in ((10, 4), (18, 8), (9, 4)):
        for name, options in {"vanilla": {}, "s-apw-e": {"fraction": 0.3}}.items():
            net = DistributedDataParallel(nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)))
            curriculum = Curriculum(methods.build(name, n, 3, **options), rows(n), batch_size=batch)
            for _ in range(3):
                for part in curriculum.epoch(net):
                    curriculum.loss(net, part).backward()


def test_ranks_that_were_told_otherwise_say_so() -> None:
    start(told_otherwise, 2)


def test_no_rank_gets_a_single_row() -> None:
    start(through_batch_norm, 2)
