"""The quantities of the theory from a record: A_K, g_K, m_K, the weights, and the convergence phases."""

from __future__ import annotations

import math  # noqa: F401, for the examples
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from ..functional.apw import RHO_CLIP
from ..record import Record, RecordError
from .setting import PAPER, check_setting, recorded

__all__ = [
    "PAPER",
    "Phase",
    "alpha_before",
    "convergence_phases",
    "cumulative_alpha",
    "cumulative_performance",
    "least",
    "phase_performance",
    "positive",
    "positive_phases",
    "refuse_phase",
    "relative_performance",
    "scalars",
    "softmax",
    "strength",
    "trajectory",
    "weights",
]

LARGEST = 1e12  # of a scalar; larger values would overflow, and no run has them
ROUNDING = 1e-10  # a rho this near to 1/2 is 1/2, and so is a sum of log((1 - rho) / rho) this near to 0
TOLERANCE = 1e-5  # between the recorded rho and the one that alpha and the easiness imply


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


def cumulative_alpha(record: Record) -> np.ndarray:
    """A_K: the sum of alpha_1 to alpha_K for each K, (K,); positive once the later phase outweighs the early one.

    Example:
        >>> record = Record(2, PAPER)
        >>> record.append({"alpha": -0.5})
        >>> record.append({"alpha": 0.75})
        >>> cumulative_alpha(record)
        array([-0.5 ,  0.25])
    """
    alpha = scalars(record, "alpha")
    check_setting(record)
    return np.cumsum(alpha)


def positive(record: Record, q: float | None = None) -> np.ndarray:
    """(K,) bool: whether A_K > 0, beyond rounding."""
    return cumulative_alpha(record) > least(strength(record, q))


def least(q: float) -> float:
    """The rounding error of a sum of alpha."""
    return ROUNDING / q


def strength(record: Record, q: float | None = None) -> float:
    """q of Eq. 3 from the record; it is never guessed.

    Args:
        record: A record of APW in the setting of the theorems.
        q: The q of the run, for a record without it.

    Raises:
        RecordError: If the record has no q or another one, or its alpha does not match q.

    Example:
        >>> record = Record(4, PAPER | {"q": 5})
        >>> record.append({"rho": 0.25, "alpha": math.log(3) / 5})
        >>> strength(record)
        5.0
    """
    alpha, rho = scalars(record, "alpha"), scalars(record, "rho")
    check_setting(record)
    held = recorded(record, "q")
    if held is None and q is None:
        raise RecordError("this record has no q, which the theorems need; pass the q of the run")
    strength = _number(q if held is None else held)
    if q is not None and _number(q) != strength:
        raise RecordError(f"the record has q = {strength:g}, got q = {q:g}; omit q")
    if not strength >= 2:
        raise RecordError(f"the theorems need q >= 2, got q = {strength:g}")
    if not np.allclose(alpha, (np.log1p(-rho) - np.log(rho)) / strength, rtol=1e-6, atol=1e-9):
        raise RecordError(
            f"alpha is not log((1 - rho) / rho) / q with q = {strength:g} in every epoch, so this is not a record of "
            "Eq. 3"
        )
    return strength


def cumulative_performance(record: Record, epoch: int | None = None) -> np.ndarray:
    """g_K, Eq. 6: the sum of alpha_k beta_k to epoch K of each sample, (N,); a sample with g_K > 0 is K-retentive.

    Args:
        record: A record with ``easy`` of every sample.
        epoch: K, from 0; by default the last.

    Example:
        >>> record = Record(4, PAPER)
        >>> record.append({"rho": 0.25, "alpha": 0.5}, easy=np.array([True, True, True, False]))
        >>> cumulative_performance(record)
        array([ 0.5,  0.5,  0.5, -0.5])
    """
    epoch = _epoch(record, epoch)
    check_setting(record)
    if not epoch:
        return np.zeros(record.n)
    for _, performance in islice(trajectory(record), epoch):  # noqa: B007, only the last one is needed
        pass
    return performance


def relative_performance(record: Record, epoch: int | None = None) -> np.ndarray:
    """m_K = g_K / A_K of each sample (Definition 3), (N,); 1 for a sample that was always easy.

    Example:
        >>> record = Record(4, PAPER | {"q": 2})
        >>> record.append({"rho": 0.25, "alpha": math.log(3) / 2}, easy=np.array([True, True, True, False]))
        >>> relative_performance(record)
        array([ 1.,  1.,  1., -1.])
    """
    epoch = _epoch(record, epoch)
    total = alpha_before(record, epoch)
    if abs(total) <= least(strength(record)):
        raise ValueError(f"A_K is 0 at K = {epoch}, so m_K = g_K / A_K is not defined there")
    return cumulative_performance(record, epoch) / total


def weights(record: Record, epoch: int | None = None) -> np.ndarray:
    """w_K, Eq. 4, from the recorded alpha and easiness: softmax(-g_K), (N,), as w_0 = 1/N.

    Example:
        >>> record = Record(4, PAPER)
        >>> record.append({"rho": 0.25, "alpha": math.log(3) / 2}, easy=np.array([True, True, True, False]))
        >>> weights(record).round(4)
        array([0.1667, 0.1667, 0.1667, 0.5   ])
    """
    return softmax(-cumulative_performance(record, epoch))


