"""Every method on dicts of tokens and on graph batches, through one ``forward``; those that cannot say why."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from torchcurriculum import APW, Curriculum, Method, Mixed, Sampled, methods

from ..needs import build

N, CLASSES = 24, 3
# What a method needs beyond a forward pass, and how it says so.
NEEDS = {
    "mixup": "floating-point",
    "m-apw-e": "floating-point",
    "m-apw-i": "floating-point",
    "m-apw-ei": "floating-point",
    "m-apw-beta-e": "floating-point",
    "m-apw-beta-i": "floating-point",
    "m-apw-beta-ei": "floating-point",
    "cbs": "convolution",
    "cbm": "image",
    "cutmix": "image",
    "efficient-train": "image",
    "efficient-train-plus": "image",
    "two-views": "image",
}


class Tokens:
    """Sentences of a tiny language, as a dict of tensors with labels."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, row: int) -> dict[str, Any]:
        ids = torch.arange(row, row + 5) % 11
        return {"input_ids": ids, "attention_mask": torch.ones(5), "labels": torch.tensor(row % CLASSES)}


class GraphBatch:
    """Nodes of several graphs in one tensor, and which graph each belongs to, as graph libraries batch them."""

    def __init__(self, x: Tensor, graph: Tensor, y: Tensor) -> None:
        self.x, self.graph, self.y = x, graph, y

    def to(self, device: torch.device) -> GraphBatch:
        return GraphBatch(self.x.to(device), self.graph.to(device), self.y.to(device))


class Graphs:
    """Graphs of one to four nodes."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return torch.full((1 + row % 4, 2), row / N), row % CLASSES


def collate_graphs(rows: list[Any]) -> GraphBatch:
    nodes = [x for x, _ in rows]
    graph = torch.cat([torch.full((len(x),), number) for number, x in enumerate(nodes)])
    return GraphBatch(torch.cat(nodes), graph, torch.tensor([y for _, y in rows]))


class Reader(nn.Module):
    """Mean of embeddings, then a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 6), nn.Linear(6, CLASSES)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        mask = attention_mask.unsqueeze(-1)
        return self.head((self.embed(input_ids) * mask).sum(1) / mask.sum(1))


class Pool(nn.Module):
    """Mean over the nodes of each graph, then a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, CLASSES)

    def forward(self, batch: GraphBatch) -> Tensor:
        graphs = len(batch.y)
        summed = torch.zeros(graphs, 2).index_add(0, batch.graph, batch.x)
        return self.head(summed / torch.bincount(batch.graph, minlength=graphs)[:, None])


def made(model: type[nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return model()


def shell(kind: str, method: Method) -> tuple[Curriculum, nn.Module]:
    if kind == "tokens":
        curriculum = Curriculum(method, Tokens(), forward=lambda model, x: model(**x), batch_size=6)
        return curriculum, made(Reader)
    return Curriculum(method, Graphs(), collate_fn=collate_graphs, batch_size=6), made(Pool)


def train(kind: str, method: Method, epochs: int = 4) -> None:
    curriculum, model = shell(kind, method)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for _ in range(epochs):
        for batch in curriculum.epoch(model):
            loss = curriculum.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    after = list(model.parameters())
    assert all(parameter.isfinite().all() for parameter in after)
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("kind", ["tokens", "graphs"])
@pytest.mark.parametrize("name", methods.names())
def test_it_trains_or_says_what_it_needs(name: str, kind: str) -> None:
    if name in NEEDS:
        with pytest.raises((TypeError, ValueError), match=NEEDS[name]):
            train(kind, build(name, N, 4))
    else:
        train(kind, build(name, N, 4))


WEIGHTED = [
    name
    for name in methods.names()
    if name not in NEEDS and isinstance(getattr(build(name, N, 4), "weights", None), Tensor)
]


def test_many_methods_have_a_weight_vector() -> None:
    assert {"apw-e", "spl"} <= set(WEIGHTED)


@pytest.mark.parametrize("name", WEIGHTED)
def test_sampled_and_mixed_work_over_any_weight_vector(name: str) -> None:
    train("tokens", Sampled(build(name, N, 4), fraction=0.4))
    x = torch.linspace(-1, 1, N)[:, None]
    data = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
    model = nn.Linear(1, 2)
    curriculum = Curriculum(Mixed(build(name, N, 4)), data, batch_size=6)
    for _ in range(3):
        for batch in curriculum.epoch(model):
            assert curriculum.loss(model, batch).isfinite()


def test_mixed_works_over_a_method_that_only_weighs_batches() -> None:
    x = torch.linspace(-1, 1, N)[:, None]
    data = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
    curriculum, model = Curriculum(Mixed(methods.build("superloss", N, 4)), data, batch_size=6), nn.Linear(1, 2)
    for batch in curriculum.epoch(model):
        assert curriculum.loss(model, batch).isfinite()
    assert isinstance(Mixed(APW(N, q=2)).weights, Tensor)
