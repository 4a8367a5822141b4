"""The four figures of the separable example and the page that shows them. Needs matplotlib (extra ``report``)."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ...record.files import overwrite
from .separable import Fit, Points, Separable, confidence_band, logistic_losses

__all__ = ["draw", "require_matplotlib"]

# Class by fill and by brightness, easy or hard by shape: figures are readable in greyscale.
DARK, LIGHT, LINE = "#1f3b70", "#c8650a", "#111111"
SIZE = 16.0
STANDARD, WEIGHTED = "Standard LR", "APW + LR"


def require_matplotlib() -> None:
    """Raises an error early if the figures could not be drawn at the end."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("the figures need matplotlib: pip install 'torchcurriculum[report]'") from error


def draw(
    folder: Path,
    recipe: Separable,
    points: Points,
    standard: Fit,
    by_tau: Mapping[float, Fit],
    result: Mapping[str, Any],
) -> None:
    """Writes hyperplanes.svg, eprop.svg, snapshots.svg, tau.svg and separable.html, which holds all four."""
    weighted = by_tau[recipe.tau]
    drawn = {
        "hyperplanes": hyperplanes(recipe, points, standard, weighted, result),
        "eprop": eprop_curves(recipe, standard, weighted),
        "snapshots": snapshots(recipe, points, standard, weighted),
        "tau": tau_panels(recipe, points, by_tau, result),
    }
    for name, figure in drawn.items():
        _save(figure, folder / f"{name}.svg")
    page = _page(folder, _captions(recipe), result)
    with overwrite(folder / "separable.html") as file:
        file.write(page)


def hyperplanes(recipe: Separable, points: Points, standard: Fit, weighted: Fit, result: Mapping[str, Any]) -> Any:
    """Figure 1: the final hyperplanes of both models on the test set."""
    figure, axes = _grid(1, 2, height=4.6)
    for ax, name, model in zip(axes[0], ("standard", "apw"), (standard, weighted), strict=True):
        ends = result[name]
        scores = f"E-Prop {ends['test_eprop']:.3f}, accuracy {ends['test_accuracy']:.3f}"
        _scatter(ax, recipe, points.test_x, points.test_y, model.path[-1])
        _plane(ax, model.path[-1])
        _frame(ax, points, f"{STANDARD if name == 'standard' else WEIGHTED}\n{scores}")
    return _finish(figure, "Final hyperplanes on the test set", legend=axes[0, 0])


def eprop_curves(recipe: Separable, standard: Fit, weighted: Fit) -> Any:
    """Figure 2: E-Prop at e of both models on both sets over the iterations."""
    figure, axes = _grid(1, 2, height=3.7, sharey=True)
    for ax, column, title in zip(axes[0], ("train_eprop", "test_eprop"), ("Training set", "Test set"), strict=True):
        for model, name, colour, style in ((standard, STANDARD, LIGHT, "--"), (weighted, WEIGHTED, DARK, "-")):
            values = model.record.column(column)
            ax.plot(np.arange(1, len(values) + 1), values, color=colour, linestyle=style, linewidth=1.8, label=name)
        early = [row["epoch"] for row in weighted.record.epochs if row["phase"] == "early"]
        if early and early[-1] < len(weighted.record.epochs):
            ax.axvline(early[-1], color="0.5", linewidth=0.9, linestyle=":", label="APW: later phase begins")
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("L-BFGS iteration")
        ax.set_ylim(-0.03, 1.03)
        ax.grid(color="0.9", linewidth=0.6)
    axes[0, 0].set_ylabel(f"E-Prop at e = {recipe.threshold}")
    return _finish(figure, "Share of easy samples over training", legend=axes[0, 0])


