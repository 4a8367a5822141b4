"""APW in an Accelerate loop: prepare the model and the optimizer, and let the curriculum feed every process.

torchrun --nproc-per-node 2 examples/accelerate_loop.py [--epochs 10] [--states FOLDER]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import TensorDataset

from torchcurriculum import APW, Curriculum, error_threshold, flip_labels
from torchcurriculum.lab.data import load_digits


def train(epochs: int, batch_size: int = 64, states: Path | None = None) -> tuple[nn.Module, Curriculum]:
    """Trains on digits with 40 % wrong labels; goes on with the state in ``states``, where there is one."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    x, clean = load_digits(seed=0)["train"]
    train_set = TensorDataset(x, flip_labels(clean, 0.4, classes=10, seed=0))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9))

    method = APW(len(train_set), q=10, threshold=error_threshold(0.4, "synthetic"))
    curriculum = Curriculum(method, train_set, batch_size=batch_size, seed=0)  # of all processes together
    accelerator.register_for_checkpointing(curriculum)
    if states is not None and states.exists():
        accelerator.load_state(str(states))
    while curriculum.progress()[0] < epochs:
        for batch in curriculum.epoch(model):
            with accelerator.accumulate(model):
                loss = curriculum.loss(model, batch)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        if states is not None:
            accelerator.save_state(str(states))
    return accelerator.unwrap_model(model), curriculum


def main() -> None:
    """Trains, and the first process prints what the curriculum saw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--states", type=Path, default=None)
    options = parser.parse_args()
    model, curriculum = train(options.epochs, states=options.states)
    if Accelerator(cpu=True).is_main_process:
        x, y = load_digits(seed=0)["test"]
        accuracy = (model(x).argmax(1) == y).double().mean().item()
        last = curriculum.record.epochs[-1]
        print(f"{last['phase']}  rho {last['rho']:.3f}  E-Prop {last['eprop']:.3f}  test accuracy {accuracy:.1%}")
    Accelerator(cpu=True).end_training()


if __name__ == "__main__":
    main()
