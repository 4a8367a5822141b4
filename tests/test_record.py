"""A record is readable at any moment of a run, without torch, and says what is wrong with a damaged one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from torchcurriculum import APW, Arrays, Curriculum, Previews, Record
from torchcurriculum.record import RecordError


def filled(folder: Path | None = None) -> Record:
    record = Record(11, {"q": 5}, folder=folder)
    record.set_array("labels", np.arange(11))
    for epoch in range(1, 4):
        record.append({"epoch": epoch, "rho": 1 / epoch}, losses=np.full(11, epoch), easy=np.arange(11) < epoch)
    return record


def same(a: Record, b: Record) -> bool:
    histories = all(np.array_equal(a.history(name), b.history(name)) for name in ("losses", "easy"))
    return (
        (a.n, a.meta, a.epochs) == (b.n, b.meta, b.epochs)
        and histories
        and np.array_equal(a.arrays["labels"], b.arrays["labels"])
    )


def test_saved_streamed_and_loaded_are_the_same(tmp_path: Path) -> None:
    streamed = filled(tmp_path / "streamed")
    filled().save(tmp_path / "saved")
    for name in ("streamed", "saved"):
        assert same(Record.load(tmp_path / name), streamed)


def test_half_written_epochs_are_left_out(tmp_path: Path) -> None:
    filled(tmp_path)
    with open(tmp_path / "losses.float32.bin", "ab") as file:
        file.write(b"half")
    with open(tmp_path / "epochs.jsonl", "a") as lines:
        lines.write('{"epoch": 4, "rh')
    assert same(Record.load(tmp_path), filled())
    with open(tmp_path / "easy.bits.bin", "r+b") as file:
        file.truncate(2 * 2)
    assert len(Record.load(tmp_path).epochs) == 2


def test_rewind_forgets_what_came_after(tmp_path: Path) -> None:
    record = filled(tmp_path)
    record.rewind(1)
    record.append({"epoch": 2, "rho": 7.0}, losses=np.zeros(11), easy=np.zeros(11))
    assert Record.load(tmp_path).column("rho").tolist() == [1.0, 7.0]
    assert Record.load(tmp_path).history("losses")[:, 0].tolist() == [1.0, 0.0]


def test_annotations_go_to_the_last_row(tmp_path: Path) -> None:
    record = filled(tmp_path)
    record.annotate(test_acc=0.5)
    record.annotate(test_acc=0.75, note="x" * 500)
    rows = Record.load(tmp_path).epochs
    assert [row.get("test_acc") for row in rows] == [None, None, 0.75]
    assert np.isnan(record.column("test_acc")[:2]).all()
    with pytest.raises(RecordError, match="no epoch to annotate yet"):
        Record(3).annotate(a=1)


def test_damage_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="holds no record"):
        Record.load(tmp_path)
    filled(tmp_path)
    head = json.loads((tmp_path / "record.json").read_text())
    for text, message in [
        ("", "is damaged"),
        ("[1]", "is not a record of this library"),
        ('{"n": -1}', "is not a record"),
        (json.dumps({**head, "format": 99}), "has format 99, and this version reads format 1"),
    ]:
        (tmp_path / "record.json").write_text(text)
        with pytest.raises(RecordError, match=message):
            Record.load(tmp_path)
    (tmp_path / "record.json").write_text(json.dumps(head))
    (tmp_path / "labels.npy").write_bytes(b"\x93NUMPY nonsense")
    with pytest.raises(RecordError, match=r"labels\.npy is damaged"):
        Record.load(tmp_path)


def test_objects_are_never_read_or_written(tmp_path: Path) -> None:
    filled(tmp_path)
    np.save(tmp_path / "labels.npy", np.array([{"a": 1}] * 11, dtype=object), allow_pickle=True)
    with pytest.raises(RecordError, match="Object arrays cannot be loaded"):
        Record.load(tmp_path)
    with pytest.raises(RecordError, match="one number or text"):
        Record(2).set_array("x", np.array([{}, {}], dtype=object))


def test_wrong_lengths_and_names_are_refused() -> None:
    with pytest.raises(RecordError, match=r"one value for each of 3 samples, got \(2,\)"):
        Record(3).append({}, losses=np.zeros(2))
    with pytest.raises(RecordError, match="unknown per-sample history 'loss'; known: losses, easy"):
        Record(3).append({}, loss=np.zeros(3))
    measured = Record(3)
    measured.append({}, losses=np.zeros(3))
    with pytest.raises(RecordError, match="holds no per-sample 'easy'; run with samples=True"):
        measured.history("easy")
    with pytest.raises(RecordError, match="has no complete epoch yet"):
        Record(3).history("easy")


def test_reading_needs_no_torch(tmp_path: Path) -> None:
    """The record of a real run, read by a process that cannot import torch."""
    data = Arrays(torch.arange(33.0).reshape(11, 3).sin(), torch.arange(11) % 2)
    curriculum, model = (
        Curriculum(APW(11, q=4), data, batch_size=4, record=tmp_path, overwrite=True, samples=True),
        nn.Linear(3, 2),
    )
    for _ in range(3):
        for batch in curriculum.epoch(model):
            curriculum.loss(model, batch).backward()
        curriculum.record.annotate(valid_acc=0.5)
    Previews(np.array([0, 1]), texts=["a", "b"]).save(tmp_path)
    code = (
        "import sys; sys.modules['torch'] = None;"
        "import torchcurriculum, torchcurriculum.record; from torchcurriculum import Previews, Record;"
        "from torchcurriculum.record import best_epoch, sinks, summarise;"
        "record = Record.load(sys.argv[1]); sinks.CSV(sys.argv[1] + '/rows.csv').write(record.epochs[0]);"
        "print(len(record.epochs), record.history('losses').shape, best_epoch(record));"
        "print(Previews.load(sys.argv[1]).text(1));"
        "summarise({'m': [record]}); 'Curriculum' in dir(torchcurriculum) or sys.exit('no names')"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == "3 (3, 11) 0\nb\n"
