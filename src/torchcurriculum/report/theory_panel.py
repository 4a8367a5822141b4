"""Both sides of each theorem of the paper for a run, drawn and counted, so that a reader sees the bounds hold."""

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
    " Theorem 4 is about unseen samples and its bound cannot be computed; its measurable part, the share of training "
    "samples with b ≤ {theta} from epoch {first} to {last}, is {share:.1%}."
)
THEORY_WORDS = (
    "The paper proves bounds on what APW does to a training set. Here both sides of each are computed from the record, "
    "epoch by epoch: a solid line has to stay on its side of the dashed one."
)


class Sides(NamedTuple):
    """Both sides of every statement, for one record."""

    first: theory.DifficultyBound
    second: theory.Effectiveness
    third: theory.Stability
    q: float
    phase: theory.Phase | None  # the last positive one
    fourth: float
    lemma: theory.Decay | None


def theory_panel(method: str, records: Sequence[Record], key: str) -> str:
    """A figure with a panel for each theorem, and a table that counts the epochs in which it holds.

    Raises:
        Missing: Where the theorems are not about this run, with the reason.
    """
    try:
        with np.errstate(all="ignore"):  # of a damaged record
            sides = _compute(records[0])
    except (RecordError, ValueError) as reason:
        raise Missing(str(reason)) from reason
    first, second, third, q, phase, fourth, lemma = sides
    lines = [
        ("Theorem 1", _row(first.hard_weight, first.bound, "<")),
        ("Theorem 2", _row(second.failure, second.bound, "≤")),
        ("Theorem 2, equality", _row(second.mean_exponential, second.product, "=")),
        ("Theorem 3", _row(third.fraction, third.bound, "≥")),
    ]
    if lemma is not None and lemma.applies:
        lines.append(("Lemma 2", _row(np.array([lemma.eta]), np.array([lemma.eta_bound]), "≤")))
    caption = f"{method}, first seed, q = {q:g}. {CAPTION}"
    if phase is not None:
        caption += FOURTH.format(theta=THETA, first=phase.first, last=phase.last, share=fourth)
    image = render(lambda: _draw(sides), key, f"Theorems 1 to 3 for {method}: both sides over the epochs.")
    head = ["Statement", "Left side, last epoch", "", "Right side", "Holds in"]
    return figure(image, caption) + table("Both sides at the last epoch, and in how many epochs it holds.", head, lines)


def _compute(record: Record) -> Sides:
    q, positive = theory.strength(record), theory.positive_phases(record)
    sides = theory.difficulty_bound(record), theory.effectiveness(record), theory.stability(record, THETA)
    if not positive:
        return Sides(*sides, q, None, math.nan, None)
    phase = positive[-1]
    return Sides(*sides, q, phase, theory.generalisation(record, phase, THETA), theory.decay(record, phase, THETA))


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
