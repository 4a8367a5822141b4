"""Narrow convolutions: which ones are taken over, and on an accelerator the kernels against float64."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcurriculum import kernels
from torchcurriculum.kernels import conv
from torchcurriculum.models.simple_cnn import simple_cnn

needs_accelerator = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
LAST = torch.channels_last


@pytest.mark.parametrize(
    ("module", "taken"),
    [
        (nn.Conv2d(3, 32, 3), True),
        (nn.Conv2d(32, 32, 3), True),
        (nn.Conv2d(64, 32, 3), True),
        (nn.Conv2d(16, 32, 3), False),
        (nn.Conv2d(32, 48, 3), False),
        (nn.Conv2d(32, 32, 5), False),
        (nn.Conv2d(32, 32, 3, padding=1), False),
        (nn.Conv2d(32, 32, 3, stride=2), False),
        (nn.Conv2d(32, 32, 3, dilation=2), False),
        (nn.Conv2d(32, 32, 3, groups=2), False),
        (nn.Conv2d(32, 32, 3, bias=False), False),
        (nn.Linear(3, 32), False),
    ],
)
def test_which_modules_fit(module: nn.Module, taken: bool) -> None:
    assert conv.NarrowConv2d.fits(module) is taken


def test_a_module_takes_the_place_of_another_with_its_parameters() -> None:
    other = nn.Conv2d(3, 32, 3)
    made = conv.NarrowConv2d.like(other)
    x = torch.randn(2, 3, 6, 7)
    assert made.weight is other.weight
    assert made.bias is other.bias
    assert torch.equal(made(x), other(x)), "on a CPU it is PyTorch's convolution"


@pytest.mark.parametrize(
    ("channels", "shape", "taken"),
    [
        ((3, 32), (100, 3, 32, 32), True),
        ((3, 32), (2500, 3, 32, 32), True),
        ((3, 32), (0, 3, 32, 32), False),
        ((3, 32), (1, 3, 2, 5), False),
        ((3, 32), (1, 4, 5, 5), False),
        ((3, 32), (3, 32, 32), False),
        ((3, 32), (65536, 3, 32, 32), False),  # of whose outputs there are 2^31
        ((64, 32), (32768, 64, 32, 32), False),  # the same of its inputs
        ((64, 32), (32767, 64, 32, 32), True),
    ],
)
def test_which_inputs_the_kernels_take(channels: tuple[int, int], shape: tuple[int, ...], taken: bool) -> None:
    assert conv.NarrowConv2d(*channels, 3, device="meta").takes(shape) is taken


def test_a_model_on_a_cpu_stays_as_it_is() -> None:
    model = simple_cnn()
    before = [type(part) for part in model.modules()]
    assert kernels.narrow_(model) is model
    assert [type(part) for part in model.modules()] == before


def test_shapes_are_known_before_anything_is_computed() -> None:
    x, weight, bias = torch.empty(5, 3, 9, 8), torch.empty(32, 3, 3, 3).to(memory_format=LAST), torch.empty(32)
    ops = torch.ops.torchcurriculum
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        y = ops.conv3x3(x, weight, bias)
        into, (slopes, sums) = ops.conv3x3_input(y, weight), ops.conv3x3_weight(y, x, weight)
    assert y.shape == F.conv2d(x, weight, bias).shape
    assert y.dtype == into.dtype == torch.bfloat16
    assert y.is_contiguous(memory_format=LAST)
    assert into.shape == x.shape
    assert (slopes.shape, slopes.stride(), sums.shape) == (weight.shape, weight.stride(), bias.shape)


CASES = [
    (100, 3, 32, 32),
    (3, 3, 64, 7),
    (100, 32, 32, 30),
    (7, 32, 32, 14),
    (2, 64, 32, 6),
    (1, 32, 64, 12),
    (1, 1, 32, 3),
]


def _near(mine: Tensor | None, right: Tensor | None) -> None:
    assert mine is not None
    assert right is not None
    assert mine.shape == right.shape
    off, size = float((mine.double() - right.double()).norm()), float(right.double().norm())
    assert off <= 0.005 * size, "bfloat16 keeps eight bits"


@needs_accelerator
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_float64(case: tuple[int, int, int, int], last: bool) -> None:
    n, inputs, outputs, side = case
    draw = torch.Generator("cuda").manual_seed(n + side)
    kept = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(n, inputs, side, side, generator=draw, device="cuda").bfloat16().to(memory_format=kept)
    weight = torch.randn(outputs, inputs, 3, 3, generator=draw, device="cuda").bfloat16().float().to(memory_format=kept)
    bias = torch.randn(outputs, generator=draw, device="cuda")
    mine = [part.clone().requires_grad_() for part in (x, weight, bias)]
    right = [part.double().requires_grad_() for part in (x, weight, bias)]
    y, expected = conv.conv3x3(*mine), F.conv2d(right[0], right[1], right[2])
    slopes = torch.randn(y.shape, generator=draw, device="cuda").bfloat16()
    y.backward(slopes)
    expected.backward(slopes.double())
    _near(y.detach(), expected.detach())
    for found, known in zip(mine, right, strict=True):
        _near(found.grad, known.grad)


@needs_accelerator
def test_the_gradient_of_a_gradient_is_that_of_plain_torch() -> None:
    draw = torch.Generator("cuda").manual_seed(0)
    x, weight = (
        torch.randn(2, 32, 5, 5, generator=draw, device="cuda"),
        torch.randn(32, 32, 3, 3, generator=draw, device="cuda"),
    )
    bias, found = torch.zeros(32, device="cuda"), []
    computes: tuple[Callable[..., Tensor], ...] = (conv.conv3x3, F.conv2d)
    for compute in computes:
        at = [part.clone().requires_grad_() for part in (x, weight, bias)]
        first = torch.autograd.grad(compute(*at).float().pow(2).sum(), at[1], create_graph=True)[0]
        found.append(torch.autograd.grad(first.pow(2).sum(), at[0])[0])
    assert float((found[0] - found[1]).norm()) <= 0.03 * float(found[1].norm())


@needs_accelerator
@pytest.mark.parametrize("compiled", [False, True])
def test_a_network_trains_as_with_cudnn(compiled: bool) -> None:
    torch.manual_seed(0)
    plain = simple_cnn().cuda().to(memory_format=LAST)  # type: ignore[call-overload]
    narrow = kernels.narrow_(copy.deepcopy(plain))
    assert sum(isinstance(part, conv.NarrowConv2d) for part in narrow.modules()) == 4
    assert list(narrow.state_dict()) == list(plain.state_dict())
    x, y = torch.randn(100, 3, 32, 32, device="cuda"), torch.arange(100, device="cuda") % 10
    ends = []
    for model in (plain, narrow):
        net = torch.compile(model, dynamic=False) if compiled else model
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(30):
            with torch.autocast("cuda", torch.bfloat16):
                loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        ends.append(float(loss))
    assert max(ends) < 1.0, "one batch is learnt by heart"
    assert abs(ends[0] - ends[1]) < 0.15 * ends[0]
