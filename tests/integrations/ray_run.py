"""The Ray example in float64, and the example as it stands, by two workers: ``-m tests.integrations.ray_run``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ray
import torch

import torchcurriculum.lab.data

from .engines import BATCH, EPOCHS, doubles, example, leave


def work(config: dict[str, Any]) -> None:
    """What every worker does: first what a user would see, then the same in double precision."""
    torch.set_num_threads(1)
    made = example("ray_train")
    made.work({"epochs": 2})
    torch.set_default_dtype(torch.float64)
    torchcurriculum.lab.data.load_digits = doubles
    rank = ray.train.get_context().get_world_rank()
    leave(Path(config["folder"]) / f"ray_train-2-{rank}", *example("ray_train").train(EPOCHS, BATCH))


if __name__ == "__main__":
    temporary, folder = sys.argv[1:]
    ray.init(num_cpus=2, include_dashboard=False, _temp_dir=temporary, object_store_memory=100 * 2**20)
    example("ray_train").fit(work, 2, {"folder": folder})
    ray.shutdown()
