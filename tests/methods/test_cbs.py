"""CBS: the blur by hand, on every convolution, hung up once, taken off in time, never saved."""

from __future__ import annotations

import copy
import gc
import io
import math

import pytest
import torch
from torch import nn

from torchcurriculum import Curriculum, methods
from torchcurriculum.core import Epoch
from torchcurriculum.functional.smoothing import annealed_sigma, gaussian, smooth
from torchcurriculum.lab.models import resnet18
from torchcurriculum.methods import CBS

from ..contract.problem import data, model


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.branch = nn.ModuleDict({"one": nn.Conv2d(4, 4, 1), "two": nn.Sequential(nn.Conv2d(4, 4, 1))})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.branch["one"](self.depthwise(x)) + self.branch["two"](x)


def nested() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Sequential(Block(), Block()), nn.ConvTranspose2d(4, 2, 2))


def identity(channels: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(channels, channels, 1, groups=channels, bias=False)
    nn.init.ones_(layer.weight)
    return layer


def hooks(net: nn.Module) -> list[int]:
    return [len(module._forward_hooks) for module in net.modules()]


def epoch(number: int, net: nn.Module | None = None) -> Epoch:
    return Epoch(number, 4, torch.full((4,), math.inf), losses=lambda: torch.zeros(4), model=net)


def test_the_blur_by_hand() -> None:
    # exp(-1/2) = 0.606531; the three taps over their sum 2.213061: 0.274069, 0.451863, 0.274069.
    # An impulse through the product kernel: middle 0.451863^2 = 0.204180, edge 0.274069 * 0.451863 = 0.123841,
    # corner 0.274069^2 = 0.075114.
    net = identity()
    method = CBS(interval=5, sigma=1.0, layers="all")  # the hooks go when the method does
    method.attach(net)
    x = torch.zeros(1, 1, 5, 5)
    x[..., 2, 2] = 1
    out = net(x)[0, 0]
    expected = torch.tensor([[0.075114, 0.123841, 0.075114], [0.123841, 0.204180, 0.123841]])
    torch.testing.assert_close(out[1:3, 1:4], expected, atol=1e-6, rtol=0)
    assert out[0].abs().max() == 0


def test_sigma_by_hand() -> None:
    # The paper: sigma 1, times 0.9 every 5 epochs. Epochs 1-5: 1; 6-10: 0.9; 200: 0.9^39 = 0.016423.
    assert [annealed_sigma(k, 1.0, 0.9, 5) for k in (1, 5, 6)] == [1.0, 1.0, 0.9]
    assert annealed_sigma(200, 1.0, 0.9, 5) == pytest.approx(0.016423, abs=1e-6)
    # A run of 12 epochs goes through the same 40 reductions: after 3 epochs, a quarter of the run, 10 of them.
    assert annealed_sigma(4, 1.0, 0.9, 12 / 40) == pytest.approx(0.9**10)
    assert methods.build("cbs", 100, 200).interval == 5


@pytest.mark.parametrize("size", [1, 3, 5, 7, 9])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_every_kernel_size_keeps_the_size_of_the_map(size: int, dims: int) -> None:
    x = torch.rand(2, 3, *[6] * dims)
    kernel = gaussian(size, 0.8)
    assert kernel.sum().item() == pytest.approx(1)
    assert smooth(x, kernel, dims).shape == x.shape
    torch.testing.assert_close(smooth(x[0], kernel, dims), smooth(x, kernel, dims)[0])


def test_channels_are_blurred_on_their_own() -> None:
    x = torch.rand(2, 4, 7, 7)
    kernel = gaussian(3, 1.0)
    together = smooth(x, kernel, 2)
    for channel in range(4):
        torch.testing.assert_close(together[:, channel : channel + 1], smooth(x[:, channel : channel + 1], kernel, 2))


def test_every_convolution_is_blurred_nested_ones_too() -> None:
    net, method = nested(), CBS(interval=5, layers="all")
    assert method.attach(net) == 8  # the first, three in each of two blocks, the transposed one
    assert sum(hooks(net)) == 8
    assert CBS(interval=5, layers=lambda name, module: name == "1.0.branch.one").attach(net) == 1


def test_a_resnet_18_has_the_seventeen_blurred_layers_of_the_authors() -> None:
    # ResNet18 of pairlab/CBS (5f62e7d), resnet.py: named_modules() holds 17 Gaussian kernels, one behind the stem and
    # two in each of eight blocks; the three 1x1 shortcuts have none.
    net, method = resnet18(10), CBS(interval=5)
    assert method.attach(net) == 17
    blurred = [name for name, module in net.named_modules() if module._forward_hooks]
    assert blurred[:3] == ["conv1", "layer1.0.conv1", "layer1.0.conv2"]
    assert not any("downsample" in name for name in blurred)
    assert CBS(interval=5, layers="all").attach(net) == 20


def test_a_choice_of_no_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="layers='spatial' of CBS chooses none of the 1 convolutions of Conv2d; pass"):
        CBS(interval=5).attach(identity())
    with pytest.raises(ValueError, match="layers must be 'spatial' or 'all', got 'shortcuts'"):
        CBS(interval=5, layers="shortcuts")  # type: ignore[arg-type]


