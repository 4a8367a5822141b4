from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchcurriculum import Arrays, Curriculum, methods
from torchcurriculum.functional.pacing import buckets_in_use, difficulty_order, pace, rank_within, subset_size
from torchcurriculum.methods import LambdaStep

from .pacing import epoch, unmeasured


def test_golden_shares() -> None:
    # lambda_0 = 0.1, T = 10, t = 5:
    # linear 0.1 + 0.9 / 2 = 0.55; geometric 0.1^(1/2) = 0.316228;
    # root-2 sqrt(0.5 * 0.99 + 0.01) = sqrt(0.505) = 0.710634.
    assert pace(5, 10, 0.1) == pytest.approx(0.55)
    assert pace(5, 10, 0.1, "geometric") == pytest.approx(0.316228, abs=1e-6)
    assert pace(5, 10, 0.1, "root", 2) == pytest.approx(0.710634, abs=1e-6)


def test_the_root_is_p_and_not_always_two() -> None:
    # A peer takes a square root whatever p: from 0, root-3 at half is 0.5^(1/3) = 0.793701, not 0.7071.
    assert pace(5, 10, 0.0, "root", 3) == pytest.approx(0.793701, abs=1e-6)
    # From 0.5: (0.5 (1 - 0.125) + 0.125)^(1/3) = 0.5625^(1/3) = 0.825482.
    assert pace(5, 10, 0.5, "root", 3) == pytest.approx(0.825482, abs=1e-6)


def test_geometric_pacing_refuses_a_start_of_zero() -> None:
    with pytest.raises(ValueError, match="stay at start=0"):
        LambdaStep(4, grow=2, start=0.0, shape="geometric")


shapes = st.sampled_from(["linear", "geometric", "root"])


@given(shapes, st.floats(0.001, 1), st.integers(1, 200), st.floats(0.1, 20))
def test_a_pace_rises_from_its_start_to_one(shape: str, start: float, grow: int, p: float) -> None:
    shares = [pace(t, grow, start, shape, p) for t in range(grow + 3)]  # type: ignore[arg-type]
    assert shares[0] == pytest.approx(start)
    assert shares[grow:] == [1.0] * 3
    assert all(a <= b + 1e-12 for a, b in itertools.pairwise(shares))


@given(st.integers(1, 20), st.integers(1, 20))
def test_baby_steps_rise_to_one_in_equal_steps(interval: int, buckets: int) -> None:
    shares = [buckets_in_use(t, interval, buckets) for t in range(interval * buckets + 1)]
    assert shares[0] == pytest.approx(1 / buckets)
    assert shares[interval * (buckets - 1)] == 1.0
    assert len(set(shares)) == buckets


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(0, 9))
def test_orders_and_ranks_within_groups(values: list[int], seed: int) -> None:
    scores = torch.tensor(values, dtype=torch.float64)
    order = difficulty_order(scores, torch.Generator().manual_seed(seed))
    assert sorted(order.tolist()) == list(range(len(values)))
    assert scores[order].tolist() == sorted(scores.tolist())
    groups = torch.tensor(values) % 2
    places, sizes = rank_within(scores, groups)
    for group in groups.unique():
        inside = groups == group
        assert sorted(places[inside].tolist()) == list(range(int(inside.sum())))
        assert (sizes[inside] == inside.sum()).all()


def test_the_easiest_rows_come_first_and_stay() -> None:
    scores = [0.5, 0.1, 0.4, 0.2, 0.3]
    method = LambdaStep(5, grow=4, start=0.2, scores=scores)
    # lambda_t = 0.2, 0.4, 0.6, 0.8, 1 of 5 rows.
    plans = [method.plan(unmeasured(k, 5)) for k in range(1, 6)]
    assert [None if rows is None else rows.tolist() for rows in plans] == [[1], [1, 3], [1, 3, 4], [1, 2, 3, 4], None]


def test_anti_takes_the_hardest_and_random_neither() -> None:
    scores = torch.arange(100.0)
    anti = methods.build("anti", 100, 20, scores=scores)
    assert anti.plan(unmeasured(1, 100)).tolist() == list(range(90, 100))  # type: ignore[union-attr]
    chance = methods.build("random", 100, 20, scores=scores)
    first = chance.plan(unmeasured(1, 100))
    second = chance.plan(unmeasured(2, 100))
    assert first is not None
    assert second is not None
    assert set(first.tolist()) < set(second.tolist())
    assert first.tolist() not in (list(range(10)), list(range(90, 100)))


