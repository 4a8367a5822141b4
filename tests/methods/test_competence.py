"""Competence-based curriculum: the paper's competence and CDF, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from torchcurriculum.methods import Competence

from .pacing import epoch, unmeasured


def test_the_square_root_competence_of_the_paper() -> None:
    # c(t) = min(1, sqrt(t (1 - c0^2) / T + c0^2)) with c0 = 0.01 and T = 10, of 1000 rows of different difficulty.
    method = Competence(1000, grow=10, scores=torch.randperm(1000, generator=torch.Generator().manual_seed(0)))
    for t, expected in ((0, 0.01), (1, 0.316370037769), (5, 0.707142136), (9, 0.9486885)):
        rows = method.plan(unmeasured(t + 1, 1000))
        assert float(method.share) == pytest.approx(expected, abs=1e-7)
        assert len(rows) == math.floor(1000 * expected + 1e-9)
        assert method.scores[rows].max() < method.scores[torch.ones(1000).index_fill(0, rows, 0).bool()].min()
    assert method.plan(unmeasured(11, 1000)) is None


def test_rows_of_the_same_difficulty_come_together() -> None:
    # Lengths 1, 1, 2, 2, 2, 5, 9, 9: CDF 2/8, 5/8, 6/8, 1.
    lengths = [9, 1, 2, 2, 5, 1, 2, 9]
    method = Competence(8, grow=8, start=0.0, p=1, scores=lengths)
    taken = [method.plan(unmeasured(t + 1, 8)) for t in range(9)]
    easiest, short, middle = [1, 5], [1, 2, 3, 5, 6], [1, 2, 3, 4, 5, 6]
    expected = [easiest, easiest, easiest, easiest, easiest, short, middle, middle, None]
    assert [None if rows is None else rows.tolist() for rows in taken] == expected
    method.plan(unmeasured(6, 8))
    assert method.report()["age"] == 5 / 8
    assert method.weights.tolist() == [0, 0.2, 0.2, 0.2, 0, 0.2, 0.2, 0]


def test_without_scores_it_measures_once() -> None:
    method = Competence.for_run(4, 8)
    assert method.plan(unmeasured(1, 4)) is None
    assert method.plan(epoch(2, [3.0, 1.0, 2.0, 4.0])).tolist() == [1]
    assert method.plan(unmeasured(3, 4)).tolist() == [1, 2]  # sqrt(1/4) of the rows


def test_bad_knobs_are_refused() -> None:
    for options, words in (
        ({"start": 1.5}, "start is a share"),
        ({"p": 0.0}, "root p"),
        ({"scores": [1.0]}, "scores must have one value"),
    ):
        with pytest.raises(ValueError, match=words):
            Competence(**{"n": 4, "grow": 2, **options})
