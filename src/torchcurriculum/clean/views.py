"""Two halves of the columns, which must agree before a label is called wrong.

If a label does not follow from the columns (who survives, which customer leaves), exceptions look like wrong labels to
every classifier. But they contradict only a few columns, while a wrong label contradicts all of them. So classifiers
are trained on two halves of the columns that are not correlated with each other; see ``views`` of ``audit``. A label is
surely wrong only if the audits of both halves, and of the whole, call it wrong and suggest the same other class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..audit import Audit, audit
from .folds import train_folds
from .userdata import UserData, Watch

__all__ = ["sure_labels", "train_views", "two_views"]

SURE = 0.95  # probability of the suggested label by all columns
ALIKE = 0.85  # correlation of features from which on their columns stay together
SAMPLE = 2000  # rows used to measure correlations


def two_views(features: np.ndarray, groups: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
    """Two halves of the features, about equally predictive; correlated columns are in the same half.

    Args:
        features: (N, D).
        groups: (D,) the column of each feature.
        labels: (N,).

    Returns:
        Numbers of features: two arrays, or None if all columns are correlated.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(50, 4))
        >>> x[:, 1] = x[:, 0]
        >>> [part.tolist() for part in two_views(x, np.array([1, 2, 3, 4]), np.arange(50) % 2)]
        [[0, 1], [2, 3]]
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    some = features[:: max(1, len(features) // SAMPLE)].astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        near = np.abs(np.nan_to_num(np.corrcoef(some.T))).reshape(len(groups), len(groups)) > ALIKE
    columns = np.unique(groups, return_inverse=True)[1]
    one, other = np.nonzero(near)
    pairs = csr_matrix((np.ones(len(one), dtype=bool), (columns[one], columns[other])), shape=(columns.max() + 1,) * 2)
    of = connected_components(pairs)[1][columns]
    means = np.stack([features[labels == label].mean(0) for label in np.unique(labels)])
    telling = means.var(0) / (features.var(0) + 1e-6)
    ranked = sorted(set(of.tolist()), key=lambda name: -float(telling[of == name].sum()))
    if len(ranked) < 2:
        return []
    first = [name for place, name in enumerate(ranked) if place % 4 in (0, 3)]
    return [np.flatnonzero(np.isin(of, first)), np.flatnonzero(~np.isin(of, first))]


def train_views(source: UserData, folds: int = 5, seed: int = 0, watch: Watch = lambda *_: None) -> list[np.ndarray]:
    """(N, C) probabilities by each half of the columns, by logistic regression; none if they cannot be halved.

    Args:
        source: The data.
        folds: As in ``train_folds``.
        seed: As in ``train_folds``.
        watch: As in ``train_folds``.
    """
    x = source.features
    taken = {column.taken for place, column in enumerate(source.columns) if place in source.groups}
    if not source.groups.any() or taken == {"text"}:  # an embedding: its main directions are spread over both halves
        size = x.shape[1]
        x = x @ np.linalg.qr(np.random.default_rng(0).normal(size=(size, size)))[0].astype(np.float32)
        parts = [np.arange(start, size, 2) for start in (0, 1)] if size > 1 else []
    else:
        parts = two_views(x, source.groups, source.labels)
    halves = [np.ascontiguousarray(x[:, part]) for part in parts]
    options: dict[str, Any] = {"kinds": ("linear",), "seed": seed, "watch": watch}
    return [train_folds(x, source.labels, len(source.classes), folds, **options).probabilities for x in halves]


def sure_labels(found: Audit, views: Sequence[np.ndarray]) -> np.ndarray:
    """(N,) bool: the wrong labels that may be changed without review.

    Args:
        found: The audit by all columns.
        views: Of ``train_views``.
    """
    assert found.given is not None
    assert found.suggestion_probability is not None
    sure = found.issue & (found.suggestion_probability >= SURE)
    for shares in views:
        by_half = audit(found.given, shares)
        sure &= by_half.issue & (by_half.suggested == found.suggested)
    return sure
