"""The authors' label files are read, damaged ones are named, and a malicious one runs nothing."""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchcurriculum.lab.data import cifar_n, load_cifar_n

REAL = Path(__file__).parents[2] / "shared" / "data" / "cifar-n"
ROWS = 12
TEN = ("clean_label", "aggre_label", "worse_label", "random_label1", "random_label2", "random_label3")


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "real" not in request.node.name:
        monkeypatch.setattr(cifar_n, "ROWS", ROWS)


def ten() -> dict[str, Any]:
    return {name: (np.arange(ROWS) + shift) % 10 for shift, name in enumerate(TEN)}


def hundred() -> dict[str, Any]:
    fine = np.arange(ROWS) * 8
    coarse = [int(label) % 20 for label in fine]
    return {"clean_label": fine, "noisy_label": fine[::-1].copy(), "clean_coarse_label": coarse} | {
        "noisy_coarse_label": coarse[::-1]
    }


def saved(folder: Path, content: Any) -> Path:
    torch.save(content, folder / "labels.pt")
    return folder / "labels.pt"


def pickled(folder: Path, content: bytes) -> Path:
    """A .pt file around any pickle: the same archive as torch's, whose pickle is replaced."""
    source = saved(folder, {})
    target = folder / "made.pt"
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.infolist():
            new.writestr(entry.filename, content if entry.filename.endswith("data.pkl") else old.read(entry))
    return target


@pytest.mark.parametrize("make", [ten, hundred])
def test_what_was_saved_is_read_as_int64(tmp_path: Path, make: Any) -> None:
    content = make()
    labels = load_cifar_n(saved(tmp_path, content))
    assert list(labels) == list(content)
    for name, values in labels.items():
        assert values.dtype == np.int64
        assert values.tolist() == list(content[name])
        values[0] = 1  # a copy of its own, not a view of the file


def test_both_module_paths_of_numpy_are_read(tmp_path: Path) -> None:
    """NumPy 1 writes numpy.core, NumPy 2 numpy._core; each reads the other's."""
    with zipfile.ZipFile(saved(tmp_path, ten())) as archive:
        (name,) = [entry for entry in archive.namelist() if entry.endswith("data.pkl")]
        content = archive.read(name)
    paths = [b"cnumpy.core.multiarray\n", b"cnumpy._core.multiarray\n"]
    (used,) = [path for path in paths if path in content]
    for path in paths:
        labels = load_cifar_n(pickled(tmp_path, content.replace(used, path)))
        assert labels["worse_label"].tolist() == ten()["worse_label"].tolist()


def test_a_missing_file_says_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"labels\.pt is missing; get it from https://github\.com/UCSC-REAL"):
        load_cifar_n(tmp_path / "labels.pt")


def test_wrong_content_is_named(tmp_path: Path) -> None:
    def other(**changes: Any) -> dict[str, Any]:
        return {**ten(), **changes}

    few = {name: values for name, values in ten().items() if name != "worse_label"}
    for content, message in [
        (few, "it holds 'clean_label', 'aggre_label', 'random_label1'.*, where there should be"),
        (other(more=np.arange(ROWS)), "it holds .*'more'"),
        ([1, 2], "a list without names"),
        (torch.zeros(3), "a Tensor without names"),
        ({}, "a dict without names"),
        (other(worse_label=np.arange(ROWS - 1)), "worse_label holds 11 labels, where there should be 12"),
        (other(worse_label=np.arange(ROWS)), r"worse_label holds labels from 0 to 11, outside range\(10\)"),
        (other(worse_label=np.arange(ROWS) - 1), r"worse_label holds labels from -1 to 10"),
        (other(worse_label=np.arange(ROWS) / 2), "labels must be int64, but an array of this file holds 'f8'"),
        (other(worse_label=np.arange(ROWS).astype(">i8")), "labels must be little-endian"),
        (other(worse_label=np.zeros((3, 4), np.int64)), "do not match the shape of one row"),
        (other(worse_label=np.array([None] * ROWS)), "labels must be int64, but an array of this file holds 'O8'"),
        (other(worse_label=torch.arange(ROWS) % 10), r"worse_label is not a row of labels in range\(10\)"),
        (other(worse_label=[0.5] * ROWS), "worse_label is not a row of labels"),
        (other(worse_label=[True] * ROWS), "worse_label is not a row of labels"),
        (other(worse_label=[10] * ROWS), "worse_label is not a row of labels"),
    ]:
        with pytest.raises(ValueError, match=message):
            load_cifar_n(saved(tmp_path, content))


