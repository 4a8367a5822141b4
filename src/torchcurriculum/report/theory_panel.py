"""The paper's theorems and lemmas for a run, drawn and counted, so that a reader sees the bounds hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import theory
from ..record import Record, RecordError
from .figures import panels_of
from .html import figure, table
from .series import Missing
from .svg import colour, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["THEORY_WORDS", "theory_panel"]

THETA = 0.1
ROUNDING = 1e-9
CAPTION = (
    "Solid: what the run did. Dashed: the bound. Shaded: between the two. The thin line of Theorem 2 is the product of "
    "the normalisers, which lies between."
)
FOURTH = (
    " Theorem 4 is about unseen samples, and only one part of it can be measured: the share of training samples with "
    "b ≤ {theta} in its convergence phase, epochs {first} to {last}, is {share:.1%}."
)
NO_FOURTH = " Theorem 4 needs a convergence phase, epochs with ρ < 1/2, and this run has none."
THEORY_WORDS = (
    "The paper proves bounds on what APW does to a training set. Theorems 1 to 3 have two sides that can be computed "
    "from the record, epoch by epoch: a solid line has to stay on its side of the dashed one."
)
NO_PHASE = ["–", "", "–", "no phase that starts with A > 0"]


class Sides(NamedTuple):
    """What the statements say of one record."""

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
        Missing: Where the theorems are not about this run, with the reason.
    """
    try:
        with np.errstate(all="ignore"):  # of a damaged record
            sides = _compute(records[0])
    except (RecordError, ValueError) as reason:
        raise Missing(str(reason)) from reason
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
    image = render(lambda: _draw(sides), key, f"Theorems 1 to 3 for {method}: both sides over the epochs.")
    head = ["Statement", "Left side, last epoch", "", "Right side", "Holds in"]
    words = "Both sides at the last epoch, or over the last phase that a lemma is about, and where the statement holds."
    return figure(image, caption) + table(words, head, lines)


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


def _draw(sides: Sides) -> Figure:
    made, panels = panels_of([(0.35, 1.95), (2.72, 1.95), (5.09, 1.95)], 2.4)
    first, second, third = sides[:3]
    _sides(panels[0], first.hard_weight, first.bound, "1: weight on hard samples", below=True)
    _sides(panels[1], second.failure, second.bound, "2: share not retentive", below=True)
    panels[1].plot(_epochs(second.product), second.product, color=colour("choice-4"), linewidth=0.9)
    _sides(panels[2], third.fraction, third.bound, f"3: share with m > {THETA}", below=False)
    return made


def _epochs(values: np.ndarray) -> np.ndarray:
    return np.arange(1, len(values) + 1)


def _sides(axes: Axes, solid: np.ndarray, dashed: np.ndarray, title: str, below: bool) -> None:
    """A quantity and its bound; what a bound says outside of [0, 1] is nothing, so the axis ends a little beyond."""
    epochs, tint = _epochs(solid), colour("choice-1" if below else "choice-3")
    seen = np.clip(dashed, -0.5, 2.0)
    known = np.isfinite(solid) & np.isfinite(seen)
    few = "o" if known.sum() <= 2 else None
    axes.fill_between(epochs[known], solid[known], seen[known], color=tint, alpha=0.12, linewidth=0)
    axes.plot(epochs[known], seen[known], color=colour("muted"), linestyle=(0, (4, 2)), linewidth=1.2, marker=few)
    axes.plot(epochs[known], solid[known], color=tint, linewidth=1.6, marker=few, markersize=4)
    if not known.any():
        axes.text(0.5, 0.5, "no epoch that\nit is about", transform=axes.transAxes, ha="center", color=colour("muted"))
    axes.set_ylim(-0.03, 1.15)
    axes.set_xlim(0.5, max(len(solid), 1) + 0.5)
    axes.set_title(title, loc="left")


def _row(left: np.ndarray, right: np.ndarray, sign: str) -> list[str]:
    known = np.isfinite(left) & (np.isfinite(right) | (right == math.inf))
    if not known.any():
        return ["–", sign, "–", "no epoch that it is about"]
    left, right = left[known], right[known]
    slack = np.where(np.isfinite(right), ROUNDING * np.maximum(1.0, np.abs(right)), 0.0)
    holds = {"<": left < right + slack, "≤": left <= right + slack, "≥": left >= right - slack}
    good = holds[sign] if sign in holds else np.isclose(left, right, rtol=1e-4, atol=1e-9)
    return [f"{left[-1]:.4g}", sign, f"{right[-1]:.4g}", f"{int(good.sum())} of {len(good)}"]
