"""Folders of records that somebody prepared: never a hang, a path outside, or all of the memory."""

from __future__ import annotations

import errno
import json
import os
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from torchcurriculum import Record
from torchcurriculum.audit import audit, export
from torchcurriculum.cli import main
from torchcurriculum.record import Previews, RecordError
from torchcurriculum.record.sinks import CSV
from torchcurriculum.report import write_report


def filled(folder: Path, classes: tuple[str, str] = ("cat", "dog")) -> Record:
    record = Record(4, {"seed": 0, "method": "vanilla", "classes": list(classes)}, folder)
    record.set_array("labels", np.array([0, 1, 0, 1]))
    record.set_array("predicted", np.array([1, 1, 0, 0]))
    record.append({"epoch": 1, "test_acc": 0.5}, losses=np.array([0.1, 2.0, 0.3, 0.4]), easy=np.array([1, 0, 1, 1]))
    return record


@pytest.mark.parametrize("name", ["rows.npy", "pictures.npy", "texts.json"])
def test_a_pipe_in_the_place_of_previews_is_refused(tmp_path: Path, name: str) -> None:
    record = filled(tmp_path)
    Previews(np.array([0]), np.zeros((1, 4, 4), np.uint8), ["a"]).save(tmp_path)
    (tmp_path / "previews" / name).unlink()
    os.mkfifo(tmp_path / "previews" / name)
    with pytest.raises(ValueError, match=f"{name} is not a regular file"):
        Previews.load(tmp_path)
    write_report({"vanilla": [record]}, tmp_path / "page.html", title="x")
    assert "is not a regular file" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("name", ["record.json", "epochs.jsonl", "labels.npy", "losses.float32.bin"])
def test_a_pipe_in_the_place_of_a_record_s_file_does_not_hang(tmp_path: Path, name: str) -> None:
    filled(tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    record, problems = Record.salvage(tmp_path)
    assert record is not None or problems


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "a/b", "", ".", "..", "..\\x", "a\0b", ".hidden", "n" * 300])
def test_an_array_stays_in_its_folder(tmp_path: Path, name: str) -> None:
    record = Record(2, {}, tmp_path / "record")
    with pytest.raises(RecordError, match="cannot name an array"):
        record.set_array(name, np.array([0, 1]))
    assert name not in record.arrays
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["record", "record.json"]


def test_a_table_of_epochs_that_is_not_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/full"), tmp_path):
        with pytest.raises(ValueError, match="is not a regular file"):
            CSV(path)


# ---------------------------------------------------------------------- size


def huge(folder: Path, rows: int, epochs: int) -> Path:
    """A record that takes no space on the disk."""
    folder.mkdir()
    (folder / "record.json").write_text(json.dumps({"format": 1, "n": rows, "meta": {"method": "apw-e", "seed": 0}}))
    lines = [{"epoch": k, "rho": 0.5, "test_acc": 0.5, "valid_acc": 0.5} for k in range(1, epochs + 1)]
    (folder / "epochs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, width in {"losses.float32.bin": 4 * rows, "easy.bits.bin": -(-rows // 8)}.items():
        with open(folder / name, "wb") as file:
            file.truncate(epochs * width)
    with open(folder / "labels.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<i8", "fortran_order": False, "shape": (rows,)})
        file.truncate(file.tell() + 8 * rows)
    return folder


