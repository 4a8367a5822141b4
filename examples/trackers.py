"""A run that is watched in CSV, TensorBoard, W&B (offline) and MLflow (a folder); nothing leaves the machine.

python examples/trackers.py [--epochs 10] [--out runs/trackers]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

from torchcurriculum import APW, Arrays, Curriculum, flip_labels
from torchcurriculum.lab.data import load_digits
from torchcurriculum.record.sinks import CSV, MLflow, TensorBoard, WandB


def main() -> None:
    """Trains on digits with 40 % wrong labels, and lists what the trackers wrote."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("runs/trackers"))
    args = parser.parse_args()

    parts = load_digits(seed=0)
    x, clean = parts["train"]
    train_set = Arrays(x, flip_labels(clean, 0.4, classes=10, seed=0))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

    method = APW(len(train_set), q=args.epochs)
    curriculum = Curriculum(method, train_set, batch_size=64, record=args.out / "record", overwrite=True)
    trackers = [TensorBoard(args.out / "board"), WandB("digits", dir=str(args.out)), MLflow(args.out / "mlruns")]
    for sink in [CSV(args.out / "epochs.csv"), *trackers]:
        curriculum.record.attach(sink)
    for _ in range(args.epochs):
        for batch in curriculum.epoch(model):
            loss = curriculum.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = (model(parts["test"][0]).argmax(1) == parts["test"][1]).double().mean().item()
        curriculum.record.annotate(test_acc=accuracy)
    for sink in trackers:
        sink.close()
    print((args.out / "epochs.csv").read_text().splitlines()[-1][:60])
    print(*sorted(str(path.relative_to(args.out)) for path in args.out.iterdir()), sep="\n")


if __name__ == "__main__":
    main()
