"""The charts: SVG panels of one size, side by side on a page or, on a phone, below each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..record import Record
from .series import (
    Curve,
    MissingData,
    data_map,
    early_epochs,
    group_weights,
    label_weights,
    later_phase_starts,
    over_seeds,
    scalar_table,
    weight_quantiles,
)
from .svg import CHOICES, colour, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Chart", "adaptation", "curves", "panel", "quiet", "sample_map", "weight_groups", "weights"]

BINS = 36  # squares of the data map, along each axis
WIDTH, HEIGHT = 3.7, 2.5  # inches of a panel; on a phone of 360 px its letters are 9 px high
LONG = 8  # epochs from which the second half gets its own panel: late differences are small
TINY = 1e-12  # the least weight on a logarithmic axis
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (7, 2, 1.5, 2)), (0, (3, 1, 1, 1, 1, 1)))
SHARES = {"rho": "ρ", "eprop": "E-Prop", "trust": "trust", "learned": "learned"}  # columns between 0 and 1
OTHERS = {"alpha": "Weight change α", "power": "Power of the sharpened predictions"}  # each has its own panel
MEANINGS = {
    "eprop": "E-Prop is the share of easy training samples.",
    "alpha": "α below zero moves weight to easy samples, α above zero to hard ones.",
    "trust": "Trust is how far the method believes its own estimate.",
    "learned": "Learned is how well the network knows the labels that the method believes.",
}

Chart = tuple[list[str], str]  # the panels, and the caption below them


class Group(NamedTuple):
    """How samples of the data map look: the cap of a line as their mark, and the same in the legend."""

    words: str
    cap: str
    mark: str
    tint: str


GROUPS = (
    Group("mostly easy", "round", "o", "choice-1"),
    Group("in between", "projecting", "s", "choice-5"),
    Group("mostly hard", "butt", "_", "choice-2"),
)


def curves(runs: Mapping[str, Sequence[Record]], name: str, words: str, key: str) -> Chart:
    """A metric over epochs, a line for each method: mean over seeds, and a band from the lowest to the highest.

    Args:
        runs: Records by method.
        name: The column.
        words: The name of the column.
        key: The chart's id.

    Raises:
        MissingData: If no record has the column.
    """
    looks = _looks(runs) if len(runs) > 1 else {method: (colour("choice-1"), DASHES[0]) for method in runs}
    every = {method: over_seeds(scalar_table(records, name)) for method, records in runs.items()}
    lines = {method: line for method, line in every.items() if len(line.epochs)}
    if not lines:
        raise MissingData(f"The records hold no {words.lower()} ({name}).")
    last = max(int(line.epochs[-1]) for line in lines.values())

    def fill(axes: Axes, begin: int) -> None:
        named = [(line.from_epoch(begin), _short(method), *looks[method]) for method, line in lines.items()]
        ends = _lines(axes, named, scale=100)
        _from_to(axes, begin, last)
        _label_ends(axes, ends)

    finals = "; ".join(f"{method} {100 * line.mean[-1]:.1f} %" for method, line in lines.items())
    titles = {f"{words}, %": 1} | ({"The second half, enlarged": last // 2 + 1} if last >= LONG else {})
    panels = [
        panel(partial(fill, begin=begin), title, f"{words} over epochs. At the end: {finals}.", f"{key}-{begin}")
        for title, begin in titles.items()
    ]
    seeds = any(len(records) > 1 for records in runs.values())
    return panels, f"{words} over epochs{', mean over seeds; bands span all seeds' if seeds else ''}."


def adaptation(method: str, records: Sequence[Record], key: str) -> Chart:
    """What the method measured to set its weights, over epochs; the early phase is shaded if there are phases.

    Raises:
        MissingData: If the records hold no such quantity.
    """
    lines = {name: over_seeds(scalar_table(records, name)) for name in (*SHARES, *OTHERS)}
    lines = {name: line for name, line in lines.items() if len(line.epochs)}
    if not lines:
        raise MissingData("The records hold nothing that this method adapts by.")
    early, firsts = early_epochs(records), later_phase_starts(records)
    phases = bool(early.any() or firsts)

    def fill(axes: Axes, names: Sequence[str]) -> None:
        ends = _lines(
            axes,
            [
                (lines[name], SHARES.get(name, ""), colour(f"choice-{place}"), DASHES[place - 1])
                for place, name in enumerate(names, 1)
            ],
        )
        if names[0] in SHARES:
            axes.set_ylim(-0.03, 1.03)
        elif names[0] == "alpha":
            axes.axhline(0, color=colour("muted"), linewidth=0.6)
        axes.set_xlim(0.5, max(len(early), 1) + 0.5)
        if phases:
            _shade(axes, early, bool(firsts))
        _label_ends(axes, [end for end in ends if end[1]])

    shares = [name for name in SHARES if name in lines]
    groups = {", ".join(SHARES[name] for name in shares): shares} if shares else {}
    groups |= {words: [name] for name, words in OTHERS.items() if name in lines}
    panels = [
        panel(partial(fill, names=names), title, f"{title} over epochs, {method}.", f"{key}-{names[0]}", 14)
        for title, names in groups.items()
    ]
    rho = "the weight on hard samples" if "alpha" in lines else "the share of labels that the method takes for wrong"
    meanings = {"rho": f"ρ is {rho}."} | MEANINGS
    told = [meaning for name, meaning in meanings.items() if name in lines]
    told += [_transition(firsts, len(records))] if phases else []
    return panels, " ".join(told)


def weights(method: str, records: Sequence[Record], key: str) -> Chart:
    """The distribution of N w over epochs.

    Raises:
        MissingData: If no weights are recorded.
    """
    epochs, table = weight_quantiles(records)
    table = np.maximum(table, TINY)
    low, high = table[-1, 0], table[-1, -1]
    label = f"{method}. At the end, weights lie between {low:.3g} and {high:.3g}."
    seeds = ", median over seeds" if len(records) > 1 else ""
    caption = f"{method}: quantiles of the weights over samples{seeds}."
    return [panel(lambda axes: _fan(axes, epochs, table), "Weights of samples", label, key)], caption


def weight_groups(method: str, records: Sequence[Record], key: str) -> Chart:
    """The mean of N w over the easy and the hard samples of each epoch and, if known, over right and wrong labels.

    Raises:
        MissingData: If weights cannot be rebuilt from the records.
    """
    sides = {"Mean weight of easy and hard samples": group_weights(records)}
    with suppress(MissingData):
        sides["Mean weight by given label"] = label_weights(records)
    edges = [edge for lines in sides.values() for line in lines.values() for edge in (line.low, line.high)]
    known = [max(float(end), TINY) for edge in edges if len(edge) for end in (edge.min(), edge.max())]

    def fill(axes: Axes, lines: Mapping[str, Curve]) -> None:
        looks = zip(lines.items(), ("choice-1", "choice-2"), DASHES, strict=False)
        ends = _lines(axes, [(line, words, colour(tint), dashes) for (words, line), tint, dashes in looks])
        _log_axis(axes, known)
        _from_to(axes, 1, max(len(record.epochs) for record in records))
        _label_ends(axes, ends)

    panels = [
        panel(partial(fill, lines=lines), title, f"{method}, over epochs.", f"{key}-{place}")
        for place, (title, lines) in enumerate(sides.items())
    ]
    seeds = ", mean over seeds" if len(records) > 1 else ""
    return panels, f"{method}: mean weights of groups{seeds}. Samples count as easy or hard by their loss in the epoch."


def sample_map(method: str, records: Sequence[Record], key: str) -> Chart:
    """The data map of a method's first seed: every sample's mean loss over the standard deviation of its loss."""
    data = data_map(records[0])
    sides: dict[str, Any] = {"All samples": slice(None)}
    if data.right is not None:
        sides = {"Given label right": data.right, "Given label wrong": ~data.right}
    edges = [np.linspace(*_padded(values), BINS + 1) for values in (data.std, data.mean)]
    most = np.histogram2d(data.std, data.mean, bins=edges)[0].max(initial=1)

    def fill(axes: Axes, rows: Any) -> None:
        axes.set(xlim=edges[0][[0, -1]], ylim=edges[1][[0, -1]], ylabel="mean loss")
        for place, group in enumerate(GROUPS):
            mine = data.group[rows] == place
            counts = np.histogram2d(data.std[rows][mine], data.mean[rows][mine], bins=edges)[0]
            _marks(axes, edges, np.ceil(4 * np.log1p(counts) / np.log1p(most)), group)
            axes.plot([], [], group.mark, color=colour(group.tint), markersize=4, label=group.words)
        axes.figure.legend(ncols=3, loc="outside upper left", frameon=False, handletextpad=0.1)

    counts = [int((data.group == place).sum()) for place in range(len(GROUPS))]
    shares = ("easy in more than 2/3 of the epochs", "in between", "easy in fewer than 1/3")
    told = ", ".join(f"{count:,} {words}" for count, words in zip(counts, shares, strict=True))
    caption = f"{method}, first seed, {len(data.mean):,} samples: {told}. A larger mark stands for more samples."
    panels = [
        panel(
            partial(fill, rows=rows),
            f"{title}: {len(data.mean[rows]):,}",
            f"Data map of {caption}",
            f"{key}-{place}",
            x="standard deviation of the loss",
        )
        for place, (title, rows) in enumerate(sides.items())
    ]
    return panels, caption


# ---------------------------------------------------------------------- parts of figures


def panel(fill: Callable[[Axes], None], title: str, label: str, key: str, pad: float = 6, x: str = "epoch") -> str:
    """One panel as SVG: ``fill`` draws into its axes, and there is room for every tick and name.

    Args:
        fill: Draws the data.
        title: Above the axes.
        label: Text for screen readers, after the title.
        key: Unique on the page.
        pad: Points between the axes and the title.
        x: The label of the horizontal axis.
    """

    def draw() -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(WIDTH, HEIGHT), dpi=72, layout="constrained")
        axes = figure.add_subplot()
        quiet(axes, x)
        axes.set_title(title, loc="left", pad=pad, fontsize=8)
        fill(axes)
        return figure

    return render(draw, key, f"{title}. {label}")


def quiet(axes: Axes, x: str = "epoch") -> None:
    """Axes with few lines and few ticks; epochs are whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(colour("line"))
    axes.tick_params(length=0, labelcolor=colour("muted"), labelsize=8)
    axes.grid(axis="y", color=colour("line"), linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_xlabel(x, color=colour("muted"))
    whole: dict[str, Any] = {"integer": True, "min_n_ticks": 1} if x == "epoch" else {}
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], **whole))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.label.set_color(colour("muted"))
    axes.title.set_fontsize(8)


