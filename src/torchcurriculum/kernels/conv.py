"""3x3 convolutions between few channels in bfloat16 as Triton kernels: the output, and gradients of all that goes in.

For 3 to 32 and 32 to 32 channels cuDNN converts, pads and clears before it computes; here each of output, input
gradient and weight gradient is one kernel that reads what lies there (and one more that sums the weight's parts).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.grad import conv2d_input, conv2d_weight

try:
    import triton
    import triton.language as tl
except ImportError:  # then nobody calls what follows
    triton = None

__all__ = ["NarrowConv2d", "conv3x3"]

MOST = 2**31  # numbers of a tensor, whose places are counted in 32 bits
BLOCK = 32  # products of a pixel that are summed at once
CONVOLVE = {"BM": 128, "BK": BLOCK, "num_warps": 4}  # the fastest of twelve settings on an H200
WEIGH = {"BM": 128, "num_warps": 4, "num_stages": 1}
LAST = torch.channels_last


class NarrowConv2d(nn.Conv2d):
    """A 3x3 convolution, stride 1, no padding, whose outputs on CUDA are bfloat16 by these kernels."""

    @classmethod
    def fits(cls, other: nn.Module) -> bool:
        """Whether a module is a convolution that this can stand for."""
        if type(other) is not nn.Conv2d or other.bias is None or other.groups != 1:
            return False
        form = (other.kernel_size, other.stride, other.padding, other.dilation)
        inputs, outputs = other.in_channels, other.out_channels
        narrow = (inputs <= 3 or inputs in (32, 64)) and outputs in (32, 64)
        return form == ((3, 3), (1, 1), (0, 0), (1, 1)) and narrow

    @classmethod
    def like(cls, other: nn.Conv2d) -> NarrowConv2d:
        """The same convolution, with the same parameters."""
        made = cls(other.in_channels, other.out_channels, 3, device="meta")
        made.weight, made.bias = other.weight, other.bias
        return made

    def forward(self, x: Tensor) -> Tensor:
        """The outputs; of inputs on a CPU, of very many and of none as PyTorch computes them."""
        if not x.is_cuda or not self.takes(x.shape):
            return super().forward(x)
        assert self.bias is not None
        return conv3x3(x, self.weight, self.bias)

    def takes(self, shape: Sequence[int]) -> bool:
        """Whether the kernels can count the places of such inputs and of their outputs; wrong ones PyTorch refuses."""
        if len(shape) != 4 or shape[1] != self.in_channels or min(shape[2:]) < 3:
            return False
        pixels = shape[0] * shape[2] * shape[3]
        return 0 < pixels * max(self.in_channels, self.out_channels) < MOST


def conv3x3(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The convolution of (N, CI, H, W) inputs with (CO, CI, 3, 3) weights and (CO,) biases, in bfloat16."""
    return torch.ops.torchcurriculum.conv3x3(x, weight, bias)


