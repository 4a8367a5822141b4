"""Curricula over classes: local to global (Cheng et al., 2019) and coarse to fine (Stretcu et al., 2021)."""

from __future__ import annotations

import torch
from torch import Tensor

from .precision import at_least_float32

__all__ = ["affinity_levels", "class_means", "coarse_losses", "confusion", "keep_classes", "next_classes", "similarity"]


def class_means(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """(C, D) mean features of each class; zeros for a class without rows.

    Example:
        >>> class_means(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]), 2)
        tensor([[2.],
                [5.]])
    """
    sums = features.new_zeros(classes, features.shape[1]).index_add_(0, labels, features)
    return sums / torch.bincount(labels, minlength=classes).clamp_min(1)[:, None].to(features)


def next_classes(means: Tensor, included: Tensor, candidates: Tensor, count: int, nearest: bool) -> Tensor:
    """The classes to add, one after another: nearest to (or farthest from) those included, by the mean distance.

    Args:
        means: (C, D) mean outputs of the classes.
        included: (C,) bool, at least one of them set.
        candidates: (C,) bool, classes that may be added.
        count: Number of classes to add.
        nearest: Add similar classes; else dissimilar ones.

    Returns:
        (C,) bool, the classes included afterwards.

    Example:
        >>> means, included = torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([True, False, False])
        >>> next_classes(means, included, ~included, 1, nearest=True)
        tensor([ True,  True, False])
    """
    distances = torch.cdist(means.double(), means.double())
    included = included.clone()
    for _ in range(min(count, int((candidates & ~included).sum()))):
        mean = distances[:, included].mean(1) * (1 if nearest else -1)
        included[torch.where(candidates & ~included, mean, torch.inf).argmin()] = True
    return included


def keep_classes(logits: Tensor, labels: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """The logits of some classes, and the labels renumbered to match.

    Args:
        logits: (B, C) logits.
        labels: (B,) int64 labels, all of them among ``kept``.
        kept: (K,) int64 classes, in increasing order.

    Returns:
        (B, K) logits and (B,) labels from 0 to K - 1; -1 for a label that is not among ``kept``.

    Example:
        >>> keep_classes(torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([2]), torch.tensor([0, 2]))
        (tensor([[1., 0.]]), tensor([1]))
    """
    places = torch.full((logits.shape[1],), -1, device=labels.device)
    places[kept.to(labels.device)] = torch.arange(len(kept), device=labels.device)
    return logits.index_select(1, kept.to(logits.device)), places[labels]


def confusion(labels: Tensor, predictions: Tensor, classes: int) -> Tensor:
    """(C, C) share of the rows of class i that are predicted as class j; a class without rows is a row of zeros.

    Example:
        >>> confusion(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), 3)
        tensor([[0.5000, 0.5000, 0.0000],
                [0.0000, 1.0000, 0.0000],
                [0.0000, 0.0000, 0.0000]], dtype=torch.float64)
    """
    counts = torch.bincount(labels * classes + predictions, minlength=classes * classes).view(classes, classes).double()
    return counts / counts.sum(1, keepdim=True).clamp_min(1)


def similarity(confusion: Tensor) -> Tensor:
    """How easily two classes are confused, in either direction: (P + P^T) / 2 without its diagonal.

    Example:
        >>> similarity(torch.tensor([[0.5, 0.5], [0.1, 0.9]]))
        tensor([[0.0000, 0.3000],
                [0.3000, 0.0000]])
    """
    return ((confusion + confusion.T) / 2).fill_diagonal_(0)


def affinity_levels(similarity: Tensor) -> Tensor:
    """Affinity clustering of the classes: in each round every cluster joins the one it is most similar to.

    Clusters are as similar as their two most similar classes (single linkage). A round that would join everything ends
    the hierarchy, since a single label is useless; if it is the first round, its weakest links are dropped until two
    clusters remain. So far as in the authors' code. One rule is ours: clusters of similarity zero never join, so a
    class that is never confused stays separate. The authors break such ties at random.

    Args:
        similarity: (C, C) symmetric, with a zero diagonal.

    Returns:
        (L, C) int64 cluster of each class, coarsest level first; each is nested in the one before. L may be 0, and the
        level where each class is its own cluster is not among them.

    Example:
        >>> s = torch.tensor([[0.0, 0.4, 0.1, 0.0], [0.4, 0.0, 0.0, 0.0], [0.1, 0.0, 0.0, 0.3], [0.0, 0.0, 0.3, 0.0]])
        >>> affinity_levels(s)
        tensor([[0, 0, 1, 1]])
    """
    clusters = torch.arange(len(similarity))
    levels: list[Tensor] = []
    while (count := len(clusters.unique())) > 2:
        apart = clusters[:, None] != clusters
        strength, nearest = torch.where(apart, similarity, -1.0).max(1)  # of each class
        best = [_strongest(strength, clusters == cluster) for cluster in range(count)]
        joined = _join(strength[best], clusters[nearest[best]], 1 if levels else 2)
        if len(joined.unique()) in (1, count):
            break
        clusters = joined[clusters]
        levels.insert(0, clusters)
    return torch.stack(levels) if levels else clusters.new_zeros(0, len(similarity))


def _strongest(strength: Tensor, members: Tensor) -> int:
    """The member whose link to another cluster is strongest."""
    return int(torch.where(members, strength, -2.0).argmax())


def _join(strength: Tensor, nearest: Tensor, fewest: int) -> Tensor:
    """Clusters after each has joined its nearest, strongest links first, until ``fewest`` are left; renumbered."""
    owner = list(range(len(strength)))
    left = len(owner)
    for i in strength.argsort(descending=True, stable=True).tolist():
        a, b = owner[i], owner[int(nearest[i])]
        if left <= fewest or strength[i] <= 0:
            break
        if a != b:
            owner, left = [a if cluster == b else cluster for cluster in owner], left - 1
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(owner))}
    return torch.tensor([numbers[cluster] for cluster in owner])


def coarse_losses(logits: Tensor, labels: Tensor, clusters: Tensor) -> Tensor:
    """-log of the probability of the label's cluster, the sum over its classes of softmax(logits).

    Args:
        logits: (B, C) logits.
        labels: (B,) int64 labels of the finest level.
        clusters: (C,) int64 cluster of each class; each class its own gives the cross-entropy.

    Returns:
        (B,) losses, at least float32.

    Example:
        >>> logits = torch.tensor([[0.1, 0.2, 0.7]]).log()
        >>> coarse_losses(logits, torch.tensor([0]), torch.tensor([0, 0, 1]))   # -log(0.1 + 0.2)
        tensor([1.2040])
    """
    logits = at_least_float32(logits)
    same = clusters[labels][:, None] == clusters
    return logits.logsumexp(1) - logits.masked_fill(~same, -torch.inf).logsumexp(1)
