"""Losses for wrong labels and uneven classes: numbers from the authors' code, limits, gradients, what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from torchcurriculum import APW, Arrays, Batch, Curriculum, Mixup, Step, methods, weighted
from torchcurriculum.core import Epoch
from torchcurriculum.functional.imbalance import class_margins, effective_weights
from torchcurriculum.losses import (
    LDAM,
    Bootstrapped,
    ClassBalanced,
    Focal,
    ForwardCorrected,
    GeneralisedCrossEntropy,
    LogitAdjusted,
    SymmetricCrossEntropy,
    estimate_transition,
)
from torchcurriculum.methods import DRW

COUNTS = [500, 50, 5]
TRANSITION = torch.tensor([[0.7, 0.2, 0.1], [0.0, 0.9, 0.1], [0.25, 0.25, 0.5]], dtype=torch.float64)
LABELS = torch.tensor([0, 2, 1, 0])


def logits() -> Tensor:
    values = [[2.0, -1.0, 0.5], [0.0, 1.0, -2.0], [0.4, 0.3, -6.0], [-20.0, 3.0, 1.0]]
    return torch.tensor(values, dtype=torch.float64)


EVERY: dict[str, nn.Module] = {
    "gce": GeneralisedCrossEntropy(),
    "sce": SymmetricCrossEntropy(),
    "soft": Bootstrapped(),
    "hard": Bootstrapped(hard=True),
    "focal": Focal(),
    "balanced": ClassBalanced(COUNTS),
    "adjusted": LogitAdjusted(COUNTS),
    "ldam": LDAM(COUNTS, scale=1.0),
    "forward": ForwardCorrected(TRANSITION),
}
every = pytest.mark.parametrize("loss", EVERY.values(), ids=list(EVERY))

# Each row alone through the authors' code, in float64; some of it has constants in float32.
GOLDEN: dict[str, tuple[nn.Module, list[float]]] = {
    # TruncatedLoss.py of github.com/AlanChou/Truncated-Loss with all weights one, plus its constant (1 - k^q) / q.
    "gce": (
        GeneralisedCrossEntropy(),
        [0.22203109436604196, 1.291552145100794, 0.5806887894677507, 1.4285712954727001],
    ),
    # loss.py of github.com/HanxunH/SCELoss-Reproduce, which follows the authors' in Keras: alpha 0.1, beta 1.
    "sce": (
        SymmetricCrossEntropy(0.1, 1.0),
        [1.998855445282035, 9.221783525234837, 4.9135769305850285, 11.523033300158774],
    ),
    # boot_soft in loss.py of github.com/giorgiop/loss-correction, Keras replaced by NumPy: beta 0.95. Its clipping of
    # probabilities at 1e-7 is not the paper's, so the fourth row is left out.
    "soft": (Bootstrapped(), [0.26032496205826294, 3.217254893829208, 0.7429204842356771]),
    # losses.py of github.com/kaidic/LDAM-DRW: FocalLoss(gamma=2).
    "focal": (Focal(2.0), [0.011092750091379808, 3.1179146071167665, 0.2057224379389332, 23.126928006952642]),
    # robust("forward", P) in loss.py of github.com/giorgiop/loss-correction, Keras replaced by NumPy.
    "forward": (
        ForwardCorrected(TRANSITION),
        [0.5213128862912111, 2.171139279320483, 0.6306074978612648, 3.5132200233203004],
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_it_is_the_authors_loss(name: str) -> None:
    loss, expected = GOLDEN[name]
    assert loss(logits(), LABELS)[: len(expected)].tolist() == pytest.approx(expected, rel=1e-7)


def test_ldam_drw_is_the_authors() -> None:
    # LDAMLoss(max_m=0.5, s=30) of losses.py and the weights of cifar_train.py in github.com/kaidic/LDAM-DRW, in
    # float64, on tanh of the logits; the last number is its weighted mean over the four rows.
    cosines = torch.tanh(logits())
    assert class_margins(torch.tensor(COUNTS), 0.5).tolist() == pytest.approx(
        [0.15811388300841897, 0.28117066259517454, 0.5], rel=1e-14
    )
    losses = LDAM(COUNTS)(cosines, LABELS)
    expected = [3.3168405441439135e-05, 66.76865208106693, 11.094225571921061, 64.59596709560236]
    assert losses.tolist() == pytest.approx(expected, rel=1e-9)
    weights = effective_weights(torch.tensor(COUNTS), 0.9999)
    assert weights.tolist() == pytest.approx([0.027689599633111177, 0.2707630215907054, 2.7015473787761835], rel=1e-9)
    method = DRW.for_run(4, 200, counts=COUNTS)
    for epoch, loss in {160: losses.mean().item(), 161: 61.1592484446678}.items():
        batch = Batch(None, LABELS, torch.arange(4), epoch=epoch)
        assert method.loss(Step(None, batch, None, losses)).item() == pytest.approx(loss, rel=1e-9)


def test_class_balanced_weighs_cross_entropy() -> None:
    weights = torch.tensor([0.027689599633111177, 0.2707630215907054, 2.7015473787761835], dtype=torch.float64)
    expected = F.cross_entropy(logits(), LABELS, weight=weights, reduction="none")
    torch.testing.assert_close(ClassBalanced(COUNTS)(logits(), LABELS), expected, rtol=1e-9, atol=0)


def test_logit_adjustment_by_hand() -> None:
    # Eq. 10 of the paper with tau = 2 and priors 3/4, 1/4: of level logits, label 0 gets (9/16) / (9/16 + 1/16).
    losses = LogitAdjusted([3, 1], tau=2.0)(torch.zeros(2, 2, dtype=torch.float64), torch.tensor([0, 1]))
    assert losses.exp().tolist() == pytest.approx([10 / 9, 10], rel=1e-14)


def test_hard_bootstrapping_by_hand() -> None:
    # p = (1/4, 3/4), label 0: 0.8 log 4 + 0.2 log(4/3); label 1 agrees: log(4/3).
    sure = torch.tensor([[0.0, math.log(3)]] * 2, dtype=torch.float64)
    expected = [0.8 * math.log(4) + 0.2 * math.log(4 / 3), math.log(4 / 3)]
    assert Bootstrapped(hard=True)(sure, torch.tensor([0, 1])).tolist() == pytest.approx(expected, rel=1e-14)


LIMITS: dict[str, nn.Module] = {
    "gce": GeneralisedCrossEntropy(1e-9),
    "sce": SymmetricCrossEntropy(1.0, 0.0),
    "soft": Bootstrapped(beta=1.0),
    "hard": Bootstrapped(hard=True, beta=1.0),
    "focal": Focal(0.0),
    "balanced": ClassBalanced(COUNTS, beta=0.0),
    "adjusted": LogitAdjusted(COUNTS, tau=0.0),
    "ldam": LDAM(COUNTS, margin=0.0, scale=1.0),
    "forward": ForwardCorrected(torch.eye(3, dtype=torch.float64)),
}


@pytest.mark.parametrize("name", LIMITS)
def test_at_strength_zero_it_is_cross_entropy(name: str) -> None:
    z, y = logits()[:3], LABELS[:3]  # the forward correction clips probabilities below 1e-7
    torch.testing.assert_close(LIMITS[name](z, y), F.cross_entropy(z, y, reduction="none"), rtol=1e-6, atol=1e-9)


@given(st.lists(st.floats(-30, 30), min_size=3, max_size=3), st.integers(0, 2), st.floats(0.01, 1))
def test_generalised_cross_entropy_is_bounded_and_below_cross_entropy(z: list[float], y: int, q: float) -> None:
    outputs, label = torch.tensor([z], dtype=torch.float64), torch.tensor([y])
    loss = GeneralisedCrossEntropy(q)(outputs, label).item()
    assert -1e-12 <= loss <= min(1 / q, F.cross_entropy(outputs, label).item()) + 1e-9


@every
def test_soft_labels_of_one_class_are_that_label(loss: nn.Module) -> None:
    if isinstance(loss, LDAM):
        with pytest.raises(ValueError, match=r"LDAM takes labels \(B,\) of whole numbers, got torch.float64"):
            loss(logits(), F.one_hot(LABELS, 3).double())
        return
    torch.testing.assert_close(loss(logits(), F.one_hot(LABELS, 3).double()), loss(logits(), LABELS))
    even = torch.full((4, 3), 1 / 3, dtype=torch.float64)
    assert loss(logits(), even).isfinite().all()


@every
def test_gradients_are_finite_where_the_network_is_sure_and_in_half_precision(loss: nn.Module) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        z = torch.tensor([[200.0, 0.0, 0.0], [0.0, 200.0, 0.0], [0.0, 0.0, 0.0]], dtype=dtype, requires_grad=True)
        losses = loss(z, torch.tensor([0, 0, 1]))
        assert losses.dtype == torch.float32
        losses.sum().backward()
        assert losses.isfinite().all()
        assert z.grad is not None
        assert z.grad.isfinite().all()


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_focal_gradient_at_certainty(gamma: float) -> None:
    z = torch.tensor([[200.0, 0.0]], requires_grad=True)
    Focal(gamma)(z, torch.tensor([0])).sum().backward()
    assert z.grad is not None
    assert z.grad.tolist() == [[0, 0]]


@every
def test_a_curriculum_trains_with_it(loss: nn.Module) -> None:
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    data = Arrays(x, x[:, :3].argmax(1))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    curriculum = Curriculum(APW(60, q=10), data, loss, batch_size=20)
    before = loss(model(x), data.y).mean()
    for _ in range(8):
        for batch in curriculum.epoch(model):
            optimizer.zero_grad()
            curriculum.loss(model, batch).backward()
            optimizer.step()
    assert loss(model(x), data.y).mean() < before
    criterion = weighted(loss, methods.build("vanilla", 60, 1), n=60)
    assert criterion(model(x), data.y, torch.arange(60)).item() == pytest.approx(loss(model(x), data.y).mean().item())
    if not isinstance(loss, LDAM):
        mixed = Curriculum(Mixup(), data, loss, batch_size=20)
        assert all(mixed.loss(model, batch).isfinite() for batch in mixed.epoch(model))


def test_transition_matrix_is_the_authors() -> None:
    # NoiseEstimator in models.py of github.com/giorgiop/loss-correction, with and without filter_outlier (97 %).
    seen = [
        [0.306, 0.001, 0.693],
        [0.229, 0.177, 0.594],
        [0.392, 0.201, 0.407],
        [0.152, 0.001, 0.847],
        [0.270, 0.363, 0.367],
        [0.034, 0.521, 0.445],
        [0.391, 0.429, 0.180],
        [0.056, 0.008, 0.936],
    ]
    p = torch.tensor(seen, dtype=torch.float64)
    expected = [[0.392, 0.201, 0.407], [0.034, 0.521, 0.445], [0.056, 0.008, 0.936]]
    torch.testing.assert_close(estimate_transition(p), torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=0)
    expected = [[0.391, 0.429, 0.180], [0.391, 0.429, 0.180], [0.152, 0.001, 0.847]]
    found = estimate_transition(p, quantile=0.97)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=0)
    assert ForwardCorrected(found)(logits(), LABELS).isfinite().all()


def test_drw_counts_the_labels_once() -> None:
    data = Arrays(torch.zeros(6, 2), torch.tensor([0, 0, 0, 0, 1, 1]))
    model, method = nn.Linear(2, 2), DRW(start=1, beta=0.5)
    curriculum = Curriculum(method, data, batch_size=3)
    for _ in range(2):
        for batch in curriculum.epoch(model):
            curriculum.loss(model, batch).backward()
    torch.testing.assert_close(method.log_weights.exp(), effective_weights(torch.tensor([4, 2]), 0.5))
    curriculum.start(model)
    curriculum.accumulate(2)
    parts = [curriculum.loss(model, batch) for batch in curriculum.epoch(model)]
    assert all(part.isfinite() for part in parts)
    gap, labels = DRW(start=1, beta=0.5), torch.tensor([0, 2, 2])  # no row of class 1
    gap.plan(Epoch(1, 3, torch.zeros(3), lambda: torch.zeros(3), measure=lambda function, model: labels))
    assert gap.log_weights.exp().tolist() == pytest.approx([1.2, 1, 0.8], rel=1e-14)
    with pytest.raises(ValueError, match="DRW needs class numbers from 0, got -1; number the classes from 0"):
        Curriculum(DRW(start=1), Arrays(torch.zeros(2, 2), torch.tensor([0, -1]))).start(model)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GeneralisedCrossEntropy(0.0), r"q must be a number in \(0, 1\], got 0.0; 0.7 is the authors'"),
        (lambda: GeneralisedCrossEntropy(math.nan), "q must be a number"),
        (lambda: SymmetricCrossEntropy(alpha=-1.0), r"alpha must be a number in \[0, inf\)"),
        (lambda: SymmetricCrossEntropy(beta=-1.0), r"beta must be a number in \[0, inf\)"),
        (lambda: Bootstrapped(beta=1.1), r"beta must be a number in \[0, 1\]"),
        (lambda: Focal(-1.0), r"gamma must be a number in \[0, inf\)"),
        (lambda: ClassBalanced(COUNTS, beta=1.0), r"beta must be a number in \[0, 1\)"),
        (
            lambda: ClassBalanced([5, 0]),
            r"counts must hold the rows of each class, .* got \[5, 0\]; use torch.bincount",
        ),
        (lambda: LogitAdjusted("many"), "counts must hold the rows of each class, got str"),  # type: ignore[arg-type]
        (lambda: LDAM([[1, 2]]), "counts must hold the rows of each class"),  # type: ignore[list-item]
        (lambda: LDAM(COUNTS, scale=0.0), r"scale must be a number in \(0, inf\)"),
        (lambda: ForwardCorrected(torch.ones(2, 2)), r"transition must be a tensor \(C, C\) .* got .* shape \(2, 2\)"),
        (lambda: ForwardCorrected(torch.tensor([[1.0, 0], [1, 0]])), r"columns \[1\] of transition are zero"),
        (lambda: ForwardCorrected([[1.0]]), "transition must be a tensor .* got list"),  # type: ignore[arg-type]
        (lambda: estimate_transition(torch.ones(4)), r"probabilities must be a tensor \(N, C\) .* got \(4,\)"),
        (lambda: estimate_transition(torch.ones(4, 2)), r"sum to one in each row; pass model\(x\).softmax\(1\)"),
        (lambda: estimate_transition(torch.ones(4, 2) / 2, 0.0), r"quantile must be a number in \(0, 1\], got 0.0"),
        (lambda: DRW(start=-1), "start must be a whole number, at least 0, got -1"),
        (lambda: DRW(1, beta=1.0), r"beta must be a number in \[0, 1\)"),
        (lambda: DRW(1, counts=[3, 0]), r"counts must hold the rows of each class.*got \[3, 0\]"),
        (lambda: DRW(1, counts="E"), "counts must hold the rows of each class, got str"),  # type: ignore[arg-type]
        (lambda: Focal()(torch.zeros(3), LABELS), r"Focal takes logits of shape \(B, C\), got .*\(3,\)"),
        (lambda: Focal()(logits(), LABELS[:3]), r"Focal takes labels \(B,\) .* or probabilities .* shape \(3,\)"),
        (lambda: Focal()(logits(), LABELS.double()), "Focal takes labels"),
        (lambda: LDAM([1, 2])(logits(), LABELS), "LDAM was made for 2 classes and the model has 3 outputs"),
    ],
)
def test_bad_input(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
