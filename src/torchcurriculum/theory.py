"""Section 3 and Appendix D of the APW paper, as pure functions of a `Record`: both sides of every statement.

Epochs are counted from 1, as in the paper; an array with one entry per epoch holds epoch k at position k - 1. As the
weights begin at 1/N, they follow from g_K alone, w_K = softmax(-g_K), so a record needs no stored weights.

The statements are those of E-weighting with tau = 1/2 (the paper's default) and losses measured at the start of each
epoch. A record of anything else gives another rho than the recorded one and is refused.

**The clip.** The recorded rho is the weight r on hard samples clipped to [1e-4, 1 - 1e-4]; the recorded z is the true
normaliser Z = (1 - r) exp(-alpha) + r exp(alpha), which the update divided by. Theorem 2's equality needs the true one.
The bounds of Theorems 2 and 3 are proven for Z at the clipped rho, and hold for the true Z as it is never larger: where
r < rho = 1e-4, alpha is positive and Z grows with r; where r > rho = 1 - 1e-4, alpha is negative and Z falls with r.

Reference:
    Li et al., Adaptively Point-weighting Curriculum Learning, Section 3 and Appendix D.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import numpy as np

from .functional.apw import RHO_CLIP
from .record import Record, RecordError

__all__ = [
    "Decay",
    "DifficultyBound",
    "Effectiveness",
    "Phase",
    "Retention",
    "Stability",
    "convergence_phases",
    "cumulative_alpha",
    "cumulative_performance",
    "decay",
    "delta",
    "difficulty_bound",
    "effectiveness",
    "generalisation",
    "phase_performance",
    "positive_phases",
    "relative_performance",
    "retention",
    "stability",
    "strength",
    "summary",
    "weights",
]

TOLERANCE = 1e-5  # between the recorded rho and the one that alpha and the easiness imply
LARGEST_LOG = 700.0  # exp of more overflows float64


@dataclass(frozen=True)
class Phase:
    """A Delta_K-convergence phase (Definition 1): rho < 1/2 from epoch K + 1 to epoch K + Delta_K."""

    start: int  # K, the last epoch before the phase
    length: int  # Delta_K, its epochs

    @property
    def first(self) -> int:
        """K + 1, its first epoch."""
        return self.start + 1

    @property
    def last(self) -> int:
        """K + Delta_K, its last epoch."""
        return self.start + self.length


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
    """Both sides of Theorem 3 for each K: fraction >= bound; NaN where A_K <= 0, which the theorem leaves out."""

    fraction: np.ndarray  # (K,) the fraction of samples with m_K > theta
    bound: np.ndarray  # (K,) 1 - delta(theta, gamma_1) ... delta(theta, gamma_K); says nothing where it is negative


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


def cumulative_alpha(record: Record) -> np.ndarray:
    """A_K: the sum of alpha_1 to alpha_K for each K, (K,); positive once the later phase outweighs the early one.

    Example:
        >>> record = Record(2)
        >>> record.append({"alpha": -0.5})
        >>> record.append({"alpha": 0.75})
        >>> cumulative_alpha(record)
        array([-0.5 ,  0.25])
    """
    return np.cumsum(_scalars(record, "alpha"))


def strength(record: Record, q: float | None = None) -> float:
    """q of Eq. 3: the argument, else ``record.meta["q"]``, else what alpha = log((1 - rho) / rho) / q implies.

    Raises:
        RecordError: If this q does not explain every alpha: another q, or a phase threshold tau other than 1/2.

    Example:
        >>> record = Record(4)
        >>> record.append({"rho": 0.25, "alpha": math.log(3) / 5})
        >>> round(strength(record), 6)
        5.0
    """
    alpha, rho = _scalars(record, "alpha"), _scalars(record, "rho")
    logit = np.log1p(-rho) - np.log(rho)
    q = record.meta.get("q") if q is None else q
    if q is None:
        clearest = int(np.argmax(np.abs(logit)))
        q = float(logit[clearest] / alpha[clearest]) if alpha[clearest] else math.inf
    if not q >= 2 - 1e-6:
        raise RecordError(f"the theorems need q >= 2, got q = {q:g}")
    if not np.allclose(alpha, logit / q, rtol=1e-6, atol=1e-9):
        raise RecordError(
            f"alpha is not log((1 - rho) / rho) / q with q = {q:g} in every epoch; the theorems are about one q and "
            "tau = 1/2. Pass the q of the run, or leave it out."
        )
    return float(q)


def cumulative_performance(record: Record, epoch: int | None = None) -> np.ndarray:
    """g_K, Eq. 6: the sum of alpha_k beta_k to epoch K of each sample, (N,); a sample with g_K > 0 is K-retentive.

    Args:
        record: A record with ``easy`` of every sample.
        epoch: K, from 0; by default the last.

    Example:
        >>> record = Record(4)
        >>> record.append({"rho": 0.25, "alpha": 0.5}, easy=np.array([True, True, True, False]))
        >>> cumulative_performance(record)
        array([ 0.5,  0.5,  0.5, -0.5])
    """
    epoch, performance = _epoch(record, epoch), np.zeros(record.n)
    for _, performance in islice(_trajectory(record), epoch):  # noqa: B007, the last one is what is asked for
        pass
    return performance


def relative_performance(record: Record, epoch: int | None = None) -> np.ndarray:
    """m_K = g_K / A_K of each sample (Definition 3), (N,); 1 for a sample that was always easy.

    Example:
        >>> record = Record(4)
        >>> record.append({"rho": 0.25, "alpha": 0.5}, easy=np.array([True, True, True, False]))
        >>> relative_performance(record)
        array([ 1.,  1.,  1., -1.])
    """
    epoch = _epoch(record, epoch)
    total = _start(record, epoch)
    if total == 0:
        raise ValueError(f"A_K is 0 at K = {epoch}, so m_K = g_K / A_K is not defined there")
    return cumulative_performance(record, epoch) / total


def weights(record: Record, epoch: int | None = None) -> np.ndarray:
    """w_K, Eq. 4, from the recorded alpha and easiness: softmax(-g_K), (N,), as w_0 = 1/N.

    Example:
        >>> record = Record(4)
        >>> record.append({"rho": 0.25, "alpha": math.log(3) / 2}, easy=np.array([True, True, True, False]))
        >>> weights(record).round(4)
        array([0.1667, 0.1667, 0.1667, 0.5   ])
    """
    return _softmax(-cumulative_performance(record, epoch))


def convergence_phases(record: Record) -> list[Phase]:
    """The Delta_K-convergence phases (Definition 1) that cannot be made longer: maximal runs of epochs with rho < 1/2.

    Example:
        >>> record = Record(2)
        >>> for rho in (0.8, 0.4, 0.3, 0.6, 0.2):
        ...     record.append({"rho": rho})
        >>> [(phase.first, phase.last) for phase in convergence_phases(record)]
        [(2, 3), (5, 5)]
    """
    later = np.concatenate([[False], _scalars(record, "rho") < 0.5, [False]])
    edges = np.flatnonzero(later[1:] != later[:-1]).tolist()
    return [Phase(start, stop - start) for start, stop in zip(edges[::2], edges[1::2], strict=True)]


def positive_phases(record: Record) -> list[Phase]:
    """The longest Delta_K^+-convergence phase (Definition 2) inside each convergence phase, if any.

    A run commonly enters its convergence phase with A_K < 0, left over from the early phase. As A_K grows inside the
    phase, the rest of it is a positive phase from the first K with A_K > 0 on.

    Example:
        >>> record = Record(2)
        >>> for rho, alpha in ((0.6, -0.2), (0.4, 0.2), (0.3, 0.4), (0.2, 0.7)):   # A = -0.2, 0, 0.4, 1.1
        ...     record.append({"rho": rho, "alpha": alpha})
        >>> positive_phases(record)
        [Phase(start=3, length=1)]
    """
    positive = np.concatenate([[False], cumulative_alpha(record) > 0])  # A_0 = 0
    found = []
    for phase in convergence_phases(record):
        starts = np.flatnonzero(positive[phase.start : phase.last])
        if len(starts):
            found.append(Phase(phase.start + int(starts[0]), phase.length - int(starts[0])))
    return found


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
        >>> record = Record(2)
        >>> row = {"rho": 0.5, "alpha": 0.0, "threshold": 1.0}
        >>> record.append(row, losses=np.array([0.5, 2.0]), easy=np.array([True, False]))
        >>> both = difficulty_bound(record)
        >>> both.hard_weight, both.bound
        (array([0.5]), array([1.25]))
    """
    # Losses are kept in float32, so e takes part in that precision: a loss just above e must not seem below it.
    threshold = _scalars(record, "threshold").astype(np.float32).astype(np.float64)
    losses, hard_weight, bound = record.history("losses"), [], []
    for row, error, (easy, performance) in zip(losses, threshold, _trajectory(record), strict=True):
        weight = _softmax(-performance)
        hard_weight.append(weight[~easy].sum())
        # The loss of a row that was never seen is infinite, and then so is the sum.
        bound.append(weight @ row.astype(np.float64) / error if np.isfinite(row).all() else math.inf)
    unchanged = [np.array_equal(now, after) for now, after in pairwise(record.history("easy"))]
    return DifficultyBound(np.array(hard_weight), np.array(bound), np.array([*unchanged, False]))


