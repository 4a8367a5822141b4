"""What every rank does in ``test_distributed.py``: all scenarios in one go, since starting processes takes seconds."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from torchcurriculum import Arrays, Curriculum, methods
from torchcurriculum.distributed import order_statistics

from ..contract.problem import Run
from ..contract.problem import method as contract_method
from ..contract.table import TABLE
from . import elastic
from .launch import traffic
from .problem import BATCH, CASES, Case, Counted, Training

STOP = 8  # steps: inside the second epoch, and the end of a window of 2 micro-batches
EARLY = 4  # for the whole table, where time counts: inside the first epoch of two
RESUMED = [
    Case("apw-e", {"q": 3}),
    Case("apw-i", {"q": 3}),
    Case("apw-ei", {"q": 3, "tau": 0.7}, "running", accumulate=2),
    Case("apw-e", {"q": 3, "threshold": "auto"}, "running"),
    Case("s-apw-e", {"q": 3, "fraction": 0.4}),
    Case("s-apw-ei", {"q": 3, "fraction": 0.4}, "running"),
]
EARLY_BIRD = Case("apw-e", {"q": 3, "threshold": 1.0}, "running")
BIG, BIG_BATCH = 2003, 200  # rows for counting what ranks exchange: 2003 = 8 x 250 + 3
COUNTED = {
    "vanilla": ("vanilla", "pass"),
    "apw-e": ("apw-e", "pass"),
    "apw-e running": ("apw-e", "running"),
    "s-apw-e": ("s-apw-e", "pass"),
    "apw-i": ("apw-i", "pass"),
}


def everything(rank: int, world: int, folder: Path, came_from: int) -> None:
    """All scenarios; states of ``came_from`` ranks lie in ``folder`` already, those of this many are left there."""
    for number, case in enumerate(CASES):
        save(Training(case, parallel=True).train(), folder / f"case{number}-{world}-{rank}")
    for number, case in enumerate(RESUMED):
        resume(case, number, world, rank, folder, came_from)
    for number in range(len(TABLE)):
        resume_row(number, world, rank, folder, came_from)
    roll_back(folder / f"back-{world}-{rank}")
    between_epochs(folder / f"between-{world}-{rank}", folder / f"unbroken-{world}-{rank}")
    before_the_group(folder / f"early-{world}-{rank}")
    measure(folder / f"measured-{world}-{rank}.json")
    exchange(folder / f"exchanged-{world}-{rank}.json")
    find_order_statistics(rank, world)
    if world == 2:
        elastic.run(folder / "undisturbed", {})


def save(training: Training, path: Path) -> None:
    """Leaves a run's tensors and record rows where the test finds them."""
    save_file({name: value.contiguous() for name, value in training.tensors().items()}, f"{path}.safetensors")
    Path(f"{path}.json").write_text(json.dumps(training.rows()))


def resume(case: Case, number: int, world: int, rank: int, folder: Path, came_from: int) -> None:
    """Takes up the state of another number of ranks, and leaves one of this number."""
    state = torch.load(folder / f"state{number}-{came_from}.pt", weights_only=True)
    save(Training(case, parallel=True).load(state).train(), folder / f"resumed{number}-{world}-{rank}")
    leave(Training(case, parallel=True).train(stop_after=STOP), folder / f"state{number}-{world}.pt", rank)


def resume_row(number: int, world: int, rank: int, folder: Path, came_from: int) -> None:
    """The same for a method of the contract table; where ranks may differ, it begins itself."""
    run = row_run(number, DistributedDataParallel)
    if not TABLE[number].ranks_reason:
        run.load(torch.load(folder / f"row{number}-{came_from}.pt", weights_only=True))
    run.train(epochs=2)
    tensors = {name: value.contiguous() for name, value in run.tensors().items()}
    save_file(tensors, folder / f"row{number}-{world}-{rank}.safetensors")
    if not TABLE[number].ranks_reason:
        stopped = row_run(number, DistributedDataParallel).train(epochs=2, stop_after=EARLY)
        leave(stopped, folder / f"row{number}-{world}.pt", rank)


def row_run(number: int, wrap: Any = lambda net: net) -> Run:
    """The contract's run, with a last batch of two rows."""
    row = TABLE[number]
    run = Run(contract_method(row), row, wrap)
    run.curriculum.batch_size = BATCH
    return run


def leave(training: Training | Run, path: Path, rank: int) -> None:
    """Every rank takes part in the state; the first one writes it."""
    state = training.state()
    if rank == 0:
        torch.save(state, path)


def roll_back(path: Path) -> None:
    """Goes on after a state, thinks better of it, and loads it again in the same processes."""
    training = Training(Case("apw-i", {"q": 3}), parallel=True).train(stop_after=STOP)
    state = training.state()
    training.train(stop_after=STOP + 2).load(state)
    training.steps = STOP
    save(training.train(), path)


def between_epochs(path: Path, unbroken: Path) -> None:
    """Takes a run up at the end of an epoch, where ranks have batch statistics of their own."""
    case = Case("apw-e", {"q": 3, "threshold": 0.9}, norm=True)
    save(Training(case, parallel=True).train(), unbroken)
    states = [Training(case, parallel=True).train(epochs=2).state()]
    dist.broadcast_object_list(states)  # the first rank's is the one that is written
    save(Training(case, parallel=True).load(states[0]).train(), path)


def before_the_group(path: Path) -> None:
    """The curriculum is made and loaded before the ranks meet, as it is where a trainer starts them later."""
    state = Training(EARLY_BIRD, parallel=True).train(epochs=1).state()
    with mock.patch.object(dist, "is_initialized", return_value=False):
        training = Training(EARLY_BIRD).load(state)
    training.wrapped = DistributedDataParallel(training.net)
    save(training.train(), path)


def measure(path: Path) -> None:
    """Which rows this rank reads in two measuring passes, and how many in training."""
    plain, seen = Counted(), Counted()
    Training(Case("apw-e", {"q": 3}), parallel=True, train_set=seen, measure_set=plain).train(epochs=2)
    path.write_text(json.dumps({"measured": plain.read, "trained": seen.read}))


def find_order_statistics(rank: int, world: int) -> None:
    """The same values as sorting all of them, also with ties, signs, both zeros and a rank that has none."""
    generator = torch.Generator().manual_seed(0)
    for scale in (1e-300, 1.0, 1e300):
        values = (torch.randn(50, generator=generator, dtype=torch.float64) * scale).repeat(2)
        values[:4] = torch.tensor([0.0, -0.0, math.ulp(0.0), -math.ulp(0.0)])
        owner = torch.randint(1, world, (100,), generator=generator)  # none of them is the first rank's
        found = order_statistics(values[owner == rank], torch.arange(100))
        assert torch.equal(found, values.sort().values)


def exchange(path: Path) -> None:
    """What goes through ``all_reduce`` in the second of three epochs, and in a state."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(BIG, 3, generator=generator, dtype=torch.float64)
    data = Arrays(x, (x[:, 0] > 0).long())
    found: dict[str, Any] = {}
    for name, (build, measure) in COUNTED.items():
        method = methods.build(build, BIG, 3)
        net = DistributedDataParallel(nn.Linear(3, 2).double())
        curriculum = Curriculum(method, data, batch_size=BIG_BATCH, measure=measure)
        for _ in range(3):
            with traffic() as sent:
                for batch in curriculum.epoch(net):
                    curriculum.loss(net, batch).backward()
            found.setdefault(name, []).append([[str(kind), size] for kind, size in sent])
    path.write_text(json.dumps(found))
