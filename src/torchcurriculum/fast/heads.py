"""From a batch's logits or losses to its scalar loss in one Triton kernel, equal to its method's `weigh`.

A kernel computes the losses (cross-entropy, if it is given logits), weights and sums them, and stores the loss of each
row. In plain torch that takes a dozen kernels (APW) to dozens (SuperLoss), a large overhead for a small network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # then the kernels are never called
    triton = None

__all__ = ["HEADS", "fits"]

LARGEST = 4096  # rows of a batch that one block of threads can handle,
MOST = 16384  # and its logits


def fits(source: Tensor) -> bool:
    """Whether these (B,) losses or (B, C) logits are few enough for one block of threads."""
    if not 0 < len(source) <= LARGEST:
        return False
    return source.ndim == 1 or (source.shape[1] >= 2 and _rows(len(source)) * _columns(source.shape[1]) <= MOST)


def apw(
    source: Tensor, y: Tensor | None, seen: Tensor, index: Tensor, log_weights: Tensor, change: Any = None
) -> Tensor:
    """APW's step. ``change`` is (e, alpha) for I and EI weighting, whose rows are also written; None for E."""
    e, alpha = (log_weights, log_weights) if change is None else change
    state = (log_weights, e, alpha, len(log_weights))
    return _Head.apply(source, y, seen, index, _apw, state, {"CHANGES": change is not None})


def superloss(
    source: Tensor,
    y: Tensor | None,
    seen: Tensor,
    index: Tensor,
    tau: Tensor,
    lam: Tensor,
    count: Tensor | None = None,
    share: float | None = None,
) -> Tensor:
    """SuperLoss' step with the threshold tau and the strength lambda, both scalar tensors in float64.

    With ``count``, the number of losses so far, tau first moves towards the mean of the batch by ``share``; if
    ``share`` is None, tau becomes the mean of all losses.
    """
    options = {"FOLLOWS": count is not None, "SHARE": 0.0 if share is None else share, "AVERAGE": share is None}
    return _Head.apply(source, y, seen, index, _superloss, (tau, lam, tau if count is None else count), options)


HEADS: dict[str, Callable[..., Tensor]] = {"apw": apw, "superloss": superloss}


def _rows(rows: int) -> int:
    return max(32, triton.next_power_of_2(rows))


def _columns(classes: int) -> int:
    return triton.next_power_of_2(max(1, classes))


class _Head(torch.autograd.Function):
    """The sum of weights times losses; the weights are constants for gradients of any order."""

    @staticmethod
    def forward(
        ctx: Any,
        source: Tensor,
        y: Tensor | None,
        seen: Tensor,
        index: Tensor,
        kernel: Any,
        state: tuple[Any, ...],
        options: dict[str, Any],
    ) -> Tensor:
        source, rows = source.contiguous(), len(source)
        kind = torch.float64 if source.dtype == torch.float64 else torch.float32
        weights, loss = source.new_empty(rows, dtype=kind), source.new_empty((), dtype=kind)
        labels = index if y is None else y.contiguous()
        classes = 0 if y is None else source.shape[1]
        block, wide = _rows(rows), _columns(classes)
        large = block > 1024 or block * wide > 4096
        sizes = {"LOGITS": classes, "WIDE": wide, "BLOCK": block, "num_warps": 8 if large else 4}
        with torch.cuda.device_of(source):
            kernel[(1,)](source, labels, seen, index, weights, loss, rows, *state, **options, **sizes)
        ctx.save_for_backward(weights, *(() if y is None else (source, labels)))
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        weights, *rest = ctx.saved_tensors
        others = [None] * 6
        if not rest:
            return gradients[0] * weights, *others
        logits, y = rest
        if torch.is_grad_enabled():  # a second-order gradient is needed
            return _plain_slopes(logits, y, gradients[0] * weights), *others
        rows, classes = logits.shape
        slopes = torch.empty_like(logits)
        sizes = {"CLASSES": classes, "WIDE": _columns(classes), "num_warps": 1 if classes <= 256 else 4}
        with torch.cuda.device_of(logits):
            _slopes[(rows,)](logits, y, weights, gradients[0], slopes, **sizes)
        return slopes, *others


def _plain_slopes(logits: Tensor, y: Tensor, factors: Tensor) -> Tensor:
    """(B, C) gradient of the sum of factors times cross-entropies."""
    possible = y != -100
    given = torch.nn.functional.one_hot(torch.where(possible, y, 0), logits.shape[1])
    slopes = (logits.to(factors.dtype).softmax(1) - given) * (factors * possible)[:, None]
    return slopes.to(logits.dtype)


