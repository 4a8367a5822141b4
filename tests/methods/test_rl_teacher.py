"""TSCL: rewards, slopes and choices by hand, and the peers' bugs."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchcurriculum import Epoch, methods
from torchcurriculum.functional.tscl import (
    append_scores,
    boltzmann,
    difficulty_groups,
    epsilon_greedy,
    moving_average,
    sample_changes,
    slope,
    task_scores,
)
from torchcurriculum.methods import RLTeacher

from ..contract.problem import N, Run
from ..contract.row import Row

TASKS = torch.tensor([0, 1, 0, 1, 2, 2])  # not blocks: rows of a task lie anywhere


def _epoch(number: int, losses: list[float], seed: int = 0) -> Epoch:
    values = torch.tensor(losses)
    return Epoch(number, len(values), values, lambda: values, seed=seed)


def _made(**options: object) -> RLTeacher:
    knobs = {"tasks": TASKS, "picks": 1, "warmup": 0, "epsilon": 0.0, "window": 2, **options}
    return RLTeacher(6, **knobs)  # type: ignore[arg-type]


def _plan(method: RLTeacher, number: int, tasks: list[float]) -> list[int]:
    rows = method.plan(_epoch(number, [tasks[task] for task in TASKS.tolist()]))
    assert rows is not None
    return rows.tolist()


def test_online_by_hand() -> None:
    # Scores -4,-4,-4 then -3,-3.9,-4.5: rewards 1, 0.1, -0.5; Q = 0.1 r = 0.1, 0.01, -0.05: task 0.
    # Then -2.9,-3.9+0.01,-6: rewards 0.1, 0.01, -1.5; Q = 0.09 + 0.01, 0.009 + 0.001, -0.045 - 0.15 = -0.195:
    # task 2, whose score FALLS fastest: forgetting counts as progress does.
    method = _made()
    _plan(method, 1, [4.0, 4.0, 4.0])
    assert method.values.tolist() == [0, 0, 0]
    assert _plan(method, 2, [3.0, 3.9, 4.5]) == [0, 2]
    assert method.values.tolist() == pytest.approx([0.1, 0.01, -0.05], abs=1e-6)
    assert _plan(method, 3, [2.9, 3.89, 6.0]) == [4, 5]
    assert method.values.tolist() == pytest.approx([0.1, 0.01, -0.195], abs=1e-6)


def test_window_by_hand() -> None:
    # Slope of -4,-3,-3 over 0,1,2: (-1)(-4) + 0 + (1)(-3) = 1, over 2 -> 0.5. Of -4,-4.1,-5: (4 - 5) / 2 = -0.5.
    method = _made(policy="window")
    _plan(method, 1, [4.0, 4.0, 4.0])
    _plan(method, 2, [3.0, 4.1, 3.99])
    assert _plan(method, 3, [2.999999, 5.0, 3.0]) == [0, 2]
    assert method.values.tolist() == pytest.approx([0.5, -0.5, 0.5], abs=1e-5)


def test_naive_keeps_its_tasks_for_a_window_and_then_takes_the_slope() -> None:
    method = _made(policy="naive")
    first = _plan(method, 1, [4.0, 4.0, 4.0])
    assert _plan(method, 2, [4.01, 4.01, 1.0]) == first
    # slopes over three scores: (x_3 - x_1) / 2 = 0.5, -0.005, 1.0, and Q = 0.1 times that
    assert _plan(method, 3, [3.0, 4.01001, 2.0]) == [4, 5]
    assert method.values.tolist() == pytest.approx([0.05, -0.0005005, 0.1], abs=1e-6)
    assert _plan(method, 4, [0.0, 0.1, 2.0001]) == [4, 5]


def test_sampling_takes_one_of_the_last_rewards() -> None:
    scores = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.5, -3.0]])
    drawn = {tuple(sample_changes(scores, torch.Generator().manual_seed(seed)).tolist()) for seed in range(60)}
    assert drawn == {(1.0, 0.0), (1.0, -3.0), (0.5, 0.0), (0.5, -3.0)}
    method = _made(policy="sampling", epsilon=1.0)  # epsilon has no part in it
    _plan(method, 1, [4.0, 4.0, 4.0])
    assert _plan(method, 2, [3.9, 3.0, 4.05]) == [1, 3]


def test_tasks_are_equal_groups_of_difficulty_and_not_blocks_of_rows() -> None:
    losses = torch.tensor([5.0, 0.1, 3.0, 0.2, 4.0, 0.3, 1.0, 2.0])
    assert difficulty_groups(losses, 4).tolist() == [3, 0, 2, 0, 3, 1, 1, 2]
    method = RLTeacher(8, tasks=4, warmup=1)
    assert method.plan(_epoch(1, losses.tolist())) is None
    method.plan(_epoch(2, losses.tolist()))
    assert method.tasks.tolist() == [3, 0, 2, 0, 3, 1, 1, 2]
    method.plan(_epoch(3, losses.flip(0).tolist()))
    assert method.tasks.tolist() == [3, 0, 2, 0, 3, 1, 1, 2], "tasks are made once"


def test_scores_leave_out_what_nobody_has_seen() -> None:
    scores = task_scores(torch.tensor([1.0, math.inf, 3.0]), torch.tensor([0, 0, 1]), 3)
    assert scores[:2].tolist() == [-1.0, -3.0]
    assert scores[2].isnan()
    history = torch.tensor([[math.inf, 1.0, 1.0], [math.inf, 2.0, 2.0]])
    new = append_scores(history, torch.tensor([5.0, math.nan, 2.0]), torch.tensor([True, False, True]))
    assert new.tolist() == [[math.inf, 1, 2], [5, 2, 2]]
    assert slope(torch.tensor([[math.inf], [2.0]])).tolist() == [0.0]
    assert moving_average(torch.tensor([1.0, 1.0]), torch.tensor([math.inf, 0.0]), 0.5).tolist() == [1.0, 0.5]


def _mastered(policy: str, first: float, passes: bool) -> tuple[list[int], list[float]]:
    """The tasks chosen in 30 epochs, where task 0 is at a loss of zero from the second on and task 1 gets better."""
    method = RLTeacher(4, 0, policy, torch.tensor([0, 0, 1, 1]), picks=1, epsilon=0.0, window=3)  # type: ignore[arg-type]
    chosen = []
    for number in range(1, 31):
        losses = torch.tensor([first if number == 1 else 0.0, 4.1 - 0.1 * number]).repeat_interleave(2)
        last = losses + 1 if passes else losses  # what training saw
        rows = method.plan(Epoch(number, 4, last, lambda losses=losses: losses))
        assert rows is not None
        chosen.append(int(rows[0]) // 2)
    return chosen, method.values.tolist()


@pytest.mark.parametrize("passes", [True, False], ids=["pass", "running"])
def test_a_score_that_stays_is_a_reward_of_zero(passes: bool) -> None:
    # Online: Q_0 = 0.1, 0.09, 0.081, ... by the equation, Q_1 = 0.1 (1 - 0.9^k), which is larger from epoch 9 on.
    chosen, values = _mastered("online", first=1.0, passes=passes)
    assert chosen[1:8] == [0] * 7
    assert chosen[8:] == [1] * 22
    assert values == pytest.approx([0.1 * 0.9 ** (28 if passes else 7), 0.1 * (1 - 0.9**29)], abs=1e-6)
    # Window: of -1, 0, 0, 0 the slope is 0.3; of 0, 0, 0, 0 it is 0, and that of task 1 is 0.1.
    assert _mastered("window", first=1.0, passes=passes)[0][5:] == [1] * 25
    # A loss of zero from the start is a score, too.
    assert _mastered("online", first=0.0, passes=passes)[0][2:] == [1] * 28


def test_a_task_that_was_never_rewarded_comes_first() -> None:
    for exploration in ("epsilon", "boltzmann"):
        method = _made(exploration=exploration)
        _plan(method, 1, [4.0, 4.0, 4.0])
        assert _plan(method, 2, [1.0, 9.0, 4.0]) == [4, 5], "task 2 was not measured again"


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=9), st.floats(0, 1), st.integers(0, 99), st.data())
@settings(deadline=None, max_examples=40)
def test_choices_are_different_tasks(values: list[float], epsilon: float, seed: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(values)))
    q = torch.tensor(values)
    for chosen in (
        epsilon_greedy(q, count, epsilon, torch.Generator().manual_seed(seed)),
        boltzmann(q, count, 0.5, torch.Generator().manual_seed(seed)),
    ):
        assert len(set(chosen.tolist())) == count
        assert set(chosen.tolist()) <= set(range(len(values)))


def test_exploration_has_the_right_frequencies() -> None:
    # epsilon = 0.3 over 3 tasks: the best has 0.7 + 0.1. Boltzmann with |Q| = log 3, 0 and temperature 1: 3/4.
    q = torch.tensor([0.0, -1.0, 0.5])
    greedy = [int(epsilon_greedy(q, 1, 0.3, torch.Generator().manual_seed(seed))) for seed in range(1000)]
    assert greedy.count(1) / 1000 == pytest.approx(0.8, abs=0.04)
    q = torch.tensor([-math.log(3.0), 0.0])
    drawn = [int(boltzmann(q, 1, 1.0, torch.Generator().manual_seed(seed))) for seed in range(1000)]
    assert drawn.count(0) / 1000 == pytest.approx(0.75, abs=0.04)
    tied = {int(epsilon_greedy(torch.zeros(4), 1, 0.0, torch.Generator().manual_seed(seed))) for seed in range(60)}
    assert tied == {0, 1, 2, 3}


def test_an_epoch_is_whole_tasks_and_pays_one_pass() -> None:
    run = Run(methods.build("rl-teacher", N, 4, tasks=4), Row("rl-teacher")).train()
    made = run.curriculum.method
    rows = run.curriculum.rows
    assert rows is not None
    picked = made.picked.nonzero().flatten().tolist()
    assert len(picked) == 2
    assert rows.tolist() == [row for row in range(N) if int(made.tasks[row]) in picked]
    assert run.curriculum.record.epochs[-1]["tasks"] == picked
    assert run.curriculum.record.epochs[0]["rows"] == N


def test_fewer_rows_than_tasks() -> None:
    assert RLTeacher(3, warmup=1).count == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n must .*got 0"),
        ({"tasks": 0}, "tasks must .*got 0"),
        ({"policy": "greedy"}, "policy must .*got 'greedy'"),
        ({"exploration": "softmax"}, "exploration must .*got 'softmax'"),
        ({"picks": 0}, "picks must .*got 0"),
        ({"picks": 11}, "picks must .*10.*got 11; .*tasks"),
        ({"warmup": -1}, "warmup must .*got -1"),
        ({"window": 0}, "window must .*got 0"),
        ({"rate": 0.0}, r"rate must .*got 0\.0"),
        ({"epsilon": 1.5}, r"epsilon must .*got 1\.5"),
        ({"temperature": 0.0}, r"temperature must .*got 0\.0"),
        ({"tasks": torch.zeros(3, dtype=torch.int64)}, r"tasks must .*20 rows.*got \(3,\)"),
        ({"tasks": torch.zeros(20)}, "tasks must be 20 whole numbers, got torch.float32"),
        ({"tasks": torch.full((20,), 2)}, "without gaps"),
        ({"tasks": torch.full((20,), -1)}, "without gaps"),
    ],
)
def test_bad_knobs(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RLTeacher(**{"n": 20, "warmup": 1, **options})  # type: ignore[arg-type]
