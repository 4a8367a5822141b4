"""The script that asks an accelerator for every promise works, and finds what is broken."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchcurriculum import APW

ROOT = Path(__file__).parents[2]


def test_the_script_runs_on_a_cpu(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    words = [
        sys.executable,
        str(ROOT / "benchmarks" / "device_check.py"),
        "--device",
        "cpu",
        "--quick",
        "--out",
        str(out),
    ]
    subprocess.run(words, check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, timeout=600)
    found = json.loads(out.read_text())
    assert found["sections"]["kills"]["kills"] == 1
    assert not any(section["failures"] for section in found["sections"].values())
    assert found["sections"]["a row that is not finite"]["checks"] > found["rows"] // 3


def test_a_failure_is_found_and_the_others_are_still_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import device_check

    real, calls = APW.weigh, itertools.count()
    monkeypatch.setattr(APW, "weigh", lambda self, step: real(self, step) * (1 + 1e-4 * next(calls)))
    monkeypatch.setattr(device_check, "TABLE", device_check.TABLE[:3])
    out, title = tmp_path / "found.json", "contract table against the host"
    assert device_check.main(["--device", "cpu", "--section", title, "--out", str(out)]) == 1
    section = json.loads(out.read_text())["sections"][title]
    assert section["checks"] == 3
    assert list(section["failures"]) == ["apw-e-q=3", "apw-i-q=3"]
    assert "  apw-e-q=3: AssertionError: " in capsys.readouterr().out
