"""Adaptive CL: difficulty, pace and divergence by hand, and the peers' bugs."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from torchcurriculum import Arrays, Curriculum, Epoch, methods
from torchcurriculum.functional.adaptive import adapt, distillation, geometric_pace
from torchcurriculum.methods import AdaptiveCL

PACE = {"factor": 1.2, "interval": 15, "refresh": 20}  # of the paper's 200 epochs


def _data(n: int = 40) -> Arrays:
    generator = torch.Generator().manual_seed(0)
    return Arrays(torch.randn(n, 3, generator=generator), torch.randint(3, (n,), generator=generator))


def _net(seed: int) -> nn.Linear:
    net = nn.Linear(3, 3)
    with torch.no_grad():
        net.weight.copy_(torch.randn(3, 3, generator=torch.Generator().manual_seed(seed)))
        net.bias.zero_()
    return net


def _losses(net: nn.Module, data: Arrays) -> torch.Tensor:
    with torch.no_grad():
        return nn.functional.cross_entropy(net(data.x), data.y, reduction="none").double()


def test_difficulty_by_hand() -> None:
    # 0.3 * 1 + 0.7 * 3 = 2.4; a loss nobody has seen leaves the difficulty; a difficulty nobody has takes the loss.
    moved = adapt(torch.tensor([1.0, 2.0, math.inf]), torch.tensor([3.0, math.inf, 5.0]), 0.7)
    assert moved.tolist() == pytest.approx([2.4, 2.0, 5.0], abs=1e-6)


def test_divergence_by_hand() -> None:
    # teacher (1/2, 1/2), student (1/4, 3/4): 1/2 log 2 + 1/2 log(2/3) = 0.143841. The other way round:
    # 1/4 log(1/2) + 3/4 log(3/2) = 0.130812. Fed probabilities instead of their logarithms it would be negative.
    half, quarter = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
    assert distillation(quarter, half).item() == pytest.approx(0.143841, abs=1e-6)
    assert distillation(half, quarter).item() == pytest.approx(0.130812, abs=1e-6)


@given(st.integers(0, 5), st.integers(2, 6), st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_divergence_is_not_negative_and_zero_for_equals(size: int, classes: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    a, b = 9 * torch.randn(2, size, classes, generator=generator, dtype=torch.float64)
    assert (distillation(a, b) >= -1e-12).all()
    assert distillation(a, a + 3).abs().sum() < 1e-9
    expected = nn.functional.kl_div(a.log_softmax(1), b.softmax(1), reduction="none").sum(1)
    torch.testing.assert_close(distillation(a, b), expected)


def test_pace_by_hand() -> None:
    # 0.1 * 1.2^floor(t / 15): 12 growths give 0.8916, 13 give 1.0699 -> everything, at t = 195.
    sizes = [geometric_pace(t, 1000, 0.1, 1.2, 15) for t in (0, 14, 15, 29, 30, 194, 195, 10**6)]
    assert sizes == [100, 100, 120, 120, 144, 891, 1000, 1000]
    assert geometric_pace(50, 100, 0.3, 1.0, 1) == 30
    assert geometric_pace(0, 3, 0.1, 2.0, 1) == 1
    assert geometric_pace(3, 10, 1.0, 2.0, 1) == 10


@given(st.integers(1, 300), st.floats(0.01, 1), st.floats(1, 5), st.integers(1, 20))
@settings(deadline=None, max_examples=50)
def test_pace_never_shrinks(n: int, start: float, factor: float, interval: int) -> None:
    sizes = [geometric_pace(t, n, start, factor, interval) for t in range(60)]
    assert sizes == sorted(sizes)
    assert sizes[0] >= 1
    assert sizes[-1] <= n


def test_difficulty_belongs_to_its_row_and_follows_the_student() -> None:
    data, student, teacher = _data(), _net(1), _net(2)
    method = AdaptiveCL(40, warmup=0, factor=1.2, interval=100, refresh=2, start=0.25, teacher=teacher)
    curriculum = Curriculum(method, data, batch_size=8)
    rows = []
    for _ in range(3):
        list(curriculum.epoch(student))
        assert curriculum.rows is not None
        rows.append(curriculum.rows.tolist())
        if len(rows) == 1:
            torch.testing.assert_close(method.difficulty, _losses(teacher, data), rtol=0, atol=1e-6)
            assert rows[0] == sorted(_losses(teacher, data).argsort()[:10].tolist())
            student.load_state_dict(_net(3).state_dict())
    expected = 0.3 * _losses(teacher, data) + 0.7 * _losses(student, data)
    torch.testing.assert_close(method.difficulty, expected, rtol=0, atol=1e-6)
    assert rows[0] == rows[1] != rows[2]
    assert rows[2] == sorted(expected.argsort()[:10].tolist())


def test_the_pull_is_to_the_teacher_on_the_same_rows() -> None:
    data, student, teacher = _data(), _net(1), _net(2)
    method = AdaptiveCL(40, warmup=0, **PACE, start=0.5, classes=3, gamma=0.4, teacher=teacher)  # type: ignore[arg-type]
    curriculum = Curriculum(method, data, batch_size=5, seed=4)
    for batch in curriculum.epoch(student):
        x, y = data.x[batch.index], data.y[batch.index]
        logits, target = student(x), teacher(x).softmax(1)
        pull = nn.functional.kl_div(logits.log_softmax(1), target, reduction="batchmean")
        expected = nn.functional.cross_entropy(logits, y) + 0.4 * pull
        assert curriculum.loss(student, batch).item() == pytest.approx(expected.item(), abs=1e-6)
    assert teacher.training
    assert not any("net" in name for name in method.state_dict())


@pytest.mark.parametrize("taught", [True, False])
def test_gamma_alone_is_enough(taught: bool) -> None:
    # L + gamma KL(teacher || student) of the paper, with the number of classes taken from the outputs; gamma was
    # ignored unless classes= was given. Without a teacher the student before its step is the teacher: KL = 0 there.
    data, student = _data(), _net(1)
    teacher = _net(2) if taught else None
    method = AdaptiveCL(40, warmup=int(not taught), **PACE, start=0.5, gamma=5.0, teacher=teacher)  # type: ignore[arg-type]
    curriculum = Curriculum(method, data, batch_size=40, seed=4)
    for _ in range(1 + (not taught)):
        (batch,) = curriculum.epoch(student)
    student.load_state_dict(_net(3).state_dict())
    x, y = data.x[batch.index], data.y[batch.index]
    logits, target = student(x), (_net(2) if taught else _net(1))(x).softmax(1)
    pull = nn.functional.kl_div(logits.log_softmax(1), target, reduction="batchmean")
    expected = nn.functional.cross_entropy(logits, y) + 5 * pull
    assert pull > 0.1
    assert curriculum.loss(student, batch).item() == pytest.approx(expected.item(), abs=1e-5)
    again = AdaptiveCL(40, warmup=int(not taught), **PACE, start=0.5, gamma=5.0, teacher=teacher)  # type: ignore[arg-type]
    again.load_state_dict(method.state_dict())
    assert torch.equal(again.teacher_logits, method.teacher_logits)
    assert again.teacher_logits.shape == (40, 3)


def test_a_teacher_is_imitated_as_in_the_paper_and_the_student_is_not() -> None:
    assert AdaptiveCL(40, warmup=0, **PACE, teacher=_net(2)).gamma == 0.1  # type: ignore[arg-type]
    assert AdaptiveCL(40, warmup=1, **PACE).gamma == 0  # type: ignore[arg-type]


def test_a_divergence_of_outputs_that_are_no_classes_is_refused() -> None:
    regression = Arrays(torch.zeros(8, 2), torch.zeros(8))
    method = AdaptiveCL(8, warmup=0, **PACE, teacher=nn.Linear(2, 1))  # type: ignore[arg-type]
    curriculum = Curriculum(method, regression, lambda out, y: (out[:, 0] - y).square())
    with pytest.raises(TypeError, match=r"the divergence of AdaptiveCL \(gamma=0 turns it off\) needs classes"):
        next(curriculum.epoch(nn.Linear(2, 1)))


def test_no_pull_in_the_warmup_nor_without_classes() -> None:
    data, student = _data(), _net(1)
    for options in ({"classes": 3}, {}):
        method = AdaptiveCL(40, warmup=1, **PACE, **options)  # type: ignore[arg-type]
        curriculum = Curriculum(method, data, batch_size=40)
        (batch,) = curriculum.epoch(student)
        assert curriculum.loss(student, batch).item() == pytest.approx(_losses(student, data).mean().item(), abs=1e-6)


@pytest.mark.parametrize("epochs", [1, 2, 4, 20, 200])
def test_runs_of_any_length_end_with_almost_everything(epochs: int) -> None:
    method = methods.build("adaptive-cl", 100, epochs)
    losses = torch.linspace(0, 1, 100)
    sizes = []
    for number in range(1, epochs + 1):
        rows = method.plan(Epoch(number, 100, losses, lambda: losses))
        sizes.append(100 if rows is None else len(rows))
    grown = sizes[method.warmup :]
    assert grown == sorted(grown)
    assert epochs < 3 or (grown[0] == 10 and grown[-1] == 100)


def test_a_net_of_another_width_and_a_teacher_without_losses_are_refused() -> None:
    data = _data()
    method = AdaptiveCL(40, warmup=0, **PACE, classes=4, teacher=_net(2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="3 logits, but AdaptiveCL was made for 4"):
        next(Curriculum(method, data).epoch(_net(1)))
    broken = _net(2)
    with torch.no_grad():
        broken.weight.fill_(math.nan)
    with pytest.raises(ValueError, match="NaN or infinite"):
        next(Curriculum(AdaptiveCL(40, warmup=0, **PACE, teacher=broken), data).epoch(_net(1)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n must .*got 0"),
        ({"interval": 0}, "interval must .*got 0"),
        ({"refresh": 0}, "refresh must .*got 0"),
        ({"warmup": 0}, "warmup must .*teacher.*got 0"),
        ({"start": 0.0}, r"start must .*got 0\.0"),
        ({"factor": 0.9}, r"factor must .*got 0\.9"),
        ({"rate": 1.1}, r"rate must .*got 1\.1"),
        ({"gamma": -0.1}, r"gamma must .*got -0\.1"),
        ({"classes": 1}, "classes must .*got 1"),
    ],
)
def test_bad_knobs(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AdaptiveCL(**{"n": 10, "warmup": 1, **PACE, **options})  # type: ignore[arg-type]
