"""The figures, drawn with matplotlib's objects (no pyplot, no global figure), and a caption for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..record import Record
from .series import (
    Missing,
    Spread,
    data_map,
    early_epochs,
    first_later,
    group_weights,
    label_weights,
    quantiles,
    spread,
    stack,
)
from .svg import CHOICES, colour, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["curves", "panels_of", "phases", "sample_map", "weight_groups", "weights"]

BINS = 36  # squares of the data map, along each axis
WIDTH = 7.2  # inches
LONG = 8  # epochs from which the second half gets a panel of its own: late differences are small
TINY = 1e-12  # the least weight on a logarithmic axis
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (7, 2, 1.5, 2)), (0, (3, 1, 1, 1, 1, 1)))


class Group(NamedTuple):
    """How samples of the data map look: the end of a line that is their mark, and the same in the legend."""

    words: str
    cap: str
    mark: str
    tint: str


GROUPS = (
    Group("easy in more than 2/3 of the epochs", "round", "o", "choice-1"),
    Group("in between", "projecting", "s", "choice-5"),
    Group("easy in fewer than 1/3", "butt", "_", "choice-2"),
)


def curves(runs: Mapping[str, Sequence[Record]], name: str, words: str, key: str) -> tuple[str, str]:
    """A metric over epochs, a line for each method: mean over seeds, and a band from the least to the greatest.

    Args:
        runs: Records by method.
        name: The column.
        words: What the column is called.
        key: The figure's id.

    Returns:
        The picture and its caption.

    Raises:
        Missing: Where no record has the column.
    """
    lines = {method: spread(stack(records, name)) for method, records in runs.items()}
    looks = _looks(runs) if len(runs) > 1 else {method: (colour("choice-1"), DASHES[0]) for method in runs}
    lines = {method: line for method, line in lines.items() if len(line.epochs)}
    if not lines:
        raise Missing(f"The records hold no {words.lower()} ({name}).")

    finals = "; ".join(f"{method} {100 * line.mean[-1]:.1f} %" for method, line in lines.items())
    caption = f"{words} over epochs"
    if any(len(records) > 1 for records in runs.values()):
        caption += ", mean over seeds; the band reaches from the least to the greatest seed"
    caption += "."
    return render(lambda: _curves(lines, looks, words), key, f"{words} over epochs. At the end: {finals}."), caption


def _curves(lines: Mapping[str, Spread], looks: Mapping[str, tuple[str, Any]], words: str) -> Figure:
    last = max(int(line.epochs[-1]) for line in lines.values())
    halves = (1, last // 2 + 1) if last >= LONG else (1,)
    figure, panels = panels_of([(0.35, 2.65), (3.5, 2.3)] if len(halves) == 2 else [(0.35, 5.45)], 2.9)
    for axes, begin in zip(panels, halves, strict=True):
        named = [(line.since(begin), _short(method), *looks[method]) for method, line in lines.items()]
        ends = _lines(axes, named, scale=100)
        _from_to(axes, begin, last)
        axes.set_title(f"{words}, %" if begin == 1 else "The second half, enlarged", loc="left")
    _label_ends(panels[-1], ends)
    return figure


def phases(method: str, records: Sequence[Record], key: str) -> tuple[str, str]:
    """rho and E-Prop (left) and alpha (right) of one method over epochs, with the early phase shaded."""
    rho, alpha, eprop = (spread(stack(records, name)) for name in ("rho", "alpha", "eprop"))
    early, firsts = early_epochs(records), first_later(records)

    def draw() -> Figure:
        figure, (left, right) = panels_of([(0.35, 2.75), (4.2, 2.55)], 2.3)
        shares = ((rho, "ρ", colour("choice-1"), "-"), (eprop, "E-Prop", colour("choice-2"), DASHES[1]))
        ends = _lines(left, shares)
        left.set_ylim(-0.03, 1.03)
        _label_ends(left, ends)
        left.set_title("Difficulty ρ and easy share E-Prop", loc="left", pad=14)
        right.axhline(0, color=colour("muted"), linewidth=0.6)
        _label_ends(right, _lines(right, [(alpha, "α", colour("choice-4"), "-")]))
        right.set_title("Weight change α", loc="left", pad=14)
        for axes in (left, right):
            _shade(axes, early, bool(firsts))
        return figure

    moment = _transition(firsts, len(records))
    caption = f"{method}: training difficulty, share of easy training samples and weight change. {moment}"
    return render(draw, key, caption), caption


def weights(method: str, records: Sequence[Record], key: str) -> tuple[str, str]:
    """The distribution of N w over epochs."""
    epochs, table = quantiles(records)
    table = np.maximum(table, TINY)

    def draw() -> Figure:
        figure, panels = panels_of([(0.35, 5.7)], 2.6)
        _fan(panels[0], epochs, table)
        return figure

    seeds = " (median over seeds)" if len(records) > 1 else ""
    caption = f"{method}: quantiles of the weights, as multiples of the average weight{seeds}."
    low, high = table[-1, 0], table[-1, -1]
    return render(draw, key, f"{caption} At the end weights lie between {low:.3g} and {high:.3g}."), caption


def weight_groups(method: str, records: Sequence[Record], key: str) -> tuple[str, str]:
    """The mean of N w over the easy and the hard samples of each epoch and, where known, over right and wrong labels.

    Raises:
        Missing: Where weights cannot be rebuilt from the records.
    """
    sides = {"by easiness in the epoch": group_weights(records)}
    note = "Left: samples that were easy at the start of an epoch, and those that were hard."
    try:
        sides["by given label"] = label_weights(records)
        note += " Right: samples whose given label is right, and those whose label is wrong."
    except Missing as reason:
        note += f" {reason}"

    def draw() -> Figure:
        figure, panels = panels_of([(0.35, 2.5), (4.1, 2.5)] if len(sides) == 2 else [(0.35, 5.7)], 2.4)
        edges = [edge for lines in sides.values() for line in lines.values() for edge in (line.low, line.high)]
        known = [float(edge.min()) for edge in edges if len(edge)] + [float(edge.max()) for edge in edges if len(edge)]
        for axes, (title, lines) in zip(panels, sides.items(), strict=True):
            looks = zip(lines.items(), ("choice-1", "choice-2"), DASHES, strict=False)
            ends = _lines(axes, [(line, words, colour(tint), dashes) for (words, line), tint, dashes in looks])
            _log_axis(axes, [max(value, TINY) for value in known])
            _from_to(axes, 1, max(len(record.epochs) for record in records))
            _label_ends(axes, ends)
            axes.set_title(f"Mean N·w {title}", loc="left")
        return figure

    caption = f"{method}: mean weights of groups{', mean over seeds' if len(records) > 1 else ''}. {note}"
    return render(draw, key, caption), caption


def sample_map(method: str, records: Sequence[Record], key: str) -> tuple[str, str]:
    """The data map of a method's first seed: every sample's mean loss over the standard deviation of its loss."""
    data = data_map(records[0])
    sides: list[tuple[str, Any]] = [("All samples", slice(None))]
    if data.right is not None:
        sides = [("Given label right", data.right), ("Given label wrong", ~data.right)]
    edges = [np.linspace(*_padded(values), BINS + 1) for values in (data.std, data.mean)]
    most = np.histogram2d(data.std, data.mean, bins=edges)[0].max(initial=1)

    def draw() -> Figure:
        boxes = [(0.45, 3.1), (4.0, 3.1)] if len(sides) == 2 else [(0.45, 4.4)]
        figure, panels = panels_of(boxes, 3.3, top=0.62, x="standard deviation of the loss")
        for axes, (title, rows) in zip(panels, sides, strict=True):
            axes.set(xlim=edges[0][[0, -1]], ylim=edges[1][[0, -1]])
            for place, group in enumerate(GROUPS):
                mine = data.group[rows] == place
                counts = np.histogram2d(data.std[rows][mine], data.mean[rows][mine], bins=edges)[0]
                _marks(axes, edges, np.ceil(4 * np.log1p(counts) / np.log1p(most)), group)
            axes.set_title(f"{title}: {len(data.mean[rows]):,}", loc="left")
        panels[0].set_ylabel("mean loss")
        _legend(figure, panels[0])
        return figure

    counts = ", ".join(f"{int((data.group == place).sum()):,} {group.words}" for place, group in enumerate(GROUPS))
    marks = "a mark stands for the samples of a small square, and is larger for more"
    caption = f"{method}, first seed, {len(data.mean):,} samples ({marks}): {counts}."
    return render(draw, key, f"Data map of {caption}"), caption


# ---------------------------------------------------------------------- parts of figures


def panels_of(
    boxes: Sequence[tuple[float, float]], height: float, top: float = 0.3, x: str = "epoch"
) -> tuple[Figure, list[Axes]]:
    """A figure with panels at (left, width) in inches, with quiet axes; epochs are whole numbers."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(WIDTH, height), dpi=72)
    panels = []
    for left, width in boxes:
        bottom = 0.42
        axes = figure.add_axes((left / WIDTH, bottom / height, width / WIDTH, (height - bottom - top) / height))
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
        panels.append(axes)
    return figure, panels