def effectiveness(record: Record, q: float | None = None) -> Effectiveness:
    """Theorem 2 (training effectiveness): samples become K-retentive at an exponential rate; below 1e-308 stands 0.

    Example:
        >>> record = Record(4)
        >>> row = {"rho": 0.25, "alpha": math.log(3) / 2, "z": 3**0.5 / 2}
        >>> record.append(row, easy=np.array([True, True, True, False]))
        >>> four = effectiveness(record)   # 1/4, (3 / sqrt(3) + sqrt(3)) / 4, sqrt(3) / 2, exp(-1/8)
        >>> four.failure, four.mean_exponential.round(4), four.product.round(4), four.bound.round(4)
        (array([0.25]), array([0.866]), array([0.866]), array([0.8825]))
    """
    q, rho, z = strength(record, q), _scalars(record, "rho"), _scalars(record, "z")
    failure, log_mean = [], []
    for _, performance in _trajectory(record):
        failure.append(np.mean(performance <= 0))
        log_mean.append(_log_sum_exp(-performance) - math.log(record.n))
    bound = np.exp(-4 / q * np.cumsum((0.5 - rho) ** 2))
    return Effectiveness(np.array(failure), np.exp(log_mean), np.exp(np.cumsum(np.log(z))), bound)


def stability(record: Record, theta: float, q: float | None = None) -> Stability:
    """Theorem 3 (training stability): where A_K > 0, few samples have m_K <= theta, for any theta > 0.

    Example:
        >>> record = Record(4)
        >>> record.append({"rho": 0.25, "alpha": math.log(3) / 2}, easy=np.array([True, True, True, False]))
        >>> both = stability(record, theta=0.1)   # 1 - (1/2)^0.45 (3/2)^0.55
        >>> both.fraction, both.bound.round(4)
        (array([0.75]), array([0.0851]))
    """
    _refuse_theta(theta)
    total = cumulative_alpha(record)
    log_product = np.cumsum(_log_delta(theta, 0.5 - _scalars(record, "rho"), strength(record, q)))
    # m_K > theta as g_K > theta A_K: A_K may be as small as rounding leaves it.
    above = [np.mean(performance > theta * a) for a, (_, performance) in zip(total, _trajectory(record), strict=True)]
    bound = -np.expm1(np.minimum(log_product, LARGEST_LOG))
    return Stability(np.where(total > 0, above, np.nan), np.where(total > 0, bound, np.nan))


