"""APW under DistributedDataParallel: any number of processes, and the same parameters.

torchrun --nproc-per-node 2 examples/ddp_loop.py [--epochs 10]
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from torchcurriculum import APW, Curriculum, error_threshold, flip_labels
from torchcurriculum.lab.data import load_digits


def train(epochs: int, batch_size: int = 64) -> tuple[nn.Module, Curriculum]:
    """Trains on digits with 40 % wrong labels; ``batch_size`` is that of all processes together."""
    x, clean = load_digits(seed=0)["train"]
    train_set = TensorDataset(x, flip_labels(clean, 0.4, classes=10, seed=0))
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

    method = APW(len(train_set), q=epochs, threshold=error_threshold(0.4, "synthetic"))
    curriculum = Curriculum(method, train_set, batch_size=batch_size, seed=0)
    for _ in range(epochs):
        for batch in curriculum.epoch(model):  # this process's rows of each batch; no DistributedSampler
            loss = curriculum.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model, curriculum


def main() -> None:
    """Trains, and the first process prints what the curriculum saw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    epochs = parser.parse_args().epochs
    if "RANK" in os.environ:  # torchrun started this
        dist.init_process_group("gloo")
    model, curriculum = train(epochs)
    if not dist.is_initialized() or dist.get_rank() == 0:
        x, y = load_digits(seed=0)["test"]
        accuracy = (model(x).argmax(1) == y).double().mean().item()
        last = curriculum.record.epochs[-1]
        print(f"{last['phase']}  rho {last['rho']:.3f}  E-Prop {last['eprop']:.3f}  test accuracy {accuracy:.1%}")
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
