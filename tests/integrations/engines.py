"""The examples of every engine, trained by one process or by ranks: ``-m tests.integrations.engines FOLDER``."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import torchcurriculum.lab.data
from torchcurriculum import Curriculum, methods
from torchcurriculum.distributed import rank, world_size

from ..contract.problem import N
from ..contract.problem import data as tiny
from ..contract.problem import model as tiny_model
from ..contract.table import TABLE
from ..distributed.launch import PATIENCE, end_rank
from ..distributed.ranks import row_run

EXAMPLES = Path(__file__).parents[2] / "examples"
EPOCHS, BATCH = 3, 62  # 1078 = 17 x 62 + 24
LOOPS = ("ddp_loop", "fsdp2_loop")
OTHERS = ("accelerate_loop", "lightning_digits")
UNEVEN = ("apw-e", "apw-ei", "s-apw-e")
DIGITS = torchcurriculum.lab.data.load_digits


def example(name: str) -> ModuleType:
    """An example script as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def doubles(**options: Any) -> dict[str, tuple[Tensor, Tensor]]:
    """The digits in double precision."""
    return {name: (x.double(), y) for name, (x, y) in DIGITS(**options).items()}


def show(name: str) -> None:
    """The example as a user runs it."""
    with mock.patch.object(sys, "argv", [name, "--epochs", "2"]):
        print(name, end=": ", flush=True)
        example(name).main()


def parameters(net: nn.Module) -> dict[str, Tensor]:
    """All parameters, whole."""
    found = getattr(net, "module", net).named_parameters()
    return {name: (p.full_tensor() if hasattr(p, "full_tensor") else p).detach().contiguous() for name, p in found}


def leave(path: Path, net: nn.Module, curriculum: Curriculum) -> None:
    """Parameters, the method's state, the record."""
    tensors = {f"net.{name}": value for name, value in parameters(net).items()}
    tensors |= {f"method.{name}": value for name, value in curriculum.method.state_dict().items()}
    save_file(tensors, f"{path}.safetensors")
    rows = [{key: value for key, value in row.items() if key != "seconds"} for row in curriculum.record.epochs]
    Path(f"{path}.json").write_text(json.dumps(rows))


def shard(net: nn.Module) -> nn.Module:
    """The tiny model under FSDP2, where there are ranks."""
    if dist.is_initialized():
        mesh = init_device_mesh("cpu", (world_size(),))
        for part in (net[0], net[3], net):  # type: ignore[index]
            fully_shard(part, mesh=mesh)
    return net


def uneven(name: str) -> tuple[nn.Module, Curriculum]:
    """37 tiny images under FSDP2, where ranks would make different numbers of measuring passes."""
    net = shard(tiny_model())
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    method = methods.build(name, N, EPOCHS, **({"fraction": 0.4} if name.startswith("s-") else {}))
    curriculum = Curriculum(method, tiny(), batch_size=7, seed=5, measure_batch_size=N // 2)
    for _ in range(EPOCHS):
        for batch in curriculum.epoch(net):
            loss = curriculum.loss(net, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net, curriculum


def table(path: Path) -> None:
    """Every method of the contract table under FSDP2, once; those that cannot are left out with their sentence."""
    found: dict[str, Tensor] = {}
    refused: dict[str, str] = {}
    numbers = {row.name: number for number, row in reversed(list(enumerate(TABLE))) if not row.ranks_reason}
    for name, number in sorted(numbers.items()):
        try:
            run = row_run(number, shard).train(epochs=1)
            found |= {f"{name}.{key}": value for key, value in parameters(run.net).items()}
        except TypeError as error:
            refused[name] = str(error)
    save_file(found, f"{path}.safetensors")
    Path(f"{path}.json").write_text(json.dumps(refused))


def lightning_resumed(folder: Path, rows: int = N, name: str = "apw-ei") -> tuple[nn.Module, Curriculum]:
    """Lightning goes on with a checkpoint of its own, saved inside the second epoch; 8 rows a batch in all."""
    from torch.utils.data import Subset

    from . import lightning_problem as problem

    every = folder / f"checkpoints-{world_size()}"
    save = problem.saving(every)
    for path in (None, every / "epoch=1-step=7.ckpt"):
        net, curriculum = problem.module(), problem.callback(name)
        ranks = {"devices": world_size(), "strategy": "ddp" if world_size() > 1 else "auto"}
        trainer = problem.trainer(problem.PACKAGES[0], curriculum, save, enable_checkpointing=True, **ranks)
        train_set = Subset(problem.rows(), range(rows))
        trainer.fit(net, problem.loader(train_set, batch_size=8 // world_size()), ckpt_path=path)
        save = problem.saving(every / "later")
    assert curriculum.curriculum is not None
    return net.net, curriculum.curriculum


def everything(folder: Path) -> None:
    """Trains with every engine and leaves the outcome of this rank."""
    mark = f"{world_size()}-{rank()}"
    for name in LOOPS:
        leave(folder / f"{name}-{mark}", *example(name).train(EPOCHS, BATCH))
    for name in UNEVEN:
        leave(folder / f"uneven_{name}-{mark}", *uneven(name))
    table(folder / f"table-{mark}")
    leave(folder / f"accelerate_loop-{mark}", *example("accelerate_loop").train(EPOCHS, BATCH))
    for epochs in (2, EPOCHS):  # the second one goes on with the state of the first
        outcome = example("accelerate_loop").train(epochs, BATCH, folder / f"states-{world_size()}")
    leave(folder / f"accelerate_resumed-{mark}", *outcome)
    leave(folder / f"lightning_resumed-{mark}", *lightning_resumed(folder))
    own = {"batch_size": BATCH // world_size(), "devices": world_size()}
    leave(folder / f"lightning_digits-{mark}", *example("lightning_digits").train(EPOCHS, **own))


def main(folder: Path) -> None:
    """Shows the examples as they are, then trains them in double precision."""
    torch.set_num_threads(1)
    ranks = "RANK" in os.environ
    for name in () if ranks else (*LOOPS, *OTHERS):
        show(name)
    torch.set_default_dtype(torch.float64)
    torchcurriculum.lab.data.load_digits = doubles
    if ranks:
        dist.init_process_group("gloo", timeout=timedelta(seconds=PATIENCE))
    everything(folder)
    if dist.is_initialized():
        end_rank()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
