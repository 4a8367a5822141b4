"""Starts processes that train together, and lets none of them outlive the test."""

from __future__ import annotations

import gc
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

DEADLINE = 600.0  # seconds for all ranks to end
PATIENCE = 600.0  # seconds a rank waits for the others before it calls that a hang


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(work: Callable[..., None], world: int, *arguments: Any) -> None:
    """Runs ``work(rank, world, *arguments)`` in ``world`` processes that form a group, and waits for their end."""
    context = mp.start_processes(_rank, (world, free_port(), work, arguments), nprocs=world, join=False)
    assert context is not None
    end = time.monotonic() + DEADLINE
    try:
        while not context.join(timeout=5):
            if time.monotonic() > end:
                raise TimeoutError(f"{world} ranks did not end within {DEADLINE:.0f} s")
    finally:
        for process in context.processes:
            process.kill()


def _rank(rank: int, world: int, port: int, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=PATIENCE))
    work(rank, world, *arguments)
    end_rank()


def end_rank() -> NoReturn:
    """Ends a rank that has done its work, when all have.

    The interpreter itself does not end: torch may hold a group that was destroyed (DTensor's caches do, and default
    arguments of modules imported since), and its thread that drops a last tensor just then aborts the process.
    """
    gc.collect()  # models must go before their group
    dist.barrier()  # a rank that tears the group down while another still talks aborts
    dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


@contextmanager
def traffic() -> Iterator[list[tuple[torch.dtype, int]]]:
    """Notes (type, elements) of everything that ranks sum; gradients go another way and are not among it."""
    sent: list[tuple[torch.dtype, int]] = []
    real = dist.all_reduce

    def noted(tensor: torch.Tensor, *rest: Any, **options: Any) -> Any:
        sent.append((tensor.dtype, tensor.numel()))
        return real(tensor, *rest, **options)

    dist.all_reduce = noted
    try:
        yield sent
    finally:
        dist.all_reduce = real
