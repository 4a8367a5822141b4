"""Ranks in trouble: three and four of them, another number after a resume, one slow, one that raises, one killed.

    python benchmarks/ranks_check.py --out results/ranks-check.json [--engine ddp fsdp2 accelerate ray] [--scenario 0 1]

Every scenario ends where one process ends (parameters, weights, record), or its ranks end with an error and the resumed
run ends there; none may take longer than its limit. Nobody watches over the ranks as torchrun would: those that are
left must notice by themselves. gloo on a CPU, float64, 37 rows. Scenarios of an earlier call stay in the file.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from common import save, where
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.contract.problem import N, data, differences, model  # noqa: E402
from tests.distributed.launch import end_rank, free_port  # noqa: E402

from torchcurriculum import Checkpoint, Curriculum, Record, methods  # noqa: E402

EPOCHS, BATCH, EVERY, TROUBLE = 3, 7, 4, 9  # steps: 18 in all, a state behind every fourth, trouble behind the ninth
LIMIT = 300.0  # seconds for one launch; only a hang takes longer
RAY_LIMIT = 1800  # Ray starts Python anew for every worker, which takes minutes on a busy machine
NEAR = 1e-12
ENGINES = ("ddp", "fsdp2", "accelerate", "ray")
TROUBLED = 1  # the rank that is slow, raises or is killed


@dataclass(frozen=True)
class Scenario:
    """Launches one after the other in one folder: (ranks, what happens); the last one must come to the end."""

    name: str
    launches: tuple[tuple[int, str], ...]


SCENARIOS = (
    Scenario("3 ranks", ((3, ""),)),
    Scenario("4 ranks", ((4, ""),)),
    Scenario("2 ranks, resumed by 3", ((2, "stop"), (3, ""))),
    Scenario("3 ranks, resumed by 2", ((3, "stop"), (2, ""))),
    Scenario("4 ranks, resumed by 1", ((4, "stop"), (1, ""))),
    Scenario("1 process, resumed by 4", ((1, "stop"), (4, ""))),
    Scenario("3 ranks, one ten times slower", ((3, "slow"),)),
    Scenario("3 ranks, one raises, resumed by 3", ((3, "raise"), (3, ""))),
    Scenario("3 ranks, one is killed, resumed by 3", ((3, "kill"), (3, ""))),
    Scenario("4 ranks, one is killed, resumed by 2", ((4, "kill"), (2, ""))),
)


class Raised(RuntimeError):
    """Raised by the failing rank."""


# ---------------------------------------------------------------- what every rank does


def train(engine: str, folder: Path, trouble: str) -> None:
    """Goes on from the newest state in ``folder``; the first rank leaves the outcome there."""
    world, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)
    net, optimizer, backward, parts = ENGINE[engine]()
    method = methods.build("apw-ei", N, EPOCHS, q=3)
    curriculum = Curriculum(method, data(), batch_size=BATCH, seed=5, record=folder / "record", overwrite=True)
    states = folder / "states"
    load, write = parts(states, curriculum)
    steps = load()
    begun, took = time.perf_counter(), 0.0
    while curriculum.number < EPOCHS or curriculum.is_open:
        for batch in curriculum.epoch(net):
            loss = curriculum.loss(net, batch)
            optimizer.zero_grad()
            backward(loss)
            optimizer.step()
            steps += 1
            if steps % EVERY == 0:
                write(steps)
            took = max(took, time.perf_counter() - begun)
            if trouble == "slow" and rank == TROUBLED % world:
                time.sleep(10 * min(took, 0.05))
            begun = time.perf_counter()
            if steps == TROUBLE and rank == TROUBLED % world and trouble in ("raise", "kill"):
                if trouble == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise Raised(f"rank {rank} fails at step {steps}")
            if steps == TROUBLE and trouble == "stop":
                return
    tensors = {f"net.{name}": value.detach() for name, value in whole(net).items()}
    tensors |= {f"method.{name}": value for name, value in method.state_dict().items()}
    if rank == 0:
        save_file({name: value.clone().contiguous() for name, value in tensors.items()}, folder / "end.safetensors")


def whole(net: nn.Module) -> dict[str, torch.Tensor]:
    """All parameters, whole and under the names of the model itself."""
    named = getattr(net, "module", net).named_parameters()
    return {name: p.full_tensor() if hasattr(p, "full_tensor") else p for name, p in named}


Made = tuple[nn.Module, Any, Callable[[torch.Tensor], Any], Callable[[Path, Curriculum], tuple[Any, Any]]]


def _sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)


def _with_checkpoint(**objects: Any) -> Callable[[Path, Curriculum], tuple[Any, Any]]:
    """Checkpoints of this library."""

    def parts(states: Path, curriculum: Curriculum) -> tuple[Any, Any]:
        checkpoint = Checkpoint(states)
        every = {**objects, "curriculum": curriculum}
        return lambda: checkpoint.load(**every) or 0, lambda steps: checkpoint.save(steps, **every)

    return parts


def ddp() -> Made:
    net = model()
    wrapped = DistributedDataParallel(net) if dist.is_initialized() else net
    optimizer = _sgd(net)
    return wrapped, optimizer, lambda loss: loss.backward(), _with_checkpoint(net=net, optimizer=optimizer)


class Full:
    """A sharded model and its optimizer as one whole state, which any number of ranks can take up."""

    def __init__(self, net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.net, self.optimizer = net, optimizer

    def state_dict(self) -> dict[str, Any]:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

        net, optimizer = get_state_dict(self.net, self.optimizer, options=StateDictOptions(full_state_dict=True))
        return {"net": net, "optimizer": optimizer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_state_dict

        set_state_dict(
            self.net,
            self.optimizer,
            model_state_dict=state["net"],
            optim_state_dict=state["optimizer"],
            options=StateDictOptions(full_state_dict=True),
        )


def fsdp2() -> Made:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    net = model()
    if dist.is_initialized():
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for part in (net[0], net[3], net):  # type: ignore[index]
            fully_shard(part, mesh=mesh)
    optimizer = _sgd(net)
    return net, optimizer, lambda loss: loss.backward(), _with_checkpoint(both=Full(net, optimizer))


def accelerate() -> Made:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    raw = model()
    net, optimizer = accelerator.prepare(raw, _sgd(raw))

    def parts(states: Path, curriculum: Curriculum) -> tuple[Any, Any]:
        accelerator.register_for_checkpointing(curriculum)
        newest = states / "newest"

        def load() -> int:
            accelerator.wait_for_everyone()
            if not newest.exists():
                return 0
            state = newest.read_text()
            accelerator.load_state(str(states / state))
            return int(state)

        def write(steps: int) -> None:
            accelerator.save_state(str(states / str(steps)))
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:  # Accelerate writes in place: only a whole state gets the name
                (states / "part").write_text(str(steps))
                os.replace(states / "part", newest)

        return load, write

    return net, optimizer, accelerator.backward, parts


ENGINE: dict[str, Callable[[], Made]] = {"ddp": ddp, "fsdp2": fsdp2, "accelerate": accelerate, "ray": ddp}


# ---------------------------------------------------------------- ranks as forked processes


def _rank(engine: str, rank: int, world: int, port: int, folder: Path, trouble: str) -> None:
    log = os.open(folder / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world}
    if world > 1:
        os.environ.update({name: str(value) for name, value in address.items()})
        dist.init_process_group("gloo", timeout=timedelta(seconds=LIMIT / 2))
    try:
        train(engine, folder, trouble)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    if world > 1:
        end_rank()
    sys.stdout.flush()
    os._exit(0)


def forked(engine: str, world: int, folder: Path, trouble: str) -> list[int | None]:
    """Starts the ranks and waits; exit codes, of which None is a rank that was still there at the limit."""
    context, port = multiprocessing.get_context("fork"), free_port()
    ranks = [context.Process(target=_rank, args=(engine, rank, world, port, folder, trouble)) for rank in range(world)]
    for rank in ranks:
        rank.start()
    end = time.monotonic() + LIMIT
    for rank in ranks:
        rank.join(max(0.0, end - time.monotonic()))
    codes = [rank.exitcode for rank in ranks]
    for rank in ranks:
        rank.kill()
        rank.join()
    return codes


# ---------------------------------------------------------------- ranks as Ray's workers


def _ray_work(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    folder = Path(config["folder"])
    once = folder / "troubled"
    trouble = config["trouble"]
    if trouble == "kill":  # Ray starts all of them again, and the second time goes well
        trouble = "" if once.exists() else trouble
        once.touch()
    train("ray", folder, trouble)


def ray_workers(engine: str, world: int, folder: Path, trouble: str) -> list[int | None]:
    """One fit of a ``TorchTrainer``: 0 for every worker, or 1 where it ends with an error."""
    import ray.train
    import ray.train.torch

    tries = 1 if trouble == "kill" else 0
    trainer = ray.train.torch.TorchTrainer(
        _ray_work,
        train_loop_config={"folder": str(folder), "trouble": trouble},
        scaling_config=ray.train.ScalingConfig(num_workers=world, resources_per_worker={"CPU": 0.25}),
        run_config=ray.train.RunConfig(
            storage_path=str(folder / "ray"), failure_config=ray.train.FailureConfig(max_failures=tries)
        ),
    )
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(RAY_LIMIT)
    try:
        trainer.fit()
    except TimeoutError:
        return [None] * world
    except Exception:
        (folder / "rank-0.log").write_text(traceback.format_exc())
        return [1] * world
    finally:
        signal.alarm(0)
    return [0] * world


def _late(*_: Any) -> None:
    raise TimeoutError(f"Ray took more than {RAY_LIMIT} s")


# ---------------------------------------------------------------- all of it


def reference(folder: Path) -> Path:
    """What one process comes to."""
    codes = forked("ddp", 1, folder, "")
    if codes != [0]:
        raise RuntimeError((folder / "rank-0.log").read_text())
    return folder


def judge(engine: str, scenario: Scenario, alone: Path, folder: Path) -> dict[str, Any]:
    """Runs a scenario; ``failure`` says what did not hold."""
    begun, errors, difference = time.perf_counter(), [], None
    try:
        for world, trouble in scenario.launches:
            codes = (ray_workers if engine == "ray" else forked)(engine, world, folder, trouble)
            _check_codes(engine, trouble, codes, folder)
            errors += _sentences(folder) if trouble in ("raise", "kill") else []
        difference = max(
            differences(load_file(alone / "end.safetensors"), load_file(folder / "end.safetensors")).values()
        )
        if not difference <= NEAR:
            raise AssertionError(f"the end differs from that of one process by {difference:.3g}")
        far = [name for name, here, there in _values(alone, folder) if not _same(here, there)]
        if far:
            raise AssertionError(f"the record differs from that of one process in {', '.join(far)}")
        failure = None
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"[-1500:]
    seconds = round(time.perf_counter() - begun, 1)
    result = {"engine": engine, "scenario": scenario.name, "difference": difference, "failure": failure}
    return {**result, "errors": sorted(set(errors)), "seconds": seconds}


def _check_codes(engine: str, trouble: str, codes: list[int | None], folder: Path) -> None:
    logs = "\n".join(path.read_text()[-1500:] for path in sorted(folder.glob("rank-*.log")))
    if None in codes:
        raise AssertionError(f"hang: the ranks ended with {codes} at the limit\n{logs}")
    if trouble in ("raise", "kill") and not (engine == "ray" and trouble == "kill"):
        # The last epoch is far away: no rank can have reached its end.
        if 0 in codes:
            raise AssertionError(f"a rank ended well although another was lost: {codes}\n{logs}")
    elif any(codes):
        raise AssertionError(f"the ranks ended with {codes}\n{logs}")


def _sentences(folder: Path) -> list[str]:
    """The last line of every rank's traceback, which is what a user reads."""
    lines = [path.read_text().strip().splitlines()[-1:] for path in sorted(folder.glob("rank-*.log"))]
    return [line[0][:160] for line in lines if line]


