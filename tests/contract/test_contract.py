"""The contract of ``style.md``, over every row of the table."""

from __future__ import annotations

import io
import itertools
import json
import math
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors

from torchcurriculum import (
    APW,
    Arrays,
    Batch,
    Both,
    Method,
    Mixed,
    Sampled,
    Step,
    SuperLoss,
    Then,
    Vanilla,
    methods,
)

from .every import every_row
from .problem import BATCH, EPOCHS, N, Run, data, differences, method
from .problem import model as make_model
from .row import Row
from .table import TABLE

every = every_row()


def test_every_method_has_a_row() -> None:
    assert {row.name for row in TABLE if row.make is None} == set(methods.names())


@every_row("trains_reason")
def test_it_trains(row: Row) -> None:
    run = Run(method(row), row)
    before = {name: value.clone() for name, value in run.net.state_dict().items()}
    with torch.no_grad():
        at_first = run.curriculum.task.loss_fn(run.net(data().x), data().y).mean()
    run.train(epochs=12)
    with torch.no_grad():
        at_last = run.curriculum.task.loss_fn(run.net(data().x), data().y).mean()
    after = run.net.state_dict()
    assert all(value.isfinite().all() for value in after.values())
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert at_last < at_first
    assert [epoch["epoch"] for epoch in run.curriculum.record.epochs] == list(range(1, 13))


@every
def test_an_epoch_visits_each_planned_row_once(row: Row) -> None:
    run = Run(method(row), row)
    for _ in range(EPOCHS):
        seen = []
        for batch in run.curriculum.epoch(run.net):
            run.curriculum.loss(run.net, batch).backward()
            seen += batch.index.tolist()
        rows = run.curriculum.rows
        planned = list(range(N)) if rows is None else rows.tolist()
        assert sorted(seen) == sorted(planned)


@every
def test_weights_are_finite_not_negative_and_sum_as_promised(row: Row) -> None:
    run = Run(method(row), row)
    made = run.curriculum.method
    sums = {part: _spied(part) for part in made.modules() if isinstance(part, Method)}
    run.train()
    inner = [found for part, found in sums.items() if part is not made]
    assert any(inner or sums.values())
    for part, found in sums.items():
        promised = row.sums if part is made else row.inner_sums or row.sums
        if promised == "one":
            assert found == pytest.approx([1.0] * len(found), abs=1e-12), type(part).__name__
    vector = getattr(made, "weights", None)
    if vector is not None:
        assert vector.shape == (N,)
        assert vector.dtype == torch.float64
        assert vector.sum().item() == pytest.approx(1, abs=1e-12)
        assert (vector >= 0).all()


def _spied(part: Method) -> list[float]:
    """Looks at all weights that a method gives; returns their sums, as they come."""
    sums: list[float] = []
    original = part.weigh

    def spy(step: Step) -> torch.Tensor:
        weights = original(step)
        assert weights.shape == step.index.shape  # not those of the losses, which would be computed to be asked
        assert weights.isfinite().all()
        assert (weights >= 0).all()
        sums.append(weights.sum().item())
        return weights

    part.weigh = spy  # type: ignore[method-assign]
    return sums


