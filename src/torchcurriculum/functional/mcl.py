"""Minimax curriculum learning (Zhou and Bilmes, 2018): subsets that are hard and diverse, at a cost of O(N log N)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .classes import class_means
from .precision import at_least_float32

__all__ = [
    "cluster",
    "facility_location",
    "hard_and_diverse",
    "hard_and_representative",
    "kernel_of_groups",
    "marginal_gains",
    "project",
    "subset_schedule",
]

SAMPLE = 64  # rows per cluster for k-means; more hardly change the centres
CHUNK = 16384  # rows per block of distances


def subset_schedule(
    episode: int, n: int, start: float, growth: float, strength: float, decay: float
) -> tuple[int, float]:
    """k_t = k_0 (1 + Delta)^t, at most n, and lambda_t = lambda_0 (1 - gamma)^t: larger and less diverse subsets.

    Args:
        episode: t, from 0.
        n: Rows of the training set.
        start: k_0 / n in (0, 1].
        growth: Delta >= 0.
        strength: lambda_0 >= 0.
        decay: gamma in [0, 1].

    Returns:
        The size of the subset and the weight of the diversity.

    Example:
        >>> subset_schedule(2, 100, start=0.2, growth=0.5, strength=1.0, decay=0.1)   # 20 * 1.5 * 1.5, 0.9 * 0.9
        (45, 0.81)
    """
    try:
        size = min(float(n), start * n * (1 + growth) ** episode)
    except OverflowError:  # many episodes with large growth
        size = float(n)
    # The small number keeps 0.1 * 30 = 3.0000000000000004 from rounding up to 4.
    return max(1, math.ceil(size - 1e-9)), round(strength * (1 - decay) ** episode, 12)


def marginal_gains(losses: Tensor, groups: Tensor, strength: float) -> Tensor:
    r"""What each row adds to sum_{i in A} L_i + lambda F(A) when the rows of its group are taken hardest first.

    The diversity is a concave function over a modular one, summed over groups g of n_g rows, which the paper allows:

    .. math:: F(A) = \bar L \sum_g \sqrt{n_g\,|A \cap g|}

    with :math:`\bar L` the mean absolute loss. Over the whole set it is the sum of the absolute losses, so lambda = 1
    makes both terms equally large for any n. The r-th hardest row of its group gains
    :math:`L_i + \lambda \bar L \sqrt{n_g} (\sqrt r - \sqrt{r - 1})`, which falls with r: taking the largest gains is
    the greedy algorithm of the paper and, for this F, the exact maximum. The square root and the factor n_g, with which
    diversity takes the same share of every group, are our choice.

    Args:
        losses: (N,) finite losses.
        groups: (N,) int64 group of each row, from 0.
        strength: lambda >= 0.

    Returns:
        (N,) gains, float64.

    Example:
        >>> marginal_gains(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([0, 0, 0, 1]), strength=1.0)
        tensor([8.3301, 4.7936, 3.3763, 3.5000], dtype=torch.float64)
    """
    losses = losses.double()
    order = losses.argsort(descending=True, stable=True)
    order = order[groups[order].argsort(stable=True)]
    sizes = torch.bincount(groups)
    starts = sizes.cumsum(0) - sizes
    rank = torch.empty_like(losses)
    rank[order] = (torch.arange(1, len(losses) + 1) - starts[groups[order]]).double()
    diversity = sizes.double().sqrt()[groups] * (rank.sqrt() - (rank - 1).sqrt())
    return losses + strength * losses.abs().mean() * diversity


def hard_and_diverse(losses: Tensor, groups: Tensor, size: int, strength: float) -> Tensor:
    """argmax over |A| = size of sum_{i in A} L_i + lambda F(A), the inner problem of the paper's Eq. 2.

    Args:
        losses: (N,) finite losses.
        groups: (N,) int64 group of each row.
        size: k.
        strength: lambda.

    Returns:
        (size,) int64 rows, in increasing order.

    Example:
        >>> losses, groups = torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([0, 0, 0, 1])
        >>> hard_and_diverse(losses, groups, 3, strength=0.0), hard_and_diverse(losses, groups, 3, strength=1.0)
        (tensor([0, 1, 2]), tensor([0, 1, 3]))
    """
    gains = marginal_gains(losses, groups, strength)
    return gains.argsort(descending=True, stable=True)[:size].sort().values


def facility_location(gains: Tensor, similarity: Tensor, demand: Tensor, strength: float) -> Tensor:
    r"""The greedy order of candidates by :math:`\sum_{i \in A} g_i + \lambda F(A)`, F facility location.

    .. math:: F(A) = \sum_j d_j \max_{i \in A} \omega_{ij}

    Args:
        gains: (C,) the value of each single candidate, g.
        similarity: (C, C) omega >= 0.
        demand: (C,) d >= 0, the importance of having something chosen near j.
        strength: lambda >= 0.

    Returns:
        (C,) int64 candidates in the order in which the greedy algorithm takes them.

    Example:
        >>> omega = torch.tensor([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]])
        >>> facility_location(torch.tensor([0.3, 0.2, 0.1]), omega, torch.ones(3), strength=1.0)   # 0 and 1 are alike
        tensor([0, 2, 1])
    """
    gains, similarity, demand = gains.double(), similarity.double(), demand.double()
    covered, left, order = torch.zeros(len(gains), dtype=torch.float64), torch.zeros(len(gains)).double(), []
    for _ in range(len(gains)):
        added = (similarity - covered).clamp_min(0) @ demand  # row i: how much i adds to the maxima
        best = int((gains + strength * added + left).argmax())
        order.append(best)
        left[best] = -math.inf
        covered = torch.maximum(covered, similarity[best])
    return torch.tensor(order, dtype=torch.int64)


def kernel_of_groups(features: Tensor, groups: Tensor, count: int) -> Tensor:
    r"""(C, C) :math:`\exp(-\|c_i - c_j\|^2 / s)` of the mean features of groups, s the mean of the squared distances.

    Example:
        >>> kernel_of_groups(torch.tensor([[0.0], [0.0], [2.0]]), torch.tensor([0, 0, 1]), 2)   # s = (4 + 4) / 4
        tensor([[1.0000, 0.1353],
                [0.1353, 1.0000]], dtype=torch.float64)
    """
    centres = class_means(features.nan_to_num().double(), groups, count)
    squares = torch.cdist(centres, centres).square()
    mean = squares.mean()
    return torch.exp(-squares / torch.where(mean > 0, mean, 1.0))


def hard_and_representative(losses: Tensor, groups: Tensor, similarity: Tensor, size: int, strength: float) -> Tensor:
    r"""Whole groups in the greedy order of their losses and of facility location, until there are ``size`` rows.

    The value of a group is the sum of its losses; its demand is its number of rows times the mean absolute loss, so
    that lambda = 1 makes both terms equally large over the whole set. Of the last group the hardest rows are taken.

    Args:
        losses: (N,) finite losses.
        groups: (N,) int64 group of each row.
        similarity: (C, C) of the groups.
        size: k.
        strength: lambda.

    Returns:
        (size,) int64 rows, in increasing order.

    Example:
        >>> losses, groups = torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([0, 0, 1, 1])
        >>> hard_and_representative(losses, groups, torch.eye(2), 3, strength=1.0)
        tensor([0, 1, 2])
    """
    losses, count = losses.double(), len(similarity)
    worth = torch.zeros(count, dtype=torch.float64).index_add_(0, groups, losses)
    demand = torch.bincount(groups, minlength=count) * losses.abs().mean()
    place = torch.empty(count, dtype=torch.int64)
    place[facility_location(worth, similarity, demand, strength)] = torch.arange(count)
    order = losses.argsort(descending=True, stable=True)
    return order[place[groups[order]].argsort(stable=True)][:size].sort().values


def project(x: Tensor, width: int, generator: torch.Generator) -> Tensor:
    """(B, width) random projection, which keeps distances up to a few per cent; ``x`` itself if it is narrower.

    Args:
        x: (B, ...) outputs of a model.
        width: Columns to keep.
        generator: On the host; the same state gives the same projection.

    Returns:
        (B, at most width).

    Example:
        >>> project(torch.zeros(3, 100), 16, torch.Generator().manual_seed(0)).shape
        torch.Size([3, 16])
    """
    x = x.reshape(len(x), -1)
    x = at_least_float32(x)
    if x.shape[1] <= width:
        return x
    matrix = torch.randn(x.shape[1], width, generator=generator) / math.sqrt(width)
    return x @ matrix.to(x)


def cluster(features: Tensor, count: int, generator: torch.Generator, rounds: int = 10) -> Tensor:
    """k-means groups, at a cost of O(N count D): centres from a sample of the rows, then every row to its nearest.

    Args:
        features: (N, D) features, in host memory.
        count: Groups, at most N.
        generator: Of the host.
        rounds: Lloyd's iterations on the sample.

    Returns:
        (N,) int64 groups below ``count``; a group may be empty.

    Example:
        >>> cluster(torch.tensor([[0.0], [9.0], [0.1], [9.1]]), 2, torch.Generator().manual_seed(1))
        tensor([0, 1, 0, 1])
    """
    features = features.nan_to_num()
    sample = features[torch.randperm(len(features), generator=generator)[: SAMPLE * count]]
    centres = sample[:count]
    for _ in range(rounds):
        members = torch.nn.functional.one_hot(_nearest(sample, centres), count).to(sample)
        sizes = members.sum(0)[:, None]
        centres = torch.where(sizes > 0, members.T @ sample / sizes.clamp_min(1), centres)
    return _nearest(features, centres)


def _nearest(x: Tensor, centres: Tensor) -> Tensor:
    squares = centres.square().sum(1)
    return torch.cat([(squares - 2 * part @ centres.T).argmin(1) for part in x.split(CHUNK)])
