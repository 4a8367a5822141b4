"""Two processes under torchrun and one give the same parameters and the same weights of rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from . import hf_ranks
from .hf_problem import tensors, trainer
from .hf_ranks import CASES, make

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="gloo with torchrun is tested on Linux and macOS"),
]
ROOT = Path(__file__).parent.parent.parent
TOLERANCE = 1e-12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks left."""
    path = tmp_path_factory.mktemp("ranks")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d"]
    torchrun += ["--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1", "-m", hf_ranks.__name__, str(path)]
    paths = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    done = subprocess.run(torchrun, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return path


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_and_one_process_agree(case: str, folder: Path, tmp_path: Path) -> None:
    one = make(case, tmp_path, 2 * CASES[case][1]["per_device_train_batch_size"])
    one.train()
    expected, limit = tensors(one), 1e-5 if case == "trl" else TOLERANCE  # trl's fused head is in float32
    for rank in range(2):
        found = load_file(folder / f"{case}-{rank}.safetensors")
        assert max((found[key].double() - expected[key].double()).abs().max().item() for key in found) < limit


def test_one_process_goes_on_with_the_state_of_two_ranks(folder: Path, tmp_path: Path) -> None:
    whole = load_file(folder / "apw-e-0.safetensors")
    one = trainer("apw-e", tmp_path)
    one.train(resume_from_checkpoint=str(folder / "apw-e" / "checkpoint-9"))
    found = tensors(one)
    assert max((found[key].double() - whole[key].double()).abs().max().item() for key in whole) < TOLERANCE
