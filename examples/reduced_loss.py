"""One line for a loop that only has a reduced loss function: `weighted` in the place of the criterion.

python examples/reduced_loss.py [--epochs 15]
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from torchcurriculum import APW, error_threshold, flip_labels, indexed
from torchcurriculum.lab.data import load_digits
from torchcurriculum.losses import weighted


def main() -> None:
    """Trains on digits with 40 % wrong labels, class weights and label smoothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=15)
    epochs = parser.parse_args().epochs

    parts = load_digits(seed=0)
    x, clean = parts["train"]
    y = flip_labels(clean, 0.4, classes=10, seed=0)
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

    balance = len(y) / (10 * y.bincount(minlength=10))
    criterion = nn.CrossEntropyLoss(weight=balance, label_smoothing=0.05)
    criterion = weighted(criterion, APW(len(y), q=epochs, threshold=error_threshold(0.4, "synthetic")))  # the line
    for epoch in range(1, epochs + 1):
        criterion.advance()
        for index, (inputs, labels) in indexed(loader):
            loss = criterion(model(inputs), labels, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = (model(parts["test"][0]).argmax(1) == parts["test"][1]).double().mean().item()
        print(f"epoch {epoch:>2}  rho {criterion.method.rho.item():.3f}  test accuracy {accuracy:.1%}")


if __name__ == "__main__":
    main()
