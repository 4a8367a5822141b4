"""The script that puts ranks into trouble works; ``make test-hostile`` runs all of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform == "win32", reason="ranks are forked")
def test_a_resume_by_more_ranks_and_a_killed_rank(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    words = [sys.executable, str(ROOT / "benchmarks" / "ranks_check.py"), "--engine", "ddp", "--scenario", "2", "9"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*words, "--out", str(out)], env=environment, capture_output=True, text=True, timeout=1100, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    resumed, killed = json.loads(out.read_text())["runs"]
    assert resumed["difference"] <= 1e-12
    assert not resumed["errors"]
    assert killed["difference"] <= 1e-12
    assert any("closed by peer" in words or "reset by peer" in words for words in killed["errors"])