@pytest.mark.parametrize(("rows", "epochs"), [(10**8, 3), (10**6, 2000)])
def test_a_report_of_a_huge_record_takes_little_memory(
    tmp_path: Path, rows: int, epochs: int, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = huge(tmp_path / "run", rows, epochs)
    for command in (["report", str(folder), "--out", str(tmp_path / "page.html")], ["compare", str(folder)]):
        tracemalloc.start()
        assert main(command) == 0
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 200e6
    assert f"holds {rows:,} rows and {epochs:,} epochs" in capsys.readouterr().err
    page = (tmp_path / "page.html").read_text()
    assert "so its samples are not shown" in page
    assert "Test accuracy over epochs" in page


@pytest.mark.parametrize(("rows", "epochs"), [(10**8, 3), (10**6, 2000)])
def test_an_audit_of_a_huge_record_is_refused_with_a_sentence(
    tmp_path: Path, rows: int, epochs: int, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = huge(tmp_path / "run", rows, epochs)
    tracemalloc.start()
    assert main(["audit", str(folder)]) == 2
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6
    said = capsys.readouterr().err
    assert f"{folder} holds {rows:,} rows and {epochs:,} epochs, and this command looks at 10,000,000 rows and" in said
    assert "call torchcurriculum.audit.audit(Record.load(folder))" in said


def test_a_report_leaves_out_the_samples_of_a_huge_record_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchcurriculum.report.page.MOST", 3)
    write_report({"vanilla": [filled(tmp_path / "r")]}, tmp_path / "page.html", title="x")
    assert "holds 4 rows and 1 epochs" in (tmp_path / "page.html").read_text()


def test_a_file_of_epochs_without_end(tmp_path: Path) -> None:
    filled(tmp_path)
    os.truncate(tmp_path / "epochs.jsonl", 2**40)
    with pytest.raises(RecordError, match=r"epochs\.jsonl has 1,099,511,627,776 bytes"):
        Record.load(tmp_path)
    os.truncate(tmp_path / "record.json", 2**40)
    with pytest.raises(RecordError, match=r"record\.json has 1,099,511,627,776 bytes"):
        Record.load(tmp_path)


# ---------------------------------------------------------------------- names

ESCAPE = "\x1b]0;owned\x07\x1b[31mred\x9b2J\u202e"


@pytest.mark.parametrize("form", ["csv", "json", "label-studio"])
def test_a_class_folder_that_is_not_utf8_can_be_exported(tmp_path: Path, form: str) -> None:
    odd = os.fsdecode(b"caf\xe9")
    record = filled(tmp_path, (odd, "dog"))
    found = replace(audit(record), issue=np.ones(4, dtype=bool))  # Label Studio gets suspects only
    path = export(found, tmp_path / "out", form, names=[odd, "dog"], texts=[odd] * 4)
    assert "udce9" in path.read_text(encoding="utf-8")
    if form != "csv":
        assert "\udce9" not in json.dumps(json.loads(path.read_text()), ensure_ascii=False), "valid Unicode"


def test_no_escape_sequence_reaches_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = filled(tmp_path / ESCAPE.replace("/", ""), (ESCAPE, "dog"))
    record.name_samples([ESCAPE] * 4)
    record.describe({**record.meta, "method": ESCAPE, "recipe": {"name": ESCAPE, "epochs": 3}})
    place = str(record.folder)
    assert main(["audit", place]) == 0
    assert main(["compare", place]) == 0
    assert main(["report", place, "--out", str(tmp_path / "page.html")]) == 0
    assert main(["audit", str(tmp_path / f"nothing{ESCAPE}")]) == 2
    (record.folder / "epochs.jsonl").write_text("x\nx\n") if record.folder else None
    assert main(["report", place, "--out", str(tmp_path / "page.html")]) == 0
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert "red" in text
        assert all(letter.isprintable() or letter == "\n" for letter in text)


# ---------------------------------------------------------------------- a full disk


def test_a_full_disk_leaves_no_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = filled(tmp_path / "run")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    monkeypatch.setattr(Path, "rename", full)
    writers = {
        "report": lambda: write_report({"vanilla": [record]}, tmp_path / "report.html", title="x"),
        "export": lambda: export(audit(record), tmp_path / "audit.csv"),
        "previews": lambda: Previews(np.array([0]), texts=["a"]).save(tmp_path / "run"),
        "array": lambda: record.set_array("clean", np.array([0, 1, 0, 1])),
        "record": lambda: Record(2, {}, tmp_path / "other"),
        "sink": lambda: CSV(tmp_path / "epochs.csv").write({"epoch": 1}),
    }
    for write in writers.values():
        with pytest.raises(OSError, match="No space left"):
            write()
    assert not [path for path in tmp_path.rglob("*") if "part" in path.name]


def test_a_quality_that_is_not_known_is_a_dash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = filled(tmp_path / "run", ("cat", "dog"))
    assert main(["audit", str(record.folder)]) == 0
    lines = capsys.readouterr().out.split("given -> suggested\n")[1].splitlines()
    assert [line.split()[2] for line in lines[:4]] == ["-"] * 4
