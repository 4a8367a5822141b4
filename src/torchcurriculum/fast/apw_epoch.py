"""The two passes of APW's epoch over all rows as Triton kernels; each matches its namesake in `functional`."""

from __future__ import annotations

import torch
from torch import Tensor

from ..functional.apw import joined

try:
    import triton
    import triton.language as tl
except ImportError:  # then the kernels are never called
    triton = None

__all__ = ["masses", "shift_"]

BLOCK = 2048  # the fastest of seven settings on an H200 (docs/results/gpu.json)
WARPS = 8


def masses(log_weights: Tensor, easy: Tensor) -> Tensor:
    """The weight on all easy and on all hard rows, and how many rows are easy: one read of every row."""
    n = len(log_weights)
    parts = torch.empty(triton.cdiv(n, BLOCK), 4, dtype=log_weights.dtype, device=log_weights.device)
    with torch.cuda.device_of(log_weights):
        _masses[(len(parts),)](log_weights, easy.view(torch.uint8), parts, n, BLOCK=BLOCK, num_warps=WARPS)
    return joined(parts)


def shift_(log_weights: Tensor, easy: Tensor, for_easy: Tensor, for_hard: Tensor) -> Tensor:
    """Adds one number to the log-weights of easy rows and another to those of hard rows: one read and one write."""
    n = len(log_weights)
    grid = (triton.cdiv(n, BLOCK),)
    with torch.cuda.device_of(log_weights):
        _shift[grid](log_weights, easy.view(torch.uint8), for_easy, for_hard, n, BLOCK=BLOCK, num_warps=WARPS)
    return log_weights


if triton is not None:

    @triton.jit
    def _masses(log_weights, easy, parts, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        block = tl.program_id(0).to(tl.int64)
        rows = block * BLOCK + tl.arange(0, BLOCK)
        inside = rows < n
        weights = tl.load(log_weights + rows, mask=inside, other=-float("inf"))
        flags = tl.load(easy + rows, mask=inside, other=0) != 0
        top = tl.max(weights, 0)
        top = tl.where(top == -float("inf"), 0.0, top)  # a block of rows without weight
        raw = tl.exp(weights - top)
        tl.store(parts + block * 4, top)
        tl.store(parts + block * 4 + 1, tl.sum(tl.where(flags, raw, 0.0), 0))
        tl.store(parts + block * 4 + 2, tl.sum(tl.where(flags, 0.0, raw), 0))
        tl.store(parts + block * 4 + 3, tl.sum(flags.to(tl.float32), 0).to(top.dtype))

    @triton.jit
    def _shift(log_weights, easy, for_easy, for_hard, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = rows < n
        weights = tl.load(log_weights + rows, mask=inside, other=0.0)
        flags = tl.load(easy + rows, mask=inside, other=0) != 0
        change = tl.where(flags, tl.load(for_easy), tl.load(for_hard))
        tl.store(log_weights + rows, weights + change, mask=inside)
