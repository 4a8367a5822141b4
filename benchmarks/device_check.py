"""Whether the promises hold on an accelerator: one call, a few minutes, no pytest.

    PYTHONPATH=src python3 benchmarks/device_check.py --out results/device-check.json [--device cpu] [--quick]

Every method of the contract table against the host; one row that is NaN or infinite with every strategy; trainings
that are killed at random moments and resumed; captured steps and fused kernels against plain torch. No failure stops
it: all are in the file by name, and the exit code is 1 if there is one. Sections of an earlier call stay in the file.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import save, where
from safetensors.torch import load_file, save_file
from torch import nn

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.contract import cuda, fused  # noqa: E402
from tests.contract.table import TABLE  # noqa: E402

from torchcurriculum import Arrays, Checkpoint, Curriculum, GraphedStep, fast, methods  # noqa: E402

Check = tuple[str, Callable[[], Any]]
KILLED = ("apw-ei", "s-apw-e", "m-apw-beta-e", "rapw")
STEPS, EVERY = 120, 3  # of a training that is killed, and between its states


# ---------------------------------------------------------------- the checks


def table(device: str) -> Iterator[Check]:
    for row in TABLE:
        yield row.label, lambda row=row: cuda.agreement(row, device)


def waits(device: str) -> Iterator[Check]:
    for row in TABLE:
        yield row.label, lambda row=row: cuda.steps_without_waiting(row, device)


def not_finite(device: str) -> Iterator[Check]:
    for row in TABLE:
        for strategy in cuda.STRATEGIES:
            for name, value in cuda.VALUES.items():
                arguments = row, device, strategy, value
                yield f"{row.label} {strategy} {name}", lambda arguments=arguments: cuda.stays_finite(*arguments)


def captured(device: str) -> Iterator[Check]:
    for row in TABLE:
        made: list[bool] = []
        yield row.label, lambda row=row, made=made: made.append(cuda.captured_step(row, device))
        if not any(made):
            continue
        for strategy in cuda.STRATEGIES:
            for name, value in cuda.VALUES.items():
                asked = row, device, strategy, value
                yield f"{row.label} {strategy} {name}", lambda asked=asked: cuda.captured_stays_finite(*asked)


def kernels(device: str) -> Iterator[Check]:
    if device != "cuda":
        return
    for name in fused.METHODS:
        for case in fused.CASES:
            for labelled in (True, False):
                asked = name, case, labelled
                yield f"{name} {case} labelled={labelled}", lambda asked=asked: fused.from_losses(*asked)
        for size, classes in fused.LOGITS:
            for kind in fused.NEAR:
                given = name, size, classes, kind
                yield f"{name} {size}x{classes} {kind}", lambda given=given: fused.from_logits(*given)
        yield f"{name} second gradient", lambda name=name: fused.second_gradient(name)
    for n in fused.ROWS:
        yield f"apw epoch {n} rows", lambda n=n: fused.epoch_kernels(n)


# ---------------------------------------------------------------- trainings that are killed


def train(name: str, device: str, folder: Path) -> None:
    """A small network with batch norm, dropout and Adam; says so after every step, and saves every few."""
    torch.use_deterministic_algorithms(True)
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(96, 1, 8, 8, generator=draw)
    y = (x.mean((1, 2, 3)) > 0).long() ^ (torch.rand(96, generator=draw) < 0.2).long()
    torch.manual_seed(2)
    # A captured step has its own generator, whose state the user does not save: no dropout there.
    dropout = 0.0 if name == "apw-ei" else 0.3
    layers = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(dropout), nn.Linear(288, 2)]
    net = nn.Sequential(*layers).to(device)
    rate: Any = torch.tensor(0.01, device=device)
    optimizer = torch.optim.Adam(net.parameters(), rate, fused=True, capturable=device == "cuda")
    made = methods.build(name, 96, 20, **({"fraction": 0.5} if name == "s-apw-e" else {}))
    curriculum = Curriculum(made, Arrays(x, y), batch_size=8, seed=4, record=folder / "record", overwrite=True)
    step = GraphedStep(curriculum, net, optimizer, capture=name == "apw-ei")
    seen: dict[str, Any] = {"steps": 0, "random": _random(device)}
    parts = {"net": net, "optimizer": optimizer, "curriculum": curriculum, "seen": seen}
    checkpoint = Checkpoint(folder / "states")
    checkpoint.load(**parts)
    _set_random(device, seen["random"])
    while seen["steps"] < STEPS:
        for batch in curriculum.epoch(net):
            step(batch)
            seen["steps"] += 1
            if seen["steps"] % EVERY == 0:
                seen["random"] = _random(device)
                checkpoint.save(seen["steps"], **parts)
            print("step", flush=True)
            if seen["steps"] == STEPS:
                break
    state = {f"net.{key}": value for key, value in net.state_dict().items()}
    adam = optimizer.state_dict()["state"]
    state |= {f"adam.{number}.{key}": value for number in adam for key, value in adam[number].items()}
    state |= {f"method.{key}": value for key, value in made.state_dict().items()}
    save_file({key: value.detach().cpu().contiguous() for key, value in state.items()}, folder / "end.safetensors")


def _random(device: str) -> torch.Tensor:
    return torch.cuda.get_rng_state() if device == "cuda" else torch.get_rng_state()


def _set_random(device: str, state: torch.Tensor) -> None:
    (torch.cuda.set_rng_state if device == "cuda" else torch.set_rng_state)(state.cpu())


def launch(name: str, device: str, folder: Path, kill_after: int | None, pause: float = 0.0) -> bool:
    """Trains in a separate process and kills it shortly after a number of steps; returns whether it was killed."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    own = {"PYTHONPATH": paths, "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "OMP_NUM_THREADS": "1"}
    words = [sys.executable, __file__, "--device", device, "--train", name, "--folder", str(folder)]
    with open(folder / "log", "ab") as log:
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, env={**os.environ, **own})
    assert child.stdout is not None
    with child.stdout:
        for done, _ in enumerate(child.stdout, 1):
            if done == kill_after:
                time.sleep(pause)
                child.kill()
        status = child.wait(timeout=600)
    if status not in (0, -9):
        raise AssertionError(f"a child ended with {status}: {(folder / 'log').read_text()[-600:]}")
    return status == -9


