"""The pictures of the docs, drawn from records of digits and from the equations themselves.

    python benchmarks/digits.py RUNS            # the records, about ten minutes
    python benchmarks/pictures.py RUNS [--out docs/pictures]
    python benchmarks/pictures.py --q           # the paper's figure different_q, from docs/results

Each is an SVG of a few kilobytes that follows the reader's light or dark scheme and needs no colour to be read.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from scoreboard import COLUMNS, values

from torchcurriculum import Record, error_threshold
from torchcurriculum.functional import weight_change
from torchcurriculum.report.figures import DASHES, _label_ends, _lines, quiet
from torchcurriculum.report.html import STYLE
from torchcurriculum.report.series import over_seeds, scalar_table
from torchcurriculum.report.svg import colour, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 7.2  # inches
SHOWN = {"vanilla": "choice-0", "s-apw-e": "choice-1", "m-apw-beta-e": "choice-2", "rapw": "choice-3"}
EPOCH = 8  # of the histogram: the network knows the digits and not yet the wrong labels
BOX = 'rx="6" fill="var(--early)" stroke="var(--muted)"'


def panels_of(
    boxes: Sequence[tuple[float, float]], height: float, top: float = 0.3, x: str = "epoch"
) -> tuple[Figure, list[Axes]]:
    """A figure with panels at (left, width) in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), dpi=72)
    bottom, inner = 0.42 / height, (height - 0.42 - top) / height
    panels = [figure.add_axes((left / WIDTH, bottom, width / WIDTH, inner)) for left, width in boxes]
    for axes in panels:
        quiet(axes, x)
    return figure, panels


def standalone(svg: str) -> str:
    """A report's picture as a separate file, with the colours of both schemes and a background."""
    light, dark = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)[:2]
    colours = f":root{{{light}}}@media (prefers-color-scheme: dark){{:root{{{dark}}}}}"
    style = f"{colours}text{{fill:var(--ink);font-family:system-ui,sans-serif}}"
    head, body = svg.split(">", 1)
    ground = '<rect width="100%" height="100%" fill="var(--paper)"/>'
    head = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{head}><style>{' '.join(style.split())}</style>{ground}{body}\n"


def drawn(draw: Callable[[], Figure], key: str, label: str) -> str:
    return standalone(render(draw, key, label))


def accuracy(runs: dict[str, list[Record]]) -> str:
    """Test accuracy over epochs, mean over seeds and range from minimum to maximum."""
    lines = {name: over_seeds(scalar_table(records, "test_acc")) for name, records in runs.items()}

    def draw() -> Figure:
        figure, (axes,) = panels_of([(0.4, 5.35)], 3.1)
        named = [
            (line, f"{name} {100 * line.mean[-1]:.0f}", colour(SHOWN[name]), dashes)
            for dashes, (name, line) in zip(DASHES, lines.items(), strict=False)
        ]
        ends = _lines(axes, named, scale=100)
        axes.set_ylim(45, 100)
        axes.set_xlim(1, len(lines["vanilla"].epochs))
        axes.set_title("Test accuracy, %, while training on digits with 40 % wrong labels", loc="left")
        _label_ends(axes, ends)
        return figure

    finals = ", ".join(f"{name} {100 * line.mean[-1]:.1f} %" for name, line in lines.items())
    words = "Test accuracy over 40 epochs on digits with 40 % wrong labels, mean and range of five seeds. At the end: "
    return drawn(draw, "accuracy", f"{words}{finals}.")


def q_curve() -> str:
    """T-ACC and E-Prop† over q, mean and ± one standard deviation over seeds, as the paper's figure different_q."""
    shares = (0.25, 0.5, 1, 2, 4)
    names = ["cifar100-n40:apw-e" if share == 1 else f"q-sensitivity:apw-e@{share:g}K" for share in shares]

    def draw() -> Figure:
        figure, panels = panels_of([(0.45, 2.4), (3.85, 2.4)], 2.8, x="q, in epochs K")
        for axes, metric, title in zip(panels, COLUMNS, ("T-ACC, %", "E-Prop†, %"), strict=True):
            held = [np.array(list(values(name, metric).values())) for name in names]
            mean, std = (np.array([f(one) for one in held]) for f in (np.mean, lambda one: one.std(ddof=len(one) > 1)))
            base = np.mean(list(values("cifar100-n40:vanilla", metric).values()))
            axes.plot(shares, mean, color=colour("choice-1"), linewidth=1.5, marker="o", markersize=3)
            axes.fill_between(shares, mean - std, mean + std, color=colour("choice-1"), alpha=0.25, linewidth=0)
            axes.axhline(base, color=colour("choice-0"), linestyle=DASHES[1], linewidth=1.5)
            axes.set_xscale("log", base=2)
            axes.set_xticks(shares, ["¼", "½", "1", "2", "4"])
            axes.set_title(title, loc="left")
            _label_ends(axes, [(mean[-1], "APW-E", colour("choice-1")), (base, "vanilla", colour("choice-0"))])
        return figure

    return drawn(draw, "q", "APW-E on CIFAR-100 with 40 % noise, T-ACC and E-Prop† for q from K/4 to 4K, and vanilla.")


