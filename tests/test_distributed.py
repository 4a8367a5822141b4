"""Many processes and one give the same run; what ranks exchange; states that change hands; ranks that are killed."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from torchcurriculum import Arrays, Record

from .contract.problem import N, data, differences
from .contract.table import TABLE
from .distributed import elastic
from .distributed.launch import DEADLINE, start
from .distributed.problem import CASES, EPOCHS, Noisy, Training
from .distributed.ranks import BIG, BIG_BATCH, EARLY, EARLY_BIRD, RESUMED, STOP, everything, leave, row_run

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="gloo with spawn is tested on Linux and macOS"),
    pytest.mark.timeout(2 * DEADLINE + 100),  # the first test waits for all ranks
]
ROOT = Path(__file__).parent.parent
TOLERANCE = 1e-12
Outcome = tuple[dict[str, torch.Tensor], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the ranks left; of several processes that run tests, the first has the ranks started, the others wait."""
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    base = tmp_path_factory.getbasetemp()
    path = base.parent / f"ranks-{session}" if session else base / "ranks"
    try:
        path.mkdir()
    except FileExistsError:
        end = time.monotonic() + 2 * DEADLINE
        while not (path / "ended").exists() and time.monotonic() < end:
            time.sleep(0.2)
        assert (path / "ended").read_text() == "well", "the ranks failed; the process that started them says why"
        return path
    ended = "badly"
    try:
        let_ranks_train(path)
        ended = "well"
    finally:
        (path / "ended.part").write_text(ended)
        (path / "ended.part").rename(path / "ended")
    return path


def let_ranks_train(path: Path) -> None:
    """One process leaves its states, then three ranks go on with them, then two with those of three."""
    (path / "undisturbed").mkdir()
    for number, case in enumerate(RESUMED):
        leave(Training(case).train(stop_after=STOP), path / f"state{number}-1.pt", 0)
    for number, row in enumerate(TABLE):
        if not row.ranks_reason:
            leave(row_run(number).train(epochs=2, stop_after=EARLY), path / f"row{number}-1.pt", 0)
    start(everything, 3, path, 1)
    start(everything, 2, path, 3)


def loaded(folder: Path, name: str, world: int) -> list[Outcome]:
    paths = [folder / f"{name}-{world}-{rank}" for rank in range(world)]
    return [(load_file(f"{path}.safetensors"), json.loads(Path(f"{path}.json").read_text())) for path in paths]


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    apart = {name: value for name, value in differences(one, other).items() if value > TOLERANCE}
    assert not apart


def assert_same_rows(one: list[dict[str, Any]], other: list[dict[str, Any]], measure: str = "pass") -> None:
    # Losses seen while training are kept in single precision, which makes a difference of 1e-16 one of 1e-7.
    near = {"rel": 1e-6, "abs": 1e-7} if measure == "running" else {"rel": TOLERANCE, "abs": TOLERANCE}
    assert len(one) == len(other) == EPOCHS
    for first, second in zip(one, other, strict=True):
        assert first.keys() == second.keys()
        for name, value in first.items():
            assert second[name] == (value if isinstance(value, str) else pytest.approx(value, **near)), name


# ---------------------------------------------------------------- the same parameters, weights and record


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: CASES[number].label)
def test_one_process_and_several_give_the_same_run(folder: Path, number: int, world: int) -> None:
    case, (first, *others) = CASES[number], loaded(folder, f"case{number}", world)
    for tensors, rows in others:
        # A rank's batch statistics are its own until the next forward pass; the first rank's are the model's.
        names = [name for name in tensors if not name.startswith("net.1.running")]
        assert_same({name: first[0][name] for name in names}, {name: tensors[name] for name in names})
        assert rows == first[1]
    if not case.norm:
        alone = Training(case).train()
        assert_same(alone.tensors(), first[0])
        assert_same_rows(alone.rows(), first[1], case.measure)


@pytest.mark.parametrize("world", [2, 3])
def test_the_draw_is_the_same_on_every_rank(folder: Path, world: int) -> None:
    number = next(number for number, case in enumerate(CASES) if case.name == "s-apw-e")
    alone = Training(CASES[number]).train().tensors()
    drawn = {name: rows for name, rows in alone.items() if name.startswith("plan.")}
    assert [len(rows) for rows in drawn.values()] == sorted(len(rows) for rows in drawn.values())
    assert len(drawn["plan.1"]) == math.floor(0.4 * N)
    for tensors, _ in loaded(folder, f"case{number}", world):
        assert all(torch.equal(tensors[name], rows) for name, rows in drawn.items())


