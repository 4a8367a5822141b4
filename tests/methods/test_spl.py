from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchcurriculum import Mixed, Sampled
from torchcurriculum.functional.spl import Scheme, self_paced_weights
from torchcurriculum.methods import SPL

from .pacing import epoch, unmeasured

SCHEMES = get_args(Scheme)
every = pytest.mark.parametrize("scheme", SCHEMES)


def golden(losses: list[float], age: float, scheme: Scheme, **knobs: float) -> list[float]:
    return self_paced_weights(torch.tensor(losses, dtype=torch.float64), age, scheme, **knobs).tolist()


def test_golden_hard_and_linear() -> None:
    assert golden([0.0, 1.0, 4.0, 4.1], 4.0, "hard") == [1, 1, 1, 0]
    # 1 - L / 4.
    assert golden([0.0, 1.0, 3.0, 4.0, 5.0], 4.0, "linear") == [1, 0.75, 0.25, 0, 0]


def test_golden_logarithmic() -> None:
    # lambda = 0.5, zeta = 0.5: log(L + 0.5) / log 0.5. L = 0 -> 1; 0.25 -> log(0.75) / log(0.5) = 0.415037; 0.5 -> 0.
    assert golden([0.0, 0.25, 0.5, 0.6], 0.5, "logarithmic") == pytest.approx([1, 0.415037, 0, 0], abs=1e-6)


def test_golden_logarithmic_above_its_papers_range() -> None:
    # A peer takes log(1 - lambda) of a negative number: every weight NaN once lambda > 1. In units that bring
    # lambda = 9 to 0.9, L = 4.5 is 0.45: log(0.45 + 0.1) / log(0.1) = 0.259637.
    assert golden([0.0, 4.5, 9.0], 9.0, "logarithmic") == pytest.approx([1, 0.259637, 0], abs=1e-6)


def test_golden_mixture() -> None:
    # lambda_1 = 4, lambda_2 = 2, zeta = 4 * 2 / 2 = 4: zeta / L - zeta / lambda_1 = 4 / L - 1, so 3 -> 1/3.
    assert golden([0.0, 1.0, 2.0, 3.0, 4.0, 9.0], 4.0, "mixture") == pytest.approx([1, 1, 1, 1 / 3, 0, 0])


def test_golden_root_mixture() -> None:
    # lambda^2 = 4 in Zhao et al.'s letters: lambda = 2; full weight up to 1, i.e. (lambda gamma / (lambda + gamma))^2
    # = 1, gamma = 2. At L = 2.25: gamma (1 / 1.5 - 1 / 2) = 1/3.
    assert golden([1.0, 2.25, 4.0], 4.0, "root-mixture", ratio=0.25) == pytest.approx([1, 1 / 3, 0])


def test_golden_polynomial() -> None:
    # t = 4: (1 - L / 8)^(1/3); L = 7 -> (1/8)^(1/3) = 1/2. A peer's precedence, (...)^1 / 3, would give 1/24.
    assert golden([0.0, 7.0, 8.0], 8.0, "polynomial", power=4.0) == pytest.approx([1, 0.5, 0])
    assert golden([1.0, 2.0], 4.0, "polynomial", power=2.0) == golden([1.0, 2.0], 4.0, "linear")


