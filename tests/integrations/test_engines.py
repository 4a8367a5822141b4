"""One process and two give the same run under DDP, FSDP2, Accelerate, Lightning and Ray Train."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from ..contract.problem import differences
from ..contract.table import TABLE

ROOT = Path(__file__).parents[2]
TOLERANCE = 1e-12
SHOWN = r"(early|later)  rho [01]\.\d+  E-Prop 0\.\d+  test accuracy \d+"
PATIENCE = 600
AT_THE_END = "terminate called without an active exception"  # see tests.distributed.launch.end_rank
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="gloo under torchrun is tested on Linux and macOS"),
    pytest.mark.timeout(2 * PATIENCE + 30),
    pytest.mark.slow,
]


def run(command: list[str], again: bool = True, **settings: str) -> str:
    """What a command prints; it and its ranks end with the test. A rank that torch aborts at its end is tried again."""
    paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    surroundings = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)} | settings
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        env=surroundings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        printed, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.terminate()  # torchrun then ends its ranks
        process.wait(timeout=600)
    if process.returncode and AT_THE_END in errors and again:
        return run(command, again=False, **settings)
    assert process.returncode == 0, errors[-5000:]
    return printed


def apart(one: Path, other: Path) -> dict[str, float]:
    """Tensors that differ by more than the tolerance; rows of the record must not differ by more."""
    alone, together = (load_file(f"{path}.safetensors") for path in (one, other))
    if "table" in one.name:  # one process trains those, too, that ranks refuse
        alone = {name: value for name, value in alone.items() if name in together}
    else:
        rows, others = (json.loads(Path(f"{path}.json").read_text()) for path in (one, other))
        assert len(rows) == len(others) == 3
        for row, same in zip(rows, others, strict=True):
            assert row.keys() == same.keys()
            for name, value in row.items():
                near = value if isinstance(value, str) else pytest.approx(value, rel=TOLERANCE, abs=TOLERANCE)
                assert same[name] == near, (other.name, name)
    far = {name: value for name, value in differences(alone, together).items() if not value <= TOLERANCE}
    return {f"{other.stem} {name}": value for name, value in far.items()}


def needs(*packages: str) -> Any:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")


@needs("accelerate", "lightning", "sklearn")
def test_one_process_and_two_give_the_same_run(tmp_path: Path) -> None:
    alone = run(["-m", "tests.integrations.engines", str(tmp_path)])
    for name in ("ddp_loop", "fsdp2_loop", "accelerate_loop", "lightning_digits"):
        assert re.search(f"{name}: {SHOWN}", alone), alone
    run([*TORCHRUN, "-m", "tests.integrations.engines", str(tmp_path)])

    runs = sorted(path.stem.removesuffix("-1-0") for path in tmp_path.glob("*-1-0.safetensors"))
    assert runs == [
        *("accelerate_loop", "accelerate_resumed", "ddp_loop", "fsdp2_loop", "lightning_digits"),
        *("lightning_resumed", "table"),
        *("uneven_apw-e", "uneven_apw-ei", "uneven_s-apw-e"),
    ]
    refused = [json.loads((tmp_path / f"table-2-{rank}.json").read_text()) for rank in range(2)]
    assert refused[0].keys() == refused[1].keys() == {"lre", "mw-net", "dds", "co-teaching", "jocor", "ema"}
    assert all("needs whole parameters" in words for words in refused[0].values())
    trained = {key.split(".")[0] for key in load_file(tmp_path / "table-2-0.safetensors")}
    assert trained | refused[0].keys() == {row.name for row in TABLE if not row.ranks_reason}
    found = {}
    for name in runs:
        for rank in range(2):
            found |= apart(tmp_path / f"{name}-1-0", tmp_path / f"{name}-2-{rank}")
    assert found == {}


@needs("sklearn")
def test_an_example_under_torchrun_as_its_first_lines_say() -> None:
    printed = run([*TORCHRUN, "examples/fsdp2_loop.py", "--epochs", "2"])
    assert len(re.findall(SHOWN, printed)) == 1  # the first rank speaks


@needs("ray", "sklearn")
def test_ray_train_gives_the_run_of_one_process(tmp_path: Path) -> None:
    code = "from tests.integrations.engines import *; from pathlib import Path; torch.set_default_dtype(torch.float64);"
    code += "torchcurriculum.lab.data.load_digits = doubles;"
    code += f"leave(Path({str(tmp_path)!r}) / 'alone', *example('ddp_loop').train(EPOCHS, BATCH))"
    run(["-c", code])
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as short:  # sockets have short names
        home = {"HOME": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0"}
        printed = run(["-m", "tests.integrations.ray_run", short, str(tmp_path)], **home)
    assert re.search(SHOWN, printed), printed
    for rank in range(2):
        assert apart(tmp_path / "alone", tmp_path / f"ray_train-2-{rank}") == {}
