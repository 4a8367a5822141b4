"""A collate function that sorts its samples would attach rows to other samples."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, default_collate

from torchcurriculum import indexed

ROWS = [(torch.full((2,), float(row)), row % 5) for row in range(20)]


def sorting(samples: list[Any]) -> Any:
    return default_collate(sorted(samples, key=lambda sample: -float(sample[0][0])))


def keeping(samples: list[Any]) -> dict[str, Any]:
    x, y = default_collate(samples)
    return {"x": x, "labels": y}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_collate_function_that_sorts_is_refused(workers: int) -> None:
    loader = DataLoader(ROWS, batch_size=5, collate_fn=sorting, num_workers=workers)
    with pytest.raises(ValueError, match="changes the order of its samples"):
        list(indexed(loader))


def test_one_that_keeps_the_order_is_not() -> None:
    for index, batch in indexed(DataLoader(ROWS, batch_size=5, collate_fn=keeping, shuffle=True)):
        assert torch.equal(batch["x"][:, 0].long(), index)


def test_equal_targets_decide_nothing_yet() -> None:
    rows = [(x, 0 if row < 10 else y) for row, (x, y) in enumerate(ROWS)]
    seen = 0
    with pytest.raises(ValueError, match="changes the order"):
        for _ in indexed(DataLoader(rows, batch_size=5, collate_fn=sorting)):
            seen += 1
    assert seen == 2


class Wrapped(DataLoader[Any]):
    """As Accelerate's loaders: iterates over another loader."""

    def __iter__(self) -> Any:
        return iter(DataLoader(ROWS, batch_size=5))


def test_a_loader_that_does_not_use_its_sampler_is_refused() -> None:
    with pytest.raises(TypeError, match="does not use its own sampler.*; pass the one it was made from"):
        list(indexed(Wrapped(ROWS, batch_size=5)))


def test_a_collate_function_that_was_replaced_is_used() -> None:
    loader = DataLoader(ROWS, batch_size=5)
    assert isinstance(next(iter(indexed(loader)))[1], list)
    loader.collate_fn = keeping
    assert isinstance(next(iter(indexed(loader)))[1], dict)
