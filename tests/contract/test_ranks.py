"""One process and several give the same parameters and method state, in float64, for every row of the table."""

from __future__ import annotations

import os
import sys
import time
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from ..distributed.launch import DEADLINE, start
from .every import every_row
from .problem import EPOCHS, Run, differences, method
from .row import Row
from .table import TABLE

WORLDS = (2, 3)
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="gloo with spawn is tested on Linux and macOS")


def _train_all(rank: int, world: int, folder: str) -> None:
    for number, row in enumerate(TABLE):
        run, empty = Run(method(row), row, DistributedDataParallel, batch_size=row.rank_batch), 0
        for epoch in range(EPOCHS):
            run.train(epochs=epoch + 1)
            empty += sum(not len(rows) for rows in run.curriculum.batches())
        found = {name: value.contiguous() for name, value in run.tensors().items()}
        save_file({**found, "empty": torch.tensor(empty)}, f"{folder}/{number}-{rank}.safetensors")


@pytest.fixture(scope="module", params=WORLDS)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """What the ranks left; of several test processes, one lets them train."""
    session, base = os.environ.get("PYTEST_XDIST_TESTRUNUID"), tmp_path_factory.getbasetemp()
    name = f"contract-{request.param}-ranks"
    folder = base.parent / f"{name}-{session}" if session else base / name
    try:
        folder.mkdir()
    except FileExistsError:
        end = time.monotonic() + DEADLINE
        while not (folder / "ended").exists() and time.monotonic() < end:
            time.sleep(0.2)
    else:
        try:
            start(_train_all, request.param, str(folder))
        finally:
            (folder / "ended").touch()
    return request.param, folder


def _number(row: Row) -> int:
    return next(number for number, other in enumerate(TABLE) if other is row)


def _left(trained: tuple[int, Path], row: Row) -> list[dict[str, Tensor]]:
    world, folder = trained
    return [load_file(folder / f"{_number(row)}-{rank}.safetensors") for rank in range(world)]


@cache
def _alone(number: int) -> dict[str, Tensor]:
    row = TABLE[number]
    return Run(method(row), row, batch_size=row.rank_batch).train().tensors()


@every_row()
def test_ranks_agree_with_each_other(trained: tuple[int, Path], row: Row) -> None:
    states = _left(trained, row)
    empty = [int(state.pop("empty")) for state in states]
    assert max(max(differences(states[0], state).values()) for state in states[1:]) <= 1e-12
    if trained[0] == 3:
        assert empty[-1] > 0, "choose rank_batch so that the last rank has no rows in some batch"


@every_row("ranks_reason")
def test_one_rank_and_several_agree(trained: tuple[int, Path], row: Row) -> None:
    state = _left(trained, row)[0]
    del state["empty"]
    apart = differences(_alone(_number(row)), state)
    assert max(apart.values()) <= 1e-12, apart
