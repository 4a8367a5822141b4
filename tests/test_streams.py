"""Data without row numbers: ids that the user names, state that grows, and methods that need no whole set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from torchcurriculum import APW, RAPW, Curriculum, SuperLoss, Vanilla, indexed, methods, weighted
from torchcurriculum.data import streamed

from .needs import build

N = 24
DRAW = torch.Generator().manual_seed(0)
X = torch.randn(N, 4, generator=DRAW)
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()
WRONG = torch.arange(N) % 6 == 0
Y = torch.where(WRONG, (Y + 1) % 3, Y)


class Stream(IterableDataset[Any]):
    """Rows in another order in every pass, split over the loader's workers."""

    def __init__(self) -> None:
        self.passes = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        order = torch.randperm(N, generator=torch.Generator().manual_seed(self.passes)).tolist()
        self.passes += 1
        info = torch.utils.data.get_worker_info()
        for row in order if info is None else order[info.id :: info.num_workers]:
            yield {"key": f"file-{row}.jpg", "x": X[row], "y": Y[row]}


def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Linear(4, 3)


def epoch(criterion: Any, model: nn.Module, batches: Any) -> list[float]:
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.5), []
    criterion.advance()
    for index, batch in batches:
        loss = criterion(model(batch["x"]), batch["y"], index)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_an_id_keeps_its_row_in_any_order_and_with_workers() -> None:
    loader = DataLoader(Stream(), batch_size=5)
    stream = streamed(loader, id="key")
    known: dict[str, int] = {}
    for workers in (0, 2):
        stream.loader = DataLoader(Stream(), batch_size=5, num_workers=workers)
        for index, batch in stream:
            for key, row in zip(batch["key"], index.tolist(), strict=True):
                assert known.setdefault(key, row) == row
    assert len(stream) == len(known) == N
    assert sorted(known.values()) == list(range(N))


@pytest.mark.parametrize("id", ["key", 0, lambda batch: batch[0]])
def test_where_an_id_may_stand(id: Any) -> None:
    ids = torch.tensor([30, 10])
    batches = [{"key": ids}] if id == "key" else [(ids, None)]
    assert [index.tolist() for index, _ in streamed(batches, id)] == [[0, 1]]


@pytest.mark.parametrize("made", [lambda: RAPW(1, plain=2), lambda: methods.ELR(1), lambda: SuperLoss(tau=1.0)])
def test_a_stream_trains_as_the_same_rows_with_numbers_do(made: Any) -> None:
    """The order is the same, so losses are, whatever rows the ids were given."""
    of_stream, of_rows = network(), network()
    grown = weighted(nn.CrossEntropyLoss(), made(), grows=True)
    method = made()
    method.n = N
    if not isinstance(method, SuperLoss):
        method.grow_rows(N)
    fixed = weighted(nn.CrossEntropyLoss(), method)
    first, second = Stream(), Stream()
    stream = streamed(DataLoader(first, batch_size=5), id="key")
    rows = [
        [(torch.tensor([int(key[5:-4]) for key in batch["key"]]), batch) for batch in DataLoader(second, batch_size=5)]
        for _ in range(4)
    ]
    for number in range(4):
        torch.testing.assert_close(epoch(grown, of_stream, stream), epoch(fixed, of_rows, rows[number]))
    assert grown.n >= N
    kept = grown.last[: len(stream)]
    assert kept.isfinite().all()
    names = [int(key[5:-4]) for key in stream.state_dict()["ids"]]
    torch.testing.assert_close(kept, fixed.last[torch.tensor(names)])


def test_ids_may_be_numbers_of_numpy_or_torch() -> None:
    stream = streamed(DataLoader([0]), id="id")
    assert stream.rows([np.int64(7), np.str_("a"), torch.tensor(9)]).tolist() == [0, 1, 2]
    assert stream.rows([9, "a", 7]).tolist() == [2, 1, 0]