End = tuple[float, str, str]  # where a line ends, its name and its colour


def _lines(axes: Axes, lines: Iterable[tuple[Curve, str, str, Any]], scale: float = 1.0) -> list[End]:
    """Draws lines (values, name, colour, dashes) with their bands; returns where they end, to be named there."""
    ends = []
    for line, words, tint, dashes in lines:
        if len(line.epochs):
            axes.fill_between(line.epochs, scale * line.low, scale * line.high, color=tint, alpha=0.14, linewidth=0)
            mark: Any = {"marker": "o", "markersize": 4} if len(line.epochs) <= 2 else {}  # one epoch makes no line
            axes.plot(line.epochs, scale * line.mean, color=tint, linestyle=dashes, linewidth=1.5, **mark)
            ends.append((scale * float(line.mean[-1]), words, tint))
    return ends


def _from_to(axes: Axes, first: int, last: int) -> None:
    """Limits of the epochs, with room around a single one."""
    pad = 0.02 * (last - first) or 0.5
    axes.set_xlim(first - pad, last + pad)


def _label_ends(axes: Axes, ends: Sequence[End]) -> None:
    """Names lines at their right ends, moved apart where they would touch."""
    # In axes units: the only ones in which text has the same height everywhere.
    low, high = axes.get_ylim()
    to_axes = axes.transAxes.inverted()
    values = [float(to_axes.transform(axes.transData.transform((0, min(max(y, low), high))))[1]) for y, _, _ in ends]
    gap = 0.16 * 72 / axes.bbox.height  # inches, at the 72 dots of an SVG
    for (_, words, tint), start, place in zip(ends, values, _apart(values, gap), strict=True):
        axes.plot([1.0, 1.02], [start, place], transform=axes.transAxes, color=tint, linewidth=0.6, clip_on=False)
        axes.text(1.03, place, words, transform=axes.transAxes, color=tint, va="center", parse_math=False)


