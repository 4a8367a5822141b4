"""APW in a plain PyTorch loop: the loader, the dataset and the collate function stay as they are.

python examples/plain_loop.py [--epochs 15]
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from torchcurriculum import APW, error_threshold, flip_labels, indexed
from torchcurriculum.lab.data import load_digits


def main() -> None:
    """Trains on digits with 40 % wrong labels and prints what the curriculum sees."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=15)
    epochs = parser.parse_args().epochs

    parts = load_digits(seed=0)
    x, clean = parts["train"]
    train_set = TensorDataset(x, flip_labels(clean, 0.4, classes=10, seed=0))
    loader = DataLoader(train_set, batch_size=64, shuffle=True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

    method = APW(len(train_set), q=epochs, threshold=error_threshold(0.4, "synthetic"))  # line one
    for epoch in range(1, epochs + 1):
        with torch.no_grad():
            method.advance(F.cross_entropy(model(x), train_set.tensors[1], reduction="none"))  # line two
        for index, (inputs, labels) in indexed(loader):
            losses = F.cross_entropy(model(inputs), labels, reduction="none")
            loss = (method.batch_weights(losses.detach(), index) * losses).sum()  # line three
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = (model(parts["test"][0]).argmax(1) == parts["test"][1]).double().mean().item()
        phase = method.report()["phase"]
        print(f"epoch {epoch:>2}  {phase:>5}  rho {method.rho.item():.3f}  test accuracy {accuracy:.1%}")


if __name__ == "__main__":
    main()
