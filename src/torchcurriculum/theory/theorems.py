"""The paper's theorems and lemmas over a record: both sides of each, and the measurable part of Theorem 4."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..record import Record, RecordError
from .quantities import (
    PAPER,  # noqa: F401, for the examples
    Phase,
    alpha_before,
    convergence_phases,
    cumulative_alpha,
    least,
    phase_performance,
    positive,
    positive_phases,
    refuse_phase,
    relative_performance,
    scalars,
    softmax,
    strength,
    trajectory,
)
from .setting import check_setting

__all__ = [
    "Decay",
    "DifficultyBound",
    "Effectiveness",
    "Retention",
    "Stability",
    "decay",
    "delta",
    "difficulty_bound",
    "effectiveness",
    "generalisation",
    "retention",
    "stability",
    "summary",
]

LARGEST_LOG = 700.0  # exp of more overflows float64


@dataclass(frozen=True, eq=False)
class DifficultyBound:
    """Both sides of Theorem 1 for each epoch k: hard_weight < bound wherever a sample is hard."""

    hard_weight: np.ndarray  # (K,) the weight w_k on the hard samples of epoch k
    bound: np.ndarray  # (K,) L_k^APW / e
    unchanged: np.ndarray  # (K,) whether epoch k + 1 has the same hard samples; then rho_{k+1} is hard_weight, clipped


@dataclass(frozen=True, eq=False)
class Effectiveness:
    """The four quantities of Theorem 2 for each K: failure <= mean_exponential = product <= bound."""

    failure: np.ndarray  # (K,) the fraction of samples with g_K <= 0, those that are not K-retentive
    mean_exponential: np.ndarray  # (K,) the mean of exp(-g_K)
    product: np.ndarray  # (K,) Z_1 ... Z_K
    bound: np.ndarray  # (K,) exp(-4/q sum of gamma_k^2)

    @property
    def retentive(self) -> np.ndarray:
        """(K,) the fraction of K-retentive samples, g_K > 0 (Definition 3)."""
        return 1 - self.failure


@dataclass(frozen=True, eq=False)
class Stability:
    """Both sides of Theorem 3 for each K: fraction >= bound; NaN where A_K <= 0, which the theorem excludes."""

    fraction: np.ndarray  # (K,) the fraction of samples with m_K > theta
    bound: np.ndarray  # (K,) 1 - delta(theta, gamma_1) ... delta(theta, gamma_K); vacuous where it is negative


@dataclass(frozen=True, eq=False)
class Decay:
    """The terms of Lemma 2 over a phase: where it applies, at_theta <= at_gamma <= at_minimum < 1."""

    applies: bool  # whether theta <= gamma_min, the lemma's premise
    at_theta: np.ndarray  # (Delta_K,) delta(theta, gamma_k)
    at_gamma: np.ndarray  # (Delta_K,) delta(gamma_k, gamma_k)
    at_minimum: float  # delta(gamma_min, gamma_min)
    eta: float  # eta(Delta_K), the product of at_theta: the factor on Theorem 3's product over the phase
    eta_bound: float  # at_minimum to the power of Delta_K, at least eta where the lemma applies


@dataclass(frozen=True, eq=False)
class Retention:
    """Lemma 1 over a positive phase, (N,) each: wherever the premise holds, during > before."""

    before: np.ndarray  # m_K
    after: np.ndarray  # m_{K + Delta_K}
    during: np.ndarray  # b_{Delta_K}, see phase_performance
    premise: np.ndarray  # whether after > before > 0


def delta(theta: np.ndarray | float, gamma: np.ndarray | float, q: float) -> np.ndarray:
    """delta(theta, gamma) = (1 - 2 gamma)^((1 - theta) / q) (1 + 2 gamma)^((1 + theta) / q), Theorem 3.

    Args:
        theta: The margin.
        gamma: 1/2 - rho, between -1/2 and 1/2.
        q: The strength, at least 2.

    Example:
        >>> round(float(delta(0.0, 0.25, q=2)), 6)   # sqrt(1/2 * 3/2)
        0.866025
    """
    return np.exp(np.minimum(_log_delta(theta, gamma, q), LARGEST_LOG))


def difficulty_bound(record: Record) -> DifficultyBound:
    """Theorem 1: the weight on hard samples is below L_k^APW / e, for losses that are not negative.

    Example:
        >>> record = Record(2, PAPER)
        >>> row = {"rho": 0.5, "alpha": 0.0, "threshold": 1.0}
        >>> record.append(row, losses=np.array([0.5, 2.0]), easy=np.array([True, False]))
        >>> both = difficulty_bound(record)
        >>> both.hard_weight, both.bound
        (array([0.5]), array([1.25]))
    """
    check_setting(record)
    # Losses are stored in float32, so e is rounded to it: a loss just above e must not seem below it.
    threshold = scalars(record, "threshold").astype(np.float32).astype(np.float64)
    losses, hard_weight, bound = record.history("losses"), [], []
    for row, error, (easy, performance) in zip(losses, threshold, trajectory(record), strict=True):
        weight = softmax(-performance)
        hard_weight.append(weight[~easy].sum())
        # The loss of a row that was never seen is infinite, and then so is the sum.
        bound.append(weight @ row.astype(np.float64) / error if np.isfinite(row).all() else math.inf)
    unchanged = [np.array_equal(now, after) for now, after in pairwise(record.history("easy"))]
    return DifficultyBound(np.array(hard_weight), np.array(bound), np.array([*unchanged, False]))


def effectiveness(record: Record, q: float | None = None) -> Effectiveness:
    """Theorem 2 (training effectiveness): samples become K-retentive at an exponential rate; values below 1e-308 are 0.

    Example:
        >>> record = Record(4, PAPER | {"q": 2})
        >>> row = {"rho": 0.25, "alpha": math.log(3) / 2, "z": 3**0.5 / 2}
        >>> record.append(row, easy=np.array([True, True, True, False]))
        >>> four = effectiveness(record)   # 1/4, (3 / sqrt(3) + sqrt(3)) / 4, sqrt(3) / 2, exp(-1/8)
        >>> four.failure, four.mean_exponential.round(4), four.product.round(4), four.bound.round(4)
        (array([0.25]), array([0.866]), array([0.866]), array([0.8825]))
    """
    q, rho, z = strength(record, q), scalars(record, "rho"), scalars(record, "z")
    failure, log_mean, zero = [], [], least(q)
    for _, performance in trajectory(record):
        failure.append(np.mean(performance <= zero))
        log_mean.append(_log_sum_exp(-performance) - math.log(record.n))
    bound = np.exp(-4 / q * np.cumsum((0.5 - rho) ** 2))
    return Effectiveness(np.array(failure), np.exp(log_mean), np.exp(np.cumsum(np.log(z))), bound)


def stability(record: Record, theta: float, q: float | None = None) -> Stability:
    """Theorem 3 (training stability): where A_K > 0, few samples have m_K <= theta, for any theta > 0.

    Example:
        >>> record = Record(4, PAPER | {"q": 2})
        >>> record.append({"rho": 0.25, "alpha": math.log(3) / 2}, easy=np.array([True, True, True, False]))
        >>> both = stability(record, theta=0.1)   # 1 - (1/2)^0.45 (3/2)^0.55
        >>> both.fraction, both.bound.round(4)
        (array([0.75]), array([0.0851]))
    """
    _refuse_theta(theta)
    total, known = cumulative_alpha(record), positive(record, q)
    log_product = np.cumsum(_log_delta(theta, 0.5 - scalars(record, "rho"), strength(record, q)))
    # m_K > theta as g_K > theta A_K: A_K may be as small as rounding leaves it.
    above = [np.mean(performance > theta * a) for a, (_, performance) in zip(total, trajectory(record), strict=True)]
    bound = -np.expm1(np.minimum(log_product, LARGEST_LOG))
    return Stability(np.where(known, above, np.nan), np.where(known, bound, np.nan))


def decay(record: Record, phase: Phase, theta: float, q: float | None = None) -> Decay:
    """Lemma 2 and eta(Delta_K), Eq. 9: how fast the product of Theorem 3 falls over a convergence phase.

    Example:
        >>> record = Record(4, PAPER | {"q": 2})
        >>> record.append({"rho": 0.25, "alpha": math.log(3) / 2})
        >>> terms = decay(record, Phase(0, 1), theta=0.1)
        >>> terms.applies, round(terms.eta, 4), round(terms.eta_bound, 4)
        (True, 0.9149, 0.9935)
    """
    _refuse_theta(theta)
    refuse_phase(record, phase)
    q, gamma = strength(record, q), 0.5 - scalars(record, "rho")[phase.start : phase.last]
    smallest, log_eta = float(gamma.min()), float(_log_delta(theta, gamma, q).sum())
    at_minimum = float(delta(smallest, smallest, q))
    return Decay(
        applies=theta <= smallest,
        at_theta=delta(theta, gamma, q),
        at_gamma=delta(gamma, gamma, q),
        at_minimum=at_minimum,
        eta=math.exp(min(log_eta, LARGEST_LOG)),
        eta_bound=at_minimum**phase.length,
    )


def retention(record: Record, phase: Phase) -> Retention:
    """Lemma 1: a sample whose m grows over a phase that starts with A_K > 0 is easy more often in it than before.

    Example:
        >>> record = Record(4, PAPER | {"q": 2})   # weights after epoch 1: 1/6, 1/6, 1/6, 1/2
        >>> record.append({"rho": 0.25, "alpha": math.log(3) / 2}, easy=np.array([True, True, True, False]))
        >>> record.append({"rho": 1 / 6, "alpha": math.log(5) / 2}, easy=np.array([False, True, True, True]))
        >>> lemma = retention(record, Phase(1, 1))
        >>> lemma.before, lemma.after.round(4), lemma.during
        (array([ 1.,  1.,  1., -1.]), array([-0.1886,  1.    ,  1.    ,  0.1886]), array([-1.,  1.,  1.,  1.]))
    """
    during = phase_performance(record, phase)
    if not phase.start or not positive(record)[phase.start - 1]:
        total = alpha_before(record, phase.start)
        raise ValueError(f"Lemma 1 is about phases that start with A_K > 0, but A_{phase.start} is {total:g}")
    before, after = relative_performance(record, phase.start), relative_performance(record, phase.last)
    return Retention(before, after, during, (after > before) & (before > 0))


def generalisation(record: Record, phase: Phase, theta: float) -> float:
    """Theorem 4: P[b_{Delta_K} <= theta] over the training set, the part of its right-hand side that can be measured.

    For an unseen sample P[b <= 0] is at most this plus epsilon, with a probability that depends on epsilon and on a
    covering number of the networks' easiness functions. That number is not computable, so both are omitted.

    Example:
        >>> record = Record(4, PAPER | {"q": 2})
        >>> record.append({"rho": 0.25, "alpha": 0.5}, easy=np.array([True, True, True, False]))
        >>> generalisation(record, Phase(0, 1), theta=0.1)
        0.25
    """
    _refuse_theta(theta)
    return float(np.mean(phase_performance(record, phase) <= theta))


def summary(record: Record, theta: float = 0.1, q: float | None = None) -> dict[str, Any]:
    """The final values of all theorems, as plain numbers for a report or JSON; None for non-finite ones.

    Args:
        record: A record of APW with ``losses`` and ``easy`` of every sample.
        theta: The margin of Theorems 3 and 4.
        q: As for ``strength``.

    Raises:
        RecordError: If the record has no alpha (its method was not APW), lacks the histories, or has settings other
            than those of the theorems.

    Example:
        >>> record = Record(4, PAPER | {"q": 2})
        >>> row = {"rho": 0.25, "alpha": math.log(3) / 2, "z": 3**0.5 / 2, "threshold": 1.0}
        >>> record.append(row, losses=np.array([0.1, 0.2, 0.3, 2.0]), easy=np.array([True, True, True, False]))
        >>> values = summary(record)
        >>> values["retentive"], values["theorem_2"]["failure"], values["phases"], values["positive_phase"]
        (0.75, 0.25, [[1, 1]], None)
    """
    _refuse_theta(theta)
    try:
        with np.errstate(all="ignore"):  # a damaged record may overflow; non-finite values become None
            return _summary(record, theta, q)
    except RecordError:
        raise
    except ValueError as error:
        raise RecordError(f"this record is not of a run of APW: {error}") from error


def _summary(record: Record, theta: float, q: float | None) -> dict[str, Any]:
    second, phases, later = effectiveness(record, q), convergence_phases(record), positive_phases(record)
    fourth = None
    if phases and cumulative_alpha(record).any():  # Theorem 4 needs a convergence phase, with any A_K at its start
        last = phases[-1]
        fourth = {"first": last.first, "last": last.last, "fraction": generalisation(record, last, theta)}
    return {
        "epochs": len(record.epochs),
        "samples": record.n,
        "q": _plain(strength(record, q)),
        "theta": float(theta),
        "rho": _plain(scalars(record, "rho")[-1]),
        "cumulative_alpha": _plain(cumulative_alpha(record)[-1]),
        "easy_proportion": _plain(record.history("easy")[-1].mean()),
        "retentive": _plain(second.retentive[-1]),
        "theorem_1": _last(difficulty_bound(record), "hard_weight", "bound"),
        "theorem_2": _last(second, "failure", "mean_exponential", "product", "bound"),
        "theorem_3": _last(stability(record, theta, q), "fraction", "bound"),
        "theorem_4": fourth,
        "phases": [[phase.first, phase.last] for phase in phases],
        "positive_phase": _phase_summary(record, later[-1], theta, q) if later else None,
    }


def _phase_summary(record: Record, phase: Phase, theta: float, q: float | None) -> dict[str, Any]:
    terms, lemma = decay(record, phase, theta, q), retention(record, phase)
    return {
        "first": phase.first,
        "last": phase.last,
        "lemma_1": {"premise": _plain(lemma.premise.mean())},
        "lemma_2": {"applies": terms.applies, "eta": _plain(terms.eta), "eta_bound": _plain(terms.eta_bound)},
    }


def _refuse_theta(theta: float) -> None:
    if not 0 < theta < math.inf:
        raise ValueError(f"theta must be positive, got {theta!r}")


def _log_delta(theta: np.ndarray | float, gamma: np.ndarray | float, q: float) -> np.ndarray:
    theta, gamma = np.asarray(theta, np.float64), np.asarray(gamma, np.float64)
    if (np.abs(gamma) >= 0.5).any():
        raise ValueError(f"gamma = 1/2 - rho must lie between -1/2 and 1/2, got {gamma}")
    return np.asarray(((1 - theta) * np.log1p(-2 * gamma) + (1 + theta) * np.log1p(2 * gamma)) / q)


def _log_sum_exp(values: np.ndarray) -> float:
    top = values.max()
    return float(top + np.log(np.exp(values - top).sum()))


def _last(result: object, *names: str) -> dict[str, float | None]:
    return {name: _plain(getattr(result, name)[-1]) for name in names}


def _plain(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
