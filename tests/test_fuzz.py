"""Bad input of every kind: a clear error and nothing changed, or good work; no crash, no NaN, no storm of warnings.

``FUZZ=20 python -m pytest tests/test_fuzz.py`` tries twenty times as many inputs, others in each run.
"""

from __future__ import annotations

import inspect
import math
import os
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from torchcurriculum import APW, Arrays, Curriculum, Mixed, Sampled, methods
from torchcurriculum.core import Batch, Method, Step, Task
from torchcurriculum.data import flip_labels

from .contract.problem import data, model
from .needs import build

TIMES = int(os.environ.get("FUZZ", "1"))
EXPECTED = (ValueError, TypeError, IndexError, OSError)  # RecordError is a ValueError
N = 9


def tries(number: int) -> Any:
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    options: Any = {"deadline": None, "derandomize": TIMES == 1, "suppress_health_check": quiet}
    return settings(max_examples=number * TIMES, **options)


class Outcome:
    """What became of a call: ``error`` is None where it worked."""

    error: BaseException | None = None

    def clear(self) -> bool:
        """Whether the error was raised on purpose: by a ``raise`` of this library, not inside of another one."""
        assert self.error is not None
        frame = traceback.extract_tb(self.error.__traceback__)[-1]
        ours = "torchcurriculum" in frame.filename and (frame.line or "").startswith("raise")
        return ours or "unexpected keyword argument" in str(self.error) or "multiple values" in str(self.error)


@contextmanager
def judged(warned: int = 1) -> Iterator[Outcome]:
    """Any of the expected errors, with a sentence, and next to no warnings; everything else goes through and fails."""
    outcome = Outcome()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            yield outcome
        except EXPECTED as error:
            outcome.error = error
    assert outcome.error is None or len(str(outcome.error).split()) >= 4, repr(outcome.error)
    ours = [one for one in heard if not issubclass(one.category, DeprecationWarning)]  # torch's own, at a first import
    assert len(ours) <= warned, [str(one.message) for one in ours[:3]]