@given(
    st.sampled_from(SCHEMES),
    st.lists(st.floats(0, 1e30) | st.sampled_from([0.0, 1.0, math.inf]), min_size=1, max_size=20),
    st.floats(0, 1e30) | st.sampled_from([0.0, 0.9, 1.0, math.inf]),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_weights_are_numbers_in_zero_to_one_that_fall_with_the_loss(
    scheme: Scheme, losses: list[float], age: float, dtype: torch.dtype
) -> None:
    ordered = torch.tensor(losses, dtype=dtype).sort().values
    weights = self_paced_weights(ordered, age, scheme)
    assert weights.isfinite().all()
    assert (weights >= 0).all()
    assert (weights <= 1 + 1e-6).all()
    assert (weights.diff() <= 1e-6).all()


@given(st.sampled_from(SCHEMES), st.floats(0.01, 0.89), st.floats(0.01, 0.99))
def test_weights_minimise_their_papers_objective(scheme: Scheme, age: float, x: float) -> None:
    """v* beats every other v of a grid on v L + f(v; lambda), f as printed in each paper."""
    loss, v = age * x, torch.linspace(0, 1, 1001, dtype=torch.float64)
    ratio, t = 0.5, 3.0
    zeta = age * (ratio * age) / (age - ratio * age)
    gamma = math.sqrt(age) * math.sqrt(ratio) / (1 - math.sqrt(ratio))
    objective = {
        "hard": lambda v: v * loss - age * v,
        "linear": lambda v: v * loss + age * (v**2 / 2 - v),
        "logarithmic": lambda v: v * loss + (1 - age) * v - (1 - age) ** v / math.log(1 - age),
        "mixture": lambda v: v * loss - zeta * torch.log(v + zeta / age),
        "root-mixture": lambda v: v * loss + gamma**2 / (v + gamma / math.sqrt(age)),
        "polynomial": lambda v: v * loss + age * (v**t / t - v),
    }[scheme]
    best = self_paced_weights(torch.tensor([loss], dtype=torch.float64), age, scheme, t, ratio)
    assert objective(best).item() <= objective(v).min().item() + 1e-9


def test_golden_weights_of_an_epoch() -> None:
    # Three of four rows; lambda is the fourth loss, 4: 1, 3/4, 1/4 -> over their sum 2.
    method = SPL(4, grow=2, start=0.75, scheme="linear", warmup=0)
    rows = method.plan(epoch(1, [0.0, 4.0, 1.0, 3.0]))
    assert rows is not None
    assert rows.tolist() == [0, 2, 3]
    assert method.weights.tolist() == [0.5, 0.0, 0.375, 0.125]
    # Scaled to an average of one over the rows in use, so a step keeps its size.
    assert method.confidence[rows].mean().item() == pytest.approx(1)
    assert method.report()["age"] == 4


@every
def test_a_tiny_share_and_equal_losses_still_train(scheme: Scheme) -> None:
    # A peer's tiny rate ends in an IndexError; soft weights of the only row would be zero.
    for losses in (torch.arange(50.0), torch.ones(50), torch.zeros(50), torch.full((50,), torch.inf)):
        method = SPL(50, grow=10, start=0.0, scheme=scheme, warmup=0)
        rows = method.plan(epoch(1, losses))
        assert rows is not None
        assert len(rows) == 1
        assert method.weights.sum().item() == pytest.approx(1)


@every
def test_negative_losses_are_shifted(scheme: Scheme) -> None:
    a, b = (SPL(6, grow=2, start=0.6, scheme=scheme, warmup=0) for _ in range(2))
    losses = torch.tensor([0.0, 0.2, 0.4, 0.6, 0.7, 0.8], dtype=torch.float64)
    a.plan(epoch(1, losses))
    b.plan(epoch(1, losses - 3))
    torch.testing.assert_close(a.weights, b.weights)


def test_hard_keeps_the_pace_when_losses_are_equal() -> None:
    method = SPL(100, grow=4, start=0.25, warmup=0)
    rows = method.plan(epoch(1, torch.zeros(100)))
    assert rows is not None
    assert len(rows) == 25


def test_nothing_is_measured_in_the_warm_up_and_after_the_growth() -> None:
    method = SPL(4, grow=1, start=0.5, warmup=1, scheme="linear")
    assert method.plan(unmeasured(1, 4)) is None
    assert method.plan(epoch(2, [1.0, 2.0, 3.0, 4.0])) is not None
    assert method.plan(unmeasured(3, 4)) is None
    assert method.weights.tolist() == [0.25] * 4


def test_a_wrapper_can_sample_from_its_weights() -> None:
    method = SPL(10, grow=4, start=0.5, warmup=0, scheme="linear")
    rows = Sampled(method, fraction=0.3).plan(epoch(1, torch.arange(10.0)))
    assert rows is not None
    assert len(rows) == 3
    assert (rows < 5).all()
    assert torch.equal(Mixed(method).weights, method.weights)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scheme": "cubic"}, "scheme must be one of 'hard', .*got 'cubic'"),
        ({"power": 1.0}, "power > 1, got 1.0"),
        ({"ratio": 1.0}, "between 0 and 1, got 1.0"),
        ({"start": -0.1}, "got -0.1"),
    ],
)
def test_bad_knobs_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SPL(4, grow=2, **options)  # type: ignore[arg-type]
