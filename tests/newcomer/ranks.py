"""What each rank does in ``test_newcomer.py``: every method trains, and leaves its tensors."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from torchcurriculum import Curriculum, weighted

from ..contract.problem import N, Run, data, model
from ..contract.row import Row
from .methods import METHODS, PLANS, VIEWS, Shrinks, made

VANILLA = Row("vanilla", zero={})
EPOCHS = 3
SETTINGS = {
    2: (8, 1),
    3: (7,),
}  # ranks: batch sizes; 37 = 5 x 7 + 2, so a rank has no row in a batch of 1, and in the last of 7


def shell(cls: type, batch_size: int, world: int = 1) -> dict[str, Tensor]:
    """A run of ``Curriculum``, and how often this rank had no row in the last epoch."""
    wrap = DistributedDataParallel if world > 1 else (lambda net: net)
    run = Run(made(cls, N), VANILLA, wrap, batch_size=batch_size).train(EPOCHS)
    empty = sum(not len(rows) for rows in run.curriculum.batches())
    return {**run.tensors(), "last": run.curriculum.last, "empty": torch.tensor(empty)}


def criterion(cls: type, rank: int = 0, world: int = 1) -> dict[str, Tensor]:
    """A plain loop with ``weighted``, each rank with its part of every batch; in the last it is one row."""
    net, rows = model(), data()
    wrapped = DistributedDataParallel(net) if world > 1 else net
    loss_fn = weighted(nn.CrossEntropyLoss(), made(cls, N), n=N)
    loss_fn.last = loss_fn.last.double()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(EPOCHS):
        loss_fn.advance()
        for batch in torch.arange(N).split(9):
            mine = batch[rank::world]
            optimizer.zero_grad()
            loss_fn(wrapped(rows.x[mine]), rows.y[mine], mine).backward()
            optimizer.step()
    loss_fn.advance()
    return {**net.state_dict(), **{f"method.{key}": value for key, value in loss_fn.method.state_dict().items()}}


def train_all(rank: int, world: int, folder: Path) -> None:
    """All methods, in the shell and, where it runs them, in ``weighted``."""
    for cls in METHODS:
        for batch_size in SETTINGS[world]:
            save(shell(cls, batch_size, world), folder / f"{cls.__name__}-{world}-{batch_size}-{rank}.safetensors")
        if cls not in PLANS + VIEWS:
            save(criterion(cls, rank, world), folder / f"{cls.__name__}-{world}-weighted-{rank}.safetensors")


def train_shrunk(rank: int, world: int) -> None:
    """An epoch of a network for images of 4x4, made from 8x8 by the method."""
    net = DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(16, 3, dtype=torch.float64)))
    curriculum = Curriculum(Shrinks(), data(), batch_size=7)
    sizes = []
    for batch in curriculum.epoch(net):
        curriculum.loss(net, batch).backward()
        sizes.append(len(batch.index))
    assert (0 in sizes) == (rank > 0)  # one rank takes both rows of the last batch


def save(tensors: dict[str, Tensor], path: Path) -> None:
    """Writes them."""
    save_file({key: value.detach().contiguous() for key, value in tensors.items()}, path)