@torch.library.custom_op("torchcurriculum::conv3x3", mutates_args=())
def _output(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    y = _empty(x, len(weight), -2)
    _run_convolve(x.contiguous(memory_format=LAST), weight, bias, y, flipped=False)
    return y


@torch.library.custom_op("torchcurriculum::conv3x3_input", mutates_args=())
def _input_gradient(slopes: Tensor, weight: Tensor) -> Tensor:
    x = _empty(slopes, weight.shape[1], 2)
    _run_convolve(slopes.contiguous(memory_format=LAST), weight, weight, x, flipped=True)
    return x


@torch.library.custom_op("torchcurriculum::conv3x3_weight", mutates_args=())
def _weight_gradient(slopes: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    slopes, x = slopes.contiguous(memory_format=LAST), x.contiguous(memory_format=LAST)
    inputs, outputs, total = x.shape[1], slopes.shape[1], slopes.numel() // slopes.shape[1]
    rows = 512 if total > 50_000 else 256  # pixels of a part
    parts = slopes.new_empty(triton.cdiv(total, rows), 9 * inputs + 1, outputs, dtype=torch.float32)
    found, sums = torch.empty_like(weight), weight.new_empty(len(weight))
    sizes = {"CI": inputs, "CO": outputs}
    more = {"WIDE": max(16, triton.next_power_of_2(3 * inputs)), "ROWS": rows, **WEIGH}
    with torch.cuda.device_of(x):
        _weigh[(len(parts), 3)](x, slopes, parts, total, *x.shape[2:], *slopes.shape[2:], **sizes, **more)
        _add[(9 * inputs + 1,)](parts, found, sums, len(parts), *weight.stride(), **sizes, BM=64)
    return found, sums


def _run_convolve(x: Tensor, weight: Tensor, bias: Tensor, y: Tensor, flipped: bool) -> None:
    """``flipped`` is the gradient of the input: a convolution of the padded output's with the turned weights."""
    out, into, down, right = weight.stride()
    inputs, outputs, total = x.shape[1], y.shape[1], y.numel() // y.shape[1]
    strides = (2 * down + 2 * right, -down, -right, out, into) if flipped else (0, down, right, into, out)
    sizes = {"CI": inputs, "CO": outputs, "PAD": 2 if flipped else 0, "SMALL": inputs < BLOCK}
    with torch.cuda.device_of(x):
        grid = (triton.cdiv(total, CONVOLVE["BM"]),)
        _convolve[grid](x, weight, bias, y, total, *x.shape[2:], *y.shape[2:], *strides, **sizes, **CONVOLVE)


def _empty(x: Tensor, channels: int, grown: int) -> Tensor:
    n, _, height, width = x.shape
    size = (n, channels, height + grown, width + grown)
    return torch.empty(size, dtype=torch.bfloat16, device=x.device, memory_format=LAST)


@_output.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return _empty(x, len(weight), -2)


@_input_gradient.register_fake
def _(slopes: Tensor, weight: Tensor) -> Tensor:
    return _empty(slopes, weight.shape[1], 2)


@_weight_gradient.register_fake
def _(slopes: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(weight), weight.new_empty(len(weight))


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
    x, weight = ctx.saved_tensors
    ops, wanted, again = torch.ops.torchcurriculum, ctx.needs_input_grad[0], torch.is_grad_enabled()
    into = None
    if wanted and (again or x.shape[1] < BLOCK):
        into = conv2d_input(x.shape, weight, slopes.to(weight.dtype)).to(x.dtype)
    elif wanted:
        into = ops.conv3x3_input(slopes, weight).to(x.dtype)
    if not again:
        return into, *ops.conv3x3_weight(slopes, x, weight)
    plain = slopes.to(weight.dtype)  # somebody wants a gradient of the gradient
    return into, conv2d_weight(x.to(weight.dtype), weight.shape, plain), plain.sum((0, 2, 3))


_output.register_autograd(_backward, setup_context=_keep)


if triton is not None:

    @triton.jit
    def _convolve(  # type: ignore[no-untyped-def]
        x, weight, bias, y, total, H, W, OH, OW, base, down, right, into, out,
        CI: tl.constexpr, CO: tl.constexpr, PAD: tl.constexpr, SMALL: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    ):  # fmt: skip
        """BM pixels of the output, whose channels are sums over the CI channels of nine pixels of the input."""
        row = tl.program_id(0) * BM + tl.arange(0, BM)
        held = row < total
        place = row % (OH * OW)
        top, left = place // OW - PAD, place % OW - PAD
        first = (row // (OH * OW) * H + top) * W + left  # of the nine pixels
        channel = tl.arange(0, CO)[None, :]
        sums = tl.zeros((BM, CO), tl.float32)
        for start in tl.static_range(0, 9 * CI, BK):
            if SMALL:  # all nine pixels at once
                k = tl.arange(0, BK)
                c, tap = k % CI, k // CI
                real = k < 9 * CI
                a_at = (first[:, None] + tap // 3 * W + tap % 3) * CI + c
                a = tl.load(x + a_at, mask=held[:, None] & real[None, :], other=0.0)
                b_at = base + tap // 3 * down + tap % 3 * right + c * into
                b = tl.load(weight + b_at[:, None] + channel * out, mask=real[:, None], other=0.0)
            else:  # some channels of one pixel
                tap = start // CI
                c = start % CI + tl.arange(0, BK)
                inside = held
                if PAD > 0:
                    h, v = top + tap // 3, left + tap % 3
                    inside = held & (h >= 0) & (h < H) & (v >= 0) & (v < W)
                a_at = (first + tap // 3 * W + tap % 3)[:, None] * CI + c[None, :]
                a = tl.load(x + a_at, mask=inside[:, None], other=0.0)
                b = tl.load(weight + base + tap // 3 * down + tap % 3 * right + c[:, None] * into + channel * out)
            sums = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), sums)
        if PAD == 0:
            sums += tl.load(bias + channel)
        tl.store(y + row[:, None] * CO + channel, sums.to(tl.bfloat16), mask=held[:, None])

    @triton.jit
    def _weigh(  # type: ignore[no-untyped-def]
        x, slopes, parts, total, H, W, OH, OW,
        CI: tl.constexpr, CO: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, BM: tl.constexpr,
    ):  # fmt: skip
        """The share of ROWS pixels in the gradient of one row of three weights, and of the biases.

        Three pixels in a row lie side by side, so their channels are read as one row of 3 CI, filled up to WIDE.
        """
        channel = tl.arange(0, CO)[None, :]
        k = tl.arange(0, WIDE)
        sums = tl.zeros((WIDE, CO), tl.float32)
        biases = tl.zeros((CO,), tl.float32)
        for start in range(0, ROWS, BM):
            row = tl.program_id(0) * ROWS + start + tl.arange(0, BM)
            held = (row < total)[:, None]
            place = row % (OH * OW)
            first = (row // (OH * OW) * H + place // OW + tl.program_id(1)) * W + place % OW
            a = tl.load(x + first[:, None] * CI + k[None, :], mask=held & (k < 3 * CI)[None, :], other=0.0)
            g = tl.load(slopes + row[:, None] * CO + channel, mask=held, other=0.0).to(tl.bfloat16)
            sums = tl.dot(tl.trans(a.to(tl.bfloat16)), g, sums)
            biases += tl.sum(g.to(tl.float32), 0)
        mine = parts + tl.program_id(0) * (9 * CI + 1) * CO
        at = (tl.program_id(1) * 3 * CI + k)[:, None] * CO + channel
        tl.store(mine + at, sums, mask=(k < 3 * CI)[:, None])
        if tl.program_id(1) == 0:
            tl.store(mine + 9 * CI * CO + tl.arange(0, CO), biases)

    @triton.jit
    def _add(  # type: ignore[no-untyped-def]
        parts, weight, bias, count, out, into, down, right, CI: tl.constexpr, CO: tl.constexpr, BM: tl.constexpr
    ):
        """Adds the parts of one row of weights, or of the biases, up."""
        k = tl.program_id(0)
        channel = tl.arange(0, CO)
        sums = tl.zeros((BM, CO), tl.float32)
        for start in range(0, count, BM):
            part = start + tl.arange(0, BM)
            at = (part[:, None] * (9 * CI + 1) + k) * CO + channel[None, :]
            sums += tl.load(parts + at, mask=(part < count)[:, None], other=0.0)
        total = tl.sum(sums, 0)
        tap, c = k // CI, k % CI
        if k == 9 * CI:
            tl.store(bias + channel, total)
        else:
            tl.store(weight + channel * out + c * into + tap // 3 * down + tap % 3 * right, total)