def _values(*folders: Path) -> Iterator[tuple[str, Any, Any]]:
    """Every value of two records with its name; the clock's differ."""
    one, other = (Record.load(folder / "record").epochs for folder in folders)
    for row, same in zip_longest(one, other, fillvalue={}):
        yield from ((name, row.get(name), same.get(name)) for name in {**row, **same} if name != "seconds")


def _same(here: Any, there: Any) -> bool:
    if isinstance(here, list) and isinstance(there, list):
        return len(here) == len(there) and all(map(_same, here, there))
    if isinstance(here, float) and isinstance(there, float):
        return math.isclose(here, there, rel_tol=NEAR, abs_tol=NEAR)
    return bool(here == there)


def main(arguments: list[str] | None = None) -> int:
    """Runs every scenario with every engine, prints a line for each and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--scenario", nargs="+", type=int, default=range(len(SCENARIOS)), help="numbers, from 0")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    for name in ("accelerate", "torch.distributed.fsdp", "torch.distributed.checkpoint.state_dict", "torch._dynamo"):
        if importlib.util.find_spec(name.split(".")[0]):
            importlib.import_module(name)  # once, for all forked ranks
    missing = [name for name in ("accelerate", "ray") if not importlib.util.find_spec(name)]
    result: dict[str, Any] = {"environment": where(" ".join(["benchmarks/ranks_check.py", *given.engine]))}
    earlier = json.loads(given.out.read_text())["runs"] if given.out and given.out.exists() else []
    again = {(engine, SCENARIOS[number].name) for engine in given.engine for number in given.scenario}
    kept = [run for run in earlier if (run["engine"], run["scenario"]) not in again]
    result |= {"missing": missing, "runs": kept}
    with tempfile.TemporaryDirectory(prefix="ranks", ignore_cleanup_errors=True) as base:
        root = Path(base)
        (root / "alone").mkdir()
        alone = reference(root / "alone")
        for engine in [name for name in ENGINES if name in given.engine and name not in missing]:
            if engine == "ray":
                _start_ray(root)
            for number in given.scenario:
                scenario = SCENARIOS[number]
                folder = root / f"{engine}-{number}"
                folder.mkdir()
                found = judge(engine, scenario, alone, folder)
                result["runs"].append(found)
                words = found["failure"] or f"equal within {found['difference']:.1e}"
                print(f"{engine}: {scenario.name}: {words}, {found['seconds']} s", flush=True)
                save(given.out, result)
                shutil.rmtree(folder, ignore_errors=True)
    failed = sum(run["failure"] is not None for run in result["runs"])
    print(f"{len(result['runs'])} scenarios, {failed} failures")
    return int(failed > 0)


def _start_ray(root: Path) -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT), str(ROOT / "benchmarks")])
    import ray

    ray.init(num_cpus=2, include_dashboard=False, _temp_dir=str(root / "r"), object_store_memory=100 * 2**20)


if __name__ == "__main__":
    sys.exit(main())