def test_it_resumes_where_it_was() -> None:
    def begin() -> tuple[Any, Any, nn.Module]:
        return Stream(), weighted(nn.CrossEntropyLoss(), RAPW(1, plain=1), grows=True), network()

    data, criterion, model = begin()
    stream = streamed(DataLoader(data, batch_size=5), id="key")
    epoch(criterion, model, stream)
    table = json.dumps(stream.state_dict())
    kept = {name: value.clone() for name, value in criterion.state_dict().items()}
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    expected = epoch(criterion, model, stream)

    data, criterion, model = begin()
    data.passes = 1
    model.load_state_dict(weights)
    criterion.load_state_dict(kept)
    stream = streamed(DataLoader(data, batch_size=5), id="key")
    stream.load_state_dict(json.loads(table))
    assert epoch(criterion, model, stream) == expected


# What a stream cannot give: a weight for every row of a set, a plan over rows, another look at them, the model.
REFUSALS = (
    "needs a fixed training set, which a stream does not have",
    "changes the batch, which a criterion cannot; use Curriculum",
    "chooses rows, which a criterion cannot; use Curriculum",
    "which this loop does not provide; use Curriculum",
    "cannot run a measuring pass; use Curriculum",
    "a second network needs the model to copy; use Curriculum",
)
WORK = {"vanilla", "superloss", "small-loss", "rapw", "elr", "argmax", "screenernet"}


@pytest.mark.filterwarnings("ignore:SuperLoss cannot count")
def test_every_method_trains_on_a_stream_or_refuses_with_a_sentence() -> None:
    worked = set()
    for name in methods.names():
        model, stream = network(), streamed(DataLoader(Stream(), batch_size=6), id="key")
        try:
            criterion = weighted(nn.CrossEntropyLoss(), build(name, N, 3), grows=True)
            for _ in range(3):
                assert torch.tensor(epoch(criterion, model, stream)).isfinite().all()
            worked.add(name)
        except (TypeError, RuntimeError) as error:
            sentence = str(error)
            assert any(words in sentence for words in REFUSALS), (name, sentence)
    assert worked == WORK, "docs/streaming.md names them"


def test_what_is_wrong_is_said() -> None:
    loader = DataLoader(Stream(), batch_size=5)
    with pytest.raises(TypeError, match=r"use an id of each sample: streamed\(loader, id=...\)"):
        indexed(loader)
    with pytest.raises(TypeError, match=r"or use data.streamed"):
        Curriculum(Vanilla(), Stream())
    with pytest.raises(KeyError, match="no id found under 'name' in a dict of key, x, y; pass id="):
        next(iter(streamed(loader, id="name")))
    with pytest.raises(TypeError, match="a whole number or a string .*, got 0.5"):
        next(iter(streamed([(torch.tensor([0.5]), None)], id=0)))
    with pytest.raises(TypeError, match="id must be a key, a position or a function of a batch, got None"):
        streamed(loader, id=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="streamed needs an iterable of batches, got int"):
        streamed(3, id="key")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="APW needs a fixed training set"):
        weighted(nn.CrossEntropyLoss(), APW(4, q=2), grows=True)
    with pytest.raises(TypeError, match="n=4 would be ignored: with grows=True"):
        weighted(nn.CrossEntropyLoss(), Vanilla(), n=4, grows=True)
    stream = streamed(loader, id="key")
    stream.rows(["a"])
    with pytest.raises(ValueError, match="an id more than once"):
        stream.load_state_dict({"ids": ["b", "b"]})
    assert stream.state_dict() == {"ids": ["a"]}, "all or nothing"
    doubled: Tensor = stream.rows(["a", "a"])
    with pytest.raises(ValueError, match=r"rows \[0\] occur more than once in this batch"):
        weighted(nn.CrossEntropyLoss(), Vanilla(), grows=True)(torch.zeros(2, 2), torch.tensor([0, 1]), doubled)