def killed(name: str, device: str, kills: int) -> int:
    """Raises unless a killed and resumed training ends like an undisturbed one; returns the number of kills."""
    draw, count = random.Random(name), 0
    with tempfile.TemporaryDirectory() as folder:
        alone, disturbed = Path(folder) / "alone", Path(folder) / "disturbed"
        launch(name, device, alone, None)
        for _ in range(kills):
            # Enough of the steps is left for those kills that come after.
            count += launch(name, device, disturbed, draw.randint(1, STEPS // (kills + 1)), draw.uniform(0, 0.03))
        launch(name, device, disturbed, None)
        expected, found = (load_file(path / "end.safetensors") for path in (alone, disturbed))
    assert expected.keys() == found.keys()
    for key, value in expected.items():
        if not torch.equal(value, found[key]):
            away = float((value.double() - found[key].double()).abs().max())
            raise AssertionError(f"after {count} kills {key} differs by {away:.3g}")
    return count


# ---------------------------------------------------------------- all of it


def ask(checks: Iterator[Check]) -> dict[str, Any]:
    """Runs every check; counts, seconds, and failures by name."""
    begun, failures, count, found = time.perf_counter(), {}, 0, []
    for name, check in checks:
        count += 1
        try:
            found.append(check())
        except Exception as error:
            traceback.print_exc(limit=-2, file=sys.stderr)
            failures[name] = f"{type(error).__name__}: {error}"[:400]
    result = {"checks": count, "failures": failures, "seconds": round(time.perf_counter() - begun, 1)}
    numbers = [value for value in found if isinstance(value, float)]
    return {**result, "largest_difference": max(numbers)} if numbers else result


def kills(device: str, names: tuple[str, ...], each: int) -> dict[str, Any]:
    """All killed trainings, on an accelerator at once."""
    counts: dict[str, int] = {}

    def one(name: str) -> None:
        counts[name] = killed(name, device, each)

    with ThreadPoolExecutor(len(names) if device == "cuda" else 1) as pool:
        futures = [(name, pool.submit(one, name)) for name in names]
        result = ask((name, future.result) for name, future in futures)
    return {**result, "kills": sum(counts.values()), "kills_by_method": counts}


SECTIONS: dict[str, Callable[[str], Iterator[Check]] | None] = {
    "contract table against the host": table,
    "steps that wait for the device": waits,
    "a row that is not finite": not_finite,
    "captured steps": captured,
    "fused kernels": kernels,
    "kills": None,
}


def section(title: str, device: str, quick: bool) -> dict[str, Any]:
    """One section; ``quick`` takes every twelfth check and one kill."""
    checks = SECTIONS[title]
    if checks is None:
        return kills(device, KILLED[:1] if quick else KILLED, 1 if quick else 3)
    found = ask(check for number, check in enumerate(checks(device)) if not quick or number % 12 == 0)
    return {**found, "triton_broken": list(fast._broken)}


def apart(title: str, device: str) -> dict[str, Any]:
    """One section in a separate process, because a device error may break everything after it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        words = [sys.executable, __file__, "--device", device, "--section", title, "--out", str(path)]
        ended = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=540)
        sys.stderr.write(ended.stderr)
        if not path.exists():
            return {"checks": 0, "failures": {title: f"ended with {ended.returncode}: {ended.stderr[-400:]}"}}
        found: dict[str, Any] = json.loads(path.read_text())["sections"][title]
        return found


def main(arguments: list[str] | None = None) -> int:
    """Asks everything, prints a line for each section and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--section", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="every twelfth check and one kill: does the script work?")
    parser.add_argument("--commit", help="where the files are no git checkout")
    parser.add_argument("--train", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if given.train:
        train(given.train, given.device, given.folder)
        return 0
    result = {"environment": where(" ".join(["benchmarks/device_check.py", *(arguments or sys.argv[1:])]))}
    result["environment"]["commit"] = given.commit or result["environment"]["commit"]
    earlier = json.loads(given.out.read_text())["sections"] if given.out and given.out.exists() else {}
    result |= {"device": given.device, "rows": len(TABLE), "sections": earlier}
    several = given.device == "cuda" and len(given.section) > 1 and not given.quick
    failed = 0
    with ThreadPoolExecutor(len(given.section) if several else 1) as pool:
        ask_for = apart if several else partial(section, quick=given.quick)
        for title, future in [(title, pool.submit(ask_for, title, given.device)) for title in given.section]:
            result["sections"][title] = found = future.result()
            failures = found["failures"]
            failed += len(failures)
            print(f"{title}: {found['checks']} checks, {len(failures)} failures", flush=True)
            for name, words in failures.items():
                print(f"  {name}: {words}", flush=True)
            save(given.out, result)
    print(f"{failed} failures on {result['environment']['accelerator'] or result['environment']['cpu']}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