class Runs:
    """Pickles to a call of anything with anything."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


class Sub(np.ndarray):
    """A subclass of an allowed class, whose state is taken back by a method of its own."""

    def __setstate__(self, state: Any) -> None:
        Path(state[-1]).write_text("ran")


class Built:
    """Not called at all, but given its state back."""

    def __getstate__(self) -> Any:
        return {"a": 1}


def attacks(marker: Path) -> dict[str, Any]:
    shell, python = f"touch {marker}", f"__import__('pathlib').Path({str(marker)!r}).touch()"
    sub = np.zeros(ROWS, np.int64).view(Sub)
    inside = np.array([Runs(os.system, shell)] * ROWS, dtype=object)
    deep: Any = Runs(eval, python)
    for _ in range(20):
        deep = {"a": [deep]}
    return {
        "os.system": Runs(os.system, shell),
        "eval": Runs(eval, python),
        "exec": Runs(exec, python),
        "subprocess": Runs(subprocess.call, ["touch", str(marker)]),
        "open": Runs(open, str(marker), "w"),
        "pathlib": Runs(Path.touch, marker),
        "getattr": Runs(getattr, Runs(__import__, "os"), "system"),
        "pickle in a pickle": Runs(pickle.loads, pickle.dumps(Runs(os.system, shell))),
        "numpy's loader": Runs(np.load, str(marker)),
        "numpy's writer": Runs(np.savetxt, str(marker), [1]),
        "torch's loader": Runs(torch.load, str(marker)),
        "a class of the file's own": Built(),
        "a subclass of an array": sub,
        "inside an array of objects": inside,
        "deep inside": deep,
        "as a key": {Runs(os.system, shell): 1},
        "in the place of a label's number": [*range(ROWS - 1), Runs(os.system, shell)],
    }


@pytest.mark.parametrize("name", list(attacks(Path("marker"))))
def test_a_malicious_file_is_refused_and_nothing_of_it_runs(tmp_path: Path, name: str) -> None:
    marker = tmp_path / "marker"
    evil = attacks(marker)[name]
    for content in (evil, {**ten(), "worse_label": evil}):
        path = saved(tmp_path, content)
        with pytest.raises(ValueError, match="is refused: it .*UCSC-REAL") as caught:
            load_cifar_n(path)
        assert not marker.exists()
        assert "weights_only" not in str(caught.value)  # torch's own message says how to run it after all
        assert caught.value.__cause__ is None


def test_the_attacks_are_real(tmp_path: Path) -> None:
    """Read without the allow-list, they do run: otherwise the test above could not fail."""
    marker = tmp_path / "marker"
    for name in ("os.system", "eval", "exec", "subprocess", "pickle in a pickle", "numpy's writer", "as a key"):
        torch.load(saved(tmp_path, attacks(marker)[name]), weights_only=False)
        assert marker.exists(), name
        marker.unlink()
    for name in ("inside an array of objects", "deep inside"):
        torch.load(saved(tmp_path, attacks(marker)[name]), weights_only=False)
        assert marker.exists(), name
        marker.unlink()


def test_an_allow_list_of_the_program_itself_opens_no_door(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    path = saved(tmp_path, {**ten(), "worse_label": Runs(os.system, f"touch {marker}")})
    before = set(torch.serialization.get_safe_globals())
    mine = [(os.system, "posix.system"), np.ndarray, np.dtype]
    with torch.serialization.safe_globals(mine):
        with pytest.raises(ValueError, match=r"it refers to posix\.system, which does not belong"):
            load_cifar_n(path)
        assert set(torch.serialization.get_safe_globals()) == before | set(mine)
        assert load_cifar_n(saved(tmp_path, ten())).keys() == ten().keys()
    assert set(torch.serialization.get_safe_globals()) == before  # torch itself keeps some there
    assert not marker.exists()


def test_states_of_arrays_that_numpy_would_believe(tmp_path: Path) -> None:
    """Pickles that call allowed names with wrong arguments: sizes that are not there, no number type, no state."""
    start = b"\x80\x02}(" + b"".join(b"X" + struct.pack("<I", len(n)) + n.encode() + b"K\x01" for n in TEN[1:])
    key = b"X\x0b\x00\x00\x00clean_label"
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85K\x01\x87R"
    for array in (
        empty,  # never filled
        empty + b"(K\x01J\xff\xff\xff\x7f\x85NNNtb",  # no number type
        empty + b"(K\x01tb",  # too short a state
        empty + b"Nb",  # no state
        b"cnumpy\ndtype\nX\x02\x00\x00\x00i8\x85R",  # a type where an array should be
        b"cnumpy\ndtype\nX\x02\x00\x00\x00i8\x85R(tb",
        b"cnumpy\nndarray\n",  # the class itself
        b"cnumpy\nndarray\n)\x81",
        b"cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85R",  # an array of two thousand million
    ):
        with pytest.raises(ValueError, match="is refused|is not a label file"):
            load_cifar_n(pickled(tmp_path, start + key + array + b"u."))


@pytest.mark.parametrize("content", [b"", b"PK", b"hello", b"\x80\x02}.", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "labels.pt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"labels\.pt is refused: it cannot be read"):
        load_cifar_n(path)


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(cifar_n.LARGEST + 1))
        archive.writestr("archive/version", "3\n")
    assert path.stat().st_size < 100_000
    with pytest.raises(ValueError, match="it holds 67108867 bytes, and a label file no more than 67108864"):
        load_cifar_n(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return saved(tmp_path_factory.mktemp("whole"), ten()).read_bytes()


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damage_is_refused_or_harmless(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, max(0, len(content) - 1)))
        how = data.draw(st.sampled_from(["flip", "cut", "insert", "delete"]))
        if how == "flip" and content:
            content[place] ^= data.draw(st.integers(1, 255))
        elif how == "cut":
            del content[place:]
        elif how == "insert":
            content[place:place] = data.draw(st.binary(min_size=1, max_size=8))
        else:
            del content[place : place + data.draw(st.integers(1, 64))]
    path = tmp_path_factory.getbasetemp() / "damaged.pt"
    path.write_bytes(content)
    labels, reason = {}, ""
    try:
        labels = load_cifar_n(path)
    except ValueError as error:
        reason = str(error)
    assert labels or reason.startswith(str(path))
    for values in labels.values():
        assert values.dtype == np.int64
        assert len(values) == ROWS
        assert (values >= 0).all()
        assert (values < 10).all()


@pytest.mark.skipif(not REAL.exists(), reason="needs the authors' files")
@pytest.mark.parametrize(
    ("file", "name", "wrong"),
    [
        ("CIFAR-10_human.pt", "worse_label", 20104),  # 40.208 % of 50,000
        ("CIFAR-10_human.pt", "aggre_label", 4505),  # 9.01 %
        ("CIFAR-10_human.pt", "random_label1", 8617),  # 17.234 %
        ("CIFAR-100_human.pt", "noisy_label", 20100),  # 40.20 %
    ],
)
def test_the_real_files_are_wrong_as_often_as_published(file: str, name: str, wrong: int) -> None:
    labels = load_cifar_n(REAL / file)
    assert int((labels[name] != labels["clean_label"]).sum()) == wrong
    assert np.bincount(labels["clean_label"]).tolist() == ([5000] * 10 if "10_" in file else [500] * 100)


def test_reading_in_a_fresh_process_imports_nothing_that_a_file_names(tmp_path: Path) -> None:
    """A module named by a file is not even imported: its import could run code."""
    (tmp_path / "planted.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w')\ndef f(): pass\n")
    path = pickled(tmp_path, b"\x80\x02cplanted\nf\n)R.")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from torchcurriculum.lab.data import load_cifar_n\n"
        f"try: load_cifar_n({str(path)!r})\n"
        "except ValueError as error: print(error)\n"
        "print('planted' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert "it refers to planted.f, which does not belong in a label file" in done.stdout
    assert done.stdout.split()[-1] == "False"
    assert not (tmp_path / "marker").exists()
