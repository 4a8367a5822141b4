"""One row that is NaN or infinite: the run ends with a sentence, or goes on without the row and stays finite."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcurriculum import APW, Arrays, Curriculum, indexed, methods, per_sample, weighted

from ..contract.problem import N, Run, data, method
from ..contract.table import TABLE

every = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.label)


def broken(value: float) -> Arrays:
    rows = data()
    rows.x[11, 0, 2, 2] = value
    return rows


@pytest.mark.filterwarnings("ignore:.*NaN or infinite")
@every
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_parameters_and_state_stay_finite(row: Any, value: float) -> None:
    run = Run(method(row), row, rows=broken(value), nan_strategy="ignore").train()
    assert all(tensor.isfinite().all() for tensor in run.net.state_dict().values())
    before = Run(method(row), row)
    assert any(not torch.equal(a, b) for a, b in zip(run.net.parameters(), before.net.parameters(), strict=True))


def through_batch_norm(strategy: Any) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).double()
    curriculum = Curriculum(methods.build("apw-e", N, 4), broken(math.nan), batch_size=8, nan_strategy=strategy)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(2):
        for batch in curriculum.epoch(net):
            optimizer.zero_grad()
            curriculum.loss(net, batch).backward()
            optimizer.step()
    return net


def test_statistics_of_batch_norm_stay_finite() -> None:
    assert all(value.isfinite().all() for value in through_batch_norm("ignore").state_dict().values())


def test_a_warning_names_the_row() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        through_batch_norm("warn")
    words = {str(warning.message) for warning in caught}
    assert "inputs of rows [11] are NaN or infinite; they are left out of their batch" in words


class Overflows(nn.Module):
    """Finite inputs, and an infinite output for large ones."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * torch.exp(x[:, :1] * 1000)


def test_a_loss_that_overflows_leaves_its_row_out() -> None:
    x = torch.rand(12, 2, dtype=torch.float64) * 0.001
    x[5, 0] = 1.0
    curriculum = Curriculum(APW(12, q=3), Arrays(x, torch.arange(12) % 2), batch_size=4, nan_strategy="ignore")
    net = Overflows()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        for batch in curriculum.epoch(net):
            optimizer.zero_grad()
            curriculum.loss(net, batch).backward()
            optimizer.step()
    assert all(value.isfinite().all() for value in net.state_dict().values())
    assert curriculum.last[5] == 1e4, "it counts as hard"


def test_a_batch_of_nothing_else_trains_nothing() -> None:
    x = torch.full((4, 2), math.nan)
    curriculum = Curriculum(APW(4, q=3), Arrays(x, torch.zeros(4).long()), batch_size=4, nan_strategy="ignore")
    net = nn.Linear(2, 2)
    before = net.weight.clone()
    for batch in curriculum.epoch(net):
        loss = curriculum.loss(net, batch)
        loss.backward()
        torch.optim.SGD(net.parameters(), 0.1).step()
        assert loss == 0
    assert torch.equal(net.weight, before)


def test_losses_alone_cannot_be_taken_out_of_their_graph() -> None:
    curriculum = Curriculum(APW(4, q=3), Arrays(torch.zeros(4, 2), torch.zeros(4).long()), nan_strategy="ignore")
    net = nn.Linear(2, 2)
    curriculum.start(net)
    losses = F.cross_entropy(net(torch.tensor([[math.nan, 0.0], [0.0, 0.0]])), torch.tensor([0, 1]), reduction="none")
    with pytest.raises(ValueError, match=r"NaN or infinite, at rows \[2\]"):
        curriculum.reduce(losses, torch.tensor([2, 3]))


def test_the_three_lines_refuse_with_every_strategy_and_can_leave_rows_out() -> None:
    x = torch.rand(6, 2)
    x[3] = math.nan
    loader = torch.utils.data.DataLoader(list(zip(x, torch.arange(6) % 2, strict=True)), batch_size=3)
    net = nn.Linear(2, 2)
    for strategy in ("error", "warn", "ignore"):
        apw = APW(6, q=3, nan_strategy=strategy)  # type: ignore[arg-type]
        apw.advance(torch.ones(6))
        with pytest.raises(ValueError, match=r"rows \[3\].*drop them with indexed"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for index, (inputs, y) in indexed(loader):
                apw.batch_weights(F.cross_entropy(net(inputs), y, reduction="none").detach(), index)
    apw, seen = APW(6, q=3), []
    apw.advance(torch.ones(6))
    for index, (inputs, y) in indexed(loader, finite=True):
        losses = F.cross_entropy(net(inputs), y, reduction="none")
        (apw.batch_weights(losses.detach(), index) * losses).sum().backward()
        seen += index.tolist()
    assert seen == [0, 1, 2, 4, 5]
    assert all(p.grad.isfinite().all() for p in net.parameters())


def test_a_weighted_criterion_refuses() -> None:
    criterion = weighted(nn.CrossEntropyLoss(), APW(4, q=3))
    with pytest.raises(ValueError, match=r"NaN or infinite, at rows \[1\]"):
        criterion(torch.tensor([[math.nan, 0.0], [0.0, 0.0]]), torch.tensor([0, 1]), torch.tensor([1, 2]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", ["criterion", "call", "loss"])
def test_lightning_stays_finite(way: str, tmp_path: Any) -> None:
    from lightning.pytorch import Trainer

    from torchcurriculum.integrations.lightning import CurriculumCallback

    from ..integrations.lightning_problem import loader, module

    rows = torch.utils.data.TensorDataset(broken(math.nan).x, data().y)
    net = module(way=way)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    callback = CurriculumCallback(
        "apw-e", measure="running", nan_strategy="ignore", loss_fn=per_sample(nn.CrossEntropyLoss())
    )
    Trainer(max_epochs=3, callbacks=[callback], default_root_dir=tmp_path, **quiet).fit(net, loader(rows))
    assert all(value.isfinite().all() for value in net.state_dict().values())
    assert callback.record.epochs[-1]["epoch"] == 3


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("place", ["input", "label"])
def test_transformers_stays_finite(place: str, parts: int, tmp_path: Any) -> None:
    """A row whose embedding is NaN, and one whose target, and so only its loss, is infinite."""
    pytest.importorskip("transformers")
    from datasets import Dataset

    from ..integrations.hf_problem import bert, trainer

    x = torch.randn(21, 4, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = x[:, 0, 0].clone()
    (x if place == "input" else y)[11] = math.inf
    rows = Dataset.from_dict({"inputs_embeds": x.tolist(), "labels": y.tolist()}).with_format(
        "torch", dtype=torch.float64
    )

    def run(strategy: str) -> Any:
        options = {
            "per_device_train_batch_size": 6 // parts,
            "gradient_accumulation_steps": parts,
            "learning_rate": 0.01,
        }
        more = {"nan_strategy": strategy, "measure": "running"}
        made = trainer("apw-e", tmp_path, bert(num_labels=1), rows, more, **options)
        before = [p.detach().clone() for p in made.model.parameters()]
        made.train()
        after = list(made.model.parameters())
        assert all(value.isfinite().all() for value in after)
        assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
        return made

    with pytest.raises(ValueError, match=r"NaN or infinite, at rows \[11\]"):
        run("error")
    assert run("ignore").curriculum.last[11] == 1e4, "it counts as hard"
    with pytest.warns(UserWarning, match=r"of rows \[11\] are NaN or infinite; they are left out of their batch"):
        run("warn")