def convergence_phases(record: Record) -> list[Phase]:
    """The Delta_K-convergence phases (Definition 1) that cannot be made longer: maximal runs of epochs with rho < 1/2.

    A rho that is 1/2 up to rounding belongs to no phase.

    Example:
        >>> record = Record(2, PAPER)
        >>> for rho in (0.8, 0.4, 0.3, 0.6, 0.2):
        ...     record.append({"rho": rho})
        >>> [(phase.first, phase.last) for phase in convergence_phases(record)]
        [(2, 3), (5, 5)]
    """
    below = scalars(record, "rho") < 0.5 - ROUNDING
    check_setting(record)
    later = np.concatenate([[False], below, [False]])
    edges = np.flatnonzero(later[1:] != later[:-1]).tolist()
    return [Phase(start, stop - start) for start, stop in zip(edges[::2], edges[1::2], strict=True)]


def positive_phases(record: Record) -> list[Phase]:
    """The longest Delta_K^+-convergence phase (Definition 2) inside each convergence phase, if any.

    A run commonly enters its convergence phase with A_K < 0, left over from the early phase. As A_K grows inside the
    phase, the rest of it is a positive phase from the first K with A_K > 0 on.

    Example:
        >>> record = Record(2, PAPER | {"q": 2})
        >>> for rho in (0.6, 0.4, 0.3, 0.2):
        ...     record.append({"rho": rho, "alpha": math.log((1 - rho) / rho) / 2})   # A = -0.2, 0, 0.42, 1.12
        >>> positive_phases(record)
        [Phase(start=3, length=1)]
    """
    above = np.concatenate([[False], positive(record)])  # A_0 = 0
    found = []
    for phase in convergence_phases(record):
        starts = np.flatnonzero(above[phase.start : phase.last])
        if len(starts):
            found.append(Phase(phase.start + int(starts[0]), phase.length - int(starts[0])))
    return found


def phase_performance(record: Record, phase: Phase) -> np.ndarray:
    """b_{Delta_K} of each sample, (N,) in [-1, 1]: (g_{K + Delta_K} - g_K) / (A_{K + Delta_K} - A_K), Theorem 4.

    Example:
        >>> record = Record(4, PAPER)
        >>> record.append({"rho": 0.25, "alpha": 0.5}, easy=np.array([True, True, True, False]))
        >>> phase_performance(record, Phase(0, 1))
        array([ 1.,  1.,  1., -1.])
    """
    refuse_phase(record, phase)
    # Summed only over the phase, because the difference of two long sums would lose digits.
    alpha, performance = scalars(record, "alpha")[phase.start : phase.last], np.zeros(record.history("easy").shape[1])
    for value, (easy, _) in zip(alpha, islice(trajectory(record), phase.start, phase.last), strict=True):
        performance += np.where(easy, value, -value)
    if not alpha.sum() > 0:
        raise ValueError(f"alpha is 0 throughout {phase}, as with q = inf, so b = 0 / 0 is not defined there")
    return performance / alpha.sum()


def scalars(record: Record, name: str) -> np.ndarray:
    """(K,) one scalar over the epochs; a record without it, or without epochs, is refused."""
    if not record.epochs:
        raise RecordError("this record holds no epoch yet")
    values = record.column(name)
    wrong = ~(np.abs(values) <= LARGEST)
    if name != "alpha":
        wrong |= (values <= 0) | ((values >= 1) & (name == "rho"))
    if wrong.any():
        epoch, method = int(np.argmax(wrong)), record.meta.get("method", "unknown")
        raise RecordError(
            f"epoch {epoch + 1} of this record has {name} = {values[epoch]:g}; the theory is that of APW, whose every "
            f"epoch has it, and the method of this run is {method}"
        )
    return values


def trajectory(record: Record) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Which samples are easy and g_k, (N,) each, for k = 1, 2, ...; refuses a record that is not of E-weighting."""
    alpha, rho = scalars(record, "alpha"), scalars(record, "rho")
    history = record.history("easy")  # read first, because a damaged record may claim any number of rows
    performance = np.zeros(record.n)
    for number, easy in enumerate(history):
        hard = np.clip(softmax(-performance)[~easy].sum(), RHO_CLIP, 1 - RHO_CLIP)
        if not abs(hard - rho[number]) <= TOLERANCE:
            raise RecordError(
                f"epoch {number + 1} of this record has rho = {rho[number]:.6f}, but its alpha and easiness give "
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


def alpha_before(record: Record, epoch: int) -> float:
    """A_K of one epoch, with A_0 = 0."""
    return float(cumulative_alpha(record)[epoch - 1]) if epoch else 0.0


def refuse_phase(record: Record, phase: Phase) -> None:
    """Refuses anything but a convergence phase of the record."""
    check_setting(record)
    rho = scalars(record, "rho")[max(phase.start, 0) : phase.last]
    if phase.start < 0 or phase.length < 1 or len(rho) != phase.length or (rho >= 0.5 - ROUNDING).any():
        raise ValueError(f"{phase} is not a convergence phase of this record; see convergence_phases(record)")


def _number(q: object) -> float:
    try:
        return float(q)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        raise RecordError(f"q must be a number of at least 2, got {q!r:.40}") from error


def softmax(values: np.ndarray) -> np.ndarray:
    """exp(values), normalised, without overflow."""
    raw = np.exp(values - values.max())
    return raw / raw.sum()
