"""Difficulties without a model, as ``scores=`` of the paced methods: length, rarity, a column, a function of a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["lengths", "rarities", "row_scores"]


def lengths(sequences: Iterable[Any], padding: Any = None) -> Tensor:
    """(N,) the number of tokens of each sequence.

    Args:
        sequences: Texts, which are split at white space, or sequences of tokens (lists or tensors of numbers).
        padding: A token that does not count.

    Example:
        >>> lengths(["a cat", "the cat sat down"])
        tensor([2., 4.], dtype=torch.float64)
    """
    return torch.tensor([float(len(tokens)) for tokens in _tokens(sequences, padding)], dtype=torch.float64)


def rarities(sequences: Iterable[Any], padding: Any = None) -> Tensor:
    r"""(N,) :math:`-\sum_j \log \hat p(w_j)` over the tokens of a sequence, p their share of all tokens of the set.

    Rare words and length make a sequence difficult.

    Args:
        sequences: As for ``lengths``.
        padding: A token that does not count.

    Example:
        >>> rarities(["a b", "a a"])   # p(a) = 3/4, p(b) = 1/4
        tensor([1.6740, 0.5754], dtype=torch.float64)

    Reference:
        Platanios et al., Competence-based Curriculum Learning for Neural Machine Translation, NAACL 2019.
    """
    split = list(_tokens(sequences, padding))
    counts = Counter(token for tokens in split for token in tokens)
    tokens = list(counts)
    shares = torch.tensor([counts[token] for token in tokens], dtype=torch.float64) / max(1, counts.total())
    cost = dict(zip(tokens, (-shares.log()).tolist(), strict=True))
    return torch.tensor([sum(cost[token] for token in tokens) for tokens in split], dtype=torch.float64)


def row_scores(train_set: Any, score: str | Callable[[Any], Any]) -> Tensor:
    """(N,) a number for each row of a data set, read in order.

    Args:
        train_set: A map-style data set.
        score: The name of a column, for rows that are mappings, or ``score(row) -> number``.

    Example:
        >>> rows = [{"x": 1.0, "age": 3}, {"x": 2.0, "age": 1}]
        >>> row_scores(rows, "age"), row_scores(rows, lambda row: -row["x"])
        (tensor([3., 1.], dtype=torch.float64), tensor([-1., -2.], dtype=torch.float64))
    """
    values = []
    for number in range(len(train_set)):
        row = train_set[number]
        if not callable(score) and (not isinstance(row, Mapping) or score not in row):
            has = f"columns {list(row)}" if isinstance(row, Mapping) else f"no columns but is a {type(row).__name__}"
            raise ValueError(f"row {number} has no column {score!r}: it has {has}; pass a function of the row instead")
        value = score(row) if callable(score) else row[score]
        try:
            values.append(float(value))
        except (TypeError, ValueError) as error:
            raise ValueError(f"the score of row {number} must be a number, got {value!r:.60}") from error
    return torch.tensor(values, dtype=torch.float64)


def _tokens(sequences: Iterable[Any], padding: Any) -> Iterable[list[Any]]:
    if isinstance(sequences, str):
        raise ValueError("sequences must be a list of texts or of sequences of tokens, got one text; put it in a list")
    for number, sequence in enumerate(sequences):
        tokens = sequence.split() if isinstance(sequence, str) else sequence
        tokens = tokens.tolist() if isinstance(tokens, Tensor) else tokens
        if not hasattr(tokens, "__iter__"):
            raise ValueError(f"row {number} must be a text or a sequence of tokens, got {sequence!r:.60}")
        yield [token for token in tokens if padding is None or token != padding]
