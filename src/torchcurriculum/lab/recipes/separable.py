r"""The illustrative example of the paper's Appendix C: APW and logistic regression on linearly separable points.

The paper gives: 600 points of 2 features in 2 classes, each class a Gaussian cluster of standard deviation 1.5 around a
centre drawn uniformly from [-10, 10]^2, drawn again until linearly separable; 70 % for training; unregularised logistic
regression by L-BFGS with step size 0.01, gradient tolerance 1e-5 and at most 150 iterations; E-weighting with q a tenth
of the training set and e = 0.3. Where it gives no detail, this recipe chooses:

- **Points.** 300 in each class; the split is a random permutation, not stratified. Separability is tested exactly
  (``separating_direction``), so no separable draw is refused for a small margin.
- **Model.** A constant 1 is appended to the features, so omega has 3 entries and its last is the bias. It starts at 0.
  All arithmetic is float64 on the CPU.
- **Step.** A fixed step of 0.01 (torch's L-BFGS takes 0.01 / max(1, \|g\|_1) for the first). With a line search
  (``line_search=True``) 0.01 is only its first guess, and both models reach a training E-Prop of 1: nothing to compare.
- **Epoch.** One epoch of APW is one L-BFGS iteration: the losses at omega_k give the weights w_k, which are held fixed
  while L-BFGS takes one step on sum_n w_k^(n) L^(n). The standard model has w = 1/N throughout.
- **Weights and curvature.** L-BFGS keeps its memory over the epochs. It estimates curvature from differences of
  gradients, y_k = g(omega_k; w_k) - g(omega_{k-1}; w_{k-1}), so a change of weights looks to it like a change of
  gradient. That happens if the weights are simply passed to the optimizer, and is the default (``pairs="seen"``).
  ``pairs="reweighted"`` takes both gradients under w_k, so that only curvature is seen.
- **Snapshots** after 50, 100 and 150 iterations. **Seed** 0, the first one; the table is over many.

``python -m torchcurriculum.lab.recipes.separable_table --seeds 10`` prints the table of ``docs/results/separable.md``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...distributed import derive
from ...functional import easiness
from ...methods import APW
from ...record import Record
from ...record.files import overwrite
from ..lock import refuse_other_files

__all__ = [
    "Fit",
    "Points",
    "Separable",
    "confidence_band",
    "fit",
    "generate",
    "run",
    "separating_direction",
    "summary",
]


@dataclass(frozen=True)
class Separable:
    """All settings of the example except its seed.

    Args:
        points: Number of points, half of them in each class.
        spread: Standard deviation of each cluster.
        box: Centres are uniform in [-box, box]^2.
        train_share: Share of the points to train on.
        step_size: L-BFGS step size.
        gradient_tolerance: Stop when no entry of the gradient is larger.
        iterations: L-BFGS iterations at most.
        line_search: Search a strong-Wolfe step from ``step_size`` instead of taking it.
        pairs: Gradients that L-BFGS compares: as ``"seen"``, or both under the newest weights (``"reweighted"``).
        threshold: The error threshold e, below log 2.
        q_share: q as a share of the training set.
        tau: Phase threshold.
        snapshots: Iterations to draw.
        taus: Phase thresholds to compare.
        shown_taus: Those of them to draw.
    """

    points: int = 600
    spread: float = 1.5
    box: float = 10.0
    train_share: float = 0.7
    step_size: float = 0.01
    gradient_tolerance: float = 1e-5
    iterations: int = 150
    line_search: bool = False
    pairs: Literal["seen", "reweighted"] = "seen"
    threshold: float = 0.3
    q_share: float = 0.1
    tau: float = 0.5
    snapshots: tuple[int, ...] = (50, 100, 150)
    taus: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    shown_taus: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)

    def method(self, n: int) -> APW:
        """APW by E-weighting over ``n`` training rows."""
        return APW(n, q=self.q_share * n, threshold=self.threshold, tau=self.tau)


@dataclass(frozen=True)
class Points:
    """A separable draw, split: features with a constant 1 appended, labels +1 and -1, and the number of draws."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    centres: Tensor
    draws: int


@dataclass(frozen=True)
class Fit:
    """A trained model: omega after each of K iterations and the weights of each.

    Args:
        path: (K + 1, 3) omega, from its start.
        weights: (K, N) the weights w_k under which iteration k was taken.
        record: One row per iteration, with every sample's loss and easiness at its start.
    """

    path: Tensor
    weights: Tensor
    record: Record


