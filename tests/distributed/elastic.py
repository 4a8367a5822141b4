"""A training under torchrun that saves a state every few steps and is killed: ``-m tests.distributed.elastic``."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file

from torchcurriculum import Checkpoint

from .launch import PATIENCE, end_rank
from .problem import Case, Training

CASE = Case("apw-ei", {"q": 3, "threshold": 0.9}, accumulate=2, norm=True)
EVERY = 4  # steps between states: two windows of accumulated gradients, and no divisor of an epoch's six


def run(folder: Path, kills: Mapping[int, int]) -> None:
    """Goes on from the newest state in ``folder`` to the end.

    Args:
        folder: Where states, record and the outcome go.
        kills: step -> rank that is killed behind it, once.
    """
    training = Training(CASE, parallel=True, record=folder / "record", overwrite=True, samples=True)
    parts = {"net": training.net, "optimizer": training.optimizer, "curriculum": training.curriculum}
    checkpoint = Checkpoint(folder / "states")
    training.steps = checkpoint.load(**parts) or 0
    if dist.get_rank() == 0:
        with open(folder / "starts.txt", "a") as file:
            file.write(f"{training.steps}\n")

    def after(training: Training) -> None:
        if training.steps % EVERY == 0:
            assert checkpoint.save(training.steps, **parts)
        mark = folder / f"killed-{training.steps}"
        if kills.get(training.steps) == dist.get_rank() and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    training.train(after=after)
    found = {name: value.contiguous() for name, value in training.tensors().items() if not name.startswith("plan")}
    save_file(found, folder / f"end-{dist.get_rank()}.safetensors")


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=PATIENCE))
    run(Path(sys.argv[1]), {int(step): rank for step, rank in json.loads(sys.argv[2]).items()})
    end_rank()
