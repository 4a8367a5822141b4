"""Weighted sampling without replacement by an exponential race: no limit on the number of categories."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["draw"]

FEW = 1 << 15  # few enough rows to time all of them
LOOKED_AT = 1 << 12  # rows from which the deadline is estimated
MARGIN = 6.0  # standard deviations by which the deadline is set too late
CHUNKS = {"cpu": 1 << 16}  # rows per chunk: as many as fit a core's cache,
CHUNK = 1 << 25  # or as many as keep an accelerator busy


def draw(log_weights: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """``size`` different rows, drawn one after another with probabilities proportional to the remaining weights.

    Row n finishes an exponential race at time E_n / w_n; the first ``size`` to finish are the sample (Efraimidis and
    Spirakis, 2006). Unlike ``torch.multinomial`` this has no limit of 2^24 rows, works on logarithms, and never
    returns a row of zero weight while others are left.

    With many rows, only those that finish before a deadline are timed; it is estimated from a few thousand weights,
    with a margin, and nothing is sorted. If it was too early, the same race is repeated with all rows timed, so the
    estimate affects only the cost, never the sample.

    Args:
        log_weights: (N,) log-weights, of any normalisation; -inf is never drawn.
        size: Number of rows, at most the number of finite log-weights.
        generator: Source of randomness, on the device of ``log_weights``.

    Returns:
        (size,) int64 rows, in increasing order.

    Example:
        >>> draw(torch.tensor([0.0, -torch.inf, 0.0]), 2, torch.Generator().manual_seed(0))
        tensor([0, 2])
    """
    n = len(log_weights)
    if n > FEW and size <= n // 4:
        looked_at = torch.randint(n, (LOOKED_AT,), generator=generator, device=log_weights.device)
        deadline = _deadline(log_weights[looked_at].double().cpu(), size / n, n)
        state = generator.get_state()
        rows, times = _race(log_weights, generator, deadline)
        if len(rows) >= size:
            return _first(rows, times, size)
        generator.set_state(state)
    return _first(*_race(log_weights, generator, None), size)


def _deadline(log_weights: Tensor, share: float, n: int) -> float:
    """The logarithm of a time by which a little more than ``share`` of n rows like these have finished."""

    def finished(log_time: float) -> Tensor:
        return -torch.expm1(-torch.exp(log_weights + log_time))

    def time_of(target: float) -> float:
        finite = log_weights[log_weights.isfinite()]
        if not len(finite):
            return torch.inf
        low, high = -float(finite.max()) - 50, -float(finite.min()) + 50
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if float(finished(middle).mean()) < target else (low, middle)
        return high

    spread = float(finished(time_of(share)).var()) / len(log_weights) + share / n
    return time_of(share + MARGIN * spread**0.5)


def _race(log_weights: Tensor, generator: torch.Generator, deadline: float | None) -> tuple[Tensor, Tensor]:
    """The rows that finish before the deadline (None: all rows), and the logarithms of their times."""
    chunk = CHUNKS.get(log_weights.device.type, CHUNK)
    found: list[tuple[Tensor, Tensor]] = []
    uniform = torch.empty(min(chunk, len(log_weights)), dtype=torch.float64, device=log_weights.device)
    for start in range(0, len(log_weights), chunk):
        part = log_weights[start : start + chunk].double()
        drawn = uniform[: len(part)].uniform_(generator=generator)
        if deadline is None:
            rows, times = torch.arange(len(part), device=part.device), _times(drawn, part)
        else:
            # As 1 - exp(-t) <= t, all rows that finish in time are among these.
            rows = (drawn < (part + deadline).exp_()).nonzero().flatten()
            times = _times(drawn[rows], part[rows])
            in_time = times < deadline
            rows, times = rows[in_time], times[in_time]
        found.append((rows + start, times))
    return torch.cat([rows for rows, _ in found]), torch.cat([times for _, times in found])


def _times(uniform: Tensor, log_weights: Tensor) -> Tensor:
    return (-torch.log1p(-uniform)).log_() - log_weights


def _first(rows: Tensor, times: Tensor, size: int) -> Tensor:
    """The ``size`` rows of the smallest times, in their order."""
    late = len(rows) - size
    stays = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    stays[torch.topk(times, late, sorted=False).indices] = False
    return rows[stays]
