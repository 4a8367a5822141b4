"""Follows a page as a reader does: saves each Python block as a script, types each command, all in one folder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[str]:
    """The lines of a page that call ``curriculum``, without their comments."""
    text = "\n".join(block for kind, block in FENCE.findall(page.read_text(encoding="utf-8")) if not kind)
    return [line.split("#")[0].strip() for line in text.splitlines() if line.startswith("curriculum ")]


def follow(page: Path, folder: Path) -> list[str]:
    """Runs scripts and commands in the order of the page and returns what each printed; installs nothing."""
    said = []
    for kind, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            (folder / "script.py").write_text(block, encoding="utf-8")
            said.append(_run(["-W", "error", "script.py"], folder))
        elif not kind:
            calls = (line for line in block.splitlines() if line.startswith("curriculum "))
            said += [_run(["-m", "torchcurriculum", *shlex.split(line, comments=True)[1:]], folder) for line in calls]
    return said


def _run(arguments: list[str], folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{arguments}\n{done.stderr}"
    return done.stdout
