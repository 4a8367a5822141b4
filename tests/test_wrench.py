"""The loader of weakly labelled texts: tiny files of the official form, and a sentence for each kind of damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchcurriculum.lab.data import hashed_words, load_wrench, majority_vote

ROW = {"label": 1, "weak_labels": [-1, 1, 0], "data": {"text": "Where is it ?"}}


def write(folder: Path, **parts: Any) -> Path:
    files = {"label": {"0": "HAM", "1": "SPAM"}, "train": {"0": ROW, "1": ROW | {"label": 0}}, "valid": {"0": ROW}}
    for name, content in ({**files, "test": {"0": ROW}} | parts).items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    return folder


def test_reads_the_official_form(tmp_path: Path) -> None:
    parts = load_wrench(write(tmp_path))
    assert {name: len(part.texts) for name, part in parts.items()} == {"train": 2, "valid": 1, "test": 1}
    train = parts["train"]
    assert train.texts[0] == "Where is it ?"
    assert train.names == ["HAM", "SPAM"]
    assert train.labels.tolist() == [1, 0]
    assert train.weak.tolist() == [[-1, 1, 0], [-1, 1, 0]]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"train": "{"}, "train.json is damaged"),
        ({"train": []}, "one JSON object"),
        ({"train": {}}, "one JSON object"),
        ({"label": {"1": "SPAM"}}, r"must name the classes '0', '1', ..., and has \['1'\]"),
        ({"valid": {"7": {"label": 0}}}, "row '7' needs 'label', 'weak_labels' and 'data' with 'text'"),
        ({"valid": {"7": [1]}}, "row '7' needs"),
        ({"test": {"0": ROW | {"label": 2}}}, "row '0' has the label 2; there are 2 classes"),
        ({"test": {"0": ROW | {"label": True}}}, "has the label True"),
        (
            {"test": {"0": ROW | {"weak_labels": [-1, 5]}}},
            r"has the weak labels \[-1, 5\]; a rule must give a class or -1",
        ),
        ({"test": {"0": ROW, "1": ROW | {"weak_labels": [0]}}}, "row '1' has 1 weak labels but those before it 3"),
    ],
)
def test_damage_is_named(parts: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load_wrench(write(tmp_path, **parts))


def test_a_missing_file_says_where_to_get_it(tmp_path: Path) -> None:
    (write(tmp_path) / "test.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"test.json is missing; get the data set from https://"):
        load_wrench(tmp_path)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(st.integers(-1, 3), min_size=4, max_size=4), min_size=1, max_size=6))
def test_the_vote_is_that_of_counting(rows: list[list[int]]) -> None:
    def count(row: list[int]) -> int:
        said = [vote for vote in row if vote >= 0]
        return max(said, key=lambda vote: (said.count(vote), -said.index(vote))) if said else -1

    assert majority_vote(torch.tensor(rows)).tolist() == [count(row) for row in rows]


def test_no_rule_says_nothing() -> None:
    assert majority_vote(torch.zeros(2, 0, dtype=torch.int64)).tolist() == [-1, -1]
    with pytest.raises(ValueError, match=r"shape \(N, R\), got \(3,\)"):
        majority_vote(torch.zeros(3, dtype=torch.int64))


def test_words_are_hashed_with_their_neighbours() -> None:
    one, other = hashed_words(["a b c", "c b a"], size=2**16)
    assert (one > 0).sum() == 5  # three words, two pairs
    assert ((one > 0) & (other > 0)).sum() == 3  # the pairs differ
