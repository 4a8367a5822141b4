"""The share of the training set in use: pacing functions, difficulty orders and ranks within groups."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

__all__ = ["Shape", "buckets_in_use", "difficulty_order", "pace", "rank_within", "subset_size"]

Shape = Literal["linear", "geometric", "root"]


def pace(t: int, grow: int, start: float, shape: Shape = "linear", p: float = 2.0) -> float:
    r"""lambda_t, the share of the set in use at time t: from lambda_0 = ``start`` to 1 at t = ``grow``.

    .. math:: \lambda_t = \min\Bigl(1, \bigl(\tfrac tT (1 - \lambda_0^p) + \lambda_0^p\bigr)^{1/p}\Bigr)

    is root-p pacing; ``"linear"`` is p = 1, ``"geometric"`` its limit p -> 0,
    :math:`\lambda_0^{1 - t/T}`, which is fixed exponential pacing with one step per epoch.

    Args:
        t: Epochs since the pacing began, from 0.
        grow: T >= 1, epochs until all rows are in use.
        start: lambda_0 in [0, 1]; not 0 for ``"geometric"``, which would stay there.
        shape: ``"linear"``, ``"geometric"`` or ``"root"``.
        p: The root of ``"root"``, positive; larger takes more rows early.

    Returns:
        A share in [start, 1].

    Example:
        >>> [round(pace(5, 10, 0.1, shape), 4) for shape in ("linear", "geometric", "root")]   # root: sqrt(0.505)
        [0.55, 0.3162, 0.7106]

    Reference:
        Hacohen and Weinshall, On the Power of Curriculum Learning in Training Deep Networks, ICML 2019 (exponential).
        Platanios et al., Competence-based Curriculum Learning for Neural Machine Translation, NAACL 2019 (root-p).
    """
    if shape not in get_args(Shape):
        raise ValueError(f"shape must be 'linear', 'geometric' or 'root', got {shape!r}")
    if not grow >= 1:
        raise ValueError(f"grow must be at least 1 epoch, got {grow!r}")
    if not 0 <= start <= 1:
        raise ValueError(f"start is a share of the set and must lie in [0, 1], got {start!r}")
    if shape == "geometric" and start == 0:
        raise ValueError("geometric pacing multiplies its share and would stay at start=0; pass a positive start")
    if not 0 < p < math.inf:
        raise ValueError(f"the root p must be positive and finite, got {p!r}")
    if t >= grow or start == 1:
        return 1.0
    if shape == "geometric":
        return start ** (1 - t / grow)
    root = 1.0 if shape == "linear" else p
    floor = start**root
    return min(1.0, (t / grow * (1 - floor) + floor) ** (1 / root))


def buckets_in_use(t: int, interval: int, buckets: int) -> float:
    """The share of the set in use by baby steps: one more of ``buckets`` equal buckets every ``interval`` epochs.

    Args:
        t: Epochs since the pacing began, from 0.
        interval: Epochs for each stage, at least 1.
        buckets: Number of buckets, at least 1; with 1 all rows are in use at once.

    Returns:
        A share in (0, 1].

    Example:
        >>> [buckets_in_use(t, interval=2, buckets=4) for t in range(8)]
        [0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1.0, 1.0]

    Reference:
        Spitkovsky et al., From Baby Steps to Leapfrog, NAACL 2010.
    """
    if not interval >= 1:
        raise ValueError(f"interval must be at least 1 epoch, got {interval!r}")
    if not buckets >= 1:
        raise ValueError(f"buckets must be at least 1, got {buckets!r}")
    return min(1.0, (1 + t // interval) / buckets)


def subset_size(share: float, n: int) -> int:
    """A share of ``n`` rows as a count: rounded down, but at least one.

    Example:
        >>> subset_size(0.29, 100), subset_size(0.001, 100)
        (29, 1)
    """
    # The small number keeps 0.29 * 100 from rounding down to 28.
    return min(n, max(1, math.floor(share * n + 1e-9)))


def difficulty_order(scores: Tensor, generator: torch.Generator) -> Tensor:
    """Rows from the lowest score to the highest; ties in random order.

    Args:
        scores: (N,) difficulties; +inf is hardest.
        generator: Source of the random order, on the device of ``scores``.

    Returns:
        (N,) int64 rows.

    Example:
        >>> difficulty_order(torch.tensor([0.3, 0.1, 0.2]), torch.Generator().manual_seed(0))
        tensor([1, 2, 0])
    """
    shuffled = torch.randperm(len(scores), generator=generator, device=scores.device)
    return shuffled[scores[shuffled].argsort(stable=True)]


def rank_within(scores: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's rank within its group, 0 for the lowest score, and the size of its group.

    Args:
        scores: (N,) difficulties.
        groups: (N,) int64 group numbers.

    Returns:
        (N,) int64 ranks and (N,) int64 sizes.

    Example:
        >>> rank_within(torch.tensor([0.3, 0.1, 0.2]), torch.tensor([7, 7, 2]))
        (tensor([1, 0, 0]), tensor([2, 2, 1]))
    """
    order = scores.argsort(stable=True)
    order = order[groups[order].argsort(stable=True)]
    _, counts = torch.unique_consecutive(groups[order], return_counts=True)
    starts = (counts.cumsum(0) - counts).repeat_interleave(counts)
    places, sizes = torch.empty_like(order), torch.empty_like(order)
    places[order] = torch.arange(len(order), device=order.device) - starts
    sizes[order] = counts.repeat_interleave(counts)
    return places, sizes
