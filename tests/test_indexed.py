"""``indexed(loader)``: the batches are the loader's own, and the rows beside them are the right ones."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Subset,
    WeightedRandomSampler,
)

from torchcurriculum import indexed


class Rows(Dataset[Any]):
    """Row i is i, in one of the forms that batches come in."""

    def __init__(self, n: int = 23, form: str = "tuple") -> None:
        self.n, self.form = n, form

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, row: int) -> Any:
        value = torch.tensor([row, -row])
        return {"tuple": (value, row), "list": [value, row], "dict": {"x": value, "labels": row}, "bare": value}[
            self.form
        ]


class Graphs:
    """A batch object of its own, as graph libraries have."""

    def __init__(self, rows: list[Any]) -> None:
        self.x = torch.stack([x for x, _ in rows])


def values(batch: Any) -> list[int]:
    if isinstance(batch, Graphs):
        return batch.x[:, 0].tolist()
    if isinstance(batch, dict):
        return batch["x"][:, 0].tolist()
    return (batch[0] if isinstance(batch, tuple | list) else batch)[:, 0].tolist()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("form", ["tuple", "list", "dict", "bare"])
def test_every_form_of_batch(form: str, workers: int) -> None:
    loader = DataLoader(Rows(form=form), batch_size=4, shuffle=True, num_workers=workers)
    seen: list[int] = []
    for index, batch in indexed(loader):
        assert index.dtype == torch.int64
        assert index.tolist() == values(batch)
        seen += index.tolist()
    assert sorted(seen) == list(range(23))


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 4, "drop_last": True},
        {"batch_size": 5, "sampler": RandomSampler(range(23), replacement=True, num_samples=40)},
        {"batch_sampler": BatchSampler(range(10), 3, drop_last=False)},
        {"batch_sampler": [[3, 1], [2], (7, 8, 9)]},
        {"batch_size": 4, "sampler": DistributedSampler(range(23), num_replicas=2, rank=1)},
        {"batch_size": 6, "sampler": WeightedRandomSampler([1.0] * 23, 12)},
        {"batch_size": 4, "shuffle": True, "num_workers": 2, "persistent_workers": True, "prefetch_factor": 4},
        {"batch_size": 4, "collate_fn": Graphs},
    ],
    ids=lambda options: "-".join(options),
)
def test_samplers_and_options_are_the_users_own(options: dict[str, Any]) -> None:
    loader = DataLoader(Rows(), **options)
    before = dict(vars(loader))
    for _ in range(3):
        count = 0
        for index, batch in indexed(loader):
            assert index.tolist() == values(batch)
            count += 1
        assert count == len(loader) == len(indexed(loader))
    assert vars(loader) == before, "the user's loader must stay untouched"


def test_the_order_is_the_loaders_own() -> None:
    plain = DataLoader(Rows(), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(3))
    expected = [values(batch) for batch in plain]
    again = DataLoader(Rows(), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(3))
    assert [index.tolist() for index, _ in indexed(again)] == expected


def test_subsets_count_their_own_rows() -> None:
    subset = Subset(Rows(), [5, 7, 9, 11])
    for index, (x, _) in indexed(DataLoader(subset, batch_size=3)):
        assert x[:, 0].tolist() == [subset.indices[row] for row in index]


def test_without_automatic_batches() -> None:
    loader = DataLoader(Rows(form="bare"), batch_size=None)
    assert [(index.tolist(), item[0].item()) for index, item in indexed(loader)] == [([i], i) for i in range(23)]


def test_leaving_early_and_two_loops_at_once() -> None:
    loader = DataLoader(Rows(), batch_size=4, shuffle=True, num_workers=2)
    for index, batch in indexed(loader):
        assert index.tolist() == values(batch)
        break
    for (a, first), (b, second) in zip(indexed(loader), indexed(loader), strict=True):
        assert a.tolist() == values(first)
        assert b.tolist() == values(second)


def test_a_subclass_that_looks_ahead() -> None:
    class Ahead(DataLoader[Any]):
        def __iter__(self) -> Any:
            parts = super().__iter__()
            held = next(parts)
            for part in parts:
                yield held
                held = part
            yield held

    for index, batch in indexed(Ahead(Rows(), batch_size=4, shuffle=True)):
        assert index.tolist() == values(batch)


def test_bad_loaders_are_refused() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(range(3))

    with pytest.raises(TypeError, match="Stream is an iterable dataset: its samples have no row numbers"):
        indexed(DataLoader(Stream()))
    with pytest.raises(TypeError, match="needs a torch DataLoader, got list"):
        indexed([1, 2])  # type: ignore[arg-type]
    if "in_order" in inspect.signature(DataLoader).parameters:  # torch 2.6 and up
        with pytest.raises(ValueError, match="in_order=False"):
            indexed(DataLoader(Rows(), num_workers=2, in_order=False))
    with pytest.raises(TypeError, match=r"the sampler yields torch.float32, not row numbers"):
        next(iter(indexed(DataLoader({0.5: torch.ones(2)}, batch_sampler=[[0.5]]))))  # type: ignore[arg-type]


class Broken(Dataset[int]):
    """Row 3 cannot be read."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, row: int) -> int:
        if row == 3:
            raise OSError("row 3 cannot be read")
        return row * 10


@pytest.mark.parametrize("workers", [0, 2])
def test_it_goes_on_behind_a_batch_that_cannot_be_read(workers: int) -> None:
    """As the loader's own iterator does: the next batches come, each with its own rows."""
    pairs = iter(indexed(DataLoader(Broken(), batch_size=2, num_workers=workers)))
    assert next(pairs)[0].tolist() == [0, 1]
    with pytest.raises(OSError, match="row 3 cannot be read"):
        next(pairs)
    rest = [(index.tolist(), batch.tolist()) for index, batch in pairs]
    assert rest == [([4, 5], [40, 50]), ([6, 7], [60, 70])]
