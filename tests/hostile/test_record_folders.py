"""A folder that holds the record of another run: nothing is lost and nothing of it is used unless the user says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from torchcurriculum import APW, Arrays, Curriculum, Record


def run(folder: Path, n: int = 8, epochs: int = 2, **options: Any) -> Curriculum:
    data = Arrays(torch.rand(n, 2), torch.arange(n) % 2)
    curriculum = Curriculum(APW(n, q=4), data, batch_size=4, record=folder, samples=True, **options)
    net = nn.Linear(2, 2)
    for _ in range(epochs):
        for batch in curriculum.epoch(net):
            curriculum.loss(net, batch).backward()
    return curriculum


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(("n", "message"), [(8, "holds 2 epochs of an earlier run"), (9, "8 rows, but this run has 9")])
def test_an_older_record_is_refused_and_stays(tmp_path: Path, n: int, message: str) -> None:
    run(tmp_path).record.set_array("labels", np.arange(8))
    before = files(tmp_path)
    with pytest.raises(ValueError, match=rf"{message}.*overwrite=True"):
        run(tmp_path, n)
    after = files(tmp_path)
    assert {name: after[name] for name in before if name != "record.json"} == {
        name: data for name, data in before.items() if name != "record.json"
    }
    assert len(Record.load(tmp_path).epochs) == 2


@pytest.mark.parametrize("n", [8, 9])
def test_overwriting_leaves_nothing_of_it(tmp_path: Path, n: int) -> None:
    run(tmp_path).record.set_array("labels", np.arange(8))
    made = run(tmp_path, n, epochs=1, overwrite=True).record
    found = Record.load(tmp_path)
    assert (found.n, len(found.epochs), found.history("losses").shape) == (n, 1, (1, n))
    assert "labels" not in found.arrays
    assert "labels" not in made.arrays


def test_a_state_resumes_it(tmp_path: Path) -> None:
    first = run(tmp_path)
    first.record.set_array("labels", np.arange(8))
    state = first.state_dict()
    data = Arrays(torch.rand(8, 2), torch.arange(8) % 2)
    second = Curriculum(APW(8, q=4), data, batch_size=4, record=tmp_path, samples=True)
    second.load_state_dict(state)
    net = nn.Linear(2, 2)
    for batch in second.epoch(net):
        second.loss(net, batch).backward()
    found = Record.load(tmp_path)
    assert len(found.epochs) == 3
    assert found.arrays["labels"].tolist() == list(range(8))
