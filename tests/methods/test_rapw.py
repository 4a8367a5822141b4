"""RAPW against numbers worked by hand, and what its formulas promise."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchcurriculum import Batch, Epoch, Step, methods
from torchcurriculum.functional import graded_easiness, moving_threshold, remember, right_odds
from torchcurriculum.functional.superloss import confidence
from torchcurriculum.methods import RAPW

shares = st.floats(0.01, 0.99)
counts = st.integers(2, 1000)


def begin(method: RAPW, *losses: float) -> None:
    values = torch.tensor(losses, dtype=torch.float64)
    method.plan(Epoch(2, method.n, values, lambda: values))


def weigh(method: RAPW, losses: torch.Tensor, classes: int = 2, y: torch.Tensor | None = None) -> torch.Tensor:
    batch = Batch(None, y, torch.arange(len(losses)))
    return method.weigh(Step(torch.nn.Identity(), batch, torch.zeros(len(losses), classes), losses))


def test_odds_by_hand() -> None:
    # C = 10, rho = 0.4, p = 1/2: 0.6 * 9 * 0.5 / (0.4 * 0.5) = 13.5; p = 1/10 (guessing): the odds of rho, 1.5.
    odds = right_odds(torch.tensor([2.0, 10.0], dtype=torch.float64).log(), 0.4, 10).exp()
    torch.testing.assert_close(odds, torch.tensor([13.5, 1.5], dtype=torch.float64))
    # 2 * 13.5 / 14.5 - 1 = 25/29
    assert graded_easiness(torch.tensor(2.0, dtype=torch.float64).log(), 0.4, 10).item() == pytest.approx(25 / 29)


def test_two_epochs_by_hand() -> None:
    method = RAPW(2, decay=0.5, lam=math.inf, classes=2)
    assert method.weights.tolist() == [0.5, 0.5]
    # p = 3/4 and 1/2 at rho = 1/2: wrong with 1/4 and 1/2, so rho = 3/8. The mean of p is 5/8: (1/8) / (1/2) / 0.2 > 1.
    begin(method, math.log(4 / 3), math.log(2))
    assert method.rho.item() == pytest.approx(0.375)
    assert method.trust == 1
    # prior odds 5/3: odds 5 and 5/3, P = 5/6 and 5/8, 4 to 3.
    torch.testing.assert_close(method.weights, torch.tensor([4 / 7, 3 / 7], dtype=torch.float64))
    # The step looks at the mean of the memory and the current loss: (log 2 + log(8/9)) / 2 = log(4/3) for the second.
    weights = weigh(method, torch.tensor([4 / 3, 8 / 9], dtype=torch.float64).log())
    torch.testing.assert_close(weights, torch.tensor([0.5, 0.5], dtype=torch.float64))
    # Second epoch: memories (log(4/3) + log 3) / 2 = log 2 and (log 2 + log 2) / 2 = log 2: rho stays, trust goes.
    begin(method, math.log(3), math.log(2))
    torch.testing.assert_close(method.memory, torch.full((2,), math.log(2)))
    assert method.rho.item() == pytest.approx(0.375, rel=1e-6)
    assert method.trust.item() == pytest.approx(0, abs=1e-6)


def test_no_class_loses_weight_as_a_whole_by_hand() -> None:
    method = RAPW(4, decay=0.0, lam=math.inf, classes=2)
    y = torch.tensor([0, 0, 0, 1])
    # In the first epoch nothing is known, and all have 1/4.
    losses = torch.tensor([4 / 3, 4 / 3, 2.0, 4.0], dtype=torch.float64).log()
    torch.testing.assert_close(weigh(method, losses, y=y), torch.full((4,), 0.25, dtype=torch.float64))
    # Wrong with 1/4, 1/4, 1/2, 3/4 at rho = 1/2: rho = 7/16, prior odds 9/7; mean p is 9/16, trust (1/16) / 0.5 / 0.2.
    begin(method, *losses.tolist())
    assert method.rho.item() == pytest.approx(7 / 16)
    assert method.trust.item() == pytest.approx(0.625)
    # Odds 27/7, 27/7, 9/7, 3/7: P = 27/34, 27/34, 9/16, 3/10, to the power 0.625.
    first = torch.tensor([27 / 34, 27 / 34, 9 / 16, 3 / 10], dtype=torch.float64) ** 0.625
    torch.testing.assert_close(weigh(method, losses, y=y), first / first.sum(), rtol=1e-6, atol=1e-9)
    # After the epoch the class means are those of `first`: the rare class has a quarter of the weight, as of the rows.
    method.plan(Epoch(3, 4, losses, lambda: losses))
    weights = weigh(method, losses, y=y)
    assert weights[3] > 0.9 * 0.25 > first[3] / first.sum()
    torch.testing.assert_close(method.means, torch.stack([first[:3].mean(), first[3]]), rtol=1e-6, atol=1e-9)


def test_a_network_that_knows_nothing_is_not_believed() -> None:
    method = RAPW(4, lam=2.0, classes=2)
    # Sure of one class, and half of the labels are of the other: no better than guessing.
    begin(method, 1e-9, 1e-9, 30.0, 30.0)
    assert method.trust == 0
    losses = torch.tensor([1e-9, 1e-9, 30.0, 30.0], dtype=torch.float64)
    torch.testing.assert_close(weigh(method, losses), torch.full((4,), 0.25, dtype=torch.float64))


def test_the_memory_is_a_mean_until_it_is_long_enough() -> None:
    method = RAPW(1, decay=0.6, classes=2)
    for loss, mean in ((1.0, 1.0), (2.0, 1.5), (6.0, 0.6 * 1.5 + 0.4 * 6.0), (3.3, 0.6 * 3.3 + 0.4 * 3.3)):
        begin(method, loss)  # shares of the old value: none, 1/2, 0.6 in place of 2/3, 0.6
        assert method.memory.item() == pytest.approx(mean, rel=1e-6)


def test_what_an_untrained_network_says_is_not_remembered() -> None:
    method = RAPW(2, classes=2)
    method.plan(Epoch(1, 2, torch.tensor([1.0, 5.0]), lambda: torch.tensor([1.0, 5.0])))
    assert method.memory.isnan().all()
    assert method.rho == 0.5


def test_the_confidence_is_superloss_s() -> None:
    method = RAPW(3, decay=0.0, lam=2.0, classes=10)
    begin(method, 1.0, 1.0, 1.0)  # p = 0.37 of ten classes
    assert method.trust == 1
    losses = torch.tensor([0.0, math.log(10), 8.0], dtype=torch.float64)
    right = torch.sigmoid(right_odds(losses, method.rho, 10))
    expected = right * confidence(losses, math.log(10), 2.0)
    torch.testing.assert_close(weigh(method, losses), expected / expected.sum())


@given(shares, counts)
def test_easiness_is_zero_at_the_threshold_which_rises_as_rho_falls(rho: float, classes: int) -> None:
    threshold = moving_threshold(rho, classes)
    assert graded_easiness(threshold, rho, classes).item() == pytest.approx(0, abs=1e-8)
    assert moving_threshold(rho / 2, classes) > threshold
    assert moving_threshold(0.5, classes).item() == pytest.approx(math.log(classes))


@given(shares, counts, st.lists(st.floats(0, 1e30), min_size=2, max_size=20))
def test_a_higher_loss_never_has_more_weight_and_all_are_finite(rho: float, classes: int, losses: list[float]) -> None:
    values = torch.tensor(sorted(losses), dtype=torch.float64)
    beta = graded_easiness(values, rho, classes)
    assert beta.isfinite().all()
    assert beta.abs().max() <= 1
    assert (beta.diff() <= 1e-12).all()


@given(st.floats(0.05, 0.6), st.integers(0, 5))
def test_rho_finds_the_share_of_wrong_labels(noise: float, seed: int) -> None:
    # A calibrated model of ten classes: its favourite (class 0) is the truth with p = 0.7, each other with 0.3 / 9.
    draw = torch.Generator().manual_seed(seed)
    truth = torch.where(torch.rand(4000, generator=draw) < 0.7, 0, torch.randint(1, 10, (4000,), generator=draw))
    other = (truth + torch.randint(1, 10, (4000,), generator=draw)) % 10
    labels = torch.where(torch.rand(4000, generator=draw) < noise, other, truth)
    p = torch.where(labels == 0, 0.7, 0.3 / 9)
    method = RAPW(4000, classes=10)
    for _ in range(60):
        begin(method, *(-p.log()).tolist())
    assert abs(method.rho.item() - noise) < 0.05


@given(st.lists(st.lists(st.floats(0, 40), min_size=5, max_size=5), min_size=1, max_size=4), counts)
def test_theorem_1_holds_the_weight_on_hard_rows_is_below_the_weighted_loss_over_e(
    epochs: list[list[float]], classes: int
) -> None:
    method = RAPW(5, decay=0.5, classes=classes)
    for losses in epochs:
        begin(method, *losses)
        threshold, memory = moving_threshold(method.rho, classes), method.memory.double()
        hard = memory > threshold
        assert method.weights.sum().item() == pytest.approx(1)
        assert method.weights[hard].sum() <= method.weights @ memory / threshold + 1e-9


@given(st.lists(st.floats(0, 50), min_size=1, max_size=9), st.floats(0, 0.99))
def test_a_memory_lies_between_what_it_has_seen(losses: list[float], decay: float) -> None:
    memory = torch.full((1,), math.nan, dtype=torch.float64)
    for loss in losses:
        memory = remember(memory, torch.tensor([loss], dtype=torch.float64), decay)
    assert min(losses) - 1e-9 <= memory.item() <= max(losses) + 1e-9


def test_the_number_of_classes_comes_from_the_outputs() -> None:
    method = methods.build("rapw", 2, 10)
    begin(method, 1.0, 2.0)
    assert method.rho == 0.5
    assert method.weights.tolist() == [0.5, 0.5]
    weigh(method, torch.tensor([1.0, 2.0]), classes=7)
    assert method.classes == 7
    begin(method, 1.0, 2.0)
    assert method.rho != 0.5


def test_a_state_is_loaded_before_the_classes_are_known() -> None:
    method = RAPW(2)
    weigh(method, torch.tensor([1.0, 2.0]), classes=5, y=torch.tensor([0, 4]))
    method.plan(Epoch(2, 2, torch.tensor([1.0, 2.0]), lambda: torch.tensor([1.0, 2.0])))
    other = RAPW(2)
    other.load_state_dict(method.state_dict())
    for name, value in method.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 0}, "n must .*at least 1, got 0"),
        ({"decay": 1.0}, r"decay must .*\[0, 1\), got 1\.0"),
        ({"decay": "x"}, "decay of RAPW must .*got 'x'"),
        ({"lam": 0.0}, r"lam must .*got 0\.0"),
        ({"lam": math.nan}, "lam of RAPW is NaN"),
        ({"classes": 1}, "classes must .*at least 2, got 1"),
    ],
)
def test_bad_knobs_are_refused(options: dict[str, object], words: str) -> None:
    kind = TypeError if "x" in options.values() else ValueError
    with pytest.raises(kind, match=words):
        RAPW(**{"n": 3, **options})  # type: ignore[arg-type]


def test_outputs_without_classes_are_refused() -> None:
    method = RAPW(2)
    batch = Batch(None, None, torch.arange(2))
    with pytest.raises(ValueError, match=r"outputs of shape \(B, C\), got \(2,\), .*; pass classes="):
        method.weigh(Step(torch.nn.Identity(), batch, torch.zeros(2), torch.ones(2)))
