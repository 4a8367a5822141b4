"""The illustrative example of Appendix C: its mathematics, its points, its training and what it writes."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from torchcurriculum import Record
from torchcurriculum.lab.recipes.separable import (
    Points,
    Separable,
    confidence_band,
    fit,
    generate,
    logistic_losses,
    run,
    separating_direction,
    summary,
)
from torchcurriculum.lab.recipes.separable_table import compare, main

SHORT = Separable(points=60, iterations=60, taus=(0.5,))


def points_of(x: list[list[float]], y: list[float]) -> Points:
    features = torch.tensor([[*row, 1.0] for row in x], dtype=torch.float64)
    labels = torch.tensor(y, dtype=torch.float64)
    return Points(features, labels, features, labels, torch.zeros(2, 2), 1)


# ---------------------------------------------------------------- M_e


def test_band_golden() -> None:
    # e = 0.3: exp(0.3) - 1 = 0.34985881, and -log(0.34985881) = 1.0502256.
    assert confidence_band(0.3) == pytest.approx(1.0502256, abs=5e-8)
    # e = log(3/2): exp(e) - 1 = 1/2, so M_e = log 2.
    assert confidence_band(math.log(1.5)) == pytest.approx(math.log(2), rel=1e-12)


@given(st.floats(1e-3, 0.69), st.floats(1e-6, 3.0))
def test_band_is_where_the_loss_is_the_threshold(threshold: float, step: float) -> None:
    band = confidence_band(threshold)

    def loss(score: float) -> float:
        return math.log1p(math.exp(-score))

    assert band > 0
    assert loss(band) == pytest.approx(threshold, rel=1e-9)
    assert loss(band + step) < threshold < loss(band - step)


@pytest.mark.parametrize("threshold", [0.0, -0.1, math.log(2), 1.0, math.nan])
def test_band_refuses_by_value(threshold: float) -> None:
    with pytest.raises(ValueError, match=f"between 0 and log 2, got {re.escape(repr(threshold))}"):
        confidence_band(threshold)


# ---------------------------------------------------------------- separability


def test_separating_direction_by_hand() -> None:
    square = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    # Differences of the square moved right by 2 from itself are (1..3, -1..1): angles from -45 to 45 degrees, middle 0.
    right = np.array([1.0, 0.0])
    direction = separating_direction(square + 2 * right, square)
    assert direction is not None
    np.testing.assert_allclose(direction, right, atol=1e-12)
    assert separating_direction(square + right, square) is None  # they touch
    assert separating_direction(square[[0, 3]], square[[1, 2]]) is None  # the diagonals cross


@settings(max_examples=80, deadline=None)
@given(
    arrays(np.int64, st.tuples(st.integers(1, 5), st.just(2)), elements=st.integers(-3, 3)),
    arrays(np.int64, st.tuples(st.integers(1, 5), st.just(2)), elements=st.integers(-3, 3)),
)
def test_separability_agrees_with_a_linear_program(positive: np.ndarray, negative: np.ndarray) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    # Separable exactly when some (v, c) has y (v^T x + c) >= 1 everywhere.
    x = np.concatenate([positive, negative]).astype(float)
    y = np.repeat([1.0, -1.0], [len(positive), len(negative)])
    rows = -y[:, None] * np.column_stack([x, np.ones(len(x))])
    program = optimize.linprog(np.zeros(3), A_ub=rows, b_ub=-np.ones(len(x)), bounds=(None, None))
    direction = separating_direction(positive.astype(float), negative.astype(float))
    assert (direction is not None) == (program.status == 0)
    if direction is not None:
        assert (positive @ direction).min() > (negative @ direction).max()


def test_points_are_separable_split_and_a_function_of_the_seed() -> None:
    before = torch.get_rng_state()
    points = generate(Separable(), 3)
    assert torch.equal(torch.get_rng_state(), before)
    again, other = generate(Separable(), 3), generate(Separable(), 4)
    assert points.x.shape == (420, 3)
    assert points.test_x.shape == (180, 3)
    x, y = torch.cat([points.x, points.test_x]), torch.cat([points.y, points.test_y])
    assert (x[:, 2] == 1).all()
    assert (y == 1).sum() == (y == -1).sum() == 300
    assert separating_direction(x[y == 1, :2].numpy(), x[y == -1, :2].numpy()) is not None
    assert torch.equal(points.x, again.x)
    assert not torch.equal(points.x, other.x)
    # Clusters of deviation 1.5: the standard error of a deviation from 300 x 2 values is 1.5 / sqrt(1200) = 0.043.
    for label, centre in ((-1, points.centres[0]), (1, points.centres[1])):
        assert (x[y == label, :2] - centre).std().item() == pytest.approx(1.5, abs=0.2)


# ---------------------------------------------------------------- training


def test_recipe_is_frozen_and_is_the_papers() -> None:
    recipe = Separable()
    with pytest.raises(FrozenInstanceError):
        recipe.points = 1  # type: ignore[misc]
    method = recipe.method(420)
    assert method.q == 42
    assert (method.threshold.item(), method.tau, method.weighting) == (0.3, 0.5, "E")


def test_first_iteration_golden() -> None:
    # omega = 0: every loss is log 2 > 0.3, so all are hard, weights stay 1/2 and g = mean(-y x / 2).
    # x = (1, 0, 1) with y = +1 and (-1, 0, 1) with y = -1: g = ((-1, 0, -1) / 2 + (-1, 0, 1) / 2) / 2 = (-1/2, 0, 0).
    # torch's first step is 0.01 min(1, 1 / |g|_1) = 0.01 min(1, 2) = 0.01: omega_1 = (0.005, 0, 0).
    points = points_of([[1, 0], [-1, 0]], [1, -1])
    for weighted in (False, True):
        model = fit(replace(SHORT, iterations=1, q_share=1.0), points, weighted)
        torch.testing.assert_close(model.path[1], torch.tensor([0.005, 0, 0], dtype=torch.float64))
    assert model.record.epochs[0]["rho"] == pytest.approx(1 - 1e-4)
    assert model.record.epochs[0]["phase"] == "early"


def test_second_step_of_reweighted_pairs_is_newton_on_one_line() -> None:
    # On the line omega = (a, 0, 0) the points above have the mean loss log(1 + e^-a), gradient -s(-a) with the logistic
    # function s. After a_1 = 0.005 memory holds one pair (s, y) along the line, so the direction is -g / (y / s) and
    # a_2 = a_1 + 0.01 s(-a_1) (a_1 - 0) / (s(0) - s(-a_1)).
    points = points_of([[1, 0], [-1, 0]], [1, -1])
    a, s = 0.005, lambda t: 1 / (1 + math.exp(-t))
    expected = a + 0.01 * s(-a) * a / (s(0) - s(-a))
    for pairs in ("seen", "reweighted"):
        model = fit(replace(SHORT, iterations=2, pairs=pairs), points, weighted=False)
        assert model.path[2, 0].item() == pytest.approx(expected, rel=1e-9)


def test_apw_that_never_changes_a_weight_is_standard() -> None:
    points = generate(SHORT, 0)
    standard, still = fit(SHORT, points, weighted=False), fit(replace(SHORT, q_share=math.inf), points)
    torch.testing.assert_close(still.path, standard.path, rtol=1e-9, atol=1e-12)
    moving = fit(SHORT, points)
    assert not torch.allclose(moving.path[-1], standard.path[-1], rtol=1e-4)


def test_pairs_matter_only_where_weights_change() -> None:
    points = generate(SHORT, 0)
    reweighted = replace(SHORT, pairs="reweighted")
    torch.testing.assert_close(fit(SHORT, points, False).path, fit(reweighted, points, False).path)
    assert not torch.allclose(fit(SHORT, points).path[-1], fit(reweighted, points).path[-1], rtol=1e-4)


def test_record_holds_what_the_weights_came_from() -> None:
    points = generate(SHORT, 1)
    model = fit(SHORT, points)
    losses, easy = model.record.history("losses"), model.record.history("easy")
    assert losses.shape == easy.shape == (60, 42)
    start = logistic_losses(model.path[40], points.x, points.y).numpy()
    np.testing.assert_allclose(losses[40], start, rtol=1e-6)
    np.testing.assert_array_equal(easy[40], start <= 0.3)
    row = model.record.epochs[40]
    assert row["eprop"] == pytest.approx(easy[40].mean())
    assert model.record.epochs[39]["train_eprop"] == pytest.approx(row["eprop"])
    # Eq. 2 by numpy: the weights of iteration 40 on the samples that are hard at the start of iteration 41.
    assert row["rho"] == pytest.approx(np.clip(model.weights[39].numpy()[~easy[40]].sum(), 1e-4, 1 - 1e-4))
    torch.testing.assert_close(model.weights.sum(1), torch.ones(60, dtype=torch.float64))


def test_gradient_tolerance_stops() -> None:
    points = generate(SHORT, 0)
    at_once = fit(replace(SHORT, gradient_tolerance=1e3), points)
    assert summary(SHORT, points, at_once)["iterations"] == 0
    assert len(at_once.record.epochs) == 0
    search = fit(replace(SHORT, line_search=True, iterations=200), points, weighted=False)
    ends = summary(SHORT, points, search)
    assert ends["iterations"] < 200
    assert ends["train_eprop"] == 1.0


# ---------------------------------------------------------------- what it writes


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[str]]:
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("separable") / "deep" / "out"
    lines: list[str] = []
    return folder, run(str(folder), seed=2, echo=lines.append), lines


def test_run_writes_result_records_figures_and_page(written: tuple[Path, dict[str, Any], list[str]]) -> None:
    folder, result, lines = written
    assert json.loads((folder / "result.json").read_text(encoding="utf-8")) == json.loads(json.dumps(result))
    assert result["band"] == pytest.approx(1.0502256, abs=5e-8)
    assert list(result["tau"]) == [f"0.{tenth}" for tenth in range(1, 10)]
    assert result["tau"]["0.5"] == result["apw"]
    for name in ("standard", "apw"):
        record = Record.load(folder / name)
        assert record.meta["seed"] == 2
        assert len(record.epochs) == result[name]["iterations"]
        assert record.epochs[-1]["test_eprop"] == result[name]["test_eprop"]
        assert record.has("losses")
    page = (folder / "separable.html").read_text(encoding="utf-8")
    assert page.count("data:image/svg+xml;base64,") == page.count("<figcaption>") == 4
    assert not re.search(r'(src|href)="(?!data:)', page)
    for name in ("hyperplanes", "eprop", "snapshots", "tau"):
        assert "<svg" in (folder / f"{name}.svg").read_text(encoding="utf-8")
    assert any(f"{result['apw']['test_eprop']:.3f}" in line for line in lines)


def test_run_refuses_a_folder_of_other_files(written: tuple[Path, dict[str, Any], list[str]], tmp_path: Path) -> None:
    folder, result, _ = written
    assert run(folder, seed=2, echo=[].append) == result, "its own folder may be written again"
    for name in ("result.json", "separable.html", "apw"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("{}")
        with pytest.raises(ValueError, match="holds other files; choose an empty or new folder"):
            run(tmp_path / name)
        assert (tmp_path / name / name).read_text() == "{}"
    with pytest.raises(ValueError, match=r"apw is a file; give a new or empty folder \(--out\)"):
        run(tmp_path / "apw" / "apw")


def test_run_without_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"torchcurriculum\[report\]"):
        run(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_compare_shares_points_between_variants() -> None:
    ends = compare(replace(SHORT, iterations=30, taus=(0.2, 0.5)), range(2))
    assert list(ends)[-1] == "APW + LR, tau = 0.2"
    assert all(len(rows) == 2 for rows in ends.values())
    points = generate(SHORT, 1)
    recipe = replace(SHORT, iterations=30)
    assert ends["APW + LR"][1] == summary(recipe, points, fit(recipe, points))


def test_main_prints_mean_and_spread(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"norm": 2.0, "iterations": 150}
    one = {**row, "train_eprop": 0.9, "test_eprop": 0.8, "test_accuracy": 1.0}
    two = {**row, "train_eprop": 0.7, "test_eprop": 0.8, "test_accuracy": 1.0}
    ends = {"standard LR": [two, two], "APW + LR": [one, two], "APW + LR, pairs reweighted": [two, two]}
    monkeypatch.setattr("torchcurriculum.lab.recipes.separable_table.compare", lambda recipe, seeds: ends)
    main(["--seeds", "2"])
    printed = capsys.readouterr().out
    # 0.9 and 0.7: mean 0.8, deviation sqrt(2 x 0.01) = 0.1414. The gain is 0.2 and 0: mean 0.1, deviation 0.1414.
    assert "| APW + LR | 0.8000 ± 0.1414 | 0.8000 ± 0.0000 | 1.0000 ± 0.0000 | 2.00 ± 0.00 | 150.0 ± 0.0 |" in printed
    assert "- train E-Prop: 0.1000 ± 0.1414; ahead 1, behind 0, equal 1" in printed


def test_main_refuses_no_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--seeds", "0"])
    assert "--seeds must be at least 1, got 0" in capsys.readouterr().err