@pytest.mark.parametrize("number", [n for n, row in enumerate(TABLE) if row.ranks_reason])
def test_where_one_process_differs_the_ranks_still_agree(folder: Path, number: int) -> None:
    first, *others = (load_file(folder / f"row{number}-3-{rank}.safetensors") for rank in range(3))
    for tensors in others:
        assert_same(first, tensors)


@pytest.mark.parametrize("world", [2, 3])
def test_a_curriculum_may_be_made_and_loaded_before_the_ranks_meet(folder: Path, world: int) -> None:
    alone = Training(EARLY_BIRD).train()
    for tensors, rows in loaded(folder, "early", world):
        assert_same({name: alone.tensors()[name] for name in tensors}, tensors)
        assert_same_rows(alone.rows(), rows, "running")


# ---------------------------------------------------------------- states that change hands


@pytest.mark.parametrize("number", range(len(RESUMED)), ids=lambda number: RESUMED[number].label)
def test_a_state_goes_on_with_another_number_of_ranks(folder: Path, number: int) -> None:
    case, whole = RESUMED[number], Training(RESUMED[number]).train()
    back = Training(case).load(torch.load(folder / f"state{number}-2.pt", weights_only=True)).train()
    ends: list[Outcome] = [(back.tensors(), back.rows())]  # 2 -> 1; then 1 -> 3 and 3 -> 2
    ends += loaded(folder, f"resumed{number}", 3) + loaded(folder, f"resumed{number}", 2)
    for tensors, rows in ends:
        assert_same({name: whole.tensors()[name] for name in tensors}, tensors)  # which lack earlier plans only
        assert_same_rows(whole.rows(), rows, case.measure)


@pytest.mark.parametrize(
    "number", [n for n, row in enumerate(TABLE) if not row.ranks_reason], ids=lambda number: TABLE[number].label
)
def test_a_state_of_any_method_goes_on_with_another_number_of_ranks(folder: Path, number: int) -> None:
    whole = row_run(number).train(epochs=2).tensors()
    state = torch.load(folder / f"row{number}-2.pt", weights_only=True)
    assert_same(whole, row_run(number).load(state).train(epochs=2).tensors())
    for path in (f"row{number}-{world}-{rank}.safetensors" for world in (2, 3) for rank in range(world)):
        assert_same(whole, load_file(folder / path))


@pytest.mark.parametrize("world", [2, 3])
def test_loading_a_state_again_undoes_the_steps_after_it(folder: Path, world: int) -> None:
    whole = Training(RESUMED[1]).train()
    for tensors, rows in loaded(folder, "back", world):
        assert_same(whole.tensors(), tensors)
        assert_same_rows(whole.rows(), rows)


@pytest.mark.parametrize("world", [2, 3])
def test_a_state_between_epochs_loses_no_rank_s_batch_statistics(folder: Path, world: int) -> None:
    for (unbroken, rows), (tensors, same) in zip(
        loaded(folder, "unbroken", world), loaded(folder, "between", world), strict=True
    ):
        # Three numbers are not summed in the same order by a wrapper that has begun anew; two have only one sum.
        assert_same({name: unbroken[name] for name in tensors}, tensors)
        assert_same_rows(rows, same)
        assert world == 3 or all(torch.equal(unbroken[name], value) for name, value in tensors.items())


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_state_goes_on_bit_equal_with_any_number_of_loader_workers(workers: int) -> None:
    whole = Training(RESUMED[0], train_set=Noisy()).train()
    state = Training(RESUMED[0], train_set=Noisy(), workers=workers).train(stop_after=STOP).state()
    before = torch.get_rng_state()
    torch.randn(3)  # what else draws from the global generators does not matter
    resumed = Training(RESUMED[0], train_set=Noisy(), workers=(workers + 1) % 3).load(state).train()
    for name, value in resumed.tensors().items():
        assert torch.equal(value, whole.tensors()[name]), name
    assert resumed.rows() == whole.rows()
    torch.set_rng_state(before)


