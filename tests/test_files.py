"""The one helper that writes files: whole or not at all, through links and devices, and nothing left behind."""

from __future__ import annotations

import errno
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from torchcurriculum.audit import audit, export
from torchcurriculum.record import Record, RecordError
from torchcurriculum.record.files import overwrite, remove_leftovers
from torchcurriculum.record.sinks import CSV
from torchcurriculum.report import write_report

SOURCE = Path(__file__).parent.parent / "src"
ARRAY = "overwrite(sys.argv[1], 'wb') as file: np.save(file, np.zeros(100_000))"


@contextmanager
def umask(value: int) -> Iterator[None]:
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


def put(path: Path, text: str) -> None:
    with overwrite(path) as file:
        file.write(text)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_and_an_old_one(tmp_path: Path) -> None:
    for text in ("first", "second, ä"):
        put(tmp_path / "a.txt", text)
        assert (tmp_path / "a.txt").read_text(encoding="utf-8") == text
    assert names(tmp_path) == ["a.txt"]


def test_readers_see_the_old_file_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a"
    put(path, "old")
    with overwrite(path) as file:
        file.write("new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), ValueError()])
def test_a_failure_leaves_the_old_file_and_nothing_else(error: BaseException, tmp_path: Path) -> None:
    path = tmp_path / "a"
    put(path, "old")
    with pytest.raises(type(error)) as caught, overwrite(path) as file:
        file.write("half")
        raise error
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a"]
    if isinstance(caught.value, OSError):
        assert caught.value.filename == str(path)


@pytest.mark.parametrize("call", ["fsync", "replace", "chmod"])
def test_whatever_call_fails_nothing_is_left(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    put(path, "old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"), overwrite(path, "wb", durable=True) as file:
        file.write(b"new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("write", ["overwrite(sys.argv[1]) as file: file.write('x' * 100_000)", ARRAY])
def test_a_real_limit_on_file_size(write: str, tmp_path: Path) -> None:
    put(tmp_path / "a", "old")
    code = (
        "import resource, signal, sys; import numpy as np; from torchcurriculum.record.files import overwrite;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))\n"
        f"with {write}"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code, tmp_path / "a"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "File too large" in done.stderr or "requested and" in done.stderr  # NumPy's words
    assert str(tmp_path / "a") in done.stderr.splitlines()[-1]
    assert (tmp_path / "a").read_text() == "old"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_umask_decides_about_a_new_file(mask: int, mode: int, tmp_path: Path) -> None:
    with umask(mask):
        put(tmp_path / "a", "x")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode


def test_an_old_file_keeps_its_permissions(tmp_path: Path) -> None:
    put(tmp_path / "a", "private")
    (tmp_path / "a").chmod(0o600)
    with umask(0o022):
        put(tmp_path / "a", "still private")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    link = tmp_path / "here" / "a"
    link.symlink_to("../there/b")
    for text in ("made", "replaced"):  # first the link leads nowhere
        put(link, text)
        assert link.is_symlink()
        assert (tmp_path / "there" / "b").read_text() == text
        assert names(tmp_path / "there") == ["b"]
        assert names(tmp_path / "here") == ["a"]


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        put(tmp_path / "a", "x")
    assert names(tmp_path) == ["a"]


def test_a_full_device_is_named_and_stays_a_device(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        put(Path("/dev/full"), "x")
    (tmp_path / "link").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        put(tmp_path / "link", "x")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[str] = []
    thread = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    thread.start()
    put(tmp_path / "pipe", "through")
    thread.join(600)
    assert read == ["through"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize("into", ["pipe", "file"])
def test_standard_output_is_written_to(into: str, tmp_path: Path) -> None:
    code = (
        "from torchcurriculum.record.files import overwrite; print('before', flush=True)\n"
        "with overwrite('/dev/stdout') as file: file.write('inside\\n')"
    )
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    if into == "pipe":
        said = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    else:
        with open(tmp_path / "said", "w") as file:
            subprocess.run(command, env=environment, stdout=file, check=True)
        said = (tmp_path / "said").read_text()
        assert names(tmp_path) == ["said"]
    assert said == "before\ninside\n"


def test_a_folder_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=re.escape(str(tmp_path))):
        put(tmp_path, "x")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        put(tmp_path / "nowhere" / "a", "x")


def test_the_longest_name_that_a_disk_allows(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    put(path, "x")
    assert path.read_text() == "x"


def test_two_writers_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with overwrite(path) as one, overwrite(path) as two:
        one.write("1" * 9)
        two.write("2" * 5)
    assert path.read_text() == "1" * 9  # the block that ends last
    assert names(tmp_path) == ["a"]


def test_what_a_killed_writer_left_goes_with_the_next_record(tmp_path: Path) -> None:
    Record(3, folder=tmp_path)
    code = (
        "import os, signal, sys; from torchcurriculum.record.files import overwrite\n"
        "with overwrite(sys.argv[1]) as file: os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "labels.npy"], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 2
    Record.open(3, {}, tmp_path)
    assert names(tmp_path) == ["record.json"]
    remove_leftovers(tmp_path / "nowhere")


# ---------------------------------------------------------------------- who uses it


def filled(folder: Path | None = None) -> Record:
    record = Record(4, {"seed": 0}, folder)
    record.set_array("labels", np.array([0, 1, 0, 1]))
    record.append({"epoch": 1, "test_acc": 0.5}, losses=np.array([0.1, 2.0, 0.3, 0.4]), easy=np.array([1, 0, 1, 1]))
    return record


def writers(record: Record) -> dict[str, object]:
    found = audit(record)
    return {
        "report": lambda path: write_report({"vanilla": [record]}, path, title="One"),
        "csv": lambda path: export(found, path, "csv"),
        "json": lambda path: export(found, path, "json"),
        "label-studio": lambda path: export(found, path, "label-studio", top=5),
        "sink": lambda path: CSV(path).write(record.epochs[0]),
    }


@pytest.mark.parametrize("name", ["report", "csv", "json", "label-studio", "sink"])
def test_everybody_who_writes_a_file_uses_it(name: str, tmp_path: Path) -> None:
    write = writers(filled())[name]
    assert callable(write)
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/file")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "file").stat().st_size > 10
    assert names(tmp_path / "there") == ["file"]
    if name != "sink":  # which first reads what is there
        with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
            write("/dev/full")


def test_a_record_on_a_disk_that_is_full_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    record = filled(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*labels\.npy"):
        record.set_array("labels", np.array([1, 1, 1, 1]))
    monkeypatch.undo()
    assert not [name for name in names(tmp_path) if name.endswith(".part")]
    assert Record.load(tmp_path).arrays["labels"].tolist() == [0, 1, 0, 1]
    with pytest.raises(RecordError, match="holds no record"):
        Record.load(tmp_path / "nothing")