End = tuple[float, str, str]  # where a line ends, its name and its colour


def _lines(axes: Axes, lines: Iterable[tuple[Spread, str, str, Any]], scale: float = 1.0) -> list[End]:
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
    """Limits of the epochs, with room for one that stands alone."""
    pad = 0.02 * (last - first) or 0.5
    axes.set_xlim(first - pad, last + pad)


def _label_ends(axes: Axes, ends: Sequence[End]) -> None:
    """Names lines at their right ends, moved apart where they would touch."""
    # In axes units: the only ones in which text has the same height everywhere.
    low, high = axes.get_ylim()
    to_axes = axes.transAxes.inverted()
    values = [float(to_axes.transform(axes.transData.transform((0, min(max(y, low), high))))[1]) for y, _, _ in ends]
    gap = 0.15 * 72 / axes.bbox.height  # inches, at the 72 dots of an SVG
    for (_, words, tint), start, place in zip(ends, values, _apart(values, gap), strict=True):
        axes.plot([1.0, 1.02], [start, place], transform=axes.transAxes, color=tint, linewidth=0.6, clip_on=False)
        axes.text(1.03, place, words, transform=axes.transAxes, color=tint, va="center", parse_math=False)


def _apart(values: Sequence[float], gap: float) -> list[float]:
    """The values moved as little as a pass up and a pass down allow, so that neighbours are ``gap`` apart.

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
    axes.set_xlim(0.5, width + 0.5)
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
    names = ("least", "5 %", "25 %", "median", "75 %", "95 %", "greatest")
    _label_ends(axes, [(value, name, tint) for value, name in zip(table[-1], names, strict=True)])
    axes.set_title("N·w, quantiles over samples", loc="left")


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


def _legend(figure: Figure, axes: Axes) -> None:
    for group in GROUPS:
        axes.plot([], [], group.mark, color=colour(group.tint), markersize=4, label=group.words)
    figure.legend(ncols=3, loc="upper left", frameon=False, handletextpad=0.1)


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


def _short(name: str, limit: int = 22) -> str:
    name = "".join(letter if letter.isprintable() else "\ufffd" for letter in name)  # XML knows no control characters
    return name if len(name) <= limit else name[: limit - 1] + "…"
