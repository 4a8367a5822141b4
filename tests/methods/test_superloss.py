"""SuperLoss and the Lambert W function."""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import lambertw

from torchcurriculum import Batch, Step
from torchcurriculum.functional import confidence, lambert_w
from torchcurriculum.methods import SuperLoss


def weigh(method: SuperLoss, losses: torch.Tensor) -> torch.Tensor:
    batch = Batch(None, None, torch.arange(len(losses)))
    return method.weigh(Step(torch.nn.Identity(), batch, None, losses))


def exact_w(x: float) -> float:
    """W of the double x by Newton's method in 60 digits; the branch point itself where x lies below it."""
    with decimal.localcontext(prec=60):
        target = Decimal(x)
        if target <= -1 / Decimal(1).exp():
            return -1.0
        above = 2 * (Decimal(1).exp() * target + 1)
        w = above.sqrt() - 1 if target < 1 else (Decimal(1) + target).ln()
        for _ in range(200):
            change = (w * w.exp() - target) / (w.exp() * (w + 1))
            w -= change
            if abs(change) < Decimal("1e-40"):
                return float(w)
        raise AssertionError(f"no convergence at {x}")


def test_lambert_w_agrees_with_scipy_from_the_branch_point_to_a_million() -> None:
    # scipy itself is only good to 5e-9 within 1e-10 of the branch point, so this test starts there; the next goes on.
    x = np.concatenate(
        [-1 / math.e + 10 ** np.linspace(-4, 0, 300), np.linspace(0, 20, 500), 10 ** np.linspace(-9, 6, 500)]
    )
    ours = lambert_w(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(ours, lambertw(x).real, rtol=1e-12, atol=1e-12)


def test_lambert_w_is_exact_near_the_branch_point() -> None:
    x = [
        -1 / math.e + d for d in (0.0, 1e-17, 6e-17, 1e-16, 1e-15, 1e-13, 1e-10, 1e-7, 7e-5, 8e-5, 1e-4, 1e-3, 0.1, 0.3)
    ]
    ours = lambert_w(torch.tensor(x, dtype=torch.float64))
    for value, w in zip(x, ours.tolist(), strict=True):
        assert w == pytest.approx(exact_w(value), abs=1e-13), value


def test_the_branch_point_is_exact_and_below_it_nothing_is_nan() -> None:
    # Peer bug: the double nearest to -1/e lies below -1/e, where lambertw is NaN: every easy sample became NaN.
    assert -1 / math.e < Decimal(-1) / Decimal(1).exp()
    x = torch.tensor([-1 / math.e, -2 / math.e / 2, -0.4, -100.0], dtype=torch.float64)
    assert lambert_w(x).tolist() == [-1.0] * 4
    assert confidence(torch.tensor([0.0, 1e-8]), tau=10.0, lam=1.0).tolist() == pytest.approx([math.e] * 2, rel=1e-15)


def test_confidence_is_one_graph_without_a_look_at_values() -> None:
    losses = torch.linspace(0, 9, 7)
    compiled = torch.compile(confidence, fullgraph=True, backend="eager")
    assert torch.equal(compiled(losses, 2.0, 1.0), confidence(losses, 2.0, 1.0))


@given(st.floats(-1.0, 600.0))
def test_lambert_w_inverts_w_exp_w(w: float) -> None:
    x = torch.tensor(w, dtype=torch.float64)
    found = lambert_w(x * x.exp())
    # Near the branch point x = w exp(w) itself is rounded, by which w moves as the square root of the rounding.
    assert found.item() == pytest.approx(w, rel=1e-12, abs=1e-7 if w < -0.9 else 1e-12)


def test_golden_confidences() -> None:
    # sigma = exp(-W(max(-2/e, (l - tau) / lambda) / 2)), tau = 2, lambda = 1/2:
    #   l = 2:            W(0) = 0                         sigma = 1
    #   l = 2 + e:        beta = 2 e,   W(e) = 1           sigma = 1/e
    #   l = 2 + 2 e^2:    beta = 4 e^2, W(2 e^2) = 2       sigma = 1/e^2
    #   l = 1:            beta = -2 < -2/e, W(-1/e) = -1   sigma = e
    #   l = 2 - log(2)/2: beta = -log 2, W(-log(2)/2) = -log 2, for -log 2 exp(-log 2) = -log(2)/2; sigma = 2
    losses = torch.tensor([2, 2 + math.e, 2 + 2 * math.e**2, 1, 2 - math.log(2) / 2], dtype=torch.float64)
    expected = [1, 1 / math.e, math.e**-2, math.e, 2]
    assert confidence(losses, 2.0, 0.5).tolist() == pytest.approx(expected, rel=1e-14)
    # The shell's loss is sum w l, so the weights carry 1/B: not normalised by their own sum.
    assert (weigh(SuperLoss(tau=2.0, lam=0.5), losses) * 5).tolist() == pytest.approx(expected, rel=1e-14)


@given(st.lists(st.floats(0.0, 50.0), min_size=2, max_size=20), st.floats(0.0, 10.0), st.floats(0.1, 10.0))
def test_confidence_falls_with_the_loss_and_minimises_the_objective(
    values: list[float], tau: float, lam: float
) -> None:
    losses = torch.tensor(sorted(values), dtype=torch.float64)
    sigma = confidence(losses, tau, lam)
    assert (sigma.diff() <= 1e-12).all()
    assert ((sigma > 0) & (sigma <= math.e * (1 + 1e-12))).all()

    def objective(s: torch.Tensor) -> torch.Tensor:
        return (losses - tau) * s + lam * s.log() ** 2

    for factor in (0.9, 0.999, 1.001):
        inside = sigma * factor <= math.e
        assert (objective(sigma)[inside] <= objective(sigma * factor)[inside] + 1e-9).all()


def _step(outputs: object, y: object, losses: torch.Tensor) -> Step:
    return Step(torch.nn.Identity(), Batch(None, y, torch.arange(len(losses))), outputs, losses)


def test_tau_is_log_c_where_there_are_classes() -> None:
    # The paper: tau = log C for classification. Ten classes and a loss of log 10: sigma = 1, and at log 10 + 2 e it is
    # 1/e. With the mean of the batch as tau, the default before, they were 2.72 and 0.50.
    method, y = SuperLoss(), torch.tensor([3, 7])
    losses = torch.tensor([math.log(10), math.log(10) + 2 * math.e], dtype=torch.float64)
    weights = method.weigh(_step(torch.zeros(2, 10), y, losses))
    assert (2 * weights).tolist() == pytest.approx([1.0, 1 / math.e], rel=1e-12)
    assert method.rule is None
    method.weigh(_step(torch.zeros(2, 5), y, losses))  # fixed at the first step
    assert method.tau.item() == pytest.approx(math.log(10))
    again = SuperLoss()
    again.load_state_dict(method.state_dict())
    assert again.tau.item() == pytest.approx(math.log(10))


@pytest.mark.parametrize(
    ("outputs", "y"),
    [
        (torch.zeros(2), torch.zeros(2)),  # regression
        (torch.zeros(2, 3), torch.zeros(2, 3)),  # several labels
        (torch.zeros(2, 1), torch.zeros(2, dtype=torch.int64)),
        (torch.zeros(2, 4, 9), torch.zeros(2, 4, dtype=torch.int64)),  # tokens
        ({"logits": 1}, {"y": 1}),
    ],
)
def test_tau_is_a_running_mean_elsewhere(outputs: object, y: object) -> None:
    method = SuperLoss(smoothing=0.5)
    for mean, tau in [(2.0, 2.0), (4.0, 3.0)]:
        method.weigh(_step(outputs, y, torch.tensor([mean - 1, mean + 1])))
        assert method.tau.item() == pytest.approx(tau, rel=1e-15)
    assert method.rule == "running"


def test_a_loop_that_gives_losses_alone_is_told() -> None:
    method = SuperLoss()
    with pytest.warns(UserWarning, match=r"cannot count classes .* pass tau=math\.log\(C\)"):
        weigh(method, torch.tensor([1.0, 3.0]))
    assert method.tau.item() == 2.0
    weigh(method, torch.tensor([1.0, 3.0]))  # once


def test_outputs_of_transformers_count_their_classes() -> None:
    method = SuperLoss()
    method.weigh(_step(SimpleNamespace(logits=torch.zeros(2, 4)), torch.tensor([0, 1]), torch.ones(2)))
    assert method.tau.item() == pytest.approx(math.log(4))


def test_running_tau_is_an_exponential_mean_that_starts_at_the_first_batch() -> None:
    # Means 2, 4, 4 with smoothing 0.5: tau = 2, then 3, then 3.5; smoothing 0 is the mean of the batch.
    method, batchwise = SuperLoss("running", smoothing=0.5), SuperLoss("running", smoothing=0.0)
    for mean, tau in [(2.0, 2.0), (4.0, 3.0), (4.0, 3.5)]:
        losses = torch.tensor([mean - 1, mean + 1])
        weigh(method, losses), weigh(batchwise, losses)
        assert method.tau.item() == pytest.approx(tau, rel=1e-15)
        assert batchwise.tau.item() == pytest.approx(mean, rel=1e-15)


def test_average_tau_is_the_mean_of_all_losses() -> None:
    method = SuperLoss(tau="average")
    weigh(method, torch.tensor([1.0, 2.0, 3.0]))
    weigh(method, torch.tensor([10.0]))
    assert method.tau.item() == pytest.approx(16 / 4, rel=1e-15)
    assert method.report()["tau"] is method.tau


def test_fixed_tau_stays() -> None:
    method = SuperLoss(tau=math.log(10))
    weigh(method, torch.tensor([1.0, 2.0]))
    assert method.tau.item() == math.log(10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tau": "mean"}, "tau must be 'auto', 'running' or 'average', got 'mean'"),
        ({"tau": math.nan}, "tau .*NaN"),
        ({"tau": math.inf}, "tau must .*got inf"),
        ({"lam": 0.0}, r"lam must .*\(0, inf\], got 0\.0"),
        ({"lam": -1.0}, r"lam must .*got -1\.0"),
        ({"smoothing": 1.0}, r"smoothing must .*\[0, 1\), got 1\.0"),
    ],
)
def test_bad_knobs(options: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SuperLoss(**options)  # type: ignore[arg-type]
