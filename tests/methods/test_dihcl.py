from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from torchcurriculum import Arrays, Batch, Curriculum, Step, methods
from torchcurriculum.functional.dihcl import hardness_probabilities
from torchcurriculum.methods import DIHCL

from .pacing import unmeasured


def test_golden_average_of_the_loss() -> None:
    # gamma = 0.9: first 2; then 0.9 * 1 + 0.1 * 2 = 1.1; then 0.9 * 3 + 0.1 * 1.1 = 2.81.
    method = DIHCL(2, decay=0.85, warmup=10)
    for loss in (2.0, 1.0, 3.0):
        method.observe(torch.tensor([loss]), torch.tensor([1]))
    assert method.dih.tolist() == pytest.approx([torch.inf, 2.81])


def test_golden_average_of_the_change() -> None:
    # |1 - 2| = 1 at the second visit, |3 - 1| = 2 at the third: 0.9 * 2 + 0.1 * 1 = 1.9.
    method = DIHCL(1, decay=0.85, warmup=10, hardness="change")
    method.observe(torch.tensor([2.0]), torch.tensor([0]))
    assert method.dih.tolist() == [torch.inf]
    method.observe(torch.tensor([1.0]), torch.tensor([0]))
    assert method.dih.tolist() == [1.0]
    method.observe(torch.tensor([3.0]), torch.tensor([0]))
    assert method.dih.tolist() == pytest.approx([1.9])


def _step(logits: Tensor, y: Tensor, index: Tensor) -> Step:
    losses = torch.rand(len(index), generator=torch.Generator().manual_seed(0))
    return Step(nn.Identity(), Batch(logits, y, index), logits, losses)


def test_flips_are_of_predictions() -> None:
    # A peer takes the argmax of a scalar loss, always 0. Row 0 stays right, row 1 goes right -> wrong -> right.
    method = DIHCL(2, decay=0.85, warmup=10, hardness="flip", gamma=0.5)
    right, wrong = [1.0, 0.0], [0.0, 1.0]
    for second in (right, wrong, right):
        method.weigh(_step(torch.tensor([right, second]), torch.tensor([0, 0]), torch.tensor([0, 1])))
    assert method.dih.tolist() == [0.0, 1.0]
    method.weigh(_step(torch.tensor([right]), torch.tensor([0]), torch.tensor([1])))
    assert method.dih.tolist() == [0.0, 0.5]


def test_flips_need_classes() -> None:
    method = DIHCL(2, decay=0.85, warmup=10, hardness="flip")
    with pytest.raises(TypeError, match="use 'loss' or 'change'"):
        method.weigh(_step(torch.zeros(2, 3), torch.zeros(2), torch.tensor([0, 1])))


def test_golden_probabilities() -> None:
    # 1 : 3 : unknown, counted as 3 -> 1/7, 3/7, 3/7.
    hardness = torch.tensor([1.0, 3.0, torch.inf])
    assert hardness_probabilities(hardness).tolist() == pytest.approx([1 / 7, 3 / 7, 3 / 7])
    assert hardness_probabilities(torch.zeros(4)).tolist() == [0.25] * 4
    assert hardness_probabilities(torch.full((4,), torch.inf)).tolist() == [0.25] * 4


@given(st.lists(st.floats(-1e6, 1e6) | st.just(float("inf")), min_size=1, max_size=30))
def test_probabilities_are_positive_sum_to_one_and_rise_with_hardness(values: list[float]) -> None:
    hardness = torch.tensor(values, dtype=torch.float64)
    probabilities = hardness_probabilities(hardness)
    assert (probabilities > 0).all()
    assert probabilities.sum().item() == pytest.approx(1)
    assert (probabilities[hardness.argsort()].diff() >= -1e-15).all()


def test_the_share_falls_to_the_bottom() -> None:
    # 10 rows, warm-up 1: all; 0.5 -> 5; 0.25 -> 2; max(0.2, 0.125) -> 2.
    method = DIHCL(10, decay=0.5, bottom=0.2, warmup=1)
    method.observe(torch.rand(10), torch.arange(10))
    plans = [method.plan(unmeasured(k, 10)) for k in range(1, 5)]
    assert plans[0] is None
    assert [len(rows) for rows in plans[1:] if rows is not None] == [5, 2, 2]


def test_hard_rows_are_drawn_more_often() -> None:
    method = DIHCL(100, decay=0.2, bottom=0.2, warmup=0)
    method.observe(torch.where(torch.arange(100) < 20, 99.0, 1.0), torch.arange(100))
    rows = method.plan(unmeasured(1, 100))
    assert rows is not None
    assert int((rows < 20).sum()) >= 15


def test_hardness_goes_to_the_row_and_not_to_the_position() -> None:
    # The peers count positions: on a shuffled loader the wrong samples get the losses, and their warm-up is not
    # shuffled to hide it. Every loss here is a function of the row, and must be found there.
    n, seen = 50, []
    method, model = DIHCL(n, warmup=1, decay=0.5), nn.Linear(1, 1)
    data = Arrays(torch.zeros(n, 1), torch.arange(n).double())
    curriculum = Curriculum(method, data, loss_fn=lambda out, y: out[:, 0].double() * 0 + y + 1, batch_size=7)
    for _ in range(3):
        for batch in curriculum.epoch(model):
            curriculum.loss(model, batch)
            seen += batch.index.tolist()
    assert torch.allclose(method.dih, torch.arange(n).double() + 1)
    assert seen[:n] != list(range(n))
    assert sorted(seen[:n]) == list(range(n))


def test_hardness_is_divided_by_the_learning_rate() -> None:
    method = DIHCL(1, decay=0.85, warmup=10, learning_rate=lambda epoch: 0.5 / epoch)
    method.plan(unmeasured(2, 1))
    method.observe(torch.tensor([1.0]), torch.tensor([0]))
    assert method.dih.tolist() == [4.0]


def test_by_name_the_bottom_is_reached_half_way() -> None:
    method = methods.build("dihcl", 100, 100)
    assert method.warmup == 10
    assert method.decay**45 == pytest.approx(0.2)  # type: ignore[operator]


@pytest.mark.parametrize("name", ["gamma", "decay", "bottom"])
def test_bad_shares_are_refused(name: str) -> None:
    for value in (0.0, 1.1):
        with pytest.raises(ValueError, match=rf"{name} must be .*\(0, 1\], got {value}"):
            DIHCL(**{"n": 4, "decay": 0.85, "warmup": 10, name: value})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=f"{name} must .*got {value}"):
            methods.build("dihcl", 4, 10, **{name: value})


def test_bad_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="hardness must .*got 'entropy'"):
        DIHCL(4, decay=0.85, warmup=10, hardness="entropy")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="warmup must .*got -1"):
        DIHCL(4, decay=0.85, warmup=-1)
