"""Small slips of a user's own loop: what was silently wrong, or failed later than it could."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from torchcurriculum import APW, Arrays, Checkpoint, Curriculum, Record
from torchcurriculum.record import RecordError

NUMBERS = [np.float32(0.5), np.int64(3), np.bool_(True), torch.tensor(0.5), np.array(0.5)]


def made(**options: Any) -> tuple[Curriculum, nn.Module]:
    x = torch.rand(8, 2, generator=torch.Generator().manual_seed(0))
    return Curriculum(APW(8, q=4), Arrays(x, torch.arange(8) % 2), batch_size=4, **options), nn.Linear(2, 2)


def test_finishing_an_epoch_twice_adds_no_row() -> None:
    curriculum, net = made()
    curriculum.finish()
    assert not curriculum.record.epochs
    for batch in curriculum.epoch(net):
        curriculum.loss(net, batch)
    curriculum.finish()
    assert [row["epoch"] for row in curriculum.record.epochs] == [1]


def test_two_epochs_at_once_are_refused() -> None:
    curriculum, net = made()
    with pytest.raises(ValueError, match="epoch 2 began before epoch 1 was read to its end"):
        for one, other in zip(curriculum.epoch(net), curriculum.epoch(net), strict=True):
            curriculum.loss(net, one)
            curriculum.loss(net, other)


@pytest.mark.parametrize("folder", [True, False])
@pytest.mark.parametrize("value", NUMBERS, ids=repr)
def test_numbers_of_other_libraries_are_numbers(value: Any, folder: bool, tmp_path: Path) -> None:
    record = Record(2, {}, tmp_path / "record" if folder else None)
    record.append({"epoch": 1, "a": value})
    record.annotate(b=value)
    assert json.loads(json.dumps(record.epochs)) == [{"epoch": 1, "a": value.item(), "b": value.item()}]
    if folder:
        assert Record.load(tmp_path / "record").epochs == record.epochs


@pytest.mark.parametrize("folder", [True, False])
@pytest.mark.parametrize(
    "value",
    [object(), b"x", {1, 2}, torch.zeros(3), np.zeros(2), [object()]],
    ids=["object", "bytes", "set", "tensor", "array", "list"],
)
def test_what_a_record_cannot_hold_is_refused_by_name_and_changes_nothing(
    value: Any, folder: bool, tmp_path: Path
) -> None:
    record = Record(2, {}, tmp_path / "record" if folder else None)
    record.append({"epoch": 1})
    for change in (lambda: record.append({"epoch": 2, "odd": value}), lambda: record.annotate(odd=value)):
        with pytest.raises(RecordError, match=r"'odd' of an epoch must be a number, a string, or lists and dicts of"):
            change()
    with pytest.raises(RecordError, match="must be strings, got 7"):
        record.append({7: 1})  # type: ignore[dict-item]
    assert record.epochs == [{"epoch": 1}]
    record.append({"epoch": 2})
    if folder:
        assert Record.load(tmp_path / "record").epochs == [{"epoch": 1}, {"epoch": 2}]


@pytest.mark.parametrize("keep", [1.5, "2", 0, True, None])
def test_how_many_states_to_keep_is_a_whole_number(keep: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep must be a whole number, at least 1, got"):
        Checkpoint(tmp_path, keep=keep)