# ---------------------------------------------------------------------- strategies

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.complex64]
DTYPES += [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
SPECIAL = [0.0, -0.0, 5e-324, 1e-45, 1e30, 1e38, 1e300, -1.0, -1e30, math.nan, math.inf, -math.inf, math.log(2)]
numbers = st.sampled_from(SPECIAL) | st.floats(width=64) | st.floats(0, 5)


@st.composite
def losses(draw: st.DrawFn, sane: float = 0.5) -> Any:
    """Usually floats of about N rows, sometimes of another type, shape or layout, sometimes no tensor."""
    size = draw(st.sampled_from([N, N, N, 4, 1, 0, N + 1]))
    good = draw(st.floats(0, 1)) < sane
    values = torch.tensor(draw(st.lists(st.floats(0, 5) if good else numbers, min_size=size, max_size=size)))
    dtype = draw(st.sampled_from(DTYPES[:4] if good else DTYPES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = values.double().to(dtype)
    form = draw(st.sampled_from(["", "", "", "column", "scalar", "strided", "graph", "list", "none"]))
    if form == "column":
        return values[:, None]
    if form == "scalar":
        return values.sum() if values.is_floating_point() and dtype != torch.float8_e4m3fn else torch.tensor(1.0)
    if form == "strided" and dtype != torch.float8_e4m3fn:
        return torch.stack([values, values], 1)[:, 0]
    if form == "graph" and values.is_floating_point() and dtype != torch.float8_e4m3fn:
        return values.clone().requires_grad_() * 1
    return values.real.double().tolist() if form == "list" else None if form == "none" else values


@st.composite
def indices(draw: st.DrawFn) -> Any:
    size = draw(st.sampled_from([N, 4, 4, 1, 0]))
    kind = draw(st.sampled_from(["rows", "rows", "rows", "any", "repeated", "huge"]))
    if kind == "rows":
        values = draw(st.permutations(range(N)))[:size]
    elif kind == "repeated":
        values = [draw(st.integers(0, N - 1))] * size
    else:
        limit = N + 2 if kind == "any" else 2**62
        values = draw(st.lists(st.integers(-limit, limit), min_size=size, max_size=size))
    dtype = draw(st.sampled_from([torch.int64] * 6 + [torch.int32, torch.uint8, torch.float32, torch.bool]))
    index = torch.tensor(values, dtype=torch.int64).to(dtype)
    return draw(st.sampled_from([index, index, index, index, index[:, None], index.tolist(), None, 3]))


def fine(method: Method) -> None:
    weights = method.weights
    assert isinstance(weights, Tensor)
    assert weights.isfinite().all()
    assert (weights >= 0).all()
    assert abs(weights.sum().item() - 1) < 1e-9


def state_of(method: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in method.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name].nan_to_num(), b[name].nan_to_num()) for name in a)


# ---------------------------------------------------------------------- losses, indices, weights


@tries(300)
@given(
    st.sampled_from(["E", "I", "EI"]),
    st.sampled_from(["error", "warn", "ignore"]),
    st.sampled_from([0.7, "auto"]),
    st.lists(st.tuples(losses(), indices() | st.none()), min_size=1, max_size=4),
)
def test_a_loop_of_your_own_with_any_losses_and_rows(weighting: Any, strategy: Any, threshold: Any, calls: Any) -> None:
    method = APW(N, q=2, threshold=threshold, weighting=weighting, nan_strategy=strategy)
    method.advance(torch.ones(N))
    for values, index in calls:
        before, weights = state_of(method), None
        with judged() as outcome:
            if index is None:
                method.advance(values)
            else:
                weights = method.batch_weights(values, index)
        fine(method)
        if outcome.error is not None:
            assert outcome.clear(), outcome.error
            assert same(before, state_of(method))
        if weights is not None:
            assert weights.isfinite().all()
            assert (weights >= 0).all()
            assert not weights.requires_grad


@tries(150)
@given(
    losses(sane=0.3),
    st.sampled_from(["error", "warn", "ignore"]),
    st.sampled_from(["apw-e", "apw-ei", "superloss", "spl"]),
)
def test_a_loss_function_that_returns_anything(values: Any, strategy: Any, name: str) -> None:
    """Through the shell: the same for every batch, cut to its size where it can be."""
    net = torch.nn.Linear(2, 1)
    method = methods.build(name, N, 2)

    def loss_fn(logits: Tensor, y: Tensor) -> Any:
        whole = isinstance(values, Tensor) and values.ndim == 1 and len(values) >= N and values.dtype in DTYPES[:4]
        return values[y].detach() + 0 * logits[:, 0] if whole else values

    curriculum = Curriculum(method, Arrays(torch.ones(N, 2), torch.arange(N)), loss_fn, nan_strategy=strategy)
    with judged(warned=4) as outcome:  # two epochs, and in each the pass and the step see the same losses
        for _ in range(2):
            for batch in curriculum.epoch(net):
                curriculum.loss(net, batch).backward()
    if hasattr(method, "weights"):
        fine(method)
    assert net.weight.isfinite().all()
    if outcome.error is None:
        assert len(curriculum.record.epochs) == 2


@tries(100)
@given(st.lists(numbers, min_size=3, max_size=3), st.sampled_from([(3,), (3, 1), (1, 3), (1,), ()]))
def test_weights_of_a_method_of_your_own(values: list[float], shape: tuple[int, ...]) -> None:
    weights = torch.tensor(values, dtype=torch.float64)[: math.prod(shape)].reshape(shape)
    net = torch.nn.Linear(1, 1)
    batch = Batch(torch.ones(3, 1), torch.zeros(3), torch.arange(3))
    step = Step(net, batch, None, net(batch.x)[:, 0].square())
    with judged() as outcome:
        loss = step.reduce(weights)
    if outcome.error is not None:
        assert outcome.clear()
        assert shape != (3,) or not weights.to(step.losses.dtype).isfinite().all() or (weights < 0).any()
    else:
        assert (weights.to(step.losses.dtype) >= 0).all()
        assert weights.isfinite().all()
        if weights.abs().max() < 1e30:
            assert loss.isfinite()


@tries(60)
@given(losses(), st.sampled_from([-1, 0, 1, 2, 10]), numbers)
def test_label_noise(labels: Any, classes: int, rate: float) -> None:
    with judged():
        noisy = flip_labels(labels, rate, classes, seed=0)
        assert noisy.shape == labels.shape
        assert ((noisy >= 0) & (noisy < classes)).all()


# ---------------------------------------------------------------------- configurations

WORDS = ["E", "I", "EI", "error", "warn", "weights", "labels", "beta", "easy", "hard", "random", "similar", "linear"]
WORDS += ["geometric", "root", "mixture", "polynomial", "exp", "loss", "change", "flip", "online", "naive", "window"]
WORDS += ["sampling", "epsilon", "boltzmann", "running", "average", "auto", "linear-repeat", "", "x", "dissimilar"]
reals = st.sampled_from([-1.0, 0.0, 1e-300, 1e-9, 0.1, 0.5, 0.9, 1.0, 1.5, 2.0, 7.5, 1e6, 1e300, math.inf, math.nan])
wholes = st.sampled_from([-1, 0, 1, 2, 3, 5, 10, N, 10**4])
odd = st.sampled_from(
    [None, True, [1], (1, 2), {}, 1j, object(), "", torch.tensor(0.5), torch.zeros(3), np.float32(0.5)]
)
knob_values = reals | wholes | st.sampled_from(WORDS) | odd


def knobs(name: str) -> list[str]:
    """What ``build`` takes, what the name stands for, what only the constructor takes, and what nobody takes."""
    known = methods.entry(name)
    constructor = [word for word in inspect.signature(known.method).parameters if word != "n"]
    return list(dict.fromkeys([*known.options(), *known.fixed, *constructor, "nonsense"]))


def train(method: Method, epochs: int = 2) -> torch.nn.Module:
    net, images = model(), data()
    curriculum = Curriculum(method, Arrays(images.x[:N], images.y[:N]), batch_size=4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(epochs):
        for batch in curriculum.epoch(net):
            optimizer.zero_grad()
            curriculum.loss(net, batch).backward()
            optimizer.step()
    return net


def works(method: Method) -> None:
    """It trains, or says in its own words why not; no NaN in the net, the weights or the method's state."""
    net = None
    with judged() as outcome:
        net = train(method)
    assert outcome.error is None or outcome.clear(), outcome.error
    for value in method.state_dict().values():
        assert not value.isnan().any() if value.is_floating_point() else True
    if net is not None:
        assert all(value.isfinite().all() for value in net.state_dict().values())
        if isinstance(getattr(method, "weights", None), Tensor):
            fine(method)


@pytest.mark.parametrize("name", list(methods.names()))
@tries(25)
@given(st.data())
def test_any_configuration_trains_or_is_refused(name: str, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(knobs(name)), min_size=1, max_size=3, unique=True))
    options = {word: data.draw(knob_values, label=word) for word in chosen}
    made = None
    with judged() as outcome:
        made = build(name, N, 3, **options)
    if made is None:
        assert outcome.clear(), outcome.error
    else:
        works(made)


@tries(25)
@given(knob_values, knob_values, knob_values, knob_values, knob_values)
def test_apw_and_its_wrappers_by_their_own_names(n: Any, q: Any, threshold: Any, tau: Any, weighting: Any) -> None:
    for options in ({"n": n}, {"q": q}, {"threshold": threshold}, {"tau": tau}, {"weighting": weighting}):
        with judged() as outcome:
            method = APW(**{"n": N, "q": 3, **options})
        assert outcome.error is None or outcome.clear(), outcome.error
        if outcome.error is None and method.n == N:
            works(method)
    for make in (
        lambda: Sampled(APW(N, q=2), fraction=tau),
        lambda: Mixed(APW(N, q=2), alpha=q),
        lambda: Mixed(APW(N, q=2), reading=weighting),
        lambda: Sampled(n),
        lambda: Mixed(threshold),
    ):
        with judged() as outcome:
            make()
        assert outcome.error is None or outcome.clear(), outcome.error


@tries(30)
@given(st.sampled_from(list(methods.names())), knob_values | st.integers(), knob_values | st.integers())
def test_any_number_of_rows_and_epochs(name: str, n: Any, epochs: Any) -> None:
    if isinstance(n, int) and n > 10**5:
        n = -n  # so many rows are no mistake
    with judged() as outcome:
        methods.build(name, n, epochs)
    assert outcome.error is None or outcome.clear(), outcome.error


# ---------------------------------------------------------------------- states

STATES: dict[str, tuple[Method, dict[str, Tensor]]] = {}


def trained(name: str) -> tuple[Method, dict[str, Tensor]]:
    if name not in STATES:
        options = {"keep_size": True} if name.startswith("efficient-train") else {}
        method = build(name, N, 3, **options)
        train(method, 1)
        STATES[name] = method, state_of(method)
    return STATES[name]


@st.composite
def damaged(draw: st.DrawFn, state: dict[str, Any]) -> dict[str, Any]:
    """A state with entries missing, added, of another shape or of another kind."""
    state = dict(state)
    for _ in range(draw(st.integers(1, 2))):
        how = draw(st.sampled_from(["missing", "added", "shape", "kind"]))
        word = draw(st.sampled_from(sorted(state))) if state else ""
        if how == "missing" and word:
            del state[word]
        elif how == "added":
            state[draw(st.sampled_from(["more", "log_weights2", "method.x"]))] = torch.zeros(2)
        elif how == "shape" and word:
            state[word] = torch.zeros(draw(st.sampled_from([(0,), (1,), (N + 1,), (2, 2), (N, 1)])))
        elif word:
            state[word] = draw(st.sampled_from([None, "text", 3, [1.0], {}]))
    return state


@pytest.mark.parametrize("name", [name for name in methods.names() if name not in ("vanilla", "mixup", "cutmix")])
@tries(15)
@given(st.data())
def test_a_state_that_does_not_fit_changes_nothing(name: str, data: st.DataObject) -> None:
    method, state = trained(name)
    foreign = data.draw(damaged(state))
    error = None
    try:
        method.load_state_dict(foreign)
    except (ValueError, TypeError, RuntimeError) as caught:  # the last is PyTorch's own for a state that does not fit
        error = caught
    if error is not None:
        assert same(state, state_of(method)), foreign
    method.load_state_dict(state)
    assert same(state, state_of(method))


def test_task_and_batch_without_a_task() -> None:
    net = torch.nn.Linear(1, 1)
    batch = Batch(torch.ones(3, 1), torch.zeros(3), torch.arange(3))
    for step, asked in ((Step(net, batch), "losses"), (Step(net, batch), "logits"), (Step(None, batch), "model")):
        with pytest.raises(TypeError, match=r"the method needs .*use Curriculum\.loss"):
            getattr(step, asked)
    for returned in (None, 3.0, torch.zeros(2), torch.zeros(3, 1)):
        task = Task(lambda net, x: net(x), lambda logits, y, returned=returned: returned)  # type: ignore[misc]
        with pytest.raises(ValueError, match="loss_fn must return one loss per sample"):
            task.losses(net, batch)