def _apart(values: Sequence[float], gap: float) -> list[float]:
    """The values, moved apart by a pass up and a pass down, so that neighbours differ by ``gap``.

    Example:
        >>> [round(value, 2) for value in _apart([0.5, 0.5, 0.99], 0.1)]
        [0.5, 0.6, 0.99]
    """
    order = np.argsort(np.asarray(values), kind="stable")
    placed = np.asarray(values, dtype=float)[order]
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + gap)
    limit = max(1.0, gap * (len(placed) - 1))
    for i in range(len(placed) - 1, -1, -1):
        placed[i] = min(placed[i], limit)
        limit = placed[i] - gap
    result = np.empty_like(placed)
    result[order] = placed
    return result.tolist()


def _shade(axes: Axes, early: np.ndarray, reached: bool) -> None:
    """Shades the early phase (of most seeds) and marks where the later one first begins, if it is reached."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], early, [False]]).astype(int))) + 0.5
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        axes.axvspan(begin, end, color=colour("early"), linewidth=0, zorder=0)
    width = max(len(early), 1)
    style: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "fontsize": 7, "color": colour("muted")}
    first = float(np.argmin(early)) + 0.5 if len(early) and not early.all() else None
    if len(edges) and edges[0] == 0.5 and (first is None or first > width / 6):
        axes.text(0.5, 1.02, "early", **style)
    if reached and first is not None:
        axes.axvline(first, color=colour("ink"), linewidth=0.8, linestyle=(0, (2, 2)))
        axes.text(first, 1.02, "later", **style)


def _transition(firsts: Sequence[int], seeds: int) -> str:
    if not firsts:
        return "No seed reaches the later phase."
    low, high = min(firsts), max(firsts)
    when = f"at epoch {low}" if low == high else f"between epochs {low} and {high}, depending on the seed"
    missing = seeds - len(firsts)
    return f"The later phase first begins {when}{f'; {missing} of {seeds} seeds do not reach it' if missing else ''}."


def _fan(axes: Axes, epochs: np.ndarray, table: np.ndarray) -> None:
    tint = colour("choice-1")
    for low, high, alpha in ((0, 6, 0.13), (1, 5, 0.2), (2, 4, 0.3)):
        axes.fill_between(epochs, table[:, low], table[:, high], color=tint, alpha=alpha, linewidth=0)
        for side in (low, high):
            axes.plot(epochs, table[:, side], color=tint, linewidth=0.5)
    axes.plot(epochs, table[:, 3], color=tint, linewidth=1.5, marker="o" if len(epochs) == 1 else None)
    _from_to(axes, epochs[0], epochs[-1])
    _log_axis(axes, [table.min(), table.max()])
    names = ("lowest", "5 %", "25 %", "median", "75 %", "95 %", "highest")
    _label_ends(axes, [(value, name, tint) for value, name in zip(table[-1], names, strict=True)])


def _log_axis(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis with plain numbers, at least from a half to two."""
    from matplotlib.ticker import LogLocator, NullLocator

    low, high = min(0.5, *values) / 1.15, max(2.0, *values) * 1.15
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 100 else (1,), numticks=8))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def _marks(axes: Axes, edges: Sequence[np.ndarray], sizes: np.ndarray, group: Group) -> None:
    """Marks at the centres of squares, as the caps of lines without length: one short path for all marks of a size."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    x, y = ((edge[1:] + edge[:-1]) / 2 for edge in edges)
    length = 0.4 * (x[1] - x[0]) if group.cap == "butt" else 0.0
    for size in range(1, 5):
        columns, lines = np.nonzero(sizes == size)
        if len(columns):
            points = np.stack([x[columns] - length, y[lines], x[columns] + length, y[lines]], axis=1).reshape(-1, 2)
            path = Path(points, np.tile([Path.MOVETO, Path.LINETO], len(columns)))
            path.should_simplify = False
            style: Any = {"color": colour(group.tint), "capstyle": group.cap, "alpha": 0.6}
            axes.add_patch(PathPatch(path, fill=False, linewidth=(0.6 if length else 1.2) * size, **style))


def _padded(values: np.ndarray) -> tuple[float, float]:
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    pad = 0.04 * (high - low) or 0.05
    return low - pad, high + pad


def _looks(runs: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """A colour and a line style for each method; the baseline is the quiet grey, solid line on every page."""
    others = [method for method in runs if method != "vanilla"]
    looks = {
        method: (colour(f"choice-{1 + place % (CHOICES - 1)}"), DASHES[(1 + place) % len(DASHES)])
        for place, method in enumerate(others)
    }
    return {"vanilla": (colour("choice-0"), DASHES[0]), **looks}


def _short(name: str, limit: int = 18) -> str:
    name = "".join(letter if letter.isprintable() else "\ufffd" for letter in name)  # not allowed in XML
    return name if len(name) <= limit else name[: limit - 1] + "…"
