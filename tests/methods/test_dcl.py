"""DCL: data parameters."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from torchcurriculum import Arrays, Batch, Curriculum, Step
from torchcurriculum.core import Task
from torchcurriculum.functional.temperature import temperature_gradient
from torchcurriculum.methods import DCL

TASK = Task(lambda model, x: x, lambda z, y: F.cross_entropy(z, y, reduction="none"))


def step(logits: Any, y: torch.Tensor, index: list[int]) -> Step:
    batch = Batch(logits, y, torch.tensor(index), task=TASK)
    return Step(torch.nn.Identity(), batch, logits, F.cross_entropy(logits, y, reduction="none"))


def test_golden_step_of_the_sample_temperatures() -> None:
    # Two logits (2, 0), sigma = 1: p = 1 / (1 + e^-2) = 0.8807971. dL/dsigma = (z_y - sum p z) / sigma^2.
    #   y = 0: 2 - 2 p = 0.2384058;  y = 1: 0 - 2 p = -1.7615942.
    # dL/ds = sigma dL/dsigma, over B = 2, lr = 0.5, first step of momentum: s = -0.25 dL/ds.
    #   s = -0.0596015 (cools down: it is right) and +0.4403985 (warms up: it is wrong).
    # Second step, momentum 0.9, wd 0.1 only for the touched row 3, sigma = exp(0.4403985) = 1.5533261:
    #   z/sigma = 1.2875596, p = 0.7837338, dL/ds = -p * 1.2875596 = -1.0091040, B = 1:
    #   g = -1.0091040 + 0.1 * 0.4403985 = -0.9650642, v = 0.9 * (-0.8807971) - 0.9650642 = -1.7577815,
    #   s = 0.4403985 + 0.5 * 1.7577815 = 1.3192893.
    method = DCL(5, lr=0.5, weight_decay=0.1)
    logits = torch.tensor([[2.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    method.loss(step(logits, torch.tensor([0, 1]), [1, 3]))
    assert method.sample_log.tolist() == pytest.approx([0, -0.0596015, 0, 0.4403985, 0], abs=1e-7)
    value = method.loss(step(logits[:1], torch.tensor([1]), [3]))
    # log(1 + exp(1.2875596)): the loss at the scaled logits, before the step.
    assert value.item() == pytest.approx(math.log1p(math.exp(1.2875596)), abs=1e-7)
    assert method.sample_log.tolist() == pytest.approx([0, -0.0596015, 0, 1.3192893, 0], abs=1e-7)


def test_temperatures_start_at_init_not_at_the_learning_rate() -> None:
    # Peer bug: init_* were ignored and the temperatures started at the learning rates.
    method = DCL(4, classes=3, init=0.001, init_class=1.0, lr=0.8, lr_class=0.1)
    assert method.sample_log.exp().tolist() == pytest.approx([0.001] * 4)
    assert method.class_log.exp().tolist() == [1.0] * 3


def test_classes_are_those_of_the_user() -> None:
    # Peer bug: ten classes whatever the data set.
    assert DCL(4, classes=100).class_log.shape == (100,)
    with pytest.raises(TypeError, match="3 logits, but labels are torch.int64 of shape .* there are 2 logits"):
        DCL(4, classes=3).loss(step(torch.zeros(2, 2), torch.tensor([0, 1]), [0, 1]))


def test_class_gradients_add_up_and_absent_classes_stay() -> None:
    # Two samples of class 1 with logits (0, 2): each dL/dsigma = 2 - 2 p = 0.2384058, averaged over B = 2 and added:
    # dL/dc_1 = 0.2384058, lr 1: c_1 = -0.2384058. Class 0 is absent and does not even decay.
    method = DCL(3, classes=2, samples=False, lr_class=1.0, init_class=1.0, weight_decay_class=0.5)
    method.class_log[0] = 0.7
    logits = torch.tensor([[0.0, 2.0], [0.0, 2.0]], dtype=torch.float64)
    method.loss(step(logits, torch.tensor([1, 1]), [0, 2]))
    assert method.class_log.tolist() == pytest.approx([0.7, -0.2384058], abs=1e-7)
    assert method.class_velocity[0] == 0


def test_fifty_steps_of_the_authors_code() -> None:
    # SparseSGD, get_data_param_for_minibatch and apply_weight_decay_data_parameters of apple/ml-data-parameters
    # (c2931c1) in float64, class parameters only, wd 0.01, lr 0.1, momentum 0.9, all from 2, on this batch.
    logits = torch.tensor(
        [[2, 0, -1], [0, 1, 0.5], [1, 1, 0], [0.5, -0.5, 1], [2, 1, 0], [0, 0, 1]], dtype=torch.float64
    )
    method = DCL(6, classes=3, samples=False, init_class=2.0, weight_decay_class=0.01)
    found = {}
    for number in range(1, 51):
        method.loss(step(logits, torch.tensor([0, 0, 0, 0, 1, 1]), list(range(6))))
        found[number] = method.class_log.exp().tolist()
    assert found[1] == pytest.approx([1.985819906, 2.0101199189, 2.0], abs=1e-9)
    assert found[10] == pytest.approx([1.5256907502, 2.4164323556, 2.0], abs=1e-9)
    assert found[50] == pytest.approx([1.2592429931, 3.8693560568, 2.0], abs=1e-9)


def test_only_rows_of_the_batch_are_touched() -> None:
    method = DCL(1000, lr=1.0, weight_decay=0.1)
    method.sample_log.fill_(0.3)
    method.sample_velocity.fill_(5.0)
    method.loss(step(torch.tensor([[1.0, 0.0]]), torch.tensor([0]), [17]))
    others = torch.arange(1000) != 17
    assert (method.sample_log[others] == 0.3).all()
    assert (method.sample_velocity[others] == 5.0).all()
    assert method.sample_log[17] != 0.3


def test_temperatures_are_bounded() -> None:
    method = DCL(1, lr=1e6)
    method.loss(step(torch.tensor([[9.0, 0.0]]), torch.tensor([1]), [0]))
    assert method.sample_log.exp().item() == pytest.approx(20)


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(0.1, 5), st.integers(0, 1))
def test_the_gradient_is_the_closed_form_of_cross_entropy(a: float, b: float, sigma: float, label: int) -> None:
    z = torch.tensor([[a, b]], dtype=torch.float64)
    y = torch.tensor([label])
    found = temperature_gradient(lambda q: F.cross_entropy(q, y, reduction="none"), z, torch.tensor([sigma]))
    sigma32 = float(torch.tensor([sigma]))
    p = torch.softmax(z / sigma32, 1)
    assert found.item() == pytest.approx(((z[0, label] - (p * z).sum()) / sigma32**2).item(), abs=1e-9)


def test_the_model_gets_the_gradient_of_the_scaled_loss() -> None:
    method = DCL(2)
    method.sample_log.copy_(torch.tensor([2.0, 0.5]).log())
    logits = torch.tensor([[1.0, -1.0], [0.5, 0.0]], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 1])
    method.loss(step(logits, y, [0, 1])).backward()
    again = logits.detach().clone().requires_grad_()
    F.cross_entropy(again / torch.tensor([[2.0], [0.5]], dtype=torch.float64), y).backward()
    torch.testing.assert_close(logits.grad, again.grad)


def test_a_loss_that_is_not_finite_moves_nothing() -> None:
    method, x = DCL(2, lr=1.0), torch.tensor([[math.nan, 0.0], [1.0, 0.0]])
    curriculum = Curriculum(method, Arrays(x, torch.tensor([0, 0])), batch_size=2, nan_strategy="ignore")
    model = torch.nn.Linear(2, 2)
    for batch in curriculum.epoch(model):
        assert curriculum.loss(model, batch).isfinite()
    assert method.sample_log.isfinite().all()
    assert method.sample_log[0] == 0
    assert method.sample_log[1] != 0


def test_outputs_that_are_no_logits_are_refused() -> None:
    with pytest.raises(TypeError, match=r"\(B, C\) logits, but they are dict"):
        whole = step(torch.zeros(1, 2), torch.tensor([0]), [0])
        DCL(1).loss(Step(whole.model, whole.batch, {"logits": 1}, whole.losses))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 0}, "n must be the number"),
        ({"classes": 1}, "classes must be .*at least 2, got 1"),
        ({"samples": False}, "no temperature to learn"),
        ({"init": 0.0}, r"init must .*got 0\.0; a temperature"),
        ({"init_class": math.inf}, "init_class must .*got inf; a temperature"),
        ({"lr": -1.0}, r"lr must .*got -1\.0"),
        ({"weight_decay_class": math.nan}, "weight_decay_class .*NaN"),
        ({"momentum": 1.0}, r"momentum must .*got 1\.0"),
    ],
)
def test_bad_knobs(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DCL(**{"n": 3, **options})
