from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from torchcurriculum import Arrays, Batch, Curriculum, Step, methods
from torchcurriculum.functional.dihcl import beta_probabilities, hardness_probabilities, ucb_probabilities
from torchcurriculum.methods import DIHCL

from .pacing import unmeasured


def test_golden_average_of_the_loss() -> None:
    # gamma = 0.9: first 2; then 0.9 * 1 + 0.1 * 2 = 1.1; then 0.9 * 3 + 0.1 * 1.1 = 2.81.
    method = DIHCL(2, decay=0.85, warmup=10, gamma=0.9)
    for loss in (2.0, 1.0, 3.0):
        method.observe(torch.tensor([loss]), torch.tensor([1]))
    assert method.dih.tolist() == pytest.approx([torch.inf, 2.81])


def test_golden_average_of_the_change() -> None:
    # |1 - 2| = 1 at the second visit, |3 - 1| = 2 at the third: 0.9 * 2 + 0.1 * 1 = 1.9.
    method = DIHCL(1, decay=0.85, warmup=10, hardness="change", gamma=0.9)
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


@pytest.mark.parametrize("hardness", ["change", "flip"])
def test_a_change_is_divided_by_the_learning_rates_since_the_last_visit(hardness: str) -> None:
    # Eq. 2 (B) and (C) with a constant rate: two rows change equally between epochs 9 and 10, and 1 and 10. The first
    # is divided by 1, the other by 9: probabilities 0.9 and 0.1, where no denominator gives 0.5 and 0.5.
    method = DIHCL(2, hardness=hardness, warmup=99)  # type: ignore[arg-type]
    for number in range(1, 11):
        method.plan(unmeasured(number, 2))
        if number < 10:
            method.observe(torch.zeros(1), torch.tensor([0]))
        if number in (1, 10):
            method.observe(torch.full((1,), float(number == 10)), torch.tensor([1]))
        if number == 10:
            method.dih[0] = torch.inf  # so that its next value stands as it is
            method.observe(torch.ones(1), torch.tensor([0]))
    assert method.weights.tolist() == pytest.approx([0.9, 0.1])


def test_the_sum_of_learning_rates_is_that_of_the_authors_code() -> None:
    # dihcl.py of tianyizhou/DIHCL (6b80445): all_pace of a row is set to 0 when the row is trained on, and grows by
    # every epoch's sum of learning rates, that of the visit included. Rates 0.1, 0.2, 0.3, 0.4; visits in epochs 1 and
    # 4 with losses 3 and 1: all_pace = 0.1 + 0.2 + 0.3, a = 2 / 0.6 = 3.3333.
    method = DIHCL(1, hardness="change", learning_rate=lambda epoch: epoch / 10)
    for number in range(1, 5):
        method.plan(unmeasured(number, 1))
        if number in (1, 4):
            method.observe(torch.tensor([3.0 if number == 1 else 1.0]), torch.tensor([0]))
    assert method.dih.tolist() == pytest.approx([10 / 3])


def test_by_name_the_episodes_and_the_defaults_are_those_of_the_paper() -> None:
    # --schedule 0 5 10 15 20 30 40 60 90 140 210 300 of dihcl.py, counted from 1; T_0 = 5, gamma = 0.95, gamma_k = 0.85
    # and 0.2 n from Section 4. 0.85^10 = 0.1969, so the tenth episode is at the bottom.
    method = methods.build("dihcl", 1000, 300)
    assert method.episodes == [6, 11, 16, 21, 31, 41, 61, 91, 141, 211]
    assert (method.warmup, method.gamma, method.decay, method.bottom) == (5, 0.95, 0.85, 0.2)
    sizes = {}
    for number in (5, 6, 10, 11, 211, 300):
        rows = method.plan(unmeasured(number, 1000))
        sizes[number] = 1000 if rows is None else len(rows)
    assert sizes == {5: 1000, 6: 850, 10: 850, 11: 722, 211: 200, 300: 200}
    assert methods.build("dihcl", 10, 8).warmup == 2
    with pytest.raises(ValueError, match=r"episodes must be epochs in increasing order, got \[3, 2\]"):
        DIHCL(4, episodes=[3, 2])


