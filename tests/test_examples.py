"""Every example runs, and shows what it says it shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
ELSEWHERE = {  # in tests/integrations
    "accelerate_loop.py",
    "ddp_loop.py",
    "fsdp2_loop.py",
    "lightning_digits.py",
    "ray_train.py",
    "transformers_rte.py",
    "trl_shuffled.py",
}
SAYS = {
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
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert SAYS[name] in done.stdout
