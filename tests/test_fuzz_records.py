"""Damaged records: each is read as far as it is whole, or refused with a sentence, by all that reads records.

``FUZZ=20 python -m pytest tests/test_fuzz_records.py`` tries twenty times as many, others in each run.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchcurriculum import APW, Arrays, Curriculum, Record, theory
from torchcurriculum.audit import audit
from torchcurriculum.record import RecordError
from torchcurriculum.report import write_report
from torchcurriculum.report.series import data_map
from torchcurriculum.report.theory_panel import _row

from .contract.problem import data, model
from .test_fuzz import judged, numbers, tries

N = 9
FILES = [
    "clean.npy",
    "easy.bits.bin",
    "epochs.jsonl",
    "labels.npy",
    "losses.float32.bin",
    "mean_probabilities.npy",
    "predicted.npy",
    "record.json",
]
Spoil = Callable[[Path, st.DataObject], None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of real training, with everything that a record can hold."""
    images, place, net = data(), tmp_path_factory.mktemp("fuzz") / "whole", model()
    record = Record(N, {"q": 3, "method": "APW"}, place)
    train_set = Arrays(images.x[:N], images.y[:N])
    curriculum = Curriculum(APW(N, q=3), train_set, batch_size=4, record=record, overwrite=True, samples=True)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for epoch in range(5):
        for batch in curriculum.epoch(net):
            optimizer.zero_grad()
            curriculum.loss(net, batch).backward()
            optimizer.step()
        record.annotate(valid_acc=0.5 + epoch / 10, test_acc=0.4 + epoch / 10, test_eprop=0.3)
    for word in ("labels", "clean", "predicted"):
        record.set_array(word, (images.y[:N] if word == "labels" else images.y[1 : N + 1]).numpy())
    record.set_array("mean_probabilities", torch.rand(N, 10, generator=torch.Generator().manual_seed(0)).numpy())
    return place


def copy_of(folder: Path) -> Path:
    place = folder.parent / "copy"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place)
    return place


def consistent(record: Record) -> None:
    assert record.n >= 1
    assert isinstance(record.meta, dict)
    assert all(isinstance(row, dict) for row in record.epochs)
    for word in ("losses", "easy"):
        if record.epochs and record.has(word):
            assert record.history(word).shape == (len(record.epochs), record.n)
    assert all(len(values) == record.n for values in record.arrays.values())


def page(record: Record) -> None:
    assert record is not None
    write_report({"apw-e": [record], "vanilla": [record, record]}, "page.html", title="Damaged")


def suspects(record: Record) -> None:
    audit(record).rows(3)


READERS = (theory.summary, theory.weights, suspects)


def read_all(place: Path, readers: tuple[Callable[[Record], Any], ...] = READERS) -> None:
    """Loads a folder and does with it what the library can: fine, or a RecordError; something is always salvaged."""
    with judged() as outcome:
        salvaged, problems = Record.salvage(place)
        if salvaged is not None:
            consistent(salvaged)
        assert salvaged is not None or problems
    assert outcome.error is None, repr(outcome.error)
    with judged() as outcome:
        record = Record.load(place)
    if outcome.error is not None:
        assert isinstance(outcome.error, RecordError), repr(outcome.error)
        assert str(place) in str(outcome.error)
        return
    consistent(record)
    for use in readers:
        with judged() as outcome:
            use(record)
        assert outcome.error is None or isinstance(outcome.error, RecordError), repr(outcome.error)


def test_the_whole_record_is_read_by_all(folder: Path) -> None:
    """Otherwise the tests below would prove nothing."""
    record = Record.load(folder)
    consistent(record)
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert theory.summary(record)["epochs"] == len(record.epochs) == 5
    assert len(audit(record).rows(3)) == 3
    assert set(record.arrays) == {"labels", "clean", "predicted", "mean_probabilities"}
    assert Record.salvage(folder)[1] == []


# ---------------------------------------------------------------------- bytes


def spoil_bytes(place: Path, data: st.DataObject) -> None:
    """Flips, cuts, inserts, deletes, empties, removes, or puts a folder in the place of a file."""
    for _ in range(data.draw(st.integers(1, 3))):
        path = place / data.draw(st.sampled_from(FILES))
        if not path.is_file():
            continue
        content = bytearray(path.read_bytes())
        where = data.draw(st.integers(0, max(0, len(content) - 1)))
        how = data.draw(st.sampled_from(["flip", "flip", "cut", "insert", "delete", "empty", "gone", "folder"]))
        if how == "flip" and content:
            content[where] ^= 1 << data.draw(st.integers(0, 7))
        elif how == "cut":
            del content[where:]
        elif how == "insert":
            content[where:where] = data.draw(st.binary(min_size=1, max_size=40))
        elif how == "delete":
            del content[where : where + data.draw(st.integers(1, 64))]
        elif how == "empty":
            content.clear()
        path.unlink()
        if how == "folder":
            path.mkdir()
        elif how != "gone":
            path.write_bytes(content)


