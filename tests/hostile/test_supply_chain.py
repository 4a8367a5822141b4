"""``make audit`` says what it could not look up."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FINE = {"name": "fine", "version": "1", "vulns": []}
SKIPPED = {"name": "gone", "skip_reason": "Dependency not found on PyPI"}
KNOWN = {"name": "holed", "version": "2", "vulns": [{"id": "CVE-1"}]}


@pytest.fixture
def chain(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("supply_chain", ROOT / "benchmarks" / "supply_chain.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: object())
    return module


@pytest.mark.parametrize(
    ("packages", "well", "said"),
    [
        ([FINE], True, ["1 of 1 packages were looked up"]),
        ([FINE, SKIPPED], True, ["1 of 2 packages", "could not ask about 1 of them", "Dependency not found on PyPI"]),
        ([SKIPPED], True, ["0 of 1 packages were looked up", "could not ask about 1"]),
        ([KNOWN, FINE], False, ["known vulnerability: holed 2: CVE-1"]),
        (None, True, ["pip-audit could not ask (no route to host): known vulnerabilities were not looked up"]),
    ],
)
def test_what_was_not_looked_up_is_said(
    packages: Any,
    well: bool,
    said: list[str],
    chain: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = "" if packages is None else json.dumps({"dependencies": packages})
    done = subprocess.CompletedProcess([], 1, answer, "no route to host\n")
    monkeypatch.setattr(chain.subprocess, "run", lambda *_, **__: done)
    assert chain.check_vulnerabilities() == well
    printed = capsys.readouterr().out
    for words in said:
        assert words in printed
