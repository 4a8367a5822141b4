"""APW in Ray Train: the plain loop in every worker of a TorchTrainer, and the same parameters with any number of them.

python examples/ray_train.py [--epochs 10] [--workers 2]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from typing import Any

import ray.train.torch
import torch
from torch import nn
from torch.utils.data import TensorDataset

from torchcurriculum import APW, Curriculum, error_threshold, flip_labels
from torchcurriculum.lab.data import load_digits


def train(epochs: int, batch_size: int = 64) -> tuple[nn.Module, Curriculum]:
    """Trains on digits with 40 % wrong labels; ``batch_size`` is that of all workers together."""
    x, clean = load_digits(seed=0)["train"]
    train_set = TensorDataset(x, flip_labels(clean, 0.4, classes=10, seed=0))
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    model = ray.train.torch.prepare_model(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

    method = APW(len(train_set), q=epochs, threshold=error_threshold(0.4, "synthetic"))
    curriculum = Curriculum(method, train_set, batch_size=batch_size, seed=0)
    for _ in range(epochs):
        for batch in curriculum.epoch(model):  # this worker's rows of each batch; no prepare_data_loader
            loss = curriculum.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        last = curriculum.record.epochs[-1]
        ray.train.report({name: last[name] for name in ("rho", "alpha", "eprop")})
    return model, curriculum


def work(config: dict[str, Any]) -> None:
    """What every worker does; the first one prints what the curriculum saw."""
    model, curriculum = train(config["epochs"])
    if ray.train.get_context().get_world_rank() == 0:
        x, y = load_digits(seed=0)["test"]
        accuracy = (model(x).argmax(1) == y).double().mean().item()
        last = curriculum.record.epochs[-1]
        print(f"{last['phase']}  rho {last['rho']:.3f}  E-Prop {last['eprop']:.3f}  test accuracy {accuracy:.1%}")


def fit(work: Callable[[dict[str, Any]], None], workers: int, config: dict[str, Any]) -> None:
    """Runs ``work`` in every worker."""
    with tempfile.TemporaryDirectory() as folder:
        scaling = ray.train.ScalingConfig(num_workers=workers)
        storage = ray.train.RunConfig(storage_path=folder)
        trainer = ray.train.torch.TorchTrainer(
            work, train_loop_config=config, scaling_config=scaling, run_config=storage
        )
        trainer.fit()


def main() -> None:
    """Starts Ray on this machine and trains."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    fit(work, options.workers, {"epochs": options.epochs})


if __name__ == "__main__":
    main()
