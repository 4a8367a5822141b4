"""APW in Lightning: one callback, and the module, its criterion and the loader stay as they are.

python examples/lightning_digits.py [--epochs 10] [--devices 2]
"""

from __future__ import annotations

import argparse

import lightning as L
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from torchcurriculum import Curriculum, error_threshold, flip_labels
from torchcurriculum.integrations.lightning import CurriculumCallback
from torchcurriculum.lab.data import load_digits


class Digits(L.LightningModule):
    """As any module: nothing in it knows of a curriculum."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.net(x)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """The criterion's loss: weighted while it trains."""
        x, y = batch
        return self.criterion(self(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD."""
        return torch.optim.SGD(self.parameters(), 0.05, momentum=0.9)


def train(epochs: int, batch_size: int = 64, devices: int = 1) -> tuple[nn.Module, Curriculum]:
    """Trains on digits with 40 % wrong labels; ``batch_size`` is that of one process, as always in Lightning."""
    x, clean = load_digits(seed=0)["train"]
    train_set = TensorDataset(x, flip_labels(clean, 0.4, classes=10, seed=0))
    loader = DataLoader(train_set, batch_size=batch_size, shuffle=True)
    curriculum = CurriculumCallback("apw-e", {"threshold": error_threshold(0.4, "synthetic")})
    trainer = L.Trainer(
        max_epochs=epochs,
        callbacks=[curriculum],
        accelerator="cpu",
        devices=devices,
        strategy="ddp" if devices > 1 else "auto",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Digits()
    trainer.fit(model, loader)
    assert curriculum.curriculum is not None
    return model, curriculum.curriculum


def main() -> None:
    """Trains, and the first process prints what the curriculum saw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--devices", type=int, default=1)
    options = parser.parse_args()
    model, curriculum = train(options.epochs, devices=options.devices)
    x, y = load_digits(seed=0)["test"]
    accuracy = (model(x).argmax(1) == y).double().mean().item()
    last = curriculum.record.epochs[-1]
    if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
        print(f"{last['phase']}  rho {last['rho']:.3f}  E-Prop {last['eprop']:.3f}  test accuracy {accuracy:.1%}")


if __name__ == "__main__":
    main()
