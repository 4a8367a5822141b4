from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from torchcurriculum import Arrays, Curriculum, methods
from torchcurriculum.methods import TTCL


class Fixed(nn.Module):
    """A teacher whose loss on row i is log(1 + exp(-x_i)); it counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.9)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.dropout(torch.stack([x, torch.zeros_like(x)], 1))


def run(teacher: nn.Module, x: Tensor, epochs: int) -> list[list[int]]:
    method = TTCL(len(x), grow=2, warmup=0, start=0.5, teacher=teacher)
    student = nn.Linear(1, 2)
    curriculum = Curriculum(
        method, Arrays(x, torch.zeros(len(x), dtype=torch.int64)), batch_size=4, forward=lambda net, z: _call(net, z)
    )
    seen = []
    for _ in range(epochs):
        rows: list[int] = []
        for batch in curriculum.epoch(student):
            curriculum.loss(student, batch).backward()
            rows += batch.index.tolist()
        seen.append(sorted(rows))
    return seen


def _call(net: nn.Module, x: Tensor) -> Tensor:
    return net(x) if isinstance(net, Fixed) else net(x[:, None])


def test_the_teachers_easiest_rows_come_first() -> None:
    # Targets are 0, so the teacher's loss is log(1 + exp(-x)): the larger x, the easier. Half of 4 rows: x = 3 and 2.
    # Then floor(0.75 * 4) = 3 rows, then all.
    x = torch.tensor([0.0, 3.0, -1.0, 2.0])
    assert run(Fixed(), x, 3) == [[1, 3], [0, 1, 3], [0, 1, 2, 3]]


def test_the_teacher_is_asked_once_in_evaluation_mode_and_is_left_alone() -> None:
    teacher = Fixed().train()
    run(teacher, torch.tensor([0.0, 3.0, -1.0, 2.0]), 3)  # in training mode dropout would scramble the order
    assert teacher.calls == 1
    assert teacher.dropout.training
    assert "teacher" not in "".join(TTCL(4, grow=2, warmup=0, teacher=teacher).state_dict())
    assert not list(TTCL(4, grow=2, warmup=0, teacher=nn.Linear(1, 2)).parameters())


def test_a_teacher_that_gives_nan_is_refused() -> None:
    with pytest.raises(ValueError, match=r"at rows \[1\]"):
        run(Fixed(), torch.tensor([0.0, math.nan, -1.0, 2.0]), 1)


def test_without_a_teacher_the_student_warms_up_first() -> None:
    assert methods.build("ttcl", 10, 200).warmup == 20
    assert methods.build("ttcl", 10, 4).warmup == 1
    assert methods.build("ttcl", 10, 200, teacher=Fixed()).warmup == 0


def test_bad_knobs_are_refused() -> None:
    with pytest.raises(ValueError, match="grow must .*got 0"):
        TTCL(4, grow=0, warmup=0)