if triton is not None:

    @triton.jit
    def _losses(source, y, place, inside, like, LOGITS: tl.constexpr, WIDE: tl.constexpr):  # type: ignore[no-untyped-def]
        """The batch's losses: as given, or the cross-entropy of its logits.

        Labels of -100 have zero loss, as in torch; invalid ones have NaN.
        """
        kind = like.dtype.element_ty
        if LOGITS == 0:
            loss = tl.load(source + place, mask=inside, other=0.0)
        else:
            column = tl.arange(0, WIDE)[None, :]
            held = inside[:, None] & (column < LOGITS)
            values = tl.load(source + place[:, None] * LOGITS + column, mask=held, other=0.0).to(kind)
            values = tl.where(column < LOGITS, values, -float("inf"))
            label = tl.load(y + place, mask=inside, other=0)
            own = tl.sum(tl.where(column == label[:, None], values, 0.0), 1)
            top = tl.max(values, 1)
            loss = tl.log(tl.sum(tl.exp(values - top[:, None]), 1)) + top - own
            possible = (label >= 0) & (label < LOGITS)
            loss = tl.where(possible, loss, tl.where(label == -100, 0.0, float("nan"))).to(kind)
        return loss

    @triton.jit
    def _slopes(  # type: ignore[no-untyped-def]
        logits, y, weights, gradient, out, CLASSES: tl.constexpr, WIDE: tl.constexpr
    ):
        """The gradient of the sum of weights times cross-entropies for one row of logits."""
        row = tl.program_id(0)
        place = tl.arange(0, WIDE)
        inside = place < CLASSES
        kind = weights.dtype.element_ty
        values = tl.load(logits + row * CLASSES + place, mask=inside, other=-float("inf")).to(kind)
        label = tl.load(y + row)
        raw = tl.exp(values - tl.max(values, 0))
        slope = raw / tl.sum(raw, 0) - tl.where(place == label, 1.0, 0.0)
        slope = tl.where(label == -100, 0.0, slope * tl.load(weights + row) * tl.load(gradient))
        tl.store(out + row * CLASSES + place, slope.to(out.dtype.element_ty), mask=inside)

    @triton.jit
    def _finish(place, inside, rows, loss, share, seen, weights, total):  # type: ignore[no-untyped-def]
        """The end of every step; a loss that is not finite is stored as NaN."""
        kind = weights.dtype.element_ty
        share = share.to(kind)
        tl.store(weights + place, share, mask=inside)
        tl.store(total, tl.sum(tl.where(inside, share * loss.to(kind), 0.0), 0))
        known = (loss == loss) & (tl.abs(loss) != float("inf"))
        tl.store(seen + rows, tl.where(known, loss, float("nan")).to(seen.dtype.element_ty), mask=inside)

    @triton.jit(do_not_specialize=["size", "n"])  # a size of 1 would become a constant, which cannot be converted
    def _apw(  # type: ignore[no-untyped-def]
        source,
        y,
        seen,
        index,
        weights,
        total,
        size,
        log_weights,
        e,
        alpha,
        n,
        CHANGES: tl.constexpr,
        LOGITS: tl.constexpr,
        WIDE: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        place = tl.arange(0, BLOCK)
        inside = place < size
        rows = tl.load(index + place, mask=inside, other=0)
        loss = _losses(source, y, place, inside, weights, LOGITS, WIDE)
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
        """Lambert's W for x >= -1/e in float64, by three Halley iterations; the plain version is a table."""
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
        """The argument of Lambert's function in SuperLoss: half of (loss - tau) / lambda, at least -1/e."""
        beta = (loss - tau) / lam
        return tl.maximum(beta, beta * 0.0 - 2.0 * 0.36787944117144233) / 2.0

    @triton.jit
    def _superloss(  # type: ignore[no-untyped-def]
        source,
        y,
        seen,
        index,
        weights,
        total,
        size,
        tau,
        lam,
        count,
        FOLLOWS: tl.constexpr,
        SHARE: tl.constexpr,
        AVERAGE: tl.constexpr,
        LOGITS: tl.constexpr,
        WIDE: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        place = tl.arange(0, BLOCK)
        inside = place < size
        rows = tl.load(index + place, mask=inside, other=0)
        loss = _losses(source, y, place, inside, weights, LOGITS, WIDE)
        at = tl.load(tau)
        if FOLLOWS:
            before = tl.load(count)
            after = before + size
            share = size / after if AVERAGE else after * 0.0 + SHARE
            mean = tl.sum(tl.where(inside, loss.to(tl.float64), 0.0), 0) / size
            at += tl.where(before == 0, after * 0.0 + 1.0, share) * (mean - at)
            tl.store(tau, at)
            tl.store(count, after)
        w = _lambert(_half_beta(loss.to(tl.float64), at, tl.load(lam)))
        _finish(place, inside, rows, loss, tl.exp(-w) / size, seen, weights, total)