def snapshots(recipe: Separable, points: Points, standard: Fit, weighted: Fit) -> Any:
    """Figure 3: three snapshots of standard LR, of APW with its weights, and of APW with the confidence band."""
    figure, axes = _grid(3, len(recipe.snapshots), height=11.0)
    for column, number in enumerate(recipe.snapshots):
        for row, model in enumerate((standard, weighted, weighted)):
            ax, last = axes[row, column], min(number, len(model.path) - 1)
            omega = model.path[last]
            sizes = SIZE * len(points.y) * model.weights[last - 1].numpy() if row == 1 and last else None
            _scatter(ax, recipe, points.x, points.y, omega, sizes)
            _plane(ax, omega, confidence_band(recipe.threshold) if row == 2 else None)
            share = model.record.epochs[last - 1]["train_eprop"] if last else 0.0
            words = (STANDARD, f"{WEIGHTED}, size = weight", f"{WEIGHTED}, band")[row]
            _frame(ax, points, f"{words}\niteration {last}, E-Prop {share:.3f}")
    return _finish(figure, "Training set", legend=axes[2, -1])


def tau_panels(recipe: Separable, points: Points, by_tau: Mapping[float, Fit], result: Mapping[str, Any]) -> Any:
    """Figure 4: final hyperplane and band for several phase thresholds, on the training and the test set."""
    figure, axes = _grid(len(recipe.shown_taus), 2, height=3.4 * len(recipe.shown_taus))
    for row, tau in enumerate(recipe.shown_taus):
        omega, ends = by_tau[tau].path[-1], result["tau"][str(tau)]
        sides = ((points.x, points.y, "train"), (points.test_x, points.test_y, "test"))
        for ax, (x, y, side) in zip(axes[row], sides, strict=True):
            _scatter(ax, recipe, x, y, omega)
            _plane(ax, omega, confidence_band(recipe.threshold))
            mark = " (default)" if tau == recipe.tau else ""
            _frame(ax, points, f"τ = {tau}{mark}, {side}: E-Prop {ends[f'{side}_eprop']:.3f}")
    return _finish(figure, "Phase threshold τ: training set (left), test set (right)", legend=axes[0, 0])


def _grid(rows: int, columns: int, height: float, **options: Any) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * columns + 0.6, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def _scatter(ax: Any, recipe: Separable, x: Tensor, y: Tensor, omega: Tensor, sizes: np.ndarray | None = None) -> None:
    places, easy = x.numpy(), (logistic_losses(omega, x, y) <= recipe.threshold).numpy()
    for label, colour, fill, cross in ((1, DARK, DARK, "x"), (-1, LIGHT, "none", "+")):
        circles: dict[str, Any] = {"marker": "o", "facecolors": fill, "edgecolors": colour, "linewidths": 0.7}
        crosses: dict[str, Any] = {"marker": cross, "color": colour, "linewidths": 1.1}
        for kind, rows, style in (("easy", easy, circles), ("hard", ~easy, crosses)):
            mine = rows & (y == label).numpy()
            # One size for all keeps the file small, since SVG then stores each marker once.
            area = SIZE if sizes is None else sizes[mine]
            name = f"class {label:+d}, {kind}"
            ax.scatter(places[mine, 0], places[mine, 1], s=area, alpha=0.75, label=name, **style)


def _plane(ax: Any, omega: Tensor, band: float | None = None) -> None:
    slope, bias = omega[:2].numpy(), float(omega[2])
    if not slope.any():
        return
    along = np.array([-slope[1], slope[0]])
    lines: list[tuple[float, str, str | None]] = [(0.0, "-", "hyperplane")]
    lines += [] if band is None else [(band, "--", "confidence band"), (-band, "--", None)]
    for height, style, name in lines:
        foot = slope * (height - bias) / (slope @ slope)
        ax.axline(foot, foot + along, color=LINE, linestyle=style, linewidth=1.4, label=name)