def decay(record: Record, phase: Phase, theta: float, q: float | None = None) -> Decay:
    """Lemma 2 and eta(Delta_K), Eq. 9: how fast the product of Theorem 3 falls over a convergence phase.

    Example:
        >>> record = Record(4)
        >>> record.append({"rho": 0.25, "alpha": math.log(3) / 2})
        >>> terms = decay(record, Phase(0, 1), theta=0.1)
        >>> terms.applies, round(terms.eta, 4), round(terms.eta_bound, 4)
        (True, 0.9149, 0.9935)
    """
    _refuse_theta(theta)
    _refuse_phase(record, phase)
    q, gamma = strength(record, q), 0.5 - _scalars(record, "rho")[phase.start : phase.last]
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


def phase_performance(record: Record, phase: Phase) -> np.ndarray:
    """b_{Delta_K} of each sample, (N,) in [-1, 1]: (g_{K + Delta_K} - g_K) / (A_{K + Delta_K} - A_K), Theorem 4.

    Example:
        >>> record = Record(4)
        >>> record.append({"rho": 0.25, "alpha": 0.5}, easy=np.array([True, True, True, False]))
        >>> phase_performance(record, Phase(0, 1))
        array([ 1.,  1.,  1., -1.])
    """
    _refuse_phase(record, phase)
    # Summed over the phase alone: the difference of two long sums would lose digits.
    alpha, performance = _scalars(record, "alpha")[phase.start : phase.last], np.zeros(record.n)
    for value, (easy, _) in zip(alpha, islice(_trajectory(record), phase.start, phase.last), strict=True):
        performance += np.where(easy, value, -value)
    if not alpha.sum() > 0:
        raise ValueError(f"alpha is 0 throughout {phase}, as with q = inf, so b = 0 / 0 is not defined there")
    return performance / alpha.sum()


