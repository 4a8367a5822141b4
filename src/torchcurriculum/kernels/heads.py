"""From a batch's losses to its scalar loss in one Triton kernel; each does what the `weigh` of its method does.

A kernel computes the weights, sums them with the losses and notes the loss of each row, which in plain torch takes ten
kernels (APW) to a hundred (RAPW): more than a small network's step has time for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

try:
    import triton
    import triton.language as tl
except ImportError:  # then nobody calls what follows
    triton = None

__all__ = ["LARGEST", "MOST_CLASSES", "apw", "cross_entropy", "rapw", "superloss"]

LARGEST = 4096  # rows of a batch that one block of threads takes
MOST_CLASSES = 8192  # of a row that one block of threads takes


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """(B,) losses of (B, C) logits in one kernel, and their gradient in another; float32 unless logits are float64."""
    return _CrossEntropy.apply(logits, y)


def apw(
    losses: Tensor, seen: Tensor, index: Tensor, log_weights: Tensor, change: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """APW's step. ``change`` is (e, alpha) for I and EI weighting, whose rows are also written; None for E."""
    size, n = len(losses), len(log_weights)
    e, alpha = (log_weights, log_weights) if change is None else change

    def launch(values: Tensor, weights: Tensor, loss: Tensor) -> None:
        batch = (values, seen, index, weights, loss, size)
        _apw[(1,)](*batch, log_weights, e, alpha, n, CHANGES=change is not None, **_block(size))

    return _Head.apply(losses, launch)


def superloss(losses: Tensor, seen: Tensor, index: Tensor, tau: Tensor, lam: Tensor) -> Tensor:
    """SuperLoss' step with the threshold tau and the strength lambda, both scalar tensors in float64."""
    size = len(losses)

    def launch(values: Tensor, weights: Tensor, loss: Tensor) -> None:
        _superloss[(1,)](values, seen, index, weights, loss, size, tau, lam, **_block(size))

    return _Head.apply(losses, launch)


def rapw(losses: Tensor, seen: Tensor, index: Tensor, labels: Tensor | None, state: dict[str, Tensor]) -> Tensor:
    """RAPW's step; ``state`` holds its memory, rho, times, trust, knobs (decay, lambda), means and sums."""
    size, classes = len(losses), state["means"].numel()
    width = min(32, triton.next_power_of_2(classes))

    def launch(values: Tensor, weights: Tensor, loss: Tensor) -> None:
        batch = (values, seen, index, weights, loss, size)
        names = ("means", "sums", "rho", "times", "trust", "knobs")
        held = (state["memory"], index if labels is None else labels.contiguous(), *(state[name] for name in names))
        _rapw[(1,)](*batch, *held, CLASSES=classes, WIDTH=width, LABELLED=labels is not None, **_block(size))

    return _Head.apply(losses, launch)


def _block(size: int) -> dict[str, int]:
    block = max(32, triton.next_power_of_2(size))
    return {"BLOCK": block, "num_warps": 4 if block <= 1024 else 8}


def _row(classes: int) -> dict[str, int]:
    block = triton.next_power_of_2(classes)
    return {"BLOCK": block, "num_warps": 1 if block <= 256 else 4 if block <= 2048 else 8}


class _Head(torch.autograd.Function):
    """The sum of weights times losses, whose gradient for the losses is the weights."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, launch: Callable[[Tensor, Tensor, Tensor], None]) -> Tensor:
        weights, loss = torch.empty_like(losses), losses.new_empty(())
        with torch.cuda.device_of(losses):
            launch(losses.contiguous(), weights, loss)
        ctx.save_for_backward(weights)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (weights,) = ctx.saved_tensors
        return gradients[0] * weights, None


class _CrossEntropy(torch.autograd.Function):
    """Minus the log-softmax of the label; labels of -100 have no loss, as in torch, and impossible ones NaN."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, y: Tensor) -> Tensor:
        logits, y = logits.contiguous(), y.contiguous()
        rows, classes = logits.shape
        kind = torch.float64 if logits.dtype == torch.float64 else torch.float32
        losses = torch.empty(rows, dtype=kind, device=logits.device)
        with torch.cuda.device_of(logits):
            _entropy[(rows,)](logits, y, losses, classes, **_row(classes))
        ctx.save_for_backward(logits, y)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        logits, y = ctx.saved_tensors
        rows, classes = logits.shape
        slopes = torch.empty_like(logits)
        with torch.cuda.device_of(logits):
            _entropy_slopes[(rows,)](logits, y, gradients[0].contiguous(), slopes, classes, **_row(classes))
        return slopes, None


