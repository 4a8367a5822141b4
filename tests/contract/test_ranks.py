"""One process and several give the same parameters and method state, in float64, for every row of the table."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from torch.nn.parallel import DistributedDataParallel

from ..distributed.launch import start
from .problem import Run, differences, method
from .table import TABLE


def _train_all(rank: int, world: int, folder: str) -> None:
    for number, row in enumerate(TABLE):
        run = Run(method(row), row, DistributedDataParallel).train()
        save_file({k: v.contiguous() for k, v in run.tensors().items()}, f"{folder}/{number}-{rank}.safetensors")


@pytest.fixture(scope="module", params=[2, 3])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    folder = tmp_path_factory.mktemp(f"ranks{request.param}")
    start(_train_all, request.param, str(folder))
    return request.param, folder


@pytest.mark.skipif(sys.platform == "win32", reason="gloo with spawn is tested on Linux and macOS")
@pytest.mark.parametrize("number", range(len(TABLE)), ids=lambda number: TABLE[number].label)
def test_one_rank_and_several_agree(trained: tuple[int, Path], number: int) -> None:
    world, folder = trained
    row = TABLE[number]
    states = [load_file(folder / f"{number}-{rank}.safetensors") for rank in range(world)]
    between = max(differences(states[0], states[-1]).values())
    assert between <= 1e-12, "the ranks themselves must agree"
    alone = max(differences(Run(method(row), row).train().tensors(), states[0]).values())
    assert alone <= 1e-12 or row.ranks_reason, differences(Run(method(row), row).train().tensors(), states[0])