def retention(record: Record, phase: Phase) -> Retention:
    """Lemma 1: a sample whose m grows over a phase that starts with A_K > 0 is easy more often in it than before.

    Example:
        >>> record = Record(4)   # weights after epoch 1: 1/6, 1/6, 1/6, 1/2
        >>> record.append({"rho": 0.25, "alpha": math.log(3) / 2}, easy=np.array([True, True, True, False]))
        >>> record.append({"rho": 1 / 6, "alpha": math.log(5) / 2}, easy=np.array([False, True, True, True]))
        >>> lemma = retention(record, Phase(1, 1))
        >>> lemma.before, lemma.after.round(4), lemma.during
        (array([ 1.,  1.,  1., -1.]), array([-0.1886,  1.    ,  1.    ,  0.1886]), array([-1.,  1.,  1.,  1.]))
    """
    during, total = phase_performance(record, phase), _start(record, phase.start)
    if total <= 0:
        raise ValueError(f"Lemma 1 is about phases that start with A_K > 0, and A_{phase.start} is {total:g}")
    before, after = relative_performance(record, phase.start), relative_performance(record, phase.last)
    return Retention(before, after, during, (after > before) & (before > 0))


def generalisation(record: Record, phase: Phase, theta: float) -> float:
    """Theorem 4: P[b_{Delta_K} <= theta] over the training set, the part of its right-hand side that can be measured.

    For an unseen sample P[b <= 0] is at most this plus epsilon, with a probability that depends on epsilon and on a
    covering number of the networks' easiness functions. That number is not computable, so neither is here.

    Example:
        >>> record = Record(4)
        >>> record.append({"rho": 0.25, "alpha": 0.5}, easy=np.array([True, True, True, False]))
        >>> generalisation(record, Phase(0, 1), theta=0.1)
        0.25
    """
    _refuse_theta(theta)
    return float(np.mean(phase_performance(record, phase) <= theta))


def summary(record: Record, theta: float = 0.1, q: float | None = None) -> dict[str, Any]:
    """The final value of everything here, as plain numbers for a report or JSON; None where a number is not finite.

    Args:
        record: A record of APW with ``losses`` and ``easy`` of every sample.
        theta: The margin of Theorems 3 and 4.
        q: As for ``strength``.

    Raises:
        RecordError: If the record has no alpha (its method was not APW), lacks the histories, or is not of E-weighting.

    Example:
        >>> record = Record(4, {"q": 2})
        >>> row = {"rho": 0.25, "alpha": math.log(3) / 2, "z": 3**0.5 / 2, "threshold": 1.0}
        >>> record.append(row, losses=np.array([0.1, 0.2, 0.3, 2.0]), easy=np.array([True, True, True, False]))
        >>> values = summary(record)
        >>> values["retentive"], values["theorem_2"]["failure"], values["phases"], values["positive_phase"]
        (0.75, 0.25, [[1, 1]], None)
    """
    second, positive = effectiveness(record, q), positive_phases(record)
    return {
        "epochs": len(record.epochs),
        "samples": record.n,
        "q": _plain(strength(record, q)),
        "theta": float(theta),
        "rho": _plain(_scalars(record, "rho")[-1]),
        "cumulative_alpha": _plain(cumulative_alpha(record)[-1]),
        "easy_proportion": _plain(record.history("easy")[-1].mean()),
        "retentive": _plain(second.retentive[-1]),
        "theorem_1": _last(difficulty_bound(record), "hard_weight", "bound"),
        "theorem_2": _last(second, "failure", "mean_exponential", "product", "bound"),
        "theorem_3": _last(stability(record, theta, q), "fraction", "bound"),
        "phases": [[phase.first, phase.last] for phase in convergence_phases(record)],
        "positive_phase": _phase_summary(record, positive[-1], theta, q) if positive else None,
    }


