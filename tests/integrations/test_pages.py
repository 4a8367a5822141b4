"""The code on the pages of Lightning, Accelerate and plain distributed loops runs as it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ..blocks import blocks

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*smaller than the logging interval.*"),
]


def surroundings() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 4, generator=generator)
    train_set = TensorDataset(x, (x[:, 0] > 0).long())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
    loader = DataLoader(train_set, batch_size=16, shuffle=True)
    names = {"F": F, "nn": nn, "train_set": train_set, "model": model, "loader": loader, "epochs": 3}
    return {**names, "optimizer": torch.optim.SGD(model.parameters(), 0.5)}


def test_distributed() -> None:
    names, (block,) = surroundings(), blocks("integrations/distributed.md")
    before = names["model"].weight.detach().clone()
    exec(compile(block, "distributed.md", "exec"), names)
    assert not torch.equal(before, names["model"].weight)


def test_accelerate(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate", reason="needs torchcurriculum[accelerate]")
    names, (block,) = surroundings(), blocks("integrations/accelerate.md")
    names |= {"accelerator": accelerate.Accelerator(cpu=True), "folder": str(tmp_path / "state")}
    names["model"], names["optimizer"] = names["accelerator"].prepare(names["model"], names["optimizer"])
    exec(compile(block, "accelerate.md", "exec"), names)
    weights = names["curriculum"].method.weights.clone()
    with torch.no_grad():
        names["curriculum"].method.log_weights.zero_()
    names["accelerator"].load_state(names["folder"])
    assert torch.equal(names["curriculum"].method.weights, weights)
    assert names["curriculum"].number == 3


@pytest.mark.parametrize("number", range(3))
def test_lightning(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pl = pytest.importorskip("lightning", reason="needs torchcurriculum[lightning]")
    monkeypatch.chdir(tmp_path)  # Lightning leaves logs and checkpoints where it is

    class Plain(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            return self.net(x)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.criterion(self(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.5)

    module = Plain()
    module.criterion = nn.CrossEntropyLoss()
    names = {**surroundings(), "L": pl, "Plain": Plain, "module": module}
    page = blocks("integrations/lightning.md")
    assert len(page) == 3
    exec(compile("\n".join({0: page[:1], 1: [page[0], page[1]], 2: [page[0], page[2]]}[number]), "page", "exec"), names)
    assert len(names["curriculum"].record.epochs) == 3
