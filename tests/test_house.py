"""The rules of the house: who may import whom, doctests, the wheel, the names that users rely on."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import pytest
import torch

import torchcurriculum

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "torchcurriculum"

# The design's table: a room may import these rooms of the package, besides itself. Rooms that it does not name, and the
# lower rooms that the adapters need, stand below the line; docs/decisions/0006-rooms.md says why.
ALLOWED: dict[str, set[str]] = {
    "functional": set(),
    "distributed": set(),
    "checks": set(),
    "core": {"distributed", "checks"},
    "methods": {"core", "functional"},
    "thresholds": {"core", "functional"},
    "fast": {"core", "functional"},
    "shell": {"core", "data", "distributed", "record", "fast"},
    "curriculum": {"core", "data", "distributed", "record", "shell", "named"},
    "record": set(),
    "theory": {"record", "functional"},
    "audit": {"record", "functional"},
    "report": {"record", "theory", "audit"},
    # ------------------------------------------------------------------
    "data": {"checks", "distributed"},
    "losses": {"core", "distributed", "functional", "named"},
    "checkpoint": {"checks", "distributed", "record"},
    "integrations": {"curriculum", "core", "methods", "checkpoint", "data", "losses", "record", "named"},
    "named": {"core", "methods"},  # when a name is given; docs/decisions/0007-names.md
}
ALLOWED["clean"] = set(ALLOWED)
FREE = {"lab", "cli", "__init__", "__main__"}
THIRD_PARTY = {"torch", "numpy", "safetensors"}
ONLY_NUMPY = {"record", "theory", "report"}
REPORTING = {"report", "clean", "cli", "__main__"}


def _imports(tree: ast.Module, module: list[str]) -> list[tuple[str, bool]]:
    """(imported name, at the top of the file) with relative imports made absolute."""
    top = {id(node) for node in tree.body}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = module[: len(module) - node.level] if node.level else []
            parent = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{parent}.{alias.name}" if parent == "torchcurriculum" else parent for alias in node.names]
            found += [(name, id(node) in top) for name in names]
    return found


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    room = parts[0]
    assert room in ALLOWED or room in FREE, f"{room} has no place in the plan of the house"
    module = ["torchcurriculum", *parts]
    for name, at_top in _imports(ast.parse(path.read_text()), module):
        first, *rest = name.split(".")
        if first == "torchcurriculum" and rest and room in ALLOWED:
            assert rest[0] in ALLOWED[room] | {room}, f"{room} imports {name}"
        elif first not in sys.stdlib_module_names | {"torchcurriculum"} and at_top:
            allowed = {"numpy"} if room in ONLY_NUMPY else THIRD_PARTY
            assert first in allowed, f"{path.name} imports {first} at its top; import it where it is used"


def test_the_import_test_can_fail() -> None:
    tree = ast.parse("from ..curriculum import Curriculum\nfrom . import apw\nimport scipy\n")
    found = _imports(tree, ["torchcurriculum", "methods", "thing"])
    assert ("torchcurriculum.curriculum", True) in found
    assert ("scipy", True) in found


def _modules() -> list[str]:
    return [
        info.name
        for info in pkgutil.walk_packages([str(SOURCE)], "torchcurriculum.")
        if not info.name.endswith("__main__")
    ]


@pytest.mark.parametrize("name", _modules())
def test_examples_in_docstrings(name: str) -> None:
    names = {"torch": torch, "nn": torch.nn}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")  # as in pyproject.toml
        results = doctest.testmod(importlib.import_module(name), extraglobs=names)
    assert results.failed == 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_training_does_not_import_the_report(path: Path) -> None:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    for name, at_top in _imports(ast.parse(path.read_text()), ["torchcurriculum", *parts]):
        if name.startswith("torchcurriculum.report"):
            assert parts[0] in REPORTING or not at_top, f"{path.name} imports {name}"


def _lazy_names() -> dict[str, str]:
    """What type checkers see at the top of the package: a name and the module it comes from."""
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or alias.name for node in imports for alias in node.names}


def test_names_at_the_top_are_the_same_for_people_and_type_checkers() -> None:
    names = _lazy_names()
    assert sorted(names) == sorted(torchcurriculum.__all__)
    assert set(names) <= set(dir(torchcurriculum))
    for name, module in names.items():
        home = importlib.import_module(f"torchcurriculum.{module}")
        assert getattr(torchcurriculum, name) is (home if name == module else getattr(home, name))
    assert inspect.ismodule(torchcurriculum.audit)
    with pytest.raises(AttributeError, match="module 'torchcurriculum' has no attribute 'nonsense'"):
        _ = torchcurriculum.nonsense


@pytest.mark.parametrize("name", sorted(path.parent.name for path in SOURCE.glob("*/__init__.py")))
def test_no_function_or_class_has_the_name_of_a_module_beside_it(name: str) -> None:
    package = importlib.import_module(f"torchcurriculum.{name}")
    modules = {info.name for info in pkgutil.iter_modules(package.__path__)}
    shadowed = {module for module in modules if not inspect.ismodule(getattr(package, module, package))}
    assert not shadowed


def test_the_core_needs_only_torch_numpy_and_safetensors() -> None:
    code = (
        "import sys, torchcurriculum.integrations; from torchcurriculum import *;"
        "bad = {'sklearn','matplotlib','rich','scipy','pandas','transformers','trl'} & set(sys.modules);"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_names_that_users_rely_on() -> None:
    from torchcurriculum import APW, Curriculum, Mixed, Sampled, error_threshold, functional, indexed, methods

    assert list(inspect.signature(APW).parameters)[:5] == ["n", "q", "threshold", "tau", "weighting"]
    assert list(inspect.signature(Curriculum).parameters)[:3] == ["method", "train_set", "loss_fn"]
    assert list(inspect.signature(functional.weight_change).parameters) == ["rho", "q", "tau"]
    assert list(inspect.signature(functional.easiness).parameters) == ["losses", "threshold"]
    assert list(inspect.signature(functional.difficulty).parameters) == ["weights", "easiness"]
    assert list(inspect.signature(functional.reweight).parameters) == ["weights", "alpha", "easiness"]
    assert list(inspect.signature(error_threshold).parameters) == ["noise_rate", "noise"]
    assert inspect.signature(Sampled).parameters["fraction"].default == 0.05
    assert next(iter(inspect.signature(Mixed).parameters)) == "method"
    assert callable(indexed)
    assert list(inspect.signature(methods.build).parameters)[:3] == ["name", "n", "epochs"]
    for name in torchcurriculum.__all__:
        assert hasattr(torchcurriculum, name)


def test_an_unknown_method_gets_a_suggestion() -> None:
    with pytest.raises(ValueError, match="unknown method 'apw_e'; did you mean 'apw-e'"):
        torchcurriculum.methods.build("apw_e", 10, 10)


@pytest.mark.slow
def test_the_wheel_holds_the_code_and_imports_from_elsewhere(tmp_path: Path) -> None:
    """Built as `pip install .` builds it, installed into a clean environment, imported from another directory."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    flags = ["--no-build-isolation", "--no-deps"]
    subprocess.run([*pip, "wheel", *flags, "-w", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("torchcurriculum-*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}
    assert packed == {str(path.relative_to(ROOT / "src")) for path in FILES}
    shipped = {"torchcurriculum/py.typed", "torchcurriculum/report/style.css", "torchcurriculum/lab/published.csv"}
    shipped |= {f"torchcurriculum/clean/page.{suffix}" for suffix in ("css", "js")}
    assert shipped <= set(zipfile.ZipFile(wheel).namelist())

    clean = tmp_path / "clean"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(clean)], check=True)
    python = str(clean / "bin" / "python")
    subprocess.run([*pip, "--python", python, "install", "--no-deps", "--no-index", str(wheel)], check=True)
    # torch, numpy and safetensors are lent from here: installing them again would take minutes and prove nothing more.
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    lent = Path(torch.__file__).parent.parent
    code = (
        f"import sys; sys.path.append({str(lent)!r}); import torchcurriculum, torch;"
        f"assert torchcurriculum.__file__.startswith({site!r}), torchcurriculum.__file__;"
        "m = torchcurriculum.APW(4, q=2); m.advance(torch.ones(4)); print(m.weights.sum().item())"
    )
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "1.0"
