"""Each rank of ``torchrun -m tests.integrations.hf_ranks FOLDER`` trains every case and leaves its tensors."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from ..distributed.launch import end_rank
from . import test_trl as sft
from .hf_problem import tensors, trainer

# Of two ranks; one process takes twice the rows at a time.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "vanilla": ("vanilla", {"per_device_train_batch_size": 4}),
    "apw-e": ("apw-e", {"per_device_train_batch_size": 4, "save_strategy": "steps", "save_steps": 3}),
    "apw-ei": ("apw-ei", {"per_device_train_batch_size": 4}),
    "s-apw-e": ("s-apw-e", {"per_device_train_batch_size": 4}),
    "accumulated": ("apw-e", {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}),
    "trl": ("apw-e", {"per_device_train_batch_size": 4}),
}


def make(case: str, folder: Path, batch_size: int) -> Any:
    """The trainer of a case."""
    name, options = CASES[case]
    maker = sft.trainer if case == "trl" else trainer
    return maker(name, folder, **{**options, "per_device_train_batch_size": batch_size})


def main(folder: Path) -> None:
    """Trains all cases."""
    for case, (_, options) in CASES.items():
        made = make(case, folder / case, options["per_device_train_batch_size"])
        made.train()
        state = {key: value.contiguous() for key, value in tensors(made).items() if value.numel()}
        save_file(state, folder / f"{case}-{os.environ['RANK']}.safetensors")
    end_rank()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
