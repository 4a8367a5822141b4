"""The contract on an accelerator: what `test_cuda.py` and `benchmarks/device_check.py` ask of every row.

A check raises where a promise does not hold. None of them needs pytest. Each takes a device, and says something on
the CPU too.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from torchcurriculum import Arrays, Batch, Epoch, GraphedStep, fast

from .problem import Run, data, differences, method
from .row import Row

NEAR = 1e-9
STRATEGIES = ("error", "warn", "ignore")
VALUES = {"nan": math.nan, "inf": math.inf}
BROKEN = 11  # the row that is not finite


def agreement(row: Row, device: str) -> float:
    """The largest difference between a run on the device and one on the host, in float64, both with the same draws."""
    host = Run(method(row), row).train().tensors()
    run = Run(method(row), row)
    run.net.to(device)
    with draws_of_the_host():
        run.train()
    return _near(host, run.tensors())


def steps_without_waiting(row: Row, device: str = "cuda") -> None:
    """Raises if a step, after the first epoch, synchronises the host with the device."""
    run = Run(method(row), row)
    run.net.to(device)
    run.train(epochs=1)
    mode = torch.cuda.set_sync_debug_mode if device == "cuda" else lambda _: None
    for _ in range(2):
        for batch in run.curriculum.epoch(run.net):
            mode("error")
            try:
                run.curriculum.loss(run.net, batch).backward()
            finally:
                mode("default")


def broken(value: float) -> Arrays:
    """The contract's rows, one of which is not finite."""
    rows = data()
    rows.x[BROKEN, 0, 2, 2] = value
    return rows


def stays_finite(row: Row, device: str, strategy: Any, value: float) -> None:
    """Raises unless a row that is not finite ends the run with a sentence, or leaves parameters and state finite."""
    run = Run(method(row), row, rows=broken(value), nan_strategy=strategy)
    _ends_well(run, device, strategy, lambda: run.train(epochs=2))


def captured_step(row: Row, device: str) -> bool:
    """Raises unless captured steps do what plain ones do; whether any step was captured."""
    plain, captured = (Run(method(row), row) for _ in range(2))
    _graphed(plain, device, False)
    graphs = _graphed(captured, device, True)
    _near(plain.tensors(), captured.tensors())
    if device == "cuda" and not graphs and any(_may_be_captured(captured, epoch) for epoch in (1, 2, 3, 4)):
        raise AssertionError("no step was captured, and the table of torchcurriculum.fast says that it may be")
    return bool(graphs)


def captured_stays_finite(row: Row, device: str, strategy: Any, value: float) -> None:
    """The same as ``stays_finite`` where steps may be captured."""
    run = Run(method(row), row, rows=broken(value), nan_strategy=strategy)
    _ends_well(run, device, strategy, lambda: _graphed(run, device, True))


# ---------------------------------------------------------------- the same random numbers on both


@contextmanager
def draws_of_the_host() -> Iterator[None]:
    """Inside, all that methods draw is drawn on the host, so that a device draws the same."""
    with _OnTheHost(), _generators_of_the_host(Epoch), _generators_of_the_host(Batch):
        yield


def _generators_of_the_host(cls: Any) -> Any:
    real = cls.generator
    return patch.object(cls, "generator", lambda self, purpose, device="cpu": real(self, purpose))


class _OnTheHost(TorchFunctionMode):
    """Draws with a generator of the host, whatever the device of what is drawn."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("generator") is None:
            return function(*args, **kwargs)
        wanted = kwargs.get("device") or next((a.device for a in args if isinstance(a, Tensor)), "cpu")
        there = [a.cpu() if isinstance(a, Tensor) else a for a in args]
        drawn = function(*there, **{**kwargs, **({"device": "cpu"} if "device" in kwargs else {})})
        in_place = function.__name__.endswith("_") and isinstance(args[0], Tensor)
        return args[0].copy_(drawn) if in_place else drawn.to(wanted)


# ---------------------------------------------------------------- inside


def _near(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    found = differences({name: value.cpu() for name, value in a.items()}, {name: b[name].cpu() for name in b})
    worst = max(found, key=lambda name: found[name])
    if not found[worst] <= NEAR:
        raise AssertionError(f"{worst} differs by {found[worst]:.3g}")
    return found[worst]


def _ends_well(run: Run, device: str, strategy: str, train: Callable[[], Any]) -> None:
    run.net.to(device)
    before = [p.detach().clone() for p in run.net.parameters()]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*NaN or infinite")
        try:
            train()
        except ValueError as error:
            if strategy == "error" and "NaN or infinite" in str(error) and str(BROKEN) in str(error):
                return
            raise
    if strategy == "error":
        assert all(p.isfinite().all() for p in run.net.parameters()), "parameters are not finite, and nothing was said"
        assert run.curriculum.last[BROKEN].isinf(), "a row that is not finite was trained on, and nothing was said"
        return  # the method never came to that row
    for name, value in run.tensors().items():
        if name.startswith("net.") and not value.isfinite().all():
            raise AssertionError(f"{name} is not finite")
    if all(torch.equal(a, b) for a, b in zip(before, run.net.parameters(), strict=True)):
        raise AssertionError("nothing was learnt")


def _may_be_captured(run: Run, epoch: int) -> bool:
    """Whether steps of an epoch may be captured, and there were more whole batches than a capture needs."""
    rows = run.curriculum.record.epochs[epoch - 1]["rows"] if epoch <= len(run.curriculum.record.epochs) else 0
    return fast.graph_key(run.curriculum.method, epoch) is not None and rows // run.curriculum.batch_size > 3


def _graphed(run: Run, device: str, capture: bool) -> int:
    """Trains through ``GraphedStep``; returns how many graphs it made."""
    run.net.to(device)
    rate = torch.tensor(0.1, device=device)  # in float32, as fused SGD wants it
    run.optimizer = torch.optim.SGD(run.net.parameters(), rate, momentum=0.9, fused=True)
    step = GraphedStep(run.curriculum, run.net, run.optimizer, capture=capture)
    for _ in range(4):
        for batch in run.curriculum.epoch(run.net):
            step(batch)
    return len(step._captured)