def test_random_has_the_pace_of_its_arm_and_never_measures() -> None:
    arm, control = methods.build("lambda-step", 50, 8), methods.build("random", 50, 8)
    for number in range(1, 9):
        rows, drawn = arm.plan(epoch(number, torch.arange(50.0))), control.plan(unmeasured(number, 50))
        assert (rows is None) == (drawn is None)
        assert rows is None or len(rows) == len(drawn)  # type: ignore[arg-type]


def test_difficulty_is_measured_once_after_the_warm_up() -> None:
    method = LambdaStep(4, grow=3, start=0.5)
    assert method.plan(unmeasured(1, 4)) is None
    rows = method.plan(epoch(2, [3.0, 0.0, 1.0, 2.0]))
    assert rows is not None
    assert rows.tolist() == [1, 2]
    rows = method.plan(unmeasured(3, 4))
    assert rows is not None
    assert rows.tolist() == [1, 2]  # floor(2/3 * 4) = 2


def test_equal_scores_do_not_follow_the_order_of_the_data() -> None:
    # A peer's difficulty is the order of the data; here ties are broken at random, the same in every epoch.
    method = LambdaStep(1000, grow=2, start=0.5, scores=torch.zeros(1000))
    rows = method.plan(epoch(1, torch.zeros(1000)))
    assert rows is not None
    assert 200 < int((rows < 500).sum()) < 300
    later = method.plan(epoch(2, torch.zeros(1000)))
    assert later is not None
    assert set(rows.tolist()) < set(later.tolist())


def test_groups_keep_their_shares() -> None:
    scores = torch.cat([torch.arange(10.0), 100 + torch.arange(30.0)])
    groups = torch.cat([torch.zeros(10), torch.ones(30)]).long()
    method = LambdaStep(40, grow=5, start=0.2, scores=scores, groups=groups)
    rows = method.plan(unmeasured(1, 40))
    assert rows is not None
    assert rows.tolist() == [0, 1, 10, 11, 12, 13, 14, 15]


def test_rows_never_seen_count_as_hardest() -> None:
    method = LambdaStep(4, grow=2, start=0.5, warmup=0)
    rows = method.plan(epoch(1, [torch.inf, 2.0, torch.inf, 9.0]))
    assert rows is not None
    assert rows.tolist() == [1, 3]


def test_weights_are_equal_over_the_rows_in_use() -> None:
    method = LambdaStep(4, grow=2, start=0.5, scores=[0.3, 0.1, 0.4, 0.2])
    method.plan(unmeasured(1, 4))
    assert method.weights.tolist() == [0.0, 0.5, 0.0, 0.5]


def test_a_subset_is_never_empty() -> None:
    assert [subset_size(0.0, 5), subset_size(0.29, 100), subset_size(1.0, 5)] == [1, 29, 5]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"start": 1.5}, r"\[0, 1\], got 1.5"),
        ({"grow": 0}, "at least 1 epoch, got 0"),
        ({"shape": "cubic"}, "got 'cubic'"),
        ({"shape": "root", "p": 0.0}, "positive and finite, got 0.0"),
        ({"warmup": -1}, "warmup must be a number of epochs"),
        ({"order": "up"}, "got 'up'"),
        ({"scores": [1.0, 2.0]}, r"each of the 4 rows, shape \(4,\), got \(2,\)"),
        ({"scores": [1.0, 2.0, float("nan"), 0.0]}, r"NaN at rows \[2\]"),
        ({"groups": [0]}, r"groups must have one value for each of the 4 rows"),
    ],
)
def test_bad_knobs_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LambdaStep(4, **{"grow": 2, **options})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1, got 0"):
        LambdaStep(0, grow=2)


@pytest.mark.parametrize("rows", [160, 161, 165, 170])
@pytest.mark.parametrize("name", ["lambda-step", "baby-step", "competence", "spl"])
def test_steps_are_those_that_were_made(name: str, rows: int) -> None:
    # Of 17 rows in batches of 16 the last row joins the batch before it: one step, not two.
    torch.manual_seed(0)
    method = methods.build(name, rows, 12, batch_size=16)
    model = torch.nn.Linear(2, 3)
    data = Arrays(torch.randn(rows, 2), torch.randint(3, (rows,)))
    curriculum, made = Curriculum(method, data, batch_size=16), 0
    for _ in range(12):
        for batch in curriculum.epoch(model):
            curriculum.loss(model, batch).backward()
            made += int(curriculum.number > method.warmup)  # type: ignore[operator]
        assert int(method.steps) == made  # type: ignore[arg-type]
