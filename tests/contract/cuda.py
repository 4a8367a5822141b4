"""The contract on an accelerator, runnable without pytest: ``PYTHONPATH=src python -m tests.contract.cuda``.

Every method gives the same parameters as on the CPU, and no step makes the host wait for the device.
"""

from __future__ import annotations

import json
import sys
import traceback

import torch

from .problem import Run, differences, method
from .row import Row
from .table import TABLE

# These draw on the device, which gives other random numbers than the host from the same seed.
DRAWS = {"s-apw-a", "s-apw-e", "s-apw-i", "s-apw-ei", "m-apw-e", "m-apw-i", "m-apw-ei", "mixup", "cutmix"}
DRAWS |= {"m-apw-beta-e", "m-apw-beta-i", "m-apw-beta-ei"}
DRAWS |= {"baby-step", "lambda-step", "random", "dihcl", "efficient-train", "efficient-train-plus", "cbm", "infobatch"}
DRAWS |= {"then-three", "sampled-both", "sampled-rapw", "mixed-superloss", "mixed-rapw", "mixed-both", "then-mixed"}


def agreement(row: Row) -> float:
    """The largest difference between a run on the device and one on the host, in float64."""
    host = Run(method(row), row).train().tensors()
    device = Run(method(row), row)
    device.net.cuda()
    device.train()
    return max(differences(host, {name: value.cpu() for name, value in device.tensors().items()}).values())


def steps_without_waiting(row: Row) -> None:
    """Raises if a step, after the first epoch, synchronises the host with the device."""
    run = Run(method(row), row)
    run.net.cuda()
    run.train(epochs=1)
    for _ in range(2):
        for batch in run.curriculum.epoch(run.net):
            torch.cuda.set_sync_debug_mode("error")
            try:
                run.curriculum.loss(run.net, batch).backward()
            finally:
                torch.cuda.set_sync_debug_mode("default")


def main() -> int:
    """Checks every row and prints what was found as JSON lines."""
    failed = 0
    for row in TABLE:
        found: dict[str, object] = {"row": row.label}
        for name, check in (("difference", agreement), ("waits", steps_without_waiting)):
            try:
                found[name] = check(row)
            except Exception as error:
                found[name] = f"{type(error).__name__}: {error}"[:300]
                failed += 1
                traceback.print_exc(limit=-3, file=sys.stderr)
        print(json.dumps(found), flush=True)
    print(f"{len(TABLE)} rows, {failed} failures on {torch.cuda.get_device_name()}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
