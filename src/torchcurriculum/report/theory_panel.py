"""The paper's theorems and lemmas for one run: where their bounds hold, drawn and counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import theory
from ..record import Record, RecordError
from .figures import panel
from .html import figure, table
from .series import MissingData
from .svg import colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["THEORY_WORDS", "theory_panel"]

THETA = 0.1
ROUNDING = 1e-9
CAPTION = "Solid: the run. Dashed: the bound. The thin line of Theorem 2 is the product of the normalisers."
FOURTH = (
    " Theorem 4 is about unseen samples, and only one part of it can be measured: the share of training samples with "
    "b ≤ {theta} in its convergence phase, epochs {first} to {last}, is {share:.1%}."
)
NO_FOURTH = " Theorem 4 needs a convergence phase, epochs with ρ < 1/2, and this run has none."
THEORY_WORDS = (
    "The paper proves bounds on what APW does to a training set. Both sides of Theorems 1 to 3 can be computed from "
    "the record: a solid line must stay on its side of the dashed one."
)
NO_PHASE = ["–", "", "–", "no phase that starts with A > 0"]


class Sides(NamedTuple):
    """Both sides of the statements for one record."""

    first: theory.DifficultyBound
    second: theory.Effectiveness
    third: theory.Stability
    q: float
    phase: theory.Phase | None  # the last convergence phase, which Theorem 4 needs
    fourth: float
    retention: theory.Retention | None  # Lemmas 1 and 2 need one that starts with A_K > 0
    decay: theory.Decay | None


def theory_panel(method: str, records: Sequence[Record], key: str) -> str:
    """A figure with a panel for each of Theorems 1 to 3, and a table that counts where each statement holds.

    Raises:
        MissingData: If the theorems do not apply to this run, with the reason.
    """
    try:
        with np.errstate(all="ignore"):  # a damaged record may overflow
            sides = _compute(records[0])
    except (RecordError, ValueError) as reason:
        raise MissingData(str(reason)) from reason
    first, second, third, q, phase, fourth, retention, decay = sides
    lines = [
        ("Theorem 1", _row(first.hard_weight, first.bound, "<")),
        ("Theorem 2", _row(second.failure, second.bound, "≤")),
        ("Theorem 2, equality", _row(second.mean_exponential, second.product, "=")),
        ("Theorem 3", _row(third.fraction, third.bound, "≥")),
        ("Lemma 1", _first_lemma(retention)),
        ("Lemma 2", _second_lemma(decay)),
    ]
    caption = f"{method}, first seed, q = {q:g}. {CAPTION}"
    told = {} if phase is None else {"theta": THETA, "first": phase.first, "last": phase.last, "share": fourth}
    caption += FOURTH.format(**told) if told else NO_FOURTH
    panels = [
        _sides(first.hard_weight, first.bound, "Theorem 1: weight on hard samples", f"{key}-1"),
        _sides(second.failure, second.bound, "Theorem 2: share not retentive", f"{key}-2", thin=second.product),
        _sides(third.fraction, third.bound, f"Theorem 3: share with m > {THETA}", f"{key}-3", below=False),
    ]
    head = ["Statement", "Left side, last epoch", "", "Right side", "Holds in"]
    words = "Both sides at the last epoch, or over the last phase that a lemma is about, and where the statement holds."
    return figure([one for one in panels if one], caption) + table(words, head, lines)


def _compute(record: Record) -> Sides:
    q, phases, positive = theory.strength(record), theory.convergence_phases(record), theory.positive_phases(record)
    sides = theory.difficulty_bound(record), theory.effectiveness(record), theory.stability(record, THETA)
    phase = phases[-1] if phases else None
    fourth = math.nan if phase is None else theory.generalisation(record, phase, THETA)
    if not positive:
        return Sides(*sides, q, phase, fourth, None, None)
    lemmas = theory.retention(record, positive[-1]), theory.decay(record, positive[-1], THETA)
    return Sides(*sides, q, phase, fourth, *lemmas)


def _first_lemma(lemma: theory.Retention | None) -> list[str]:
    """Means over the samples whose m grew over the phase, and for how many of them b > m_K."""
    if lemma is None:
        return NO_PHASE
    during, before = lemma.during[lemma.premise], lemma.before[lemma.premise]
    if not len(during):
        return ["–", ">", "–", "no sample whose m grew"]
    good = int((during > before - ROUNDING * np.maximum(1.0, np.abs(before))).sum())
    return [f"{during.mean():.4g}", ">", f"{before.mean():.4g}", f"{good} of {len(during)} samples"]


def _second_lemma(lemma: theory.Decay | None) -> list[str]:
    if lemma is None:
        return NO_PHASE
    if not lemma.applies:
        return ["–", "≤", "–", f"θ = {THETA} is above γ_min"]
    return _row(np.array([lemma.eta]), np.array([lemma.eta_bound]), "≤")


def _sides(
    solid: np.ndarray, dashed: np.ndarray, title: str, key: str, below: bool = True, thin: np.ndarray | None = None
) -> str:
    """A panel of a quantity and its bound, "" if no epoch has both; outside [0, 1] a bound is vacuous."""
    epochs, tint = np.arange(1, len(solid) + 1), colour("choice-1" if below else "choice-3")
    seen = np.clip(dashed, -0.5, 2.0)
    known = np.isfinite(solid) & np.isfinite(seen)
    few = "o" if known.sum() <= 2 else None

    def fill(axes: Axes) -> None:
        axes.fill_between(epochs[known], solid[known], seen[known], color=tint, alpha=0.12, linewidth=0)
        axes.plot(epochs[known], seen[known], color=colour("muted"), linestyle=(0, (4, 2)), linewidth=1.2, marker=few)
        axes.plot(epochs[known], solid[known], color=tint, linewidth=1.6, marker=few, markersize=4)
        if thin is not None:
            axes.plot(epochs, thin, color=colour("choice-4"), linewidth=0.9)
        axes.set_ylim(-0.03, 1.15)
        axes.set_xlim(0.5, max(len(solid), 1) + 0.5)

    return panel(fill, title, "Both sides over epochs.", key) if known.any() else ""


def _row(left: np.ndarray, right: np.ndarray, sign: str) -> list[str]:
    known = np.isfinite(left) & (np.isfinite(right) | (right == math.inf))
    if not known.any():
        return ["–", sign, "–", "applies to no epoch"]
    left, right = left[known], right[known]
    slack = np.where(np.isfinite(right), ROUNDING * np.maximum(1.0, np.abs(right)), 0.0)
    holds = {"<": left < right + slack, "≤": left <= right + slack, "≥": left >= right - slack}
    good = holds[sign] if sign in holds else np.isclose(left, right, rtol=1e-4, atol=1e-9)
    return [f"{left[-1]:.4g}", sign, f"{right[-1]:.4g}", f"{int(good.sum())} of {len(good)}"]