if triton is not None:

    @triton.jit
    def _entropy(logits, y, losses, classes, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        row = tl.program_id(0).to(tl.int64)
        place = tl.arange(0, BLOCK)
        kind = losses.dtype.element_ty
        values = tl.load(logits + row * classes + place, mask=place < classes, other=-float("inf")).to(kind)
        label = tl.load(y + row)
        possible = (label >= 0) & (label < classes)
        own = tl.load(logits + row * classes + label, mask=possible, other=0.0).to(kind)
        top = tl.max(values, 0)
        loss = tl.log(tl.sum(tl.exp(values - top), 0)) + top - own
        tl.store(losses + row, tl.where(possible, loss, tl.where(label == -100, 0.0, float("nan"))).to(kind))

    @triton.jit
    def _entropy_slopes(logits, y, gradient, out, classes, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        row = tl.program_id(0).to(tl.int64)
        place = tl.arange(0, BLOCK)
        inside = place < classes
        kind = gradient.dtype.element_ty
        values = tl.load(logits + row * classes + place, mask=inside, other=-float("inf")).to(kind)
        label = tl.load(y + row)
        raw = tl.exp(values - tl.max(values, 0))
        slope = raw / tl.sum(raw, 0) - tl.where(place == label, 1.0, 0.0)
        slope = tl.where(label == -100, 0.0, slope * tl.load(gradient + row))
        tl.store(out + row * classes + place, slope.to(out.dtype.element_ty), mask=inside)

    @triton.jit
    def _finish(place, inside, rows, loss, share, seen, weights, total):  # type: ignore[no-untyped-def]
        """What every step ends with; a loss that is not finite is noted as NaN."""
        kind = weights.dtype.element_ty
        share = share.to(kind)
        tl.store(weights + place, share, mask=inside)
        tl.store(total, tl.sum(tl.where(inside, share * loss.to(kind), 0.0), 0))
        known = (loss == loss) & (tl.abs(loss) != float("inf"))
        tl.store(seen + rows, tl.where(known, loss, float("nan")).to(seen.dtype.element_ty), mask=inside)

    @triton.jit(do_not_specialize=["size", "n"])  # a size of 1 would become a constant, which cannot be converted
    def _apw(  # type: ignore[no-untyped-def]
        losses, seen, index, weights, total, size, log_weights, e, alpha, n, CHANGES: tl.constexpr, BLOCK: tl.constexpr
    ):
        place = tl.arange(0, BLOCK)
        inside = place < size
        rows = tl.load(index + place, mask=inside, other=0)
        loss = tl.load(losses + place, mask=inside, other=0.0)
        logs = tl.load(log_weights + rows, mask=inside, other=-float("inf"))
        if CHANGES:
            change = tl.load(alpha)
            logs = logs + tl.where(loss <= tl.load(e).to(loss.dtype), -change, change)
        top = tl.max(logs, 0)
        raw = tl.exp(logs - top)
        scale = tl.sum(raw, 0)
        if CHANGES:  # N_ks / N keeps the rows on the scale of the whole vector
            share = tl.log(size.to(tl.float64) / n)
            tl.store(log_weights + rows, logs - top - tl.log(scale) + share, mask=inside)
        _finish(place, inside, rows, loss, raw / scale, seen, weights, total)

    @triton.jit
    def _lambert(x):  # type: ignore[no-untyped-def]
        """`functional.superloss.lambert_w`, step for step, for x >= -1/e in float64."""
        zero = x * 0.0
        euler = zero + 2.718281828459045
        above = tl.maximum(x + 0.36787944117144233 - 1.2428753672788363e-17, zero)
        p = tl.sqrt(above * 2.0 * euler)
        series = zero + 226287557 / 37623398400
        series = series * p - 1963 / 204120
        series = series * p + 680863 / 43545600
        series = series * p - 221 / 8505
        series = series * p + 769 / 17280
        series = series * p - 43 / 540
        series = series * p + 11 / 72
        series = series * p - 1 / 3
        series = series * p + 1.0
        series = series * p - 1.0
        log = tl.log(tl.maximum(x, euler))
        middle = tl.log(1.0 + tl.maximum(x, zero))
        small = tl.maximum(p - 1.0 - p * p / 3.0, zero - 0.99)
        w = tl.where(x < 0.0, small, tl.where(x < euler, middle, log - tl.log(log)))
        for _ in tl.static_range(3):
            scaled = x * tl.exp(-w)
            residual = w - scaled
            slope = 1.0 + scaled
            w = w - residual / (slope + residual * scaled / (2.0 * slope))
        return tl.where(p < 0.02, series, w)

    @triton.jit
    def _half_beta(loss, tau, lam):  # type: ignore[no-untyped-def]
        """What SuperLoss gives to Lambert's function: half of (loss - tau) / lambda, at least -1/e."""
        beta = (loss - tau) / lam
        return tl.maximum(beta, beta * 0.0 - 2.0 * 0.36787944117144233) / 2.0

    @triton.jit
    def _superloss(  # type: ignore[no-untyped-def]
        losses, seen, index, weights, total, size, tau, lam, BLOCK: tl.constexpr
    ):
        place = tl.arange(0, BLOCK)
        inside = place < size
        rows = tl.load(index + place, mask=inside, other=0)
        loss = tl.load(losses + place, mask=inside, other=0.0)
        w = _lambert(_half_beta(loss.to(tl.float64), tl.load(tau), tl.load(lam)))
        _finish(place, inside, rows, loss, tl.exp(-w) / size, seen, weights, total)

    @triton.jit
    def _rapw(  # type: ignore[no-untyped-def]
        losses,
        seen,
        index,
        weights,
        total,
        size,
        memory,
        labels,
        means,
        sums,
        rho,
        times,
        trust,
        knobs,
        CLASSES: tl.constexpr,
        WIDTH: tl.constexpr,
        LABELLED: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        place = tl.arange(0, BLOCK)
        inside = place < size
        rows = tl.load(index + place, mask=inside, other=0)
        loss = tl.load(losses + place, mask=inside, other=0.0)
        now = loss.to(tl.float64)
        zero = now * 0.0
        # What the memory will hold after this epoch; rows without one are as likely right as any.
        kept = tl.load(memory + rows, mask=inside, other=0.0).to(tl.float64)
        count = tl.load(times)
        keep = tl.minimum(count / (count + 1.0), tl.load(knobs))
        value = keep * kept + (1.0 - keep) * now
        value = tl.minimum(tl.maximum(value, zero + 1e-6), zero + 50.0)
        wrong = tl.load(rho)
        p = tl.exp(-value)
        unlikely = (1.0 - p) * value / -tl.log(p)  # 1 - p, exact also where p is nearly 1
        evidence = tl.log(zero + (CLASSES - 1)) - value - tl.log(unlikely)
        odds = tl.log((1.0 - wrong) / wrong) + tl.where(kept == kept, evidence, 0.0)
        right = tl.minimum(odds, zero) - tl.log(1.0 + tl.exp(-tl.abs(odds)))
        half = _half_beta(now, tl.log(zero + CLASSES), tl.load(knobs + 1))
        sure = tl.load(trust) * (right - _lambert(half))
        label = place * 0
        if LABELLED:
            label = tl.load(labels + place, mask=inside, other=0).to(tl.int32)
        known = inside & (label >= 0) & (label < CLASSES)
        logs = sure - tl.log(tl.load(means + label, mask=known, other=1.0))
        logs = tl.where(inside, logs, -float("inf"))
        raw = tl.exp(logs - tl.max(logs, 0))
        share = tl.exp(sure)
        for start in range(0, CLASSES, WIDTH):
            some = start + tl.arange(0, WIDTH)
            same = known[:, None] & (label[:, None] == some[None, :])
            held = some < CLASSES
            part = tl.sum(tl.where(same, share[:, None], 0.0), 0)
            old = tl.load(sums + some, mask=held, other=0.0)
            tl.store(sums + some, old + part, mask=held)
            old = tl.load(sums + CLASSES + some, mask=held, other=0.0)
            tl.store(sums + CLASSES + some, old + tl.sum(same.to(tl.float64), 0), mask=held)
        _finish(place, inside, rows, loss, raw / tl.sum(raw, 0), seen, weights, total)
