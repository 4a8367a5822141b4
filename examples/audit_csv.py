"""Which labels in this CSV are wrong? Trains once, ranks the rows, writes the ranking.

python examples/audit_csv.py [--epochs 40] [--data FILE]

FILE has a first line of names, numbers, and its labels in the last column. Without one, a file is made from
scikit-learn's breast cancer data with a tenth of the labels flipped, so that there is something to find.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

from torchcurriculum import Arrays, Curriculum, Predictions, Vanilla, flip_labels
from torchcurriculum.audit import audit, export


def make(path: Path) -> np.ndarray:
    """Writes the file and returns which of its labels were flipped."""
    data = load_breast_cancer()
    given = flip_labels(torch.from_numpy(data.target).long(), 0.1, classes=2, seed=0).numpy()
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*data.feature_names, "label"])
        writer.writerows([*row, data.target_names[label]] for row, label in zip(data.data, given, strict=True))
    return given != data.target


def read(path: Path) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
    """Standardised numbers, labels, and the names of the classes."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    x = np.array([row[:-1] for row in rows], dtype=np.float32)
    classes, y = np.unique([row[-1] for row in rows], return_inverse=True)
    return torch.from_numpy((x - x.mean(0)) / (x.std(0) + 1e-8)), torch.from_numpy(y).long(), classes.tolist()


def main() -> None:
    """Prints the ten most suspicious rows and writes all of them to ``suspects.csv``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    path = options.data or Path("patients.csv")
    wrong = None if options.data else make(path)
    x, y, classes = read(path)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Linear(64, len(classes)))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    curriculum = Curriculum(Vanilla(), Arrays(x, y), batch_size=32, samples=True)
    predictions = Predictions(y, len(classes))
    for _ in range(options.epochs):
        for batch in curriculum.epoch(model):
            loss = curriculum.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            predictions.note(model(x))

    record = curriculum.record
    for name, values in {"labels": y.numpy(), **predictions.arrays()}.items():
        record.set_array(name, values)
    record.name_samples([f"line {number}" for number in range(2, len(y) + 2)])
    found = audit(record)
    print(found.summary())
    for row in found.rows(10):
        given, suggested = classes[row["given"]], classes[row["suggested"]]
        print(f"{row['name']:<9}  quality {row['quality']:.3f}  {given} -> {suggested}")
    if wrong is not None:
        print(f"{wrong[found.order[:10]].sum()} of these 10 and {wrong.sum()} of all {len(y)} were flipped")
    print(f"wrote {export(found, 'suspects.csv', names=classes)}")


if __name__ == "__main__":
    main()
