"""Texts with real weak labels in the format of the WRENCH benchmark: heuristic rules' outputs and true labels."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

__all__ = ["WeakTexts", "hashed_words", "load_wrench", "majority_vote"]

ADDRESS = "https://github.com/JieyuZ2/wrench"
PARTS = ("train", "valid", "test")
WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class WeakTexts:
    """A part of a data set.

    Attributes:
        texts: N texts.
        weak: (N, R) int64: the label from each of R rules, -1 if it abstains.
        labels: (N,) int64: the true labels.
        names: The names of the classes.
    """

    texts: list[str]
    weak: Tensor
    labels: Tensor
    names: list[str]


def load_wrench(folder: str | Path) -> dict[str, WeakTexts]:
    """A text data set of WRENCH from its official files.

    Args:
        folder: Holds ``label.json``, ``train.json``, ``valid.json`` and ``test.json``.

    Returns:
        ``{"train": ..., "valid": ..., "test": ...}``.

    Raises:
        FileNotFoundError: With the address to get it from.
        ValueError: If a file is damaged or has another format, with the position.

    Reference:
        Zhang et al., WRENCH: A Comprehensive Benchmark for Weak Supervision, NeurIPS 2021.
    """
    folder = Path(folder)
    names = _read(folder / "label.json")
    if not names or set(names) != {str(number) for number in range(len(names))}:
        raise ValueError(f"{folder / 'label.json'} must name the classes '0', '1', ..., and has {_short(list(names))}")
    classes = [str(names[str(number)]) for number in range(len(names))]
    return {part: _part(folder / f"{part}.json", classes) for part in PARTS}


def majority_vote(weak: Tensor) -> Tensor:
    """The label of most rules; in a tie, that of the first rule; -1 if all abstain.

    Args:
        weak: (N, R) labels, -1 if a rule abstains.

    Returns:
        (N,) int64.

    Example:
        >>> majority_vote(torch.tensor([[-1, 2, 0, 2], [1, 0, -1, -1], [-1, -1, -1, -1]]))
        tensor([ 2,  1, -1])
    """
    if weak.ndim != 2:
        raise ValueError(f"weak labels must be of shape (N, R), got {tuple(weak.shape)}")
    if not weak.shape[1]:
        return weak.new_full((len(weak),), -1)
    spoken = weak >= 0
    votes = weak.new_zeros(len(weak), int(weak.max().clamp_min(0)) + 1)
    votes.scatter_add_(1, weak.clamp_min(0), spoken.long())
    mine = votes.gather(1, weak.clamp_min(0)).where(spoken, 0)
    first = mine.argmax(1, keepdim=True)
    return torch.where(spoken.any(1), weak.gather(1, first)[:, 0], -1)


def hashed_words(texts: Sequence[str], size: int = 4096) -> Tensor:
    """(N, size) a bag of words and pairs of words: each adds one at the position of its checksum; rows have unit
    length.

    The same text gives the same row on every machine; nothing is fitted.

    Args:
        texts: N texts.
        size: Number of positions; words may collide.

    Example:
        >>> rows = hashed_words(["What is this ?", "what IS this?", ""], size=64)
        >>> bool((rows[0] == rows[1]).all()), round(rows[0].norm().item(), 4), rows[2].sum().item()
        (True, 1.0, 0.0)
    """
    rows = torch.zeros(len(texts), size)
    for row, text in zip(rows, texts, strict=True):
        words = WORD.findall(text.lower())
        for token in [*words, *map(" ".join, pairwise(words))]:
            row[zlib.crc32(token.encode()) % size] += 1
    return rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)


def _part(path: Path, names: list[str]) -> WeakTexts:
    rows = _read(path)
    texts, weak, labels = list[str](), list[list[int]](), list[int]()
    for key, row in rows.items():
        try:
            text, votes, label = row["data"]["text"], row["weak_labels"], row["label"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path}: row {key!r} needs 'label', 'weak_labels' and 'data' with 'text'") from error
        classes = range(len(names))
        if type(label) is not int or label not in classes or type(text) is not str:
            raise ValueError(f"{path}: row {key!r} has the label {_short(label)}; there are {len(names)} classes")
        if type(votes) is not list or not all(type(vote) is int and (vote in classes or vote == -1) for vote in votes):
            raise ValueError(f"{path}: row {key!r} has the weak labels {_short(votes)}; a rule must give a class or -1")
        if weak and len(votes) != len(weak[0]):
            raise ValueError(f"{path}: row {key!r} has {len(votes)} weak labels but those before it {len(weak[0])}")
        texts.append(text)
        weak.append(votes)
        labels.append(label)
    return WeakTexts(texts, torch.tensor(weak, dtype=torch.int64), torch.tensor(labels, dtype=torch.int64), names)


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; get the data set from {ADDRESS}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}; get the data set again from {ADDRESS}") from error
    if not isinstance(content, dict) or not content:
        raise ValueError(f"{path} must hold one JSON object with a row for each text")
    return content


def _short(value: Any) -> str:
    return repr(value)[:60]