def test_workers_do_not_switch_augmentation_off() -> None:
    def augment(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return x + 0.1 * torch.randn(x.shape, generator=generator, dtype=x.dtype)

    rows = Arrays(data().x, data().y, augment)
    one, two = (Training(RESUMED[0], train_set=rows, workers=count).train().tensors() for count in (0, 2))
    assert all(torch.equal(value, two[name]) for name, value in one.items())


# ---------------------------------------------------------------- what ranks share and exchange


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_the_measuring_pass(folder: Path, world: int) -> None:
    found = [json.loads((folder / f"measured-{world}-{rank}.json").read_text()) for rank in range(world)]
    passes = 2
    for read in found:
        assert math.floor(N / world) * passes <= len(read["measured"]) <= math.ceil(N / world) * passes
    assert sorted(row for read in found for row in read["measured"]) == sorted([*range(N)] * passes)
    trained = sorted(row for read in found for row in read["trained"])
    padding = 2 * (world - 1) * passes  # the last batch has two rows, and one rank takes both
    assert len(trained) == N * passes + padding
    assert set(trained) == set(range(N))


BITS = ["torch.uint8", math.ceil(BIG / 8)]
STEPS = math.ceil(BIG / BIG_BATCH)
QUANTILES = ["torch.int32", 7 * 255]


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("name", ["vanilla", "apw-e", "apw-e running", "s-apw-e", "apw-i"])
def test_ranks_exchange_one_bit_for_each_row(folder: Path, world: int, name: str) -> None:
    for rank in range(world):
        for number, epoch in enumerate(json.loads((folder / f"exchanged-{world}-{rank}.json").read_text())[name]):
            assert epoch.count(BITS) == (name != "vanilla")
            assert epoch.count(QUANTILES) in (
                0,
                8,
            )  # for the record, however many rows there are, once there are losses
            rest = [size for kind, size in epoch if [kind, size] not in (BITS, QUANTILES)]
            rows = [size for size in rest if size >= BIG]
            # I-weighting writes rows one batch at a time: ranks merge them once, at the end of an epoch, by a flag and
            # a float64 for each row.
            assert rows == ([BIG] * 2 if name == "apw-i" else [])
            # A normaliser from each rank in each step (and I-weighting's batch sizes); four sums and one count of NaN.
            # At the very start, two digests of each of ten things that ranks must have been told alike.
            start = 20 if number == 0 else 0
            assert sum(rest) - sum(rows) <= STEPS * (2 * world + (name == "apw-i")) + 4 + 1 + start


# ---------------------------------------------------------------- a rank is killed


def test_torchrun_restarts_from_the_last_state_when_ranks_are_killed(folder: Path, tmp_path: Path) -> None:
    kills = {3: 1, 10: 1, 17: 0}  # before the first state; inside the second epoch; and the rank that writes
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=3"]
    torchrun += ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
    torchrun += ["--monitor-interval=0.1", "-m", elastic.__name__, str(tmp_path), json.dumps(kills)]
    # Without this, ranks that begin again may find the addresses of those that died (pytorch/pytorch#135712).
    settings = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(torchrun, cwd=ROOT, env=os.environ | settings, stderr=subprocess.PIPE, text=True)
    try:
        errors = process.communicate(timeout=600)[1]
    finally:
        process.terminate()  # torchrun then ends its ranks
        process.wait(timeout=600)
    assert process.returncode == 0, errors
    assert (tmp_path / "starts.txt").read_text().split() == ["0", "0", "8", "16"]
    undisturbed = folder / "undisturbed"
    for rank in range(2):
        one, two = (load_file(path / f"end-{rank}.safetensors") for path in (undisturbed, tmp_path))
        assert one.keys() == two.keys()
        assert all(torch.equal(value, two[name]) for name, value in one.items())
    records = [Record.load(path / "record") for path in (undisturbed, tmp_path)]
    rows = [[{k: v for k, v in row.items() if k != "seconds"} for row in record.epochs] for record in records]
    assert len(rows[0]) == EPOCHS
    assert rows[0] == rows[1]
    for name in ("losses", "easy"):
        assert np.array_equal(*(record.history(name) for record in records))