def _frame(ax: Any, points: Points, title: str) -> None:
    places = np.concatenate([points.x[:, :2], points.test_x[:, :2]])
    low, high = places.min(0) - 1, places.max(0) + 1
    # Equal scales, so that the hyperplane and the band have their true angles and widths.
    half, middle = (high - low).max() / 2, (high + low) / 2
    ax.set_xlim(middle[0] - half, middle[0] + half)
    ax.set_ylim(middle[1] - half, middle[1] + half)
    ax.set_aspect("equal")
    ax.set_title(title, fontsize=9)
    ax.set_xlabel("feature 1", fontsize=8)
    ax.set_ylabel("feature 2", fontsize=8)
    ax.locator_params(nbins=5)
    ax.tick_params(labelsize=7)
    ax.label_outer()


def _finish(figure: Any, title: str, legend: Any) -> Any:
    figure.suptitle(title, fontsize=12)
    handles, labels = legend.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), fontsize=8, frameon=False)
    return figure


def _save(figure: Any, path: Path) -> None:
    from matplotlib import rc_context

    path.parent.mkdir(parents=True, exist_ok=True)
    with overwrite(path) as file, rc_context({"svg.hashsalt": "torchcurriculum"}):  # makes the files reproducible
        figure.savefig(file, format="svg", metadata={"Date": None})


def _captions(recipe: Separable) -> dict[str, str]:
    markers = (
        "Circles are easy samples (loss at most e), crosses hard ones; filled circles and × are class +1, hollow "
        "circles and + are class -1."
    )
    return {
        "hyperplanes": f"Final hyperplanes on the test set. {markers}",
        "eprop": f"E-Prop at e = {recipe.threshold} after each iteration. The dotted line is the last iteration with "
        "ρ above τ: from there on hard samples gain weight.",
        "snapshots": f"Training set after {', '.join(map(str, recipe.snapshots))} iterations. {markers} Second row: "
        "marker area is proportional to the weight under which that iteration was taken. Third row: samples on the "
        f"right side of the band ±M_e = ±{confidence_band(recipe.threshold):.3f} are the easy ones.",
        "tau": f"Final hyperplane and confidence band for several phase thresholds. {markers}",
    }


def _page(folder: Path, captions: Mapping[str, str], result: Mapping[str, Any]) -> str:
    figures = []
    for name, caption in captions.items():
        picture = base64.b64encode((folder / f"{name}.svg").read_bytes()).decode()
        words = html.escape(caption)
        source = f"data:image/svg+xml;base64,{picture}"
        figures.append(f'<figure><img alt="{words}" src="{source}"><figcaption>{words}</figcaption></figure>')
    rows = {STANDARD: result["standard"], WEIGHTED: result["apw"]}
    rows.update({f"{WEIGHTED}, τ = {tau}": ends for tau, ends in result["tau"].items()})
    cells = "".join(
        f"<tr><th>{name}</th>"
        + "".join(f"<td>{ends[key]:.3f}</td>" for key in ("train_eprop", "test_eprop", "test_accuracy"))
        + "</tr>"
        for name, ends in rows.items()
    )
    return PAGE.format(seed=result["seed"], rows=cells, figures="\n".join(figures))


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>APW on separable points</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #111; }}
figure {{ margin: 2.5rem 0; }} img {{ max-width: 100%; background: #fff; }} figcaption {{ color: #444; }}
table {{ border-collapse: collapse; }}
th, td {{ padding: .2rem .9rem; border-bottom: 1px solid #ddd; text-align: right; }}
th:first-child {{ text-align: left; font-weight: normal; }}
</style></head><body>
<h1>APW and logistic regression on linearly separable points</h1>
<p>The illustrative example of the paper's Appendix C, seed {seed}: one draw of the points. One draw decides little;
<code>python -m torchcurriculum.lab.recipes.separable_table --seeds 10</code> compares over many.</p>
<table><thead><tr><th></th><th>train E-Prop</th><th>test E-Prop</th><th>test accuracy</th></tr></thead>
<tbody>{rows}</tbody></table>
{figures}
</body></html>
"""