def alpha() -> str:
    """alpha over rho: for some q at tau = 1/2, and for some tau at q = 10."""
    rho = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)

    def draw() -> Figure:
        figure, panels = panels_of([(0.45, 2.5), (4.2, 2.3)], 2.8, x="training difficulty ρ")
        families = ([(q, 0.5, f"q = {q}") for q in (4, 10, 40)], [(10, tau, f"τ = {tau}") for tau in (0.2, 0.5, 0.8)])
        titles = ("α for some q, τ = 0.5", "α for some τ, q = 10")
        for axes, family, title in zip(panels, families, titles, strict=True):
            ends = []
            for number, (q, tau, words) in enumerate(family):
                values, tint = weight_change(rho, q, tau).numpy(), colour(f"choice-{number + 1}")
                axes.plot(rho, values, color=tint, linestyle=DASHES[number], linewidth=1.5)
                ends.append((values[-1], words, tint))
            axes.axhline(0, color=colour("muted"), linewidth=0.6)
            axes.set_xlim(0, 1)
            axes.set_title(title, loc="left")
            _label_ends(axes, ends)
        return figure

    return drawn(draw, "alpha", "alpha falls with rho and is zero where rho is tau; a larger q makes it flatter.")


def thresholds(record: Record) -> str:
    """Losses of right and wrong labels in one epoch, and the three rules for e."""
    losses = record.history("losses")[EPOCH - 1]
    wrong = record.arrays["labels"] != record.arrays["clean"]
    edges = np.linspace(0, 5, 51)
    rules = {"inherent": (0.4, "inherent"), "clean": (), "synthetic": (0.4, "synthetic")}

    def draw() -> Figure:
        figure, (axes,) = panels_of([(0.45, 5.6)], 2.9, top=0.7, x="loss of a training sample")
        for number, (words, rows) in enumerate({"right labels": ~wrong, "wrong labels": wrong}.items()):
            counts, _ = np.histogram(np.clip(losses[rows], edges[0], edges[-1]), edges)
            tint = colour(f"choice-{number + 1}")
            axes.stairs(counts, edges, color=tint, linestyle=DASHES[number], linewidth=1.5)
            top = int(counts.argmax())
            axes.text(edges[top + 2], counts[top], words, color=tint, ha="left", va="center")
        for name, arguments in rules.items():
            e = error_threshold(*arguments)  # type: ignore[arg-type]
            axes.axvline(e, color=colour("muted"), linewidth=0.8)
            axes.text(e, 1.02, f"{name}\n{e:.2f}", transform=axes.get_xaxis_transform(), ha="center")
        axes.set_title(f"Training samples by their loss in epoch {EPOCH}, and e by the three rules", loc="left", pad=28)
        axes.set_xlim(0, edges[-1])
        return figure

    return drawn(draw, "thresholds", f"Losses of right and wrong labels in epoch {EPOCH}, and the three rules for e.")


def course(record: Record, row: int) -> np.ndarray:
    """(K,) N w of one row over epochs: softmax(-g_k), Eq. 6."""
    performance, values = np.zeros(record.n), []
    for change, easy in zip(record.column("alpha"), record.rows("easy"), strict=True):
        performance += np.where(easy, change, -change)
        raw = np.exp(performance.min() - performance)
        values.append(raw[row] / raw.mean())
    return np.array(values)