@tries(200)
@given(st.data())
def test_damaged_bytes(folder: Path, data: st.DataObject) -> None:
    place = copy_of(folder)
    spoil_bytes(place, data)
    read_all(place)


# ---------------------------------------------------------------------- values

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
anything = st.recursive(
    leaves | st.sampled_from([10**400, 1e308, 1e-320, [1.0] * 7, [math.nan] * 7]),
    lambda inner: st.lists(inner, max_size=7) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def spoil_values(place: Path, data: st.DataObject) -> None:
    """Puts any JSON value in the place of one of the head, of the meta data, of a row, or of a whole line."""
    head = json.loads((place / "record.json").read_text())
    rows = [json.loads(line) for line in (place / "epochs.jsonl").read_text().splitlines()]
    target = data.draw(st.sampled_from(["all", "head", "meta", "line", "row", "row", "row", "row"]))
    if target == "all":
        head = data.draw(anything)
    elif target == "head":
        head[data.draw(st.sampled_from(sorted(head)))] = data.draw(anything)
    elif target == "meta":
        head["meta"][data.draw(st.sampled_from(["q", "method", "seed"]))] = data.draw(anything)
    elif target == "line":
        rows[data.draw(st.integers(0, 4))] = data.draw(anything)
    else:
        for _ in range(data.draw(st.integers(1, 3))):
            row = rows[data.draw(st.integers(0, 4))]
            row[data.draw(st.sampled_from(sorted(row)))] = data.draw(anything | numbers)
    (place / "record.json").write_text(json.dumps(head))
    (place / "epochs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@tries(200)
@given(st.data())
def test_json_that_holds_anything(folder: Path, data: st.DataObject) -> None:
    place = copy_of(folder)
    spoil_values(place, data)
    read_all(place)


@pytest.mark.parametrize("spoil", [spoil_bytes, spoil_values], ids=lambda spoil: spoil.__name__)
@tries(10)
@given(st.data())
def test_a_report_of_what_is_left(folder: Path, spoil: Spoil, data: st.DataObject) -> None:
    place = copy_of(folder)
    spoil(place, data)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder.parent)
        read_all(place, (page,))


# ---------------------------------------------------------------------- what the fuzzers found, each by itself


def row_with(place: Path, **values: Any) -> None:
    """Values for the row of the third epoch."""
    rows = [json.loads(line) for line in (place / "epochs.jsonl").read_text().splitlines()]
    rows[2].update(values)
    (place / "epochs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("value", ["x", [1, 2], {}, 10**400, 1e308, -1e308, math.nan, math.inf], ids=repr)
@pytest.mark.parametrize("word", ["rho", "alpha", "z", "threshold"])
def test_a_scalar_that_is_none_is_named(folder: Path, word: str, value: Any) -> None:
    place = copy_of(folder)
    row_with(place, **{word: value})
    with pytest.raises(RecordError, match=rf"epoch 3 of .* has {word} = |alpha is not log|give|its e goes from"):
        theory.summary(Record.load(place))


@pytest.mark.parametrize("value", ["abc", {}, [2], 10**400, -1], ids=repr)
def test_a_strength_that_is_none_is_named(folder: Path, value: Any) -> None:
    record = Record.load(folder)
    for row in record.epochs:
        row["q"] = value
    with pytest.raises(RecordError, match=r"q must be a number of at least 2, got |need q >= 2, got"):
        theory.summary(record)


@pytest.mark.parametrize("value", [1e-50, 1e-320])
def test_a_threshold_below_float32_is_no_division_by_zero(folder: Path, value: float) -> None:
    place = copy_of(folder)
    record = Record.load(place)
    for row in record.epochs:
        row["threshold"] = value
    assert theory.summary(record)["theorem_1"]["bound"] is None  # infinite


@pytest.mark.parametrize("value", [3, "1234567", [1] * 6, ["x"] * 7, [1e300] * 7, [-1.0] * 7, [math.nan] * 7], ids=repr)
def test_quantiles_that_are_none_are_left_out_of_the_report(folder: Path, value: Any, tmp_path: Path) -> None:
    place = copy_of(folder)
    row_with(place, weight_quantiles=value)
    write_report({"apw-e": [Record.load(place)]}, tmp_path / "page.html", title="x")
    assert "quantiles of the weights" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    "line", [b'{"a": \xff}', b"{", b"", b"[" * 100_000, b"\0" * 8], ids=["bytes", "half", "", "deep", "0"]
)
def test_a_broken_line_before_others_is_named(folder: Path, line: bytes) -> None:
    place = copy_of(folder)
    lines = (place / "epochs.jsonl").read_bytes().split(b"\n")
    (place / "epochs.jsonl").write_bytes(b"\n".join([*lines[:2], line, *lines[3:]]))
    with pytest.raises(RecordError, match=r"epochs\.jsonl is damaged in line 3"):
        Record.load(place)
    (place / "epochs.jsonl").write_bytes(b"\n".join([*lines[:2], line]))  # the last, and without an end: killed there
    assert len(Record.load(place).epochs) == 2


@pytest.mark.parametrize(
    "head", ['{"format": 1, "n": true}', '{"format": 1, "n": 0}', '{"format": 1, "n": 9, "meta": 3}', "[" * 100_000]
)
def test_a_head_that_is_none_is_named(folder: Path, head: str) -> None:
    place = copy_of(folder)
    (place / "record.json").write_text(head)
    with pytest.raises(RecordError, match=r"record\.json is (damaged|not a record)"):
        Record.load(place)


def test_a_record_that_claims_too_many_rows(folder: Path) -> None:
    """No memory is asked for before the arrays are there."""
    place = copy_of(folder)
    for path in (*place.glob("*.npy"), *place.glob("*.bin")):
        path.unlink()
    (place / "record.json").write_text('{"format": 1, "n": 1000000000000000000, "meta": {"q": 3}}')
    record = Record.load(place)
    for use in READERS:
        with pytest.raises(RecordError, match="; run with samples=True|trained on 9 of 1000000"):
            use(record)


KINDS = {
    "rows": np.zeros((N, 2)),
    "scalar": np.array(3),
    "text": np.array(["x"] * N),
    "complex": np.full(N, 1j),
    "dates": np.zeros(N, "M8[s]"),
    "empty": np.zeros(0),
    "fields": np.zeros(N, [("a", int)]),
    "nan": np.full(N, np.nan),
    "flat": np.zeros((N, 0)),
}


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("word", ["labels", "clean", "predicted"])
def test_arrays_of_other_shapes_and_kinds(folder: Path, word: str, kind: str) -> None:
    place = copy_of(folder)
    np.save(place / f"{word}.npy", KINDS[kind])
    read_all(place)
    if kind in ("scalar", "complex", "dates", "empty", "fields"):
        with pytest.raises(RecordError, match=f"{word}.npy is damaged: '{word}' must hold one number or text"):
            Record.load(place)
    if kind in ("rows", "flat"):
        with pytest.raises(RecordError, match=f"'{word}' must hold one label for each of 9 samples"):
            audit(Record.load(place))


def test_an_archive_in_the_place_of_an_array(folder: Path) -> None:
    place = copy_of(folder)
    for content in (b"PK\x03\x04", b"PK\x05\x06" + bytes(18)):
        (place / "labels.npy").write_bytes(content)
        with pytest.raises(RecordError, match=r"labels\.npy is damaged"):
            Record.load(place)


def test_an_infinite_bound_of_a_theorem_warns_of_nothing() -> None:
    left, right = np.array([0.5, 0.5]), np.array([0.7, math.inf])
    with np.errstate(all="raise"):
        assert _row(left, right, "<") == ["0.5", "<", "inf", "2 of 2"]
        assert _row(left, right, "≥") == ["0.5", "≥", "inf", "0 of 2"]


def test_a_signalling_nan_in_the_losses_warns_of_nothing() -> None:
    record = Record(3)
    losses = np.array([0.5, 1.5, 0.0], dtype=np.float32)
    losses.view(np.uint32)[2] = 0x7FAAB608  # a NaN that raises the processor's flag when it is cast
    for _ in range(2):
        record.append({}, losses=losses, easy=np.array([True, False, False]))
    with np.errstate(all="raise"):
        found = data_map(record)
    assert found.mean.tolist() == [0.5, 1.5]
    assert found.std.tolist() == [0.0, 0.0]