def _phase_summary(record: Record, phase: Phase, theta: float, q: float | None) -> dict[str, Any]:
    terms, lemma = decay(record, phase, theta, q), retention(record, phase)
    return {
        "first": phase.first,
        "last": phase.last,
        "lemma_1": {"premise": _plain(lemma.premise.mean())},
        "lemma_2": {"applies": terms.applies, "eta": _plain(terms.eta), "eta_bound": _plain(terms.eta_bound)},
        "theorem_4": {"fraction": generalisation(record, phase, theta)},
    }


def _scalars(record: Record, name: str) -> np.ndarray:
    if not record.epochs:
        raise RecordError("this record holds no epoch yet")
    values = record.column(name).astype(np.float64)
    wrong = ~np.isfinite(values)
    if name != "alpha":
        wrong |= (values <= 0) | ((values >= 1) & (name == "rho"))
    if wrong.any():
        epoch, method = int(np.argmax(wrong)), record.meta.get("method", "unknown")
        raise RecordError(
            f"epoch {epoch + 1} of this record has {name} = {values[epoch]:g}; the theory is that of APW, whose every "
            f"epoch has it, and the method of this run is {method}"
        )
    return values


def _trajectory(record: Record) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Which samples are easy and g_k, (N,) each, for k = 1, 2, ...; refuses a record that is not of E-weighting."""
    alpha, rho = _scalars(record, "alpha"), _scalars(record, "rho")
    performance = np.zeros(record.n)
    for number, easy in enumerate(record.history("easy")):
        hard = np.clip(_softmax(-performance)[~easy].sum(), RHO_CLIP, 1 - RHO_CLIP)
        if abs(hard - rho[number]) > TOLERANCE:
            raise RecordError(
                f"epoch {number + 1} of this record has rho = {rho[number]:.6f}, and the alpha and easiness in it give "
                f"{hard:.6f}. The theory is that of E-weighting over losses measured at the start of each epoch "
                "(weighting='E', measure='pass')."
            )
        performance = performance + np.where(easy, alpha[number], -alpha[number])
        yield easy, performance


def _epoch(record: Record, epoch: int | None) -> int:
    total = len(record.epochs)
    if epoch is not None and not 0 <= epoch <= total:
        raise ValueError(f"epoch must lie between 0 and {total}, the epochs of this record, got {epoch!r}")
    return total if epoch is None else epoch


def _start(record: Record, epoch: int) -> float:
    """A_K of one epoch, with A_0 = 0."""
    return float(cumulative_alpha(record)[epoch - 1]) if epoch else 0.0


def _refuse_theta(theta: float) -> None:
    if not 0 < theta < math.inf:
        raise ValueError(f"theta must be positive, got {theta!r}")


def _refuse_phase(record: Record, phase: Phase) -> None:
    rho = _scalars(record, "rho")[max(phase.start, 0) : phase.last]
    if phase.start < 0 or phase.length < 1 or len(rho) != phase.length or (rho >= 0.5).any():
        raise ValueError(f"{phase} is no convergence phase of this record; see convergence_phases(record)")


def _log_delta(theta: np.ndarray | float, gamma: np.ndarray | float, q: float) -> np.ndarray:
    theta, gamma = np.asarray(theta, np.float64), np.asarray(gamma, np.float64)
    if (np.abs(gamma) >= 0.5).any():
        raise ValueError(f"gamma = 1/2 - rho must lie between -1/2 and 1/2, got {gamma}")
    return np.asarray(((1 - theta) * np.log1p(-2 * gamma) + (1 + theta) * np.log1p(2 * gamma)) / q)


def _log_sum_exp(values: np.ndarray) -> float:
    top = values.max()
    return float(top + np.log(np.exp(values - top).sum()))


def _softmax(values: np.ndarray) -> np.ndarray:
    raw = np.exp(values - values.max())
    return raw / raw.sum()


def _last(result: object, *names: str) -> dict[str, float | None]:
    return {name: _plain(getattr(result, name)[-1]) for name in names}


def _plain(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
