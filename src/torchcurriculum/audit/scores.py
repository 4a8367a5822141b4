"""Other scores of the samples in a record (AUM, EL2N, forgetting, GraNd, VoG), for ranking and pruning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ..record import Record, RecordError
from .result import Audit

__all__ = ["SIGNS", "difficulty", "prune", "ranked_by"]

SIGNS = {"aum": -1, "el2n": 1, "forgetting": 1, "grand": 1, "vog": 1}  # times these, larger is harder


def difficulty(record: Record, score: str) -> np.ndarray:
    """(N,) float64 scores of the samples, larger is harder and more suspicious; NaN if unknown.

    Args:
        record: With an array of the score's name: those of ``methods.Scored``, or your own.
        score: ``"aum"``, ``"el2n"``, ``"forgetting"``, ``"grand"`` or ``"vog"``.

    Example:
        >>> record = Record(2)
        >>> record.set_array("aum", np.array([3.0, -1.0]))
        >>> difficulty(record, "aum")
        array([-3.,  1.])
    """
    if score not in SIGNS:
        raise ValueError(f"score must be one of {', '.join(SIGNS)}, got {score!r:.60}")
    values = record.arrays.get(score)
    if values is None:
        raise RecordError(
            f"this record holds no {score!r}; train with Scored(method, n) and set its arrays() in the record"
        )
    if values.ndim != 1 or values.dtype.kind not in "fiu":
        raise RecordError(f"{score!r} must hold one number for each of {record.n} samples, got {values.shape}")
    return SIGNS[score] * values.astype(np.float64)


def ranked_by(found: Audit, record: Record, score: str) -> Audit:
    """An audit with its rows ranked by another score; the labels called wrong stay the same.

    ``auroc`` and ``precision`` are then those of the other score; ``quality`` is still that of the losses.
    """
    values = np.nan_to_num(difficulty(record, score), nan=-np.inf)
    return replace(found, score=values, order=np.argsort(-values, kind="stable"))


def prune(values: Any, fraction: float, drop: Literal["easy", "hard"] = "easy", seed: int = 0) -> np.ndarray:
    """The rows to keep when a share of the samples is dropped, in increasing order.

    Samples of equal value are dropped at random; those of unknown value are kept.

    Args:
        values: (N,) difficulties, larger is harder, from ``difficulty`` or ``Scored.difficulty``.
        fraction: The share to drop, in [0, 1).
        drop: ``"easy"`` for clean data, whose hard samples are worth most; ``"hard"`` if labels are wrong, or if few
            rows would be left.
        seed: Seed of the order of equal samples.

    Example:
        >>> prune([0.1, 0.9, 0.5, float("nan")], 0.5)
        array([1, 3])
        >>> prune([0.1, 0.9, 0.5, float("nan")], 0.5, drop="hard")
        array([0, 3])

    Reference:
        Paul, Ganguli and Dziugaite, Deep Learning on a Data Diet, NeurIPS 2021.
        Sorscher et al., Beyond neural scaling laws: beating power law scaling via data pruning, NeurIPS 2022 (which
        end to drop).
    """
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1:
        raise ValueError(f"values must be of shape (N,), got {found.shape}")
    if drop not in ("easy", "hard"):
        raise ValueError(f"drop must be 'easy' or 'hard', got {drop!r:.60}")
    if isinstance(fraction, bool) or not 0 <= fraction < 1:
        raise ValueError(f"fraction is the share to leave out and must lie in [0, 1), got {fraction!r:.60}")
    out = int(len(found) * fraction + 1e-9)
    shuffled = np.random.default_rng(seed).permutation(len(found))
    order = found[shuffled] if drop == "easy" else -found[shuffled]
    return np.sort(shuffled[np.argsort(order, kind="stable")[out:]])  # NumPy sorts NaN to the end