def test_hooks_are_hung_up_once() -> None:
    net, method = nested(), CBS(interval=5)
    for number in range(1, 4):
        method.plan(epoch(number, net))
        method.attach(nn.DataParallel(net))
    assert max(hooks(net)) == 1
    other = nested()
    method.attach(other)
    assert sum(hooks(net)) == 0
    assert sum(hooks(other)) == 4


def test_hooks_go_when_sigma_is_negligible_and_the_network_is_plain() -> None:
    net = nested()
    plain, method, x = copy.deepcopy(net), CBS(interval=1), torch.rand(2, 1, 8, 8)
    method.plan(epoch(17, net))  # 0.9^16 = 0.185: exp(-1 / (2 sigma^2)) = 4.7e-7
    assert method.report() == {"sigma": pytest.approx(0.9**16), "blurred": 4}
    assert not torch.equal(net(x), plain(x))
    method.plan(epoch(18, net))  # 0.9^17 = 0.167: 1.6e-8 is below 2^-24
    assert method.report()["blurred"] == 0
    assert sum(hooks(net)) == 0
    assert torch.equal(net(x), plain(x))


def test_hooks_go_with_the_method() -> None:
    net, method = nested(), CBS(interval=5)
    method.attach(net)
    del method
    gc.collect()
    assert sum(hooks(net)) == 0


def test_release_gives_the_plain_network_and_a_copy_follows() -> None:
    net, method, x = nested(), CBS(interval=5), torch.rand(2, 1, 8, 8)
    before = net(x)
    method.attach(net)
    average = copy.deepcopy(net)  # as a moving average of the weights is made
    assert torch.equal(average(x), net(x))
    assert not torch.equal(net(x), before)
    method.release()
    assert torch.equal(net(x), before)
    method.sigma = 0.0
    assert torch.equal(average(x), before)


def test_it_acts_in_evaluation_mode_as_well() -> None:
    net, method, x = nested(), CBS(interval=5), torch.rand(2, 1, 8, 8)
    before = net.eval()(x)
    method.attach(net)
    assert not torch.equal(net.eval()(x), before)
    assert torch.equal(net.eval()(x), net.train()(x))


def test_nothing_is_saved_with_the_network_or_the_method() -> None:
    net, method, x = nested(), CBS(interval=5), torch.rand(2, 1, 8, 8)
    keys, before = list(net.state_dict()), net(x)
    method.attach(net)
    assert list(net.state_dict()) == keys
    assert list(method.state_dict()) == ["_extra_state"]
    buffer = io.BytesIO()
    torch.save(net, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, weights_only=False)(x), before)
    twin = copy.deepcopy(method)
    del method
    gc.collect()
    assert sum(hooks(net)) == 0
    assert twin.attach(net) == 4


def test_a_resume_inside_an_epoch_hangs_the_hooks_up_again() -> None:
    curriculum = Curriculum(methods.build("cbs", 37, 40), data(), batch_size=8)
    net = model()
    batches = curriculum.epoch(net)
    loss = curriculum.loss(net, next(batches))
    state = curriculum.state_dict()
    batches.close()

    fresh = model()
    resumed = Curriculum(methods.build("cbs", 37, 40), data(), batch_size=8)
    resumed.load_state_dict(state)
    assert sum(hooks(fresh)) == 0
    resumed.loss(fresh, next(iter(resumed.epoch(fresh))))
    assert max(hooks(fresh)) == sum(hooks(fresh)) == 1
    assert resumed.method.sigma == curriculum.method.sigma == 1.0
    assert loss.isfinite()


def test_a_network_without_convolutions_is_refused() -> None:
    vit = nn.Sequential(nn.Linear(4, 4), nn.TransformerEncoderLayer(4, 1, 4))
    with pytest.raises(ValueError, match="Sequential has none: it would train as if there were no curriculum"):
        CBS(interval=5).attach(vit)
    assert CBS(interval=5, sigma=0.0).attach(vit) == 0


def test_bad_knobs_are_refused() -> None:
    for options, words in (
        ({"sigma": -1.0}, "sigma"),
        ({"sigma": math.nan}, "sigma"),
        ({"decay": 1.5}, "decay"),
        ({"interval": 0}, "interval"),
        ({"kernel_size": 4}, "kernel_size must be odd"),
    ):
        with pytest.raises(ValueError, match=words):
            CBS(**{"interval": 5, **options})
