"""Difficulties without a model, and pacing by steps."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from torchcurriculum import Epoch, methods
from torchcurriculum.data import lengths, rarities, row_scores


def test_lengths_and_rarities_by_hand() -> None:
    # Tokens: a a a b c c: p = 1/2, 1/6, 1/3. Of "a b": log 2 + log 6; of "a a c": 2 log 2 + log 3; of "c": log 3.
    texts = ["a b", "a a c", "c"]
    assert lengths(texts).tolist() == [2, 3, 1]
    expected = [math.log(2) + math.log(6), 2 * math.log(2) + math.log(3), math.log(3)]
    assert rarities(texts).tolist() == pytest.approx(expected, rel=1e-14)
    numbers = [torch.tensor([5, 7, 0]), torch.tensor([5, 5, 9]), torch.tensor([9, 0, 0])]
    assert lengths(numbers, padding=0).tolist() == [2, 3, 1]
    assert rarities(numbers, padding=0).tolist() == pytest.approx(expected, rel=1e-14)
    assert rarities([""]).tolist() == [0.0]


def test_a_column_or_a_function_of_a_row() -> None:
    rows = [{"text": "a", "age": torch.tensor(3)}, {"text": "b c", "age": 1.5}]
    assert row_scores(rows, "age").tolist() == [3.0, 1.5]
    assert row_scores([(torch.ones(2), 0), (torch.zeros(2), 1)], lambda row: row[0].sum()).tolist() == [2.0, 0.0]
    method = methods.LambdaStep(2, grow=2, start=0.5, scores=row_scores(rows, "age"))
    assert method.plan(Epoch(1, 2, torch.zeros(2), lambda: torch.zeros(2))).tolist() == [1]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: row_scores([{"a": 1}], "b"), r"row 0 has no column 'b': it has columns \['a'\]"),
        (lambda: row_scores([(1, 2)], "b"), "no columns but is a tuple; pass a function of the row"),
        (lambda: row_scores([{"a": "x"}], "a"), "the score of row 0 must be a number, got 'x'"),
        (lambda: lengths("a text"), "got one text; put it in a list"),
        (lambda: lengths([3]), "row 0 must be a text or a sequence of tokens, got 3"),
    ],
)
def test_what_has_no_score_is_named(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def plans(method: Any, n: int, epochs: int) -> list[int]:
    losses = torch.arange(float(n))
    made = [method.plan(Epoch(k, n, losses, lambda: losses)) for k in range(1, epochs + 1)]
    return [n if rows is None else len(rows) for rows in made]


def test_pacing_by_steps_by_hand() -> None:
    # 100 rows, batches of 10, linear from 0.1 to 1 over 20 steps: 0.1 + 0.045 t. Epochs begin at steps 0, 1, 3, 6, 10,
    # 16 and 25: shares 0.1, 0.145, 0.235, 0.37, 0.55, 0.82, 1, of which each takes 1, 2, 3, 4, 6, 9 steps.
    method = methods.LambdaStep(100, grow=20, start=0.1, scores=torch.arange(100), batch_size=10)
    assert plans(method, 100, 8) == [10, 14, 23, 37, 55, 82, 100, 100]
    assert int(method.steps) == 1 + 2 + 3 + 4 + 6 + 9 + 10 + 10


def test_the_warm_up_does_not_count() -> None:
    method = methods.SPL(100, grow=20, start=0.1, warmup=2, batch_size=10)
    assert plans(method, 100, 4) == [100, 100, 10, 14]


@pytest.mark.parametrize("name", ["spl", "spld", "spcl", "ttcl", "baby-step", "lambda-step"])
def test_every_paced_method_counts_steps(name: str) -> None:
    options = {"groups": torch.arange(60) % 3} if name == "spld" else {}
    method = methods.build(name, 60, 10, batch_size=6, **options)
    sizes = plans(method, 60, 40)
    assert sizes[-1] == 60  # half of the run of ten epochs is 50 steps
    by_epochs = plans(methods.build(name, 60, 10, **options), 60, 40)
    assert sizes.index(60, 1) != by_epochs.index(60, 1) or sizes != by_epochs


def test_a_batch_of_no_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_size must be a whole number, at least 1, got 0"):
        methods.LambdaStep(100, grow=20, batch_size=0)