def test_greedy_takes_the_hardest() -> None:
    method = DIHCL(4, decay=0.5, warmup=0, policy="greedy")
    method.observe(torch.tensor([1.0, 4.0, 2.0, 3.0]), torch.arange(4))
    rows = method.plan(unmeasured(1, 4))
    assert rows is not None
    assert rows.tolist() == [1, 3]


def test_exp_by_hand() -> None:
    # n = 2: sqrt(2 log 2 / 2) = 0.832555; exp(0.832555 * 1) / (1 + exp(0.832555)) = 0.696895.
    method = DIHCL(2, decay=0.5, warmup=1, policy="exp", gamma=1.0)
    method.plan(unmeasured(1, 2))
    method.observe(torch.tensor([0.0, 1.0]), torch.arange(2))
    assert method.weights.tolist() == pytest.approx([0.303105, 0.696895], abs=1e-6)
    method.plan(unmeasured(2, 2))
    method.observe(torch.tensor([1.0]), torch.tensor([1]))  # a = 1 / 0.696895
    assert method.dih.tolist() == pytest.approx([0.0, 1.434936], abs=1e-6)


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


def test_golden_ucb() -> None:
    # The lines of the authors' dihcl.py for UCB with the loss, in numpy: acc = raw / selects, 300 epochs, tmpt 20:
    # acc += 1.0e-3 * mean(acc) * sqrt(2 log 300) * sqrt(1 / selects); exp(20 acc / mean(acc)), normalised.
    raw, selects = np.array([2.0, 9.0, 4.0, 10.0]), np.array([1.0, 4.0, 2.0, 9.0])
    acc = raw / selects
    acc += 1.0e-3 * np.mean(acc) * np.sqrt(2.0 * np.log(300.0)) * np.sqrt(1.0 / selects)
    chances = np.exp(20.0 * acc / np.mean(acc))
    ours = ucb_probabilities(torch.tensor(raw / selects), torch.tensor(selects), 300)
    np.testing.assert_allclose(ours.numpy(), chances / chances.sum(), rtol=1e-12)


def test_ucb_counts_visits() -> None:
    method = DIHCL(3, policy="ucb", horizon=50, gamma=1.0)
    for row, loss in ((0, 1.0), (1, 1.0), (1, 1.0), (1, 1.0), (1, 1.0)):
        method.observe(torch.tensor([loss]), torch.tensor([row]))
    assert method.visits.tolist() == [1, 4, 0]
    weights = method.weights
    assert weights[0] > weights[1]  # the same r, fewer visits
    assert DIHCL.for_run(3, 40, policy="ucb").horizon == 40


def test_beta_draws_around_the_flips() -> None:
    # The mean of Beta(r, 1 - r) is r, and its variance r (1 - r) / 2: for r = 0.2, 0.08.
    hardness = torch.full((20000,), 0.2)
    drawn = beta_probabilities(hardness, torch.Generator().manual_seed(0)) * 20000 * 0.2
    assert drawn.mean().item() == pytest.approx(0.2)
    assert drawn.var().item() == pytest.approx(0.08, abs=0.003)
    sides = torch.tensor([0.0, 1.0, torch.inf])
    assert beta_probabilities(sides, torch.Generator().manual_seed(0)).isfinite().all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"policy": "ucb"}, "policy='ucb' needs horizon"),
        ({"policy": "rand", "horizon": 9}, "policy='rand' would ignore horizon=9"),
        ({"policy": "beta"}, "hardness='flip' without learning_rate, got hardness='loss'"),
        ({"policy": "beta", "hardness": "flip", "learning_rate": lambda epoch: 0.1}, "without learning_rate, got"),
    ],
)
def test_a_policy_says_what_it_needs_and_what_it_would_ignore(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DIHCL(4, **options)  # type: ignore[arg-type]
