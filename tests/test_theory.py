"""Section 3 and Appendix D of the paper: numbers worked by hand, and every statement over any loss trajectory."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from torchcurriculum import APW, Record, theory
from torchcurriculum.record import RecordError

CLOSE = {"rtol": 1e-9, "atol": 1e-12}
SLACK = 1e-9  # what rounding may take from an inequality
examples = settings(max_examples=60, deadline=None)


def run(losses: np.ndarray, q: float, threshold: Any, **options: Any) -> tuple[Record, APW, list[np.ndarray]]:
    """Drives the real method over a (K, N) loss trajectory: its record, the method, and w_1 ... w_K."""
    method = APW(losses.shape[1], q=q, threshold=threshold, **options)
    record, history = Record(losses.shape[1], {"method": "APW"}), []
    for row in losses.astype(np.float32):
        method.advance(torch.from_numpy(row.copy()))
        scalars = {name: v.item() if isinstance(v, torch.Tensor) else v for name, v in method.report().items()}
        record.append(scalars, losses=row, easy=row <= np.float32(scalars["threshold"]))
        history.append(method.weights.numpy())
    return record, method, history


@st.composite
def trajectories(draw: st.DrawFn) -> tuple[np.ndarray, float, float]:
    """(K, N) losses, q and e. Half are arbitrary, half look like training: losses that fall over the epochs."""
    epochs, n = draw(st.integers(1, 15)), draw(st.integers(1, 20))
    q = draw(st.one_of(st.just(2.0), st.floats(2, 50)))
    threshold = draw(st.floats(0.0625, 3))
    if draw(st.booleans()):
        edge = np.float32(threshold)  # e itself is easy, the next number is hard
        elements = st.one_of(st.sampled_from([edge, np.nextafter(edge, np.float32(9))]), st.floats(0, 8, width=32))
        return draw(arrays(np.float32, (epochs, n), elements=elements)), q, threshold
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    level = np.exp(rng.normal(1, 1, n) - draw(st.floats(0, 0.5)) * np.arange(epochs)[:, None])
    return (threshold * level * rng.exponential(1, (epochs, n))).astype(np.float32), q, threshold


# ---------------------------------------------------------------------------------------------- worked by hand
#
# N = 3, q = 2, e = 1. With q = 2, alpha = 1/2 log((1 - rho) / rho) and Z = 2 sqrt(rho (1 - rho)).
#
# k = 1: losses .5, 2, 3, so beta = + - -.  rho = 2/3.  alpha = 1/2 log(1/2) = -1/2 log 2.  Z = 2 sqrt(2/9) = sqrt(8)/3.
#        w: 1/3 sqrt(2), 1/3 / sqrt(2) twice, over Z -> 1/2, 1/4, 1/4.
#        g = -1/2 log 2, 1/2 log 2, 1/2 log 2.  A = -1/2 log 2.
#        L^APW = 1/2 * .5 + 1/4 * 2 + 1/4 * 3 = 1.5; the hard weigh 1/4 + 1/4.
# k = 2: losses .25, .5, 4, so beta = + + -.  rho = 1/4.  alpha = 1/2 log 3.  Z = 2 sqrt(3/16) = sqrt(3)/2.
#        w: 1/2 / sqrt(3), 1/4 / sqrt(3), 1/4 sqrt(3), over Z -> 1/3, 1/6, 1/2.
#        g = 1/2 log(3/2), 1/2 log 6, 1/2 log(2/3).  A = 1/2 log(3/2).  m = 1, log 6 / log 1.5, -1.
#        L^APW = 1/3 * .25 + 1/6 * .5 + 1/2 * 4 = 13/6; the hard weigh 1/2.
# Theorem 2: failures: sample 1 at K = 1, sample 3 at K = 2. The mean of exp(-g_2) is
#        (sqrt(2/3) + sqrt(1/6) + sqrt(3/2)) / 3 = (2 + 1 + 3) / (3 sqrt 6) = 2 / sqrt 6, and so is
#        Z_1 Z_2 = sqrt(8)/3 * sqrt(3)/2 = sqrt(24)/6.
#        gamma = -1/6, 1/4: exp(-2/36), exp(-2 (1/36 + 1/16)) = exp(-13/72).
# Theorem 3, theta = 1/2: delta_1 = (4/3)^(1/4) (2/3)^(3/4), delta_2 = (1/2)^(1/4) (3/2)^(3/4); their product is
#        (4/3 * 1/2)^(1/4) (2/3 * 3/2)^(3/4) = (2/3)^(1/4). Two of three have m_2 > 1/2.

TWO = np.array([[0.5, 2, 3], [0.25, 0.5, 4]])


@pytest.fixture
def two() -> Record:
    return run(TWO, q=2, threshold=1.0)[0]


def test_cumulative_quantities_by_hand(two: Record) -> None:
    half = 0.5
    np.testing.assert_allclose(theory.cumulative_alpha(two), [-half * math.log(2), half * math.log(1.5)], **CLOSE)
    expected = half * np.log([1.5, 6, 2 / 3])
    np.testing.assert_allclose(theory.cumulative_performance(two), expected, **CLOSE)
    np.testing.assert_allclose(theory.cumulative_performance(two, 1), half * np.log([0.5, 2, 2]), **CLOSE)
    np.testing.assert_array_equal(theory.cumulative_performance(two, 0), np.zeros(3))
    np.testing.assert_allclose(theory.relative_performance(two), [1, math.log(6) / math.log(1.5), -1], **CLOSE)
    np.testing.assert_allclose(theory.weights(two, 1), [1 / 2, 1 / 4, 1 / 4], **CLOSE)
    np.testing.assert_allclose(theory.weights(two), [1 / 3, 1 / 6, 1 / 2], **CLOSE)
    assert theory.strength(two) == pytest.approx(2)


def test_theorem_1_by_hand(two: Record) -> None:
    both = theory.difficulty_bound(two)
    np.testing.assert_allclose(both.hard_weight, [1 / 2, 1 / 2], **CLOSE)
    np.testing.assert_allclose(both.bound, [1.5, 13 / 6], **CLOSE)
    assert both.unchanged.tolist() == [False, False]


def test_theorem_2_by_hand(two: Record) -> None:
    four = theory.effectiveness(two)
    np.testing.assert_allclose(four.failure, [1 / 3, 1 / 3], **CLOSE)
    np.testing.assert_allclose(four.retentive, [2 / 3, 2 / 3], **CLOSE)
    np.testing.assert_allclose(four.mean_exponential, [math.sqrt(8) / 3, 2 / math.sqrt(6)], **CLOSE)
    np.testing.assert_allclose(four.product, [math.sqrt(8) / 3, 2 / math.sqrt(6)], **CLOSE)
    np.testing.assert_allclose(four.bound, [math.exp(-1 / 18), math.exp(-13 / 72)], **CLOSE)


def test_theorem_3_by_hand(two: Record) -> None:
    both = theory.stability(two, theta=0.5)
    np.testing.assert_allclose(both.fraction, [math.nan, 2 / 3], **CLOSE)  # A_1 < 0
    np.testing.assert_allclose(both.bound, [math.nan, 1 - (2 / 3) ** 0.25], **CLOSE)


# k = 3 follows: losses .5, 2, .5, so beta = + - +.  rho = w_2 of sample 2 = 1/6.  alpha = 1/2 log 5.
#        g = 1/2 log(15/2), 1/2 log(6/5), 1/2 log(10/3).  A = 1/2 log(15/2).
# Phases: rho = 2/3, 1/4, 1/6: the convergence phase is epochs 2-3 (K = 1, Delta = 2), entered with A_1 < 0. A_2 > 0, so
#        epoch 3 alone (K = 2, Delta = 1) is the positive phase.
# Over epochs 2-3: b = (1/2 log 3 beta_2 + 1/2 log 5 beta_3) / (1/2 log 15) = 1, log(3/5) / log 15, -log(3/5) / log 15.
#        gamma = 1/4, 1/3, the smallest 1/4: with theta = .1, delta = (1/2)^.45 (3/2)^.55, (1/3)^.45 (5/3)^.55;
#        delta(gamma, gamma) = (1/2)^(3/8) (3/2)^(5/8), (1/3)^(1/3) (5/3)^(2/3).
# Lemma 1 over epoch 3: m_2 = 1, log 6 / log 1.5 = 4.419, -1; m_3 = 1, log 1.2 / log 7.5, log(10/3) / log 7.5 = .598.
#        Nobody is in its premise: sample 1 stays at 1, sample 2 falls, sample 3 was not 2-retentive.


@pytest.fixture
def three() -> Record:
    return run(np.vstack([TWO, [0.5, 2, 0.5]]), q=2, threshold=1.0)[0]


def test_phases_by_hand(three: Record) -> None:
    (phase,) = theory.convergence_phases(three)
    assert phase == theory.Phase(start=1, length=2)
    assert (phase.first, phase.last) == (2, 3)
    assert theory.positive_phases(three) == [theory.Phase(start=2, length=1)]
    expected = [1, math.log(3 / 5) / math.log(15), -math.log(3 / 5) / math.log(15)]
    np.testing.assert_allclose(theory.phase_performance(three, phase), expected, **CLOSE)
    assert theory.generalisation(three, phase, theta=0.1) == pytest.approx(1 / 3)  # b = 1, -.189, .189
    assert theory.generalisation(three, phase, theta=0.2) == pytest.approx(2 / 3)


def test_lemma_2_by_hand(three: Record) -> None:
    terms = theory.decay(three, theory.Phase(1, 2), theta=0.1)
    at_theta = [0.5**0.45 * 1.5**0.55, (1 / 3) ** 0.45 * (5 / 3) ** 0.55]
    np.testing.assert_allclose(terms.at_theta, at_theta, **CLOSE)
    at_gamma = [0.5**0.375 * 1.5**0.625, (1 / 3) ** (1 / 3) * (5 / 3) ** (2 / 3)]
    np.testing.assert_allclose(terms.at_gamma, at_gamma, **CLOSE)
    assert terms.at_minimum == pytest.approx(at_gamma[0])
    assert terms.eta == pytest.approx(at_theta[0] * at_theta[1])
    assert terms.eta_bound == pytest.approx(at_gamma[0] ** 2)
    assert terms.applies
    assert not theory.decay(three, theory.Phase(1, 2), theta=0.3).applies


def test_lemma_1_by_hand(three: Record) -> None:
    lemma = theory.retention(three, theory.Phase(2, 1))
    np.testing.assert_allclose(lemma.before, [1, math.log(6) / math.log(1.5), -1], **CLOSE)
    np.testing.assert_allclose(lemma.after, np.log([7.5, 1.2, 10 / 3]) / math.log(7.5), **CLOSE)
    np.testing.assert_allclose(lemma.during, [1, -1, 1], **CLOSE)
    assert not lemma.premise[1:].any()


def test_lemma_1_has_samples_in_its_premise() -> None:
    # q = 10, four samples, all easy but for sample 1 in epoch 1 and sample 2 in epoch 3. rho_1 = 1/4, rho_2 is clipped:
    # alpha_1 = log(3)/10, alpha_2 = log(9999)/10, so m_2 = log(9999/3) / log(9999*3) = .787 for sample 1, 1 for others.
    # Epoch 3: sample 1 is easy and rises, sample 2 is hard and falls from 1. Epochs 4-5: both are easy and rise.
    losses = np.full((5, 4), 0.1)
    losses[0, 0] = losses[2, 1] = 2.0
    record = run(losses, q=10, threshold=1.0)[0]
    third = theory.retention(record, theory.Phase(2, 1))
    np.testing.assert_allclose(third.before, [math.log(3333) / math.log(29997), 1, 1, 1], **CLOSE)
    assert third.premise.tolist() == [True, False, False, False]
    rest = theory.retention(record, theory.Phase(3, 2))
    assert rest.premise.tolist() == [True, True, False, False]
    np.testing.assert_allclose(rest.during, [1, 1, 1, 1], **CLOSE)


def test_clip_by_hand() -> None:
    # All easy: r = 0, rho = 1e-4, alpha = 1/4 log 9999 and Z = exp(-alpha) = 9999^(-1/4) = .100003 each epoch, below
    # the Z of the clipped rho, (1 - 1e-4) 9999^(-1/4) + 1e-4 9999^(1/4) = .10099. Bound: exp(-(.4999)^2) = .7789.
    record = run(np.full((2, 5), 0.1), q=4, threshold=1.0)[0]
    four = theory.effectiveness(record)
    z = 9999**-0.25
    np.testing.assert_allclose(four.product, [z, z * z], **CLOSE)
    np.testing.assert_allclose(four.mean_exponential, [z, z * z], **CLOSE)
    np.testing.assert_allclose(four.bound, np.exp(-(0.4999**2) * np.array([1, 2])), **CLOSE)
    assert four.product[0] < (1 - 1e-4) * z + 1e-4 / z < four.bound[0]


def test_rho_of_one_half_is_in_no_phase_and_leaves_a_at_zero() -> None:
    record = run(np.array([[0.1, 2.0]]), q=2, threshold=1.0)[0]  # rho = 1/2, alpha = 0, A_1 = 0, g_1 = 0
    assert theory.convergence_phases(record) == []
    assert np.isnan(theory.stability(record, theta=0.1).fraction).all()
    assert theory.effectiveness(record).failure.tolist() == [1.0]  # g <= 0 is no retention
    assert theory.effectiveness(record).bound.tolist() == [1.0]


def test_rho_of_one_half_up_to_rounding_is_in_no_phase() -> None:
    # Three of six equal weights are 1/2 in exact arithmetic, and a little more or less by the order of the sum.
    record = Record(6, theory.PAPER | {"q": 30})
    for rho in (0.5, 0.5 - 1e-16, 0.5 - 1.1e-16, 0.5 + 1.2e-16, 0.5 - 5e-12):
        record.append({"rho": rho, "alpha": math.log((1 - rho) / rho) / 30}, easy=np.arange(6) < 3)
    assert theory.convergence_phases(record) == theory.positive_phases(record) == []
    assert np.isnan(theory.stability(record, theta=0.1).fraction).all()
    with pytest.raises(ValueError, match="is not a convergence phase"):
        theory.phase_performance(record, theory.Phase(1, 1))
    with pytest.raises(ValueError, match="A_K is 0 at K = 5"):
        theory.relative_performance(record)


def test_unchanged_hard_samples() -> None:
    losses = np.array([[0.1, 2.0, 3.0], [0.2, 1.5, 2.0], [0.2, 0.5, 2.0]])
    record, method, _ = run(losses, q=5, threshold=1.0)
    both = theory.difficulty_bound(record)
    assert both.unchanged.tolist() == [True, False, False]
    assert record.column("rho")[1] == pytest.approx(both.hard_weight[0])
    assert method.rho.item() != pytest.approx(both.hard_weight[1])


def test_a_loss_that_is_not_finite_makes_the_bound_infinite() -> None:
    record = Record(2, theory.PAPER | {"q": 2})
    row = {"rho": 0.5, "alpha": 0.0, "z": 1.0, "threshold": 1.0}
    record.append(row, losses=np.array([0.5, np.inf]), easy=np.array([True, False]))
    assert theory.difficulty_bound(record).bound.tolist() == [math.inf]
    assert theory.summary(record)["theorem_1"] == {"hard_weight": 0.5, "bound": None}


# ------------------------------------------------------------------------------------------- the paper, by numpy


def paper(losses: np.ndarray, q: float, e: float, theta: float) -> dict[str, Any]:
    """Eqs. 1-4, 6 and the statements of Section 3 as printed, in float64: plain sums and products, no log-weights."""
    n = losses.shape[1]
    w, g, A = np.full(n, 1 / n), np.zeros(n), 0.0
    out: dict[str, Any] = {"g": [g], "A": [A], "rho": [], "hard": [], "bound": [], "Z": []}
    for row in losses:
        beta = np.where(row <= e, 1.0, -1.0)
        rho = min(max(w[beta < 0].sum(), 1e-4), 1 - 1e-4)
        alpha = np.log((1 - rho) / rho) / q
        z = (w * np.exp(-alpha * beta)).sum()
        w, g, A = w * np.exp(-alpha * beta) / z, g + alpha * beta, A + alpha
        for name, value in {"g": g, "A": A, "rho": rho, "Z": z}.items():
            out[name].append(value)
        out["hard"].append(w[beta < 0].sum())
        out["bound"].append((w * row).sum() / e)
    rho, g, A = np.array(out["rho"]), np.array(out["g"]), np.array(out["A"])
    gamma = 0.5 - rho
    out |= {"w": w, "g": g, "A": A, "gamma": gamma}
    out["failure"] = (g[1:] <= 1e-10 / q).mean(axis=1)  # 0, up to rounding
    out["mean"] = np.exp(-g[1:]).mean(axis=1)
    out["product"] = np.cumprod(out["Z"])
    out["exponential"] = np.exp(-4 / q * np.cumsum(gamma**2))
    out["delta"] = (1 - 2 * gamma) ** ((1 - theta) / q) * (1 + 2 * gamma) ** ((1 + theta) / q)
    return out


@pytest.mark.parametrize("seed", range(120))
def test_random_runs_are_the_papers_formulas(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, epochs, q, theta = int(rng.integers(3, 60)), int(rng.integers(2, 40)), rng.uniform(2, 60), rng.uniform(0.02, 0.4)
    e = float(np.float32(rng.uniform(0.2, 1.5)))  # a float32 number, as losses are, so that no rounding is compared
    level = rng.lognormal(0.5, 1, n) * np.exp(-rng.uniform(0, 0.2) * np.arange(epochs))[:, None]
    losses = (level * rng.exponential(1, (epochs, n))).astype(np.float32)
    record = run(losses, q=q, threshold=e)[0]
    told = paper(losses.astype(np.float64), q, e, theta)
    tight = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(theory.cumulative_alpha(record), told["A"][1:], **tight)
    np.testing.assert_allclose(theory.cumulative_performance(record), told["g"][-1], **tight)
    np.testing.assert_allclose(theory.weights(record), told["w"], **tight)
    first, second, third = (
        theory.difficulty_bound(record),
        theory.effectiveness(record),
        theory.stability(record, theta),
    )
    np.testing.assert_allclose(first.hard_weight, told["hard"], **tight)
    np.testing.assert_allclose(first.bound, told["bound"], **tight)
    np.testing.assert_allclose(second.failure, told["failure"], **tight)
    np.testing.assert_allclose(second.mean_exponential, told["mean"], **tight)
    np.testing.assert_allclose(second.product, told["product"], **tight)
    np.testing.assert_allclose(second.bound, told["exponential"], **tight)
    known = told["A"][1:] > 1e-10 / q
    fraction = (told["g"][1:][known] > theta * told["A"][1:][known, None]).mean(axis=1)
    np.testing.assert_allclose(third.fraction[known], fraction, **tight)
    np.testing.assert_allclose(third.bound[known], 1 - np.cumprod(told["delta"])[known], **tight)
    for phase in theory.convergence_phases(record):
        grown = told["g"][phase.last] - told["g"][phase.start]
        b = grown / (told["A"][phase.last] - told["A"][phase.start])
        np.testing.assert_allclose(theory.phase_performance(record, phase), b, rtol=1e-9, atol=1e-9)  # differences
        assert (np.abs(b) <= 1 + 1e-9).all()
        inside = slice(phase.start, phase.last)
        terms, least = theory.decay(record, phase, theta), told["gamma"][inside].min()
        np.testing.assert_allclose(terms.at_theta, told["delta"][inside], **tight)
        np.testing.assert_allclose(terms.eta, told["delta"][inside].prod(), **tight)
        minimum = (1 - 2 * least) ** ((1 - least) / q) * (1 + 2 * least) ** ((1 + least) / q)
        np.testing.assert_allclose(terms.eta_bound, minimum**phase.length, **tight)
    for phase in theory.positive_phases(record):
        lemma = theory.retention(record, phase)
        np.testing.assert_allclose(lemma.before, told["g"][phase.start] / told["A"][phase.start], rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------------------------------------- for all trajectories


@given(trajectories())
@examples
def test_reconstructed_weights_are_the_methods(case: tuple[np.ndarray, float, float]) -> None:
    record, _, history = run(*case)
    for number, expected in enumerate(history, 1):
        weights = theory.weights(record, number)
        assert (weights > 0).all()
        assert weights.sum() == pytest.approx(1)
        np.testing.assert_allclose(weights, expected, rtol=1e-9)


@given(trajectories())
@examples
def test_signs_of_table_1(case: tuple[np.ndarray, float, float]) -> None:
    record, _, history = run(*case)
    rho, alpha, z = (record.column(name) for name in ("rho", "alpha", "z"))
    np.testing.assert_array_equal(np.sign(alpha), np.sign(0.5 - rho))
    before = [np.full(record.n, 1 / record.n), *history[:-1]]
    for k, easy in enumerate(record.history("easy")):
        change = np.sign(np.round(np.log(history[k] * z[k] / before[k]), 9))  # unnormalised, as in the table
        np.testing.assert_array_equal(change, np.sign(np.round(np.where(easy, -alpha[k], alpha[k]), 9)))


@given(trajectories())
@examples
def test_theorem_1(case: tuple[np.ndarray, float, float]) -> None:
    record, _, _ = run(*case)
    both, hard = theory.difficulty_bound(record), ~record.history("easy")
    some = hard.any(axis=1)
    assert (both.hard_weight[some] < both.bound[some]).all()
    assert (both.hard_weight[~some] == 0).all()
    assert (both.bound >= 0).all()
    following = np.append(record.column("rho")[1:], np.nan)[both.unchanged]
    np.testing.assert_allclose(following, both.hard_weight[both.unchanged].clip(1e-4, 1 - 1e-4), rtol=1e-9)


@given(trajectories())
@examples
def test_theorem_2(case: tuple[np.ndarray, float, float]) -> None:
    record, method, _ = run(*case)
    four = theory.effectiveness(record, method.q)
    assert (four.failure <= four.mean_exponential + SLACK).all()
    np.testing.assert_allclose(four.mean_exponential, four.product, rtol=1e-9)
    assert (four.product <= four.bound * (1 + SLACK)).all()
    for number in range(1, len(record.epochs) + 1):
        expected = np.mean(theory.cumulative_performance(record, number) > 1e-10 / method.q)
        assert four.retentive[number - 1] == pytest.approx(expected)


@given(trajectories(), st.floats(1e-3, 3))
@examples
def test_theorem_3(case: tuple[np.ndarray, float, float], theta: float) -> None:
    record, method, _ = run(*case)
    both, total = theory.stability(record, theta, method.q), theory.cumulative_alpha(record)
    positive = total > 1e-10 / method.q
    np.testing.assert_array_equal(np.isnan(both.fraction), ~positive)
    np.testing.assert_array_equal(np.isnan(both.bound), ~positive)
    assert (both.fraction[positive] >= both.bound[positive] - SLACK).all()
    # The bound as the paper's proof has it, 1 - 4^(K/q) prod rho^((1-theta)/q) (1-rho)^((1+theta)/q), in another form.
    rho, q = record.column("rho"), method.q
    product = np.cumprod(4 ** (1 / q) * rho ** ((1 - theta) / q) * (1 - rho) ** ((1 + theta) / q))
    np.testing.assert_allclose(both.bound[positive], 1 - product[positive], rtol=1e-9, atol=1e-12)


@given(trajectories(), st.floats(0.01, 1))
@examples
def test_lemma_1_and_theorem_4_over_the_phases(case: tuple[np.ndarray, float, float], theta: float) -> None:
    record, _, _ = run(*case)
    total = theory.cumulative_alpha(record)
    for phase in theory.convergence_phases(record):
        performance = theory.phase_performance(record, phase)
        start, end = (theory.cumulative_performance(record, number) for number in (phase.start, phase.last))
        scale = record.column("alpha")[phase.start : phase.last].sum()
        np.testing.assert_allclose(performance * scale, end - start, atol=1e-12)
        assert (np.abs(performance) <= 1 + SLACK).all()
        assert theory.generalisation(record, phase, theta) == np.mean(performance <= theta)
    for phase in theory.positive_phases(record):
        lemma = theory.retention(record, phase)
        assert total[phase.start - 1] > 0
        clear = lemma.premise & (lemma.after > lemma.before * (1 + 1e-6))  # not by rounding alone
        assert (lemma.during > lemma.before)[clear].all()


@given(trajectories())
@examples
def test_phases_are_the_epochs_below_one_half(case: tuple[np.ndarray, float, float]) -> None:
    record, method, _ = run(*case)
    rho, total = record.column("rho"), np.append(0.0, theory.cumulative_alpha(record))
    inside, positive = np.zeros(len(rho), bool), np.zeros(len(rho), bool)
    for phase in theory.convergence_phases(record):
        inside[phase.first - 1 : phase.last] = True
        assert phase.first == 1 or rho[phase.first - 2] >= 0.5 - 1e-10
    for phase in theory.positive_phases(record):
        positive[phase.first - 1 : phase.last] = True
    np.testing.assert_array_equal(inside, rho < 0.5 - 1e-10)
    np.testing.assert_array_equal(positive, inside & (total[:-1] > 1e-10 / method.q))


@given(st.lists(st.floats(0.02, 0.4999), min_size=1, max_size=15), st.floats(0.01, 1), st.floats(2, 50))
@examples
def test_lemma_2(gammas: list[float], share: float, q: float) -> None:
    record = Record(1, theory.PAPER | {"q": q})
    for gamma in gammas:
        rho = 0.5 - gamma
        record.append({"rho": rho, "alpha": math.log((1 - rho) / rho) / q})
    theta = share * min(0.5 - record.column("rho"))
    terms = theory.decay(record, theory.Phase(0, len(gammas)), theta)
    assert terms.applies
    assert (terms.at_theta <= terms.at_gamma + 1e-15).all()
    assert (terms.at_gamma <= terms.at_minimum + 1e-15).all()
    assert terms.at_minimum < 1
    assert terms.eta == pytest.approx(np.prod(terms.at_theta))
    assert terms.eta <= terms.eta_bound * (1 + SLACK)
    assert terms.eta_bound == pytest.approx(terms.at_minimum ** len(gammas))


@given(trajectories(), st.floats(0.01, 1))
@examples
def test_summary_is_json_and_agrees(case: tuple[np.ndarray, float, float], theta: float) -> None:
    record, method, _ = run(*case)
    values = json.loads(json.dumps(theory.summary(record, theta), allow_nan=False))
    four = theory.effectiveness(record)
    assert values["theorem_2"]["bound"] == four.bound[-1]
    assert values["retentive"] == pytest.approx(1 - values["theorem_2"]["failure"])
    assert values["easy_proportion"] == pytest.approx(method.eprop.item())
    assert (values["theorem_3"]["fraction"] is None) == (values["cumulative_alpha"] <= 1e-10 / method.q)
    assert (values["positive_phase"] is None) == (not theory.positive_phases(record))
    assert (values["theorem_4"] is None) == (not theory.convergence_phases(record))
    assert values["q"] == method.q


def test_thousands_of_epochs_at_full_strength() -> None:
    rng = np.random.default_rng(0)
    losses = rng.exponential(np.linspace(0.2, 3, 20), (2000, 20))
    losses[1000:] = 0.1  # all easy for a thousand epochs: exp(-g) is far below the smallest float64
    record, method, _ = run(losses, q=2, threshold=1.0)
    four, both = theory.effectiveness(record), theory.stability(record, theta=5.0)
    assert (four.mean_exponential <= four.bound * (1 + SLACK)).all()
    assert np.isfinite(both.bound[theory.cumulative_alpha(record) > 0]).all()
    np.testing.assert_allclose(theory.weights(record), method.weights.numpy(), rtol=1e-6)
    json.dumps(theory.summary(record, theta=5.0), allow_nan=False)


# ---------------------------------------------------------------------------------------------- what is refused


def test_a_record_of_another_method_is_refused() -> None:
    record = Record(2, {"method": "Vanilla"})
    record.append({"epoch": 1}, losses=np.ones(2), easy=np.ones(2, bool))
    with pytest.raises(RecordError, match=r"alpha = nan; the theory is that of APW.*method of this run is Vanilla"):
        theory.summary(record)


def test_a_record_without_histories_or_epochs_is_refused() -> None:
    record = Record(4, theory.PAPER | {"q": 2})
    with pytest.raises(RecordError, match="no epoch"):
        theory.cumulative_alpha(record)
    record.append({"rho": 0.25, "alpha": math.log(3) / 2, "z": 3**0.5 / 2, "threshold": 1.0})
    with pytest.raises(RecordError, match="samples=True"):
        theory.summary(record)
    assert theory.convergence_phases(record) == [theory.Phase(0, 1)]  # what needs no sample works without


def test_a_record_with_histories_of_some_epochs_is_refused(two: Record) -> None:
    two.append(two.epochs[-1])
    with pytest.raises(RecordError, match="holds 'easy' of only 2 of its 3 epochs"):
        theory.weights(two)


STATEMENTS = {
    "A": theory.cumulative_alpha,
    "g": theory.cumulative_performance,
    "weights": theory.weights,
    "phases": theory.convergence_phases,
    "b": lambda record: theory.phase_performance(record, theory.Phase(1, 1)),
    "1": theory.difficulty_bound,
    "2": theory.effectiveness,
    "3": lambda record: theory.stability(record, 0.1),
    "4": lambda record: theory.generalisation(record, theory.Phase(1, 1), 0.1),
    "lemma 2": lambda record: theory.decay(record, theory.Phase(1, 1), 0.1),
    "summary": theory.summary,
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tau": 0.3}, "tau = 0.3, and alpha is log"),
        ({"weighting": "I"}, "weighting = 'I', and weights that change inside epochs"),
        ({"weighting": "EI"}, "weighting = 'EI', and weights that change inside epochs"),
        ({"threshold": lambda losses: 1.0}, "threshold_kind = 'moving', and the easy samples"),
    ],
    ids=["tau", "I", "EI", "moving e"],
)
def test_another_setting_is_refused_by_every_statement(options: Any, words: str, statement: Any) -> None:
    # One epoch of I-weighting has the rho and alpha of E-weighting, so only what the row says can tell them apart.
    for epochs in (1, 2):
        record = run(TWO[:epochs], **({"q": 2, "threshold": 1.0} | options))[0]
        with pytest.raises(RecordError, match=f"do not apply to this run: epoch 1 has {words}"):
            statement(record)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"measure": "running"}, "epoch 2 has measure = 'running', and rho and the easiness must come from losses"),
        ({"measure": "held-out"}, "epoch 2 has measure = 'held-out'"),
        ({"rows": 2}, "epoch 2 trained on 2 of 3 rows"),
        ({"growing": True}, r"epoch 2 drew rows by their weights \(S-APW\)"),
        ({"reading": "beta"}, r"epoch 2 mixed samples \(M-APW\)"),
        ({"threshold": 1.25}, "its e goes from 1 to 1.25"),
        ({"tau": 0.25}, "epoch 2 has tau = 0.25"),
        ({"q": 3}, "q = 2 in epoch 1 and 3 in epoch 2"),
    ],
    ids=str,
)
def test_one_epoch_of_another_setting_is_enough(two: Record, changes: dict[str, Any], words: str) -> None:
    two.epochs[1].update(changes)
    with pytest.raises(RecordError, match=f"do not apply to this run: .*{words}"):
        theory.summary(two)


def test_a_record_that_does_not_say_its_setting_is_refused_until_it_does(two: Record) -> None:
    expected = theory.summary(two)
    for row in two.epochs:
        for name in ("q", *theory.PAPER):
            row.pop(name, None)
    words = "lacks tau and weighting and threshold_kind, as records from before version 0.2 do"
    for statement in STATEMENTS.values():
        with pytest.raises(RecordError, match=f"epoch 1 of this record {words}"):
            statement(two)
    two.meta.update(theory.PAPER)
    with pytest.raises(RecordError, match="has no q, which the theorems need"):
        theory.effectiveness(two)
    assert theory.effectiveness(two, q=2).bound[-1] == expected["theorem_2"]["bound"]
    two.meta["q"] = 2
    assert theory.summary(two) == expected


def test_q_is_never_guessed(two: Record) -> None:
    with pytest.raises(RecordError, match="the record has q = 2, got q = 3"):
        theory.effectiveness(two, q=3)
    for row in two.epochs:
        row["q"] = 4
    with pytest.raises(RecordError, match="q = 4 in every epoch"):
        theory.stability(two, theta=0.1)
    for row in two.epochs:
        row["q"] = 1
    with pytest.raises(RecordError, match="need q >= 2"):
        theory.effectiveness(two)


def test_a_record_whose_numbers_are_of_another_run_is_refused() -> None:
    # I-weighting leaves w_1 uniform at the epoch: rho_2 = 1/3, where E-weighting gives 1/4.
    record = run(TWO, q=2, threshold=1.0, weighting="I")[0]
    for row in record.epochs:
        row["weighting"] = "E"
    with pytest.raises(RecordError, match=r"epoch 2 .* rho = 0.333333.* give 0.250000"):
        theory.effectiveness(record)


def test_infinite_strength_changes_nothing() -> None:
    record = run(TWO, q=math.inf, threshold=1.0)[0]
    assert theory.strength(record) == math.inf
    np.testing.assert_array_equal(theory.effectiveness(record).bound, [1, 1])
    assert theory.summary(record)["q"] is None
    with pytest.raises(ValueError, match="q = inf"):
        theory.phase_performance(record, theory.Phase(1, 1))


@pytest.mark.parametrize("phase", [theory.Phase(0, 1), theory.Phase(1, 3), theory.Phase(1, 0), theory.Phase(-1, 2)])
def test_what_is_no_phase_is_refused(three: Record, phase: theory.Phase) -> None:
    with pytest.raises(ValueError, match="is not a convergence phase"):
        theory.phase_performance(three, phase)
    with pytest.raises(ValueError, match="is not a convergence phase"):
        theory.decay(three, phase, theta=0.1)


def test_bad_arguments_are_refused(three: Record) -> None:
    for theta in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="theta must be positive"):
            theory.stability(three, theta)
    with pytest.raises(ValueError, match="between 0 and 3"):
        theory.weights(three, 4)
    with pytest.raises(ValueError, match="not defined"):
        theory.relative_performance(three, 0)
    with pytest.raises(ValueError, match="gamma"):
        theory.delta(0.1, 0.5, 2)
    with pytest.raises(ValueError, match="start with A_K > 0"):
        theory.retention(three, theory.Phase(1, 2))  # A_1 < 0
