"""The examples of every engine, trained in float64 by one process or by ranks: ``-m tests.integrations.engines``."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import sys
import warnings
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import torchcurriculum.data
from torchcurriculum import Curriculum, methods
from torchcurriculum.distributed import rank, world_size

from ..contract.problem import N
from ..contract.problem import data as tiny
from ..contract.problem import model as tiny_model
from ..distributed.launch import PATIENCE

EXAMPLES = Path(__file__).parents[2] / "examples"
EPOCHS, BATCH = 3, 62  # 1078 = 17 x 62 + 24
SHARDED = ("vanilla", "apw-e", "apw-ei", "s-apw-e", "superloss", "mixup")


def example(name: str) -> ModuleType:
    """An example script as a module, its digits in double precision."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def doubles(**options: Any) -> dict[str, tuple[Tensor, Tensor]]:
    """The digits in double precision."""
    return {name: (x.double(), y) for name, (x, y) in DIGITS(**options).items()}


DIGITS = torchcurriculum.data.load_digits


def leave(path: Path, net: nn.Module, curriculum: Curriculum) -> None:
    """Parameters, the method's state, the record."""
    net = getattr(net, "module", net)
    tensors = {f"net.{name}": getattr(value, "full_tensor", lambda v=value: v)() for name, value in net.named_parameters()}
    tensors |= {f"method.{name}": value for name, value in curriculum.method.state_dict().items()}
    save_file({name: value.detach().contiguous() for name, value in tensors.items()}, f"{path}.safetensors")
    rows = [{key: value for key, value in row.items() if key != "seconds"} for row in curriculum.record.epochs]
    Path(f"{path}.json").write_text(json.dumps(rows))


def sharded(name: str) -> tuple[nn.Module, Curriculum]:
    """37 tiny images under FSDP2, where ranks would make different numbers of measuring passes."""
    net = tiny_model()
    if dist.is_initialized():
        mesh = init_device_mesh("cpu", (world_size(),))
        for part in (net[0], net[3], net):  # type: ignore[index]
            fully_shard(part, mesh=mesh)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    options = {"fraction": 0.4} if name.startswith("s-") else {}
    method = methods.build(name, N, EPOCHS, **options)
    curriculum = Curriculum(method, tiny(), batch_size=7, seed=5, measure_batch_size=N // 2)
    for _ in range(EPOCHS):
        for batch in curriculum.epoch(net):
            loss = curriculum.loss(net, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net, curriculum


def everything(folder: Path, engines: list[str]) -> None:
    """Trains with every engine and leaves the outcome of this rank."""
    for name in engines:
        path = folder / f"{name}-{world_size()}-{rank()}"
        if name in ("ddp_loop", "fsdp2_loop"):
            leave(path, *example(name).train(EPOCHS, BATCH))
        elif name == "accelerate_loop":
            leave(path, *example(name).train(EPOCHS, BATCH))
            for epochs in (2, EPOCHS):  # the second one goes on with the state of the first
                outcome = example(name).train(epochs, BATCH, folder / f"states-{world_size()}")
            leave(folder / f"accelerate_resumed-{world_size()}-{rank()}", *outcome)
        elif name == "lightning_digits":
            leave(path, *example(name).train(EPOCHS, BATCH // world_size(), devices=world_size()))
        else:
            leave(path, *sharded(name.removeprefix("fsdp2:")))


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.filterwarnings("error", module="torchcurriculum")
    torch.set_default_dtype(torch.float64)
    torchcurriculum.data.load_digits = doubles
    if "RANK" in os.environ:
        dist.init_process_group("gloo", timeout=timedelta(seconds=PATIENCE))
    everything(Path(sys.argv[1]), sys.argv[2:])
    gc.collect()
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
