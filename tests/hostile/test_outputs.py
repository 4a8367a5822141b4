"""Every ``--out`` and every writer against special files, links, the umask and a read-only folder."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from torchcurriculum.cli import main

from .test_records import filled

SOURCE = Path(__file__).parents[2] / "src" / "torchcurriculum"
COMMANDS: dict[str, Callable[[str, str], list[str]]] = {
    "report": lambda run, out: ["report", run, "--out", out],
    "audit-csv": lambda run, out: ["audit", run, "--export", "csv", "--out", out],
    "audit-json": lambda run, out: ["audit", run, "--export", "json", "--out", out],
    "audit-label-studio": lambda run, out: ["audit", run, "--export", "label-studio", "--out", out],
    "compare-json": lambda run, out: ["compare", run, "--json", out],
    "compare-md": lambda run, out: ["compare", run, "--md", out],
}


@pytest.fixture
def run(tmp_path: Path) -> str:
    return str(filled(tmp_path / "run").folder)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))
@pytest.mark.parametrize("through", ["itself", "link"])
def test_devices_are_written_through_and_stay(
    command: Callable[[str, str], list[str]], through: str, run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As root, too: a root user's rename would replace the device."""
    for name, status in {"full": 2, "null": 0}.items():
        device = Path("/dev") / name
        before = os.stat(device)
        out = device
        if through == "link":
            out = tmp_path / f"to-{name}"
            out.symlink_to(device)
        assert main(command(run, str(out))) == status, capsys.readouterr()
        after = os.stat(device)
        assert stat.S_ISCHR(after.st_mode)
        assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
        assert through == "itself" or out.is_symlink()
    assert "No space left on device" in capsys.readouterr().err
    assert not list(Path("/dev").glob(".*.part"))


@pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))
def test_links_stay_links_and_modes_stay_modes(
    command: Callable[[str, str], list[str]], run: str, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "file", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    assert main(command(run, str(link))) == 0
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert target.read_text() != "old"
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_a_run_writes_with_the_user_s_umask_and_nothing_outside_its_folder(tmp_path: Path) -> None:
    """In a process of its own: the umask belongs to a process. Every file is made in the folder of its target."""
    code = (
        "import os, sys; os.umask(0o027); opened = []\n"
        "import tempfile, torch\n"
        "from torchcurriculum.cli import main\n"
        "kinds = ('open', 'os.mkdir', 'os.rename')\n"
        "hook = lambda event, given: opened.append((event, *map(str, given))) if event in kinds else None\n"
        "sys.addaudithook(hook)\n"
        "command = ['run', 'digits', '--method', 'vanilla', '--seeds', '0', '--epochs', '2', '--save-seconds', '0']\n"
        "assert main([*command, '--out', sys.argv[1]]) == 0\n"
        "made = [row for row in opened if row[0] != 'open' or (row[2] != 'None' and set(row[2]) & set('wax'))]\n"
        "print(*{row[1] for row in made}, sep='\\n', file=sys.stderr)"
    )
    out = tmp_path / "out"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": "/nowhere"}
    environment |= {"MPLCONFIGDIR": str(tmp_path / "mpl"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torch")}
    command = [sys.executable, "-c", code, str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    paths = [line for line in done.stderr.splitlines() if line.startswith("/") and not line.startswith("/dev/")]
    assert str(out / "report.html") in paths or any(str(out) in path for path in paths)
    assert [path for path in paths if not path.startswith(str(tmp_path))] == []
    for path in (out, *out.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o750 if path.is_dir() else 0o640), path


def test_all_writing_goes_through_one_helper() -> None:
    """``overwrite`` handles devices, links, permissions and full disks; the others are listed with a reason."""
    allowed = {
        "record/files.py": "the helper",
        "record/disk.py": "write_at appends epochs in place",
        "record/previews.py": "a folder that is made whole and then renamed",
        "checkpoint/disk.py": "a folder that is made whole and then renamed",
    }
    words = re.compile(
        r"\.write_text\(|\.write_bytes\(|\bopen\([^)]*[\"'][wax]b?\+?[\"']|\bnp\.save\(|savefig\(|save_file\("
    )
    found = set()
    for path in SOURCE.rglob("*.py"):
        lines = [line for line in path.read_text().splitlines() if ">>>" not in line and "buffer" not in line]
        if any(words.search(line) and "(file" not in line for line in lines):
            found.add(str(path.relative_to(SOURCE)))
    assert found <= set(allowed), found - set(allowed)
