"""Selective-Backprop: its authors' probabilities, drawn as often as they say."""

from __future__ import annotations

import math

import pytest
import torch

from torchcurriculum import Batch, Step
from torchcurriculum.functional.selection import percentile, row_uniform, selection_probability
from torchcurriculum.methods import SelectiveBackprop

from .pacing import epoch, unmeasured

# UnboundedHistogram(5) of angelajiang/SelectiveBackprop (lib/hist.py) with prob_pow = 3, both batches appended before
# they are asked for.
BATCHES = [[0.3, 0.1, 0.7, 0.2], [0.15, 0.9, 0.2]]
AUTHORS = [[0.125, 0.0, 0.421875, 0.015625], [0.0, 0.512, 0.008]]


def test_probabilities_are_the_authors() -> None:
    history, known = torch.full((5,), math.inf), 0
    for batch, expected in zip(BATCHES, AUTHORS, strict=True):
        losses = torch.tensor(batch)
        history, known = torch.cat([history, losses])[-5:], min(5, known + len(batch))
        found = selection_probability(percentile(losses, history, known), 3)
        assert found.tolist() == pytest.approx(expected, abs=1e-12)


def step(losses: list[float], first: int = 0, number: int = 2) -> Step:
    index = torch.arange(first, first + len(losses))
    return Step(None, Batch(None, None, index, epoch=number), None, torch.tensor(losses))


def test_rows_are_drawn_with_these_probabilities() -> None:
    drawn = [torch.zeros(len(batch)) for batch in BATCHES]
    for seed in range(600):
        method = SelectiveBackprop(7, beta=3, history=5)
        method.plan(epoch(2, [1.0] * 7, seed))
        for number, batch in enumerate(BATCHES):
            weights = method.weigh(step(batch, 4 * number))
            assert weights.sum().item() == pytest.approx(float(bool(weights.any())))
            drawn[number] += weights > 0
    for found, expected in zip(drawn, AUTHORS, strict=True):  # four standard errors are 0.08
        torch.testing.assert_close(found / 600, torch.tensor(expected), atol=0.08, rtol=0)


def test_everything_in_the_warm_up_which_the_history_does_not_know() -> None:
    method = SelectiveBackprop(4, warmup=1)
    assert method.plan(unmeasured(1, 4)) is None
    assert method.weigh(step([1.0, 2.0, 3.0, 4.0], number=1)).tolist() == [0.25] * 4
    assert int(method.known) == 0
    assert method.report() == {"chosen": 0.0}


def test_an_epoch_is_drawn_by_the_place_among_all_rows() -> None:
    losses, kept = torch.linspace(0, 1, 2001).tolist(), torch.zeros(2001)
    for seed in range(50):
        kept[SelectiveBackprop(2001, beta=2, scope="epoch").plan(epoch(2, losses, seed))] += 1
    assert kept[0] == 0, "the lowest loss has probability zero"
    assert kept.mean() / 50 == pytest.approx(1 / 3, abs=0.01), "the mean of u^2"
    assert kept[1000:1100].mean() / 50 == pytest.approx(0.525**2, abs=0.03)
    alone = SelectiveBackprop(1, scope="epoch")
    assert alone.plan(epoch(2, [0.5])) is None, "an epoch needs a row"


def test_the_draw_depends_on_the_row_alone() -> None:
    rows, order = torch.arange(1000), torch.randperm(1000, generator=torch.Generator().manual_seed(0))
    assert torch.equal(row_uniform(rows, 5)[order], row_uniform(rows[order], 5))
    assert not torch.equal(row_uniform(rows, 5), row_uniform(rows, 6))
    # splitmix64 from the state 7, worked in whole numbers: its first three outputs over 2^64.
    expected = [0.389829748391, 0.016788294528, 0.900760680607]
    assert row_uniform(torch.arange(3), 7).tolist() == pytest.approx(expected, abs=1e-11)


def test_bad_knobs_are_refused() -> None:
    for options, words in (
        ({"beta": -1.0}, "beta must be a number in"),
        ({"history": 0}, "history must be a number of losses, at least 1, got 0"),
        ({"scope": "run"}, "scope must be"),
    ):
        with pytest.raises(ValueError, match=words):
            SelectiveBackprop(**{"n": 4, **options})
