"""Teacher-student curriculum learning (Matiisen et al., 2017): tasks are chosen by how fast their scores change."""

from __future__ import annotations

import torch
from torch import Tensor

from .sampling import draw

__all__ = [
    "append_scores",
    "boltzmann",
    "difficulty_groups",
    "epsilon_greedy",
    "moving_average",
    "sample_changes",
    "slope",
    "task_scores",
]


def difficulty_groups(losses: Tensor, count: int) -> Tensor:
    """``count`` tasks of equal size by the quantiles of the losses, 0 the easiest.

    Args:
        losses: (N,) losses.
        count: Tasks, at most N.

    Returns:
        (N,) int64 tasks.

    Example:
        >>> difficulty_groups(torch.tensor([0.3, 0.1, 9.0, 0.2]), 2)
        tensor([1, 0, 1, 0])
    """
    rank = torch.empty(len(losses), dtype=torch.int64)
    rank[losses.argsort(stable=True)] = torch.arange(len(losses))
    return rank * count // len(losses)


def task_scores(losses: Tensor, tasks: Tensor, count: int) -> Tensor:
    """x_t: each task's score, the negative mean loss of its rows; rows without a finite loss are skipped.

    Args:
        losses: (N,) losses.
        tasks: (N,) int64 tasks.
        count: Number of tasks.

    Returns:
        (count,) float64 scores, NaN for a task without a finite loss.

    Example:
        >>> task_scores(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]), 2)
        tensor([-2., -5.], dtype=torch.float64)
    """
    known = losses.isfinite()
    sums = torch.bincount(tasks[known], losses[known].double(), minlength=count)
    return -sums / torch.bincount(tasks[known], minlength=count)


def moving_average(values: Tensor, rewards: Tensor, rate: float) -> Tensor:
    """Q_{t+1} = alpha r_t + (1 - alpha) Q_t, the estimate of the online and the naive algorithm.

    Args:
        values: (T,) Q_t.
        rewards: (T,) r_t; a task without a finite reward keeps its estimate.
        rate: alpha in (0, 1].

    Returns:
        (T,) Q_{t+1}.

    Example:
        >>> moving_average(torch.tensor([1.0, 0.0]), torch.tensor([0.0, -2.0]), 0.1)
        tensor([ 0.9000, -0.2000])
    """
    return torch.where(rewards.isfinite(), rate * rewards + (1 - rate) * values, values)


def append_scores(history: Tensor, scores: Tensor, measured: Tensor) -> Tensor:
    """Appends the newest score of each task; a task that was not measured keeps its history.

    Args:
        history: (K + 1, T) scores, oldest first; infinite where there was none yet.
        scores: (T,) current scores.
        measured: (T,) bool.

    Returns:
        (K + 1, T).

    Example:
        >>> history, scores = torch.tensor([[1.0, 5.0], [2.0, 6.0]]), torch.tensor([3.0, 6.0])
        >>> append_scores(history, scores, measured=torch.tensor([True, False]))
        tensor([[2., 5.],
                [3., 6.]])
    """
    return torch.where(measured, torch.cat([history[1:], scores[None]]), history)


def slope(scores: Tensor) -> Tensor:
    """The reward of the naive and the window algorithm: least-squares slope of each task's scores, in their order.

    Args:
        scores: (K, T) scores, oldest first; infinite where there was none yet.

    Returns:
        (T,) slopes, change of score from one to the next; 0 for a task with fewer than two scores.

    Example:
        >>> slope(torch.tensor([[torch.inf, 0.0], [1.0, 1.0], [4.0, 1.0]]))
        tensor([3.0000, 0.5000])
    """
    known = scores.isfinite()
    count = known.sum(0).clamp_min(1)
    time = torch.arange(len(scores), dtype=scores.dtype)[:, None].expand_as(scores)
    values = torch.where(known, scores, 0.0)
    time = torch.where(known, time - torch.where(known, time, 0.0).sum(0) / count, 0.0)
    spread = time.square().sum(0)
    return torch.where(spread > 0, (time * values).sum(0) / spread.clamp_min(1e-12), 0.0)


def sample_changes(scores: Tensor, generator: torch.Generator) -> Tensor:
    """The sampling algorithm: for each task one of its last rewards x_t - x_{t-1}, drawn uniformly.

    Args:
        scores: (K + 1, T) scores, oldest first; infinite where there was none yet.
        generator: Of the host.

    Returns:
        (T,) rewards; 0 for a task that has none yet.

    Example:
        >>> sample_changes(torch.tensor([[torch.inf, torch.inf], [1.0, 2.0], [1.5, 1.0]]), torch.Generator())
        tensor([ 0.5000, -1.0000])
    """
    changes = scores.diff(dim=0)
    chances = torch.rand(changes.shape, generator=generator, dtype=torch.float64)
    drawn = torch.where(changes.isfinite(), chances, -1.0).argmax(0, keepdim=True)
    picked = changes.gather(0, drawn)[0]
    return torch.where(picked.isfinite(), picked, 0.0)


def epsilon_greedy(values: Tensor, count: int, epsilon: float, generator: torch.Generator) -> Tensor:
    """``count`` different tasks, one after another: the largest |Q| left, or with probability epsilon any that is left.

    Args:
        values: (T,) estimates Q; ties are broken at random.
        count: Tasks to choose.
        epsilon: Probability of choosing at random.
        generator: Of the host.

    Returns:
        (count,) int64 tasks, in the order of choice.

    Example:
        >>> epsilon_greedy(torch.tensor([0.1, -0.5, 0.3]), 2, 0.0, torch.Generator())
        tensor([1, 2])
    """
    shuffled = torch.randperm(len(values), generator=generator)
    left = shuffled[values.abs()[shuffled].argsort(descending=True, stable=True)].tolist()
    explore = (torch.rand(count, generator=generator) < epsilon).tolist()
    places = torch.rand(count, generator=generator, dtype=torch.float64).tolist()
    turns = zip(explore, places, strict=True)
    return torch.tensor([left.pop(int(place * len(left)) if coin else 0) for coin, place in turns])


def boltzmann(values: Tensor, count: int, temperature: float, generator: torch.Generator) -> Tensor:
    """``count`` different tasks, drawn one after another with probabilities proportional to exp(|Q| / temperature).

    Args:
        values: (T,) estimates Q.
        count: Tasks to choose.
        temperature: Positive; small is greedy.
        generator: Of the host.

    Returns:
        (count,) int64 tasks, in increasing order.

    Example:
        >>> boltzmann(torch.tensor([0.1, -0.5, 0.3]), 2, 1e-3, torch.Generator())
        tensor([1, 2])
    """
    return draw(values.abs().double() / temperature, count, generator)
