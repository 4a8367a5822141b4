"""Every example runs, and shows what it says it shows."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
ELSEWHERE = {  # in tests/integrations, or below
    "accelerate_loop.py",
    "ddp_loop.py",
    "fsdp2_loop.py",
    "lightning_digits.py",
    "ray_train.py",
    "streams.py",
    "transformers_rte.py",
    "trl_shuffled.py",
}
SAYS = {
    "audit_csv.py": "of these 10 and 66 of all 569 were flipped",
    "plain_loop.py": "rho 0.",
    "own_method.py": "trust",
    "reduced_loss.py": "rho 0.",
    "sklearn_estimators.py": "of 50 suspects are wrong",
    "skorch_net.py": "best method",
    "trackers.py": "epochs.csv",
}


def test_every_example_is_run() -> None:
    assert {path.name for path in FOLDER.glob("*.py")} == set(SAYS) | ELSEWHERE


@pytest.mark.parametrize("name", SAYS)
def test_it_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(FOLDER / name), "--epochs", "4"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert SAYS[name] in done.stdout


@pytest.mark.parametrize(("source", "package"), [("datasets",) * 2, ("webdataset",) * 2, ("mosaic", "streaming")])
def test_streams_of_other_libraries(source: str, package: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    command = [sys.executable, str(FOLDER / "streams.py"), "--epochs", "12", "--source", source]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert f"{source}: 1200 samples by their keys" in done.stdout
    assert float(re.findall(r"test accuracy ([\d.]+)", done.stdout)[0]) > 0.8


def test_the_audit_of_a_csv_finds_what_was_flipped(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, str(FOLDER / "audit_csv.py")], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert int(re.findall(r"(\d+) of these 10", run.stdout)[0]) >= 9
    lines = (tmp_path / "suspects.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + 569
    again = [sys.executable, str(FOLDER / "audit_csv.py"), "--data", "patients.csv", "--epochs", "4"]
    own = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True)
    assert own.returncode == 0, own.stderr
    assert "flipped" not in own.stdout


@pytest.mark.slow
def test_the_tour_tells_what_it_shows(tmp_path: Path) -> None:
    """Run from the first cell to the last in a fresh process; what it says of the figures must hold."""
    code = FOLDER.parent / "benchmarks" / "notebook.py"
    run = subprocess.run([sys.executable, str(code), str(FOLDER / "tour.ipynb")], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    ends = dict(re.findall(r"(\S+) +epoch 40 +test accuracy +([\d.]+)%", run.stdout))
    assert float(ends["vanilla"]) < float(ends["s-apw-e"]) < float(ends["rapw"])
    weights = re.findall(r"right labels ([\d.]+), of wrong ones ([\d.]+)", run.stdout)
    assert [float(right) > float(wrong) for right, wrong in weights] == [False, True]
    assert "20 most suspicious: 100%" in run.stdout


def test_the_tour_is_stored_with_its_outputs_and_small() -> None:
    text = (FOLDER / "tour.ipynb").read_text(encoding="utf-8")
    assert len(text) < 50_000
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        printing = 'train("' in "".join(cell["source"]) or "print" in "".join(cell["source"])
        assert bool(cell["outputs"]) == (printing and "def train" not in "".join(cell["source"]))