def confidence_band(threshold: float) -> float:
    r"""M_e, Appendix C.2: half the width of the confidence band, :math:`M_e = -\log(\exp(e) - 1)`.

    The logistic loss log(1 + exp(-y omega^T x)) is at most e exactly when y omega^T x is at least M_e: easy samples are
    those on the right side of the band between omega^T x = -M_e and omega^T x = +M_e.

    Args:
        threshold: The error threshold e, between 0 and log 2; from log 2 on there is no band.

    Returns:
        M_e > 0.

    Example:
        >>> round(confidence_band(0.3), 6)
        1.050226
    """
    if not 0 < threshold < math.log(2):
        raise ValueError(f"a confidence band needs an error threshold between 0 and log 2, got {threshold!r}")
    return -math.log(math.expm1(threshold))


def separating_direction(positive: np.ndarray, negative: np.ndarray) -> np.ndarray | None:
    """A direction v with v^T a > v^T b for all a, b of two point sets in the plane, or None if there is none.

    The test is exact up to rounding. The sets are linearly separable exactly when all differences a - b lie in one open
    half-plane, that is, when their angles leave a gap wider than pi; v is then the middle of the angles' own arc.
    The projections on v are compared before v is returned, so it is its own certificate.

    Args:
        positive: (A, 2) points a.
        negative: (B, 2) points b.

    Returns:
        (2,) a unit vector, or None.

    Example:
        >>> corners = np.array([[0.0, 0.0], [1.0, 1.0]])
        >>> separating_direction(corners + 2, corners).round(3)
        array([0.707, 0.707])
        >>> separating_direction(corners, corners[::-1, :] * [1, -1]) is None   # (0, 0) belongs to both
        True
    """
    differences = (positive[:, None] - negative[None]).reshape(-1, 2)
    angles = np.sort(np.arctan2(differences[:, 1], differences[:, 0]))
    gaps = np.diff(angles, append=angles[0] + 2 * np.pi)
    widest = gaps.argmax()
    middle = angles[widest] + gaps[widest] / 2 + np.pi
    direction = np.array([np.cos(middle), np.sin(middle)])
    above, below = positive @ direction, negative @ direction
    # Points that touch have a margin of rounding errors, not of zero.
    rounding = 1e-12 * max(np.abs(above).max(), np.abs(below).max())
    return direction if above.min() - below.max() > rounding else None


def generate(recipe: Separable, seed: int) -> Points:
    """Draws points until they are linearly separable, and splits them; a function of ``recipe`` and ``seed``."""
    generator = torch.Generator().manual_seed(derive(seed, "separable"))
    side = torch.arange(recipe.points) % 2
    draws = 0
    while True:
        draws += 1
        centres = recipe.box * (2 * torch.rand(2, 2, generator=generator, dtype=torch.float64) - 1)
        x = centres[side] + recipe.spread * torch.randn(recipe.points, 2, generator=generator, dtype=torch.float64)
        if separating_direction(x[side == 1].numpy(), x[side == 0].numpy()) is not None:
            break
    order = torch.randperm(recipe.points, generator=generator)
    x = torch.cat([x, torch.ones(recipe.points, 1, dtype=x.dtype)], dim=1)[order]
    y = (2.0 * side - 1).double()[order]
    size = round(recipe.train_share * recipe.points)
    return Points(x[:size], y[:size], x[size:], y[size:], centres, draws)