def test_the_spy_sees_inner_methods() -> None:
    parts = {"first": Vanilla(), "blur": methods.CBS(0.5), "mixing": APW(N, q=3), "second": SuperLoss()}
    made = Then(parts["first"], 1, Then(Mixed(parts["mixing"]), 1, Both(parts["blur"], parts["second"])))
    sums = {name: _spied(part) for name, part in parts.items()}
    steps = -(-N // BATCH)
    Run(made, TABLE[0]).train(epochs=3)
    assert {name: len(found) for name, found in sums.items()} == {
        "first": steps,
        "blur": 0,  # the planner of Both does not weigh
        "mixing": steps,
        "second": steps,
    }


@every
def test_a_row_has_a_strength_of_zero_or_says_why(row: Row) -> None:
    assert row.zero is not None or row.zero_reason
    assert row.make is None or not isinstance(row.zero, dict)


@every_row("zero_reason")
def test_at_strength_zero_it_is_vanilla_bit_for_bit(row: Row) -> None:
    vanilla = Run(methods.build("vanilla", N, EPOCHS), TABLE[0]).train().net.state_dict()
    still = Run(method(row, zero=True), row).train().net.state_dict()
    assert [name for name, value in vanilla.items() if not torch.equal(value, still[name])] == []


@every
@pytest.mark.parametrize("stop_after", [1, 5, 7, 12])
def test_resuming_from_any_step_is_bit_equal(row: Row, stop_after: int) -> None:
    whole = Run(method(row), row).train()
    stopped = Run(method(row), row).train(stop_after=stop_after).state()
    buffer = io.BytesIO()
    torch.save(stopped, buffer)
    buffer.seek(0)
    state = torch.load(buffer, weights_only=True)
    resumed = Run(method(row), row).load(state).train()
    for name, value in whole.tensors().items():
        assert torch.equal(value, resumed.tensors()[name]), name
    assert _rows(resumed) == _rows(whole)


def _rows(run: Run) -> list[dict[str, object]]:
    return [{k: v for k, v in epoch.items() if k != "seconds"} for epoch in run.curriculum.record.epochs]


@every
def test_state_needs_no_pickle(row: Row) -> None:
    state = Run(method(row), row).train(stop_after=7).curriculum.state_dict()
    tensors = {f"method/{name}": value for name, value in state.pop("method").items()}
    tensors |= {name: state.pop(name) for name in list(state) if isinstance(state[name], torch.Tensor)}
    assert load_safetensors(save_safetensors({k: v.contiguous() for k, v in tensors.items()})).keys() == tensors.keys()
    json.dumps(state)


@every
def test_generators_and_modes_are_left_as_found(row: Row) -> None:
    run = Run(method(row), row)
    run.net.train()
    run.net[1].eval()
    modes = [module.training for module in run.net.modules()]
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    for _ in range(2):
        for batch in run.curriculum.epoch(run.net):
            run.curriculum.loss(run.net, batch).backward()
            assert [module.training for module in run.net.modules()] == modes
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before


@every_row("permutes_reason")
def test_permuting_a_batch_permutes_its_weights(row: Row) -> None:
    order = torch.randperm(BATCH, generator=torch.Generator().manual_seed(1))
    weights = []
    for permutation in (torch.arange(BATCH), order):
        run = Run(method(row), row).train(epochs=2)
        x, y = data().batch(torch.arange(BATCH)[permutation])
        batch = Batch(x, y, torch.arange(BATCH)[permutation], task=run.curriculum.task, epoch=2)
        logits, losses = run.curriculum.task.losses(run.net, batch)
        weights.append(run.curriculum.method.weigh(Step(run.net, batch, logits, losses.detach())))
    torch.testing.assert_close(weights[0][order], weights[1], rtol=1e-12, atol=1e-15)


@every
def test_a_nan_is_refused_by_the_name_of_its_row(row: Row) -> None:
    broken = data()
    broken.x[11] = math.nan
    run = Run(method(row), row, rows=broken)
    with pytest.raises(ValueError, match=r"NaN or infinite, at rows \[.*11.*\]") as caught:
        run.train()
    assert "nan_strategy" in str(caught.value)


@every
def test_a_loss_that_reduces_is_refused(row: Row) -> None:
    run = Run(method(row), row, loss_fn=torch.nn.functional.cross_entropy)
    with pytest.raises(ValueError, match="reduction='none'"):
        run.train()


@every
def test_it_survives_float32_and_bfloat16(row: Row) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        run = Run(method(row), row, rows=Arrays(data().x.to(dtype), data().y))
        run.net.to(dtype)
        run.train(epochs=2)
        assert all(value.isfinite().all() for value in run.net.state_dict().values())


def test_models_agree_and_differences_are_seen() -> None:
    assert differences({"a": torch.ones(1)}, {"a": torch.ones(1)}) == {"a": 0.0}
    assert torch.equal(make_model()[0].weight, make_model()[0].weight)


def test_both_tells_the_weigher_that_rows_are_drawn_by_its_weights() -> None:
    """With I-weighting, weights outside of the batches change only where the epoch says that they must."""

    def grown(wrap: Callable[[Method], Method]) -> tuple[Run, list[torch.Tensor]]:
        apw = APW(N, q=3, threshold=1.1, weighting="I")
        run, seen = Run(Sampled(wrap(apw), fraction=0.1), TABLE[0]), [apw.weights]
        for epoch in range(EPOCHS):
            run.train(epochs=epoch + 1)
            seen.append(apw.weights)
        return run, seen

    run, seen = grown(lambda apw: Both(methods.CBS(interval=1), apw))
    assert run.curriculum.rows is not None  # the set is still growing
    assert all(not torch.equal(one, other) for one, other in itertools.pairwise(seen))
    plain, expected = grown(lambda apw: apw)
    same, found = grown(lambda apw: Both(methods.CBS(interval=1, sigma=0.0), apw))
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert torch.equal(same.curriculum.rows, plain.curriculum.rows)