def telling(record: Record) -> dict[str, int]:
    """Three rows by their mean loss: the least and the 95 % point of the right labels, the middle of the wrong ones."""
    mean = np.asarray(record.history("losses")).mean(0)
    wrong = record.arrays["labels"] != record.arrays["clean"]
    right, bad = (rows[np.argsort(mean[rows])] for rows in (np.flatnonzero(~wrong), np.flatnonzero(wrong)))
    return {"easy": int(right[0]), "hard": int(right[int(0.95 * len(right))]), "wrong label": int(bad[len(bad) // 2])}


def samples(record: Record) -> str:
    """Losses and weights of an easy, a hard and a wrongly labelled row over epochs."""
    rows = telling(record)
    epochs = np.arange(1, len(record.epochs) + 1)
    losses = np.asarray(record.history("losses"))

    def draw() -> Figure:
        figure, panels = panels_of([(0.45, 2.35), (4.0, 2.35)], 2.8)
        for axes, kind in zip(panels, ("loss", "N·w"), strict=True):
            ends = []
            for number, (words, row) in enumerate(rows.items()):
                values = losses[:, row] if kind == "loss" else course(record, row)
                tint = colour(f"choice-{number + 1}")
                axes.plot(epochs, values, color=tint, linestyle=DASHES[number], linewidth=1.5)
                ends.append((values[-1], words, tint))
            if kind == "loss":
                e, muted = record.epochs[0]["threshold"], colour("muted")
                axes.axhline(e, color=muted, linewidth=0.8)
                axes.text(epochs[-1], e, "e", color=muted, va="bottom", ha="right")
            axes.set_title({"loss": "Loss", "N·w": "Weight, as a multiple of the average"}[kind], loc="left")
            axes.set_xlim(1, epochs[-1])
            _label_ends(axes, ends)
        return figure

    ends = ", ".join(f"{words} {course(record, row)[-1]:.2f}" for words, row in rows.items())
    return drawn(draw, "samples", f"Loss and weight of three samples over epochs. Weights at the end: {ends}.")


def loop() -> str:
    """The loop of core.py: one epoch above, one step below."""
    epoch = [("plan", "which rows now"), ("sampler", "seed, epoch, rank"), ("steps", "batches"), ("record", "one line")]
    step = [("view", "how they look"), ("forward", "your model"), ("losses", "one a sample"), ("weigh", "what counts")]
    step += [("reduce", "one number")]
    parts = _chain(epoch, 40, "an epoch") + _chain(step, 150, "a step")
    back = _arrow("M 340 196 V 222") + _text(340, 240, "last[index] = losses, on the side: free for the next plan", 11)
    down = _arrow("M 376 86 V 104 H 76 V 146")
    words = "One epoch: plan, sampler, steps, record. One step: view, forward, losses, weigh, reduce."
    return standalone(
        f'<svg viewBox="0 0 680 256" role="img" aria-label="{words}"><defs><marker id="tip" viewBox="0 0 6 6" refX="6" '
        'refY="3" markerWidth="6" markerHeight="6" orient="auto"><path d="M 0 0 L 6 3 L 0 6 z" fill="var(--muted)"/>'
        f"</marker></defs>{parts}{down}{back}</svg>"
    )


def _chain(boxes: Sequence[tuple[str, str]], top: int, title: str) -> str:
    parts, ours = [_text(20, top - 12, title, 13, "start")], {"plan", "view", "weigh"}
    for place, (name, words) in enumerate(boxes):
        left = 20 + 132 * place if len(boxes) == 5 else 20 + 150 * place
        width = 2 if name in ours else 0.8
        parts.append(f'<rect x="{left}" y="{top}" width="112" height="46" stroke-width="{width}" {BOX}/>')
        parts.append(_text(left + 56, top + 20, name, 13) + _text(left + 56, top + 36, words, 11))
        if place:
            parts.append(_arrow(f"M {left - (20 if len(boxes) == 5 else 38)} {top + 23} H {left - 2}"))
    return "".join(parts)


def _text(x: int, y: int, words: str, size: int, anchor: str = "middle") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}">{words}</text>'


def _arrow(path: str) -> str:
    return f'<path d="{path}" fill="none" stroke="var(--muted)" marker-end="url(#tip)"/>'


def load(folder: Path, method: str) -> list[Record]:
    return [Record.load(path.parent) for path in sorted((folder / method).rglob("record.json"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="?", default=Path("runs"))
    parser.add_argument("--q", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.q:
        try:
            (options.out / "q.svg").write_text(q_curve(), encoding="utf-8")
        except KeyError as error:
            raise SystemExit(f"docs/results has no runs of {error}; see `curriculum run q-sensitivity`") from error
        return
    noisy = options.runs / "digits-n40"
    one = load(noisy, "apw-e")[0]
    pictures = {
        "accuracy": accuracy({name: load(noisy, name) for name in SHOWN}),
        "alpha": alpha(),
        "thresholds": thresholds(one),
        "samples": samples(one),
        "loop": loop(),
    }
    for name, svg in pictures.items():
        (options.out / f"{name}.svg").write_text(svg, encoding="utf-8")
        print(f"{name}.svg  {len(svg) / 1024:.0f} KiB")
    print({words: (row, round(float(course(one, row)[-1]), 3)) for words, row in telling(one).items()})


if __name__ == "__main__":
    main()
