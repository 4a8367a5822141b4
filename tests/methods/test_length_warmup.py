"""Sequence-length warm-up: DeepSpeed's lengths, everything of that length is cut, rows by length, resuming."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from torchcurriculum import Batch, Curriculum, methods
from torchcurriculum.methods import LengthWarmup

from .pacing import unmeasured


def tokens(rows: int, length: int) -> Batch:
    x = torch.arange(rows * length).reshape(rows, length)
    return Batch(x, x + 1, torch.arange(rows))


@pytest.mark.parametrize(
    ("start", "whole", "steps", "expected"),
    [
        # CurriculumScheduler of DeepSpeed with fixed_linear, difficulty_step 8 and total_step 10 or 7, at each step.
        (8, 128, 10, [8, 16, 32, 40, 56, 64, 80, 88, 104, 112, 128, 128]),
        (64, 1024, 7, [64, 200, 336, 472, 608, 744, 880, 1024, 1024]),
    ],
)
def test_the_lengths_of_deepspeed(start: int, whole: int, steps: int, expected: list[int]) -> None:
    method, batch = LengthWarmup(2 * steps, grow=1.0, start=start), tokens(2, whole)
    for length in expected:
        seen = method.view(nn.Identity(), batch)
        assert seen.x.shape == seen.y.shape == (2, length)
        assert torch.equal(seen.x, batch.x[:, :length])
        assert method.report() == {"length": length}


def test_everything_of_the_length_is_cut_and_nothing_else() -> None:
    x = {
        "input_ids": torch.zeros(2, 16, dtype=torch.int64),
        "attention_mask": torch.ones(2, 16),
        "embeddings": torch.zeros(2, 16, 3),
        "pixels": torch.zeros(2, 3, 16),
    }
    seen = LengthWarmup(4, grow=1.0).view(nn.Identity(), Batch(x, torch.tensor([0, 1]), torch.arange(2)))
    shapes = {name: tuple(part.shape) for name, part in seen.x.items()}
    assert shapes == {"input_ids": (2, 8), "attention_mask": (2, 8), "embeddings": (2, 8, 3), "pixels": (2, 3, 16)}
    assert seen.y.tolist() == [0, 1]


def test_rows_by_their_length() -> None:
    lengths = [40, 8, 24, 16, 33]
    method = LengthWarmup(5, grow=4.0, lengths=lengths)
    rows = [method.plan(unmeasured(t + 1, 5)) for t in range(5)]
    assert [None if some is None else some.tolist() for some in rows] == [[1], [1, 3], [1, 2, 3], [1, 2, 3], None]
    batch = tokens(2, 64)
    assert method.view(nn.Identity(), batch) is batch
    shortest = LengthWarmup(2, grow=4.0, start=2, multiple=2, lengths=[10, 20]).plan(unmeasured(1, 2))
    assert shortest.tolist() == [0], "an epoch needs a row"


class Sentences:
    def __len__(self) -> int:
        return 20

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"input_ids": (torch.arange(24) * (row + 1)) % 11, "labels": row % 3}


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head, self.lengths = nn.Embedding(11, 6), nn.Linear(6, 3), list[int]()

    def forward(self, input_ids: Tensor) -> Tensor:
        self.lengths.append(input_ids.shape[1])
        return self.head(self.embed(input_ids).mean(1))


def trained(stop: int | None) -> list[int]:
    """The lengths that a model saw in three epochs; with ``stop``, of a run resumed after so many steps."""
    torch.manual_seed(0)
    net = Reader()

    def made() -> Curriculum:
        method = methods.build("length-warmup", 20, 10, multiple=4)  # T is two epochs
        return Curriculum(method, Sentences(), forward=lambda model, x: model(**x), batch_size=8)

    curriculum, steps = made(), 0
    while curriculum.number < 3 or curriculum.is_open:
        for batch in curriculum.epoch(net):
            curriculum.loss(net, batch)
            steps += 1
            if steps == stop:
                state, curriculum = curriculum.state_dict(), made()
                curriculum.load_state_dict(state)
                break
    return net.lengths


def test_it_grows_from_step_to_step_and_resumes() -> None:
    # 8, 8 and 4 rows of 20 to a batch: t = 0, 0.4, 0.8, 1, 1.4, 1.8, 2 epochs of 2, from 8 to 24, in steps of 4.
    assert trained(None) == [8, 8, 12, 16, 16, 20, 24, 24, 24]
    assert trained(4) == trained(None)


def test_what_cannot_be_cut_is_named() -> None:
    with pytest.raises(TypeError, match=r"cuts tokens, .* the inputs are .*\(2, 1, 8, 8\); pass lengths="):
        LengthWarmup(4, grow=1.0).view(nn.Identity(), Batch(torch.zeros(2, 1, 8, 8), None, torch.arange(2)))
    for options, words in (
        ({"grow": 0.0}, "grow must be a number in"),
        ({"start": 0}, "start must be a length, at least 1"),
        ({"multiple": 0}, "multiple must be"),
        ({"lengths": [1.5, 2.0, 3.0, 4.0]}, "lengths must be 4 whole numbers"),
    ):
        with pytest.raises(ValueError, match=words):
            LengthWarmup(**{"n": 4, "grow": 1.0, **options})
