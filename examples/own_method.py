"""A curriculum method of your own, in ten lines: a row counts as much as the network believes its label.

python examples/own_method.py [--epochs 30]
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

from torchcurriculum import Arrays, Curriculum, Method, Step, Vanilla, flip_labels
from torchcurriculum.lab.data import load_digits


class Trust(Method):
    """Weights proportional to the probability of the given label, exp(-loss), after ``warmup`` plain epochs.

    Args:
        warmup: Epochs before the network's opinion counts.
    """

    def __init__(self, warmup: int) -> None:
        super().__init__()
        self.warmup = warmup

    def weigh(self, step: Step) -> Tensor:
        """exp(-loss), summing to one over the batch of all ranks."""
        if step.epoch <= self.warmup:
            return step.uniform()
        return step.normalise(-step.losses.detach())


def train(method: Method, epochs: int) -> float:
    """Test accuracy after training on digits with 40 % wrong labels."""
    parts = load_digits(seed=0)
    x, clean = parts["train"]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    curriculum = Curriculum(method, Arrays(x, flip_labels(clean, 0.4, classes=10, seed=0)), batch_size=64)
    for _ in range(epochs):
        for batch in curriculum.epoch(model):
            loss = curriculum.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        return (model(parts["test"][0]).argmax(1) == parts["test"][1]).double().mean().item()


def main() -> None:
    """Prints the accuracy with and without."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    epochs = parser.parse_args().epochs
    for name, method in {"vanilla": Vanilla(), "trust": Trust(warmup=3)}.items():
        print(f"{name:<12} test accuracy {train(method, epochs):.1%}")


if __name__ == "__main__":
    main()
