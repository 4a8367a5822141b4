"""What ranks do with a weighted criterion, and with a threshold that is a quantile."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from torchcurriculum import APW, Arrays, Curriculum, SuperLoss, methods, quantile
from torchcurriculum.data import streamed
from torchcurriculum.losses import per_sample, weighted

N = 41


def rows() -> tuple[Tensor, Tensor]:
    """Inputs and labels of three classes."""
    x = torch.randn(N, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def network(outputs: int) -> nn.Module:
    """A linear network, always the same."""
    net = nn.Linear(4, outputs, dtype=torch.float64)
    with torch.no_grad():
        net.weight.copy_(torch.linspace(-1, 1, 4 * outputs).view(outputs, 4))
        net.bias.zero_()
    return net


def reduced(rank: int = 0, world: int = 1) -> dict[str, Tensor]:
    """A plain loop with class weights, each rank with its share of every batch, the last of one row."""
    x, y = rows()
    net = network(3)
    model = DistributedDataParallel(net) if world > 1 else net
    criterion = nn.CrossEntropyLoss(torch.tensor([1.0, 3.0, 0.5], dtype=torch.float64))
    criterion = weighted(criterion, APW(N, q=2, threshold=0.8, weighting="EI"))
    criterion.last = criterion.last.double()
    optimizer = torch.optim.SGD(net.parameters(), 0.5)
    for _ in range(4):
        criterion.advance()
        for batch in torch.arange(N - 1).split(8):
            mine = batch[rank::world]
            optimizer.zero_grad()
            criterion(model(x[mine]), y[mine], mine).backward()
            optimizer.step()
    criterion.advance()
    return {"net": net.weight.detach(), "weights": criterion.method.weights, "last": criterion.last}


def regression(rank: int = 0, world: int = 1) -> dict[str, Tensor]:
    """A regression under a Curriculum whose threshold is the median."""
    x, _ = rows()
    net = network(1)
    model = DistributedDataParallel(net) if world > 1 else net
    method = APW(N, q=2, threshold=quantile(0.5))
    curriculum = Curriculum(method, Arrays(x, 3 * x[:, :1] - 1), per_sample(nn.MSELoss()), batch_size=8)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(4):
        for batch in curriculum.epoch(model):
            optimizer.zero_grad()
            curriculum.loss(model, batch).backward()
            optimizer.step()
    return {"net": net.weight.detach(), "weights": method.weights, "threshold": method.threshold}


def streams(rank: int = 0, world: int = 1) -> dict[str, Tensor]:
    """Streams of ids, each rank with its own shard and a table that the others do not see."""
    x, y = rows()
    found = {}
    for name, method in {"superloss": SuperLoss(tau=1.0), "elr": methods.ELR(1)}.items():
        net = network(3)
        model = DistributedDataParallel(net) if world > 1 else net
        criterion = weighted(nn.CrossEntropyLoss(), method, grows=True)
        optimizer = torch.optim.SGD(net.parameters(), 0.5)
        shard = [batch[rank::world] for batch in torch.arange(N - 1).split(8)]
        stream = streamed([([f"id {row}" for row in rows.tolist()], rows) for rows in shard], id=0)
        for _ in range(3):
            criterion.advance()
            for index, (_, mine) in stream:
                optimizer.zero_grad()
                criterion(model(x[mine]), y[mine], index).backward()
                optimizer.step()
        found[name] = net.weight.detach()
        assert len(stream) == (N - 1) // world
    return found


def both(rank: int, world: int, folder: Path) -> None:
    """Leaves the outcomes of this rank."""
    for name, work in {"reduced": reduced, "regression": regression, "streams": streams}.items():
        save_file(work(rank, world), folder / f"{name}-{rank}.safetensors")


class Whole(nn.Module):
    """A model that holds its criterion."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.criterion = network(3), weighted(nn.CrossEntropyLoss(), SuperLoss(tau=1.0), n=N)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def inside(rank: int, world: int, folder: Path) -> None:
    """Writes what the second step says if the model that is wrapped holds the criterion."""
    x, y = rows()
    mine = torch.arange(8)[rank::world]
    for broadcast in (False, True):
        net = Whole()
        model = DistributedDataParallel(net, broadcast_buffers=broadcast)
        words = ""
        for _ in range(2):
            try:
                net.criterion(model(x[mine]), y[mine], mine)
            except RuntimeError as error:
                words = str(error)
        (folder / f"{broadcast}-{rank}").write_text(words)