def logistic_losses(omega: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """(N,) log(1 + exp(-y omega^T x))."""
    return F.softplus(-y * (x @ omega))


def fit(recipe: Separable, points: Points, weighted: bool = True) -> Fit:
    """Trains a model under the weights of APW, or under equal weights (standard LR)."""
    x, y, n = points.x, points.y, len(points.y)
    method = recipe.method(n) if weighted else None
    omega = torch.zeros(x.shape[1], dtype=x.dtype, requires_grad=True)
    optimizer = _optimizer(recipe, omega)
    record = _begin_record(recipe, points, method)
    path, used = [omega.detach().clone()], []
    weights = torch.full((n,), 1 / n, dtype=x.dtype)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (weights * logistic_losses(omega, x, y)).sum()
        loss.backward()
        return loss

    for number in range(1, recipe.iterations + 1):
        losses = logistic_losses(omega.detach(), x, y)
        if method is not None:
            method.advance(losses)
            weights = method.weights
        closure()
        if omega.grad is None or omega.grad.abs().max() <= recipe.gradient_tolerance:
            break
        if recipe.pairs == "reweighted" and number > 1:
            optimizer.state[omega]["prev_flat_grad"] = _gradient(path[-2], weights, x, y)
        optimizer.step(closure)
        path.append(omega.detach().clone())
        used.append(weights)
        _append(record, recipe, losses, _report(method) | _scores(recipe, points, path[-1]))
    record.set_array("weights", weights.numpy())
    return Fit(torch.stack(path), torch.stack(used) if used else weights.new_empty(0, n), record)


def _optimizer(recipe: Separable, omega: Tensor) -> torch.optim.LBFGS:
    # One iteration per call, and only the gradient's tolerance; a line search gets torch's default of 25 evaluations.
    return torch.optim.LBFGS(
        [omega],
        lr=recipe.step_size,
        max_iter=1,
        max_eval=26,
        tolerance_grad=recipe.gradient_tolerance,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe" if recipe.line_search else None,
    )


def _gradient(omega: Tensor, weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
    # d/d omega of softplus(-y omega^T x) is -y sigmoid(-y omega^T x) x.
    return x.T @ (-weights * y * torch.sigmoid(-y * (x @ omega)))


def _begin_record(recipe: Separable, points: Points, method: APW | None) -> Record:
    record = Record(len(points.y), {"method": "standard" if method is None else "APW", "recipe": asdict(recipe)})
    record.set_array("features", points.x[:, :2].numpy())
    record.set_array("labels", (points.y > 0).long().numpy())
    return record


def _append(record: Record, recipe: Separable, losses: Tensor, more: dict[str, Any]) -> None:
    easy = easiness(losses, recipe.threshold) > 0
    row = {"epoch": len(record.epochs) + 1, "eprop": float(easy.double().mean()), "loss_mean": float(losses.mean())}
    more |= {"measure": "pass"}
    record.append(row | more, losses=losses.numpy(), easy=easy.numpy())


def _report(method: APW | None) -> dict[str, Any]:
    report = {} if method is None else method.report()
    return {name: value.item() if isinstance(value, Tensor) else value for name, value in report.items()}


def _scores(recipe: Separable, points: Points, omega: Tensor) -> dict[str, float]:
    train, test = logistic_losses(omega, points.x, points.y), logistic_losses(omega, points.test_x, points.test_y)
    return {
        "train_eprop": float((easiness(train, recipe.threshold) > 0).double().mean()),
        "test_eprop": float((easiness(test, recipe.threshold) > 0).double().mean()),
        "test_accuracy": float((points.test_y * (points.test_x @ omega) > 0).double().mean()),
    }


def summary(recipe: Separable, points: Points, model: Fit) -> dict[str, Any]:
    """The result of a fit: iterations, omega, its norm, E-Prop at e on both sets and test accuracy."""
    omega = model.path[-1]
    ends = {"iterations": len(model.path) - 1, "omega": omega.tolist(), "norm": float(omega.norm())}
    return {**ends, **_scores(recipe, points, omega)}


def run(out: Path | str, seed: int = 0, echo: Callable[[str], None] = print) -> dict[str, Any]:
    """Runs the example and writes result.json, two records, four figures (SVG) and the page separable.html.

    Args:
        out: The folder to write to; created if missing. One that holds other files is refused.
        seed: Seed of the points.
        echo: Called with each line of output.

    Returns:
        The contents of result.json.
    """
    from . import separable_figures as figures

    figures.require_matplotlib()
    recipe, folder = Separable(), Path(out)
    if not _is_ours(folder / "result.json"):
        refuse_other_files(folder)
    points = generate(recipe, seed)
    standard = fit(recipe, points, weighted=False)
    by_tau = {tau: fit(replace(recipe, tau=tau), points) for tau in recipe.taus}
    weighted = by_tau[recipe.tau]
    result: dict[str, Any] = {
        "recipe": asdict(recipe),
        "seed": seed,
        "draws": points.draws,
        "centres": points.centres.tolist(),
        "band": confidence_band(recipe.threshold),
        "standard": summary(recipe, points, standard),
        "apw": summary(recipe, points, weighted),
        "tau": {str(tau): summary(recipe, points, model) for tau, model in by_tau.items()},
    }
    folder.mkdir(parents=True, exist_ok=True)
    with overwrite(folder / "result.json") as file:  # first, because it marks the folder as ours
        file.write(json.dumps(result, indent=1) + "\n")
    for name, model in {"standard": standard, "apw": weighted}.items():
        model.record.meta["seed"] = seed
        model.record.save(folder / name)
    figures.draw(folder, recipe, points, standard, by_tau, result)
    for name, words in {"standard": "standard LR", "apw": "APW + LR"}.items():
        train, test, accuracy = (result[name][key] for key in ("train_eprop", "test_eprop", "test_accuracy"))
        line = f"{words:<11}  E-Prop at e = {recipe.threshold}: train {train:.3f}, test {test:.3f}"
        echo(f"{line}; test accuracy {accuracy:.3f}")
    echo(f"wrote {folder / 'separable.html'}")
    return result


def _is_ours(path: Path) -> bool:
    """Whether a result.json is of an earlier run of this example."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(held, dict) and {"draws", "band", "standard", "apw"} <= set(held)
