"""A tiny module for Lightning, from either of its two packages, and the same run in a plain loop to compare with."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from torchcurriculum import Curriculum, methods
from torchcurriculum.integrations.lightning import CurriculumCallback

from ..contract.problem import N, data, model

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
BATCH, EPOCHS = 8, 3
# A criterion in the loop gives losses alone, from which SuperLoss cannot count the classes.
OPTIONS: dict[str, dict[str, Any]] = {"s-apw-e": {"fraction": 0.4}, "mixup": {}, "superloss": {"tau": 1.0}}


def rows() -> TensorDataset:
    """The contract's images."""
    return TensorDataset(data().x, data().y)


def loader(train_set: Any = None, **options: Any) -> DataLoader[Any]:
    """As users have it."""
    return DataLoader(train_set or rows(), **{"batch_size": BATCH, "shuffle": True, **options})


def module(package: str = PACKAGES[0], way: str = "criterion", criterion: nn.Module | None = None) -> Any:
    """A module that trains with its criterion, with the call, or with the call that runs the model as well."""
    pl = importlib.import_module(package)

    class Module(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = model()
            self.validated: list[float] = []
            if way == "criterion":
                self.criterion = criterion or nn.CrossEntropyLoss()

        def forward(self, x: Tensor) -> Any:
            return self.net(x)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            if way == "criterion":
                return self.criterion(self(x), target=y)
            if way == "call":
                return self.curriculum(nn.functional.cross_entropy(self(x), y, reduction="none"), batch)
            if way == "loss":
                return self.curriculum.loss(batch)
            return nn.functional.cross_entropy(self(x), y)

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            if way == "criterion":
                self.validated.append(self.criterion(self(batch[0]), batch[1]).item())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)

    return Module()


def callback(name: str = "apw-e", **settings: Any) -> CurriculumCallback:
    """With the seed that the plain loop has."""
    return CurriculumCallback(name, OPTIONS.get(name), seed=5, **settings)


def trainer(package: str = PACKAGES[0], *callbacks: Any, **options: Any) -> Any:
    """A quiet one on the CPU."""
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    quiet |= {"enable_checkpointing": False, "accelerator": "cpu", "devices": 1, "max_epochs": EPOCHS}
    return importlib.import_module(package).Trainer(callbacks=list(callbacks), **{**quiet, **options})


def saving(folder: Path, package: str = PACKAGES[0], **options: Any) -> Any:
    """Lightning's own checkpoints, of every step unless told otherwise."""
    options = {"every_n_train_steps": 1, **options}
    made = importlib.import_module(f"{package}.callbacks").ModelCheckpoint
    return made(folder, filename="{epoch}-{step}", save_top_k=-1, **options)


def plain(
    name: str, measure: Any = "pass", accumulate: int = 1, epochs: int = EPOCHS, train_set: Any = None
) -> tuple[nn.Module, Curriculum]:
    """The same run in a loop of the user's own."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    method = methods.build(name, N, epochs, **OPTIONS.get(name, {}))
    curriculum = Curriculum(method, train_set or rows(), batch_size=BATCH, seed=5, measure=measure)
    for _ in range(epochs):
        for steps, batch in enumerate(curriculum.epoch(net), 1):
            (curriculum.loss(net, batch) / accumulate).backward()
            if steps % accumulate == 0 or steps == len(curriculum.batches()):  # as Lightning does
                optimizer.step()
                optimizer.zero_grad()
    return net, curriculum


def outcome(net: nn.Module, curriculum: Curriculum) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """Parameters, the method's state, and the record without what a clock says."""
    tensors = {f"net.{name}": value for name, value in net.state_dict().items()}
    tensors |= {f"method.{name}": value for name, value in curriculum.method.state_dict().items()}
    return tensors, [{k: v for k, v in row.items() if k != "seconds"} for row in curriculum.record.epochs]


def assert_equal(one: tuple[nn.Module, Curriculum], other: tuple[nn.Module, Curriculum]) -> None:
    """Bit by bit."""
    (tensors, epochs), (tensors2, epochs2) = outcome(*one), outcome(*other)
    assert tensors.keys() == tensors2.keys()
    assert [name for name, value in tensors.items() if not torch.equal(value, tensors2[name])] == []
    assert epochs == epochs2


class Noisy(Dataset[Any]):
    """As most training sets: each visit draws an augmentation from the global generator."""

    def __init__(self) -> None:
        self.rows = rows()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        x, y = self.rows[row]
        return x + 0.1 * torch.randn(x.shape, dtype=x.dtype), y


class Growing(Noisy):
    """A set that has one more row each time it is asked after ``grow``."""

    extra = 0

    def __len__(self) -> int:
        return len(self.rows) + self.extra

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return self.rows[row % len(self.rows)]  # type: ignore[return-value]
