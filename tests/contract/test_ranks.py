"""One process and several give the same parameters and method state, in float64, for every row of the table."""

from __future__ import annotations

import gc
import os
import socket
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch.nn.parallel import DistributedDataParallel

from .problem import Run, differences, method
from .table import TABLE


def _train_all(rank: int, world: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    for number, row in enumerate(TABLE):
        run = Run(method(row), row, DistributedDataParallel).train()
        save_file({k: v.contiguous() for k, v in run.tensors().items()}, f"{folder}/{number}-{rank}.safetensors")
        del run
    # A rank that tears the group down while another still talks aborts; and models must go before their group.
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module", params=[2, 3])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    folder = tmp_path_factory.mktemp(f"ranks{request.param}")
    mp.start_processes(_train_all, (request.param, _free_port(), str(folder)), nprocs=request.param)
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
