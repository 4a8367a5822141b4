from __future__ import annotations

import pytest

from torchcurriculum import methods
from torchcurriculum.methods import BabyStep

from .pacing import epoch, unmeasured


def test_golden_stages() -> None:
    # 6 rows in 3 buckets of 2, two epochs each: ranks of 0.5 0.0 0.9 0.2 0.7 0.1 are 3 0 5 2 4 1,
    # so the buckets are {1, 5}, {3, 0}, {4, 2}.
    method = BabyStep(6, buckets=3, interval=2, scores=[0.5, 0.0, 0.9, 0.2, 0.7, 0.1])
    plans = [method.plan(unmeasured(k, 6)) for k in range(1, 6)]
    expected = [[1, 5], [1, 5], [0, 1, 3, 5], [0, 1, 3, 5], None]
    assert [None if rows is None else rows.tolist() for rows in plans] == expected


def test_difficulty_is_not_the_order_of_the_data() -> None:
    # The peers have no measurer: their easiest rows are the first ones.
    method = BabyStep(4, buckets=2, interval=1)
    assert method.plan(unmeasured(1, 4)) is None
    rows = method.plan(epoch(2, [4.0, 3.0, 2.0, 1.0]))
    assert rows is not None
    assert rows.tolist() == [2, 3]


def test_one_bucket_never_measures() -> None:
    method = BabyStep(4, buckets=1, interval=1)
    assert [method.plan(unmeasured(k, 4)) for k in range(1, 4)] == [None] * 3


@pytest.mark.parametrize("epochs", [1, 2, 5, 19, 20, 50, 200])
def test_by_name_everything_is_in_use_in_the_second_half(epochs: int) -> None:
    method = methods.build("baby-step", 100, epochs)
    shares = [method.pace(t) for t in range(epochs)]  # type: ignore[attr-defined]
    assert shares[-1] == 1.0
    assert shares.index(1.0) <= max(1, epochs // 2)


@pytest.mark.parametrize(("options", "words"), [({"buckets": 0}, "buckets"), ({"interval": 0}, "interval")])
def test_bad_knobs_are_refused(options: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=f"{words} must be .*at least 1.* got 0"):
        BabyStep(**{"n": 4, "buckets": 10, "interval": 1, **options})
    with pytest.raises(ValueError, match=f"{words} must be .*at least 1.* got 0"):
        methods.build("baby-step", 4, 10, **options)
