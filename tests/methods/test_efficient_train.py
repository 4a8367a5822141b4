"""EfficientTrain: frequencies and amplitudes by hand, really smaller images, an augmentation that really acts."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from torchcurriculum import Arrays, Batch, Curriculum, methods
from torchcurriculum.core import Epoch
from torchcurriculum.functional.frequency import (
    RandAugment,
    augment,
    bandwidth,
    growing_magnitude,
    low_frequency_crop,
    low_pass,
    stages_of_computation,
)
from torchcurriculum.methods import EfficientTrain, EfficientTrainPlus
from torchcurriculum.methods.efficient_train import PAPER_STAGES


def at(method: EfficientTrain, number: int) -> EfficientTrain:
    method.plan(Epoch(number, 4, torch.zeros(4), losses=lambda: torch.zeros(4)))
    return method


def batch(x: torch.Tensor, epoch: int = 1) -> Batch:
    return Batch(x, torch.zeros(len(x), dtype=torch.int64), torch.arange(len(x)), seed=3, epoch=epoch)


def pooling_net() -> nn.Module:
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)]
    return nn.Sequential(*layers)


def test_the_crop_by_hand() -> None:
    # Eight columns x_n = 1 + 2 cos(2 pi n / 8) + 5 cos(2 pi 3 n / 8). A width of 4 keeps the frequencies -2 .. 1: the
    # mean 1 and the wave of frequency 1 with its height of 2, now sampled at four points: 1 + 2 cos(2 pi m / 4)
    # = 3, 1, -1, 1. Divided by the wrong size it would be twice as high or half.
    n = torch.arange(8, dtype=torch.float64)
    row = 1 + 2 * torch.cos(2 * math.pi * n / 8) + 5 * torch.cos(2 * math.pi * 3 * n / 8)
    small = low_frequency_crop(row.expand(1, 1, 6, 8), 4, 4)
    torch.testing.assert_close(small, torch.tensor([3.0, 1.0, -1.0, 1.0], dtype=torch.float64).expand(1, 1, 4, 4))
    whole = low_pass(row.expand(1, 1, 6, 8), 4, 4)
    torch.testing.assert_close(whole, (1 + 2 * torch.cos(2 * math.pi * n / 8)).expand(1, 1, 6, 8))


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 9), st.integers(2, 9), st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_the_mean_of_every_image_is_kept(height: int, width: int, b_height: int, b_width: int, seed: int) -> None:
    b_height, b_width = min(b_height, height), min(b_width, width)
    x = torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    small, filtered = low_frequency_crop(x, b_height, b_width), low_pass(x, b_height, b_width)
    assert small.shape == (2, 3, b_height, b_width)
    assert filtered.shape == x.shape
    torch.testing.assert_close(small.mean((2, 3)), x.mean((2, 3)))
    torch.testing.assert_close(filtered.mean((2, 3)), x.mean((2, 3)))
    again = low_pass(filtered, b_height, b_width)
    if b_height % 2 and b_width % 2:  # an even band holds one of two frequencies +-B/2, whose real part halves
        torch.testing.assert_close(again, filtered)


def test_stages_are_the_papers() -> None:
    # Table of the paper for 300 epochs at 224: 160 until 180, 192 until 240, then 224.
    sides = [round(224 * bandwidth(k, 300, PAPER_STAGES)) for k in (1, 180, 181, 240, 241, 300)]
    assert sides == [160, 160, 192, 192, 224, 224]
    # A run of fewer than five epochs works, and ends with whole images.
    for epochs in (1, 2, 3, 4):
        assert bandwidth(epochs, epochs, PAPER_STAGES) == 1
    assert [growing_magnitude(k, 1, 1.0) for k in (1, 2)] == [0.0, 1.0]


def test_images_really_are_smaller() -> None:
    # 32 * 5/7 = 22.9 -> 22 for six of ten epochs, 32 * 6/7 = 27.4 -> 28 for two, 32 for two:
    # (6 * 22^2 + 2 * 28^2 + 2 * 32^2) / (10 * 32^2) = 6520 / 10240 = 0.6367 of the pixels.
    net, seen = pooling_net(), 0
    curriculum = Curriculum(
        methods.build("efficient-train", 6, 10), Arrays(torch.rand(6, 3, 32, 32), torch.arange(6) % 2), batch_size=3
    )

    def count(module: nn.Module, inputs: tuple[torch.Tensor]) -> None:
        nonlocal seen
        if net.training:  # the trial of a new size is not
            seen += inputs[0].numel()

    net.register_forward_pre_hook(count)
    for _ in range(10):
        for item in curriculum.epoch(net):
            curriculum.loss(net, item).backward()
    assert seen / (10 * 6 * 3 * 32 * 32) == pytest.approx(0.63671875)
    assert [row["bandwidth"] for row in curriculum.record.epochs][5:8] == [5 / 7, 6 / 7, 6 / 7]


def test_keep_size_keeps_the_size_and_drops_the_detail() -> None:
    checkerboard = (torch.arange(8)[:, None] + torch.arange(8)).remainder(2).double().expand(4, 1, 8, 8)
    method = EfficientTrain(epochs=10, magnitude=0.0, keep_size=True)
    out = at(method, 1).view(nn.Identity(), batch(checkerboard, 1)).x
    torch.testing.assert_close(out, torch.full((4, 1, 8, 8), 0.5, dtype=torch.float64))
    assert torch.equal(at(method, 10).view(nn.Identity(), batch(checkerboard, 10)).x, checkerboard)


def test_a_network_of_one_size_is_told_about_keep_size() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 30 * 30, 2))
    data = Arrays(torch.rand(4, 3, 32, 32), torch.arange(4) % 2)
    curriculum = Curriculum(methods.build("efficient-train", 4, 10), data, batch_size=2)
    with pytest.raises(ValueError, match=r"22x22, to which EfficientTrain crops those of 32x32: .*keep_size=True"):
        curriculum.loss(net, next(iter(curriculum.epoch(net))))
    kept = Curriculum(methods.build("efficient-train", 4, 10, keep_size=True), data, batch_size=2)
    assert kept.loss(net, next(iter(kept.epoch(net)))).isfinite()


def test_the_trial_leaves_the_network_as_found() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    curriculum = Curriculum(
        methods.build("efficient-train", 4, 10), Arrays(torch.rand(4, 3, 16, 16), torch.arange(4) % 2), batch_size=4
    )
    curriculum.loss(net, next(iter(curriculum.epoch(net))))
    assert int(net[1].num_batches_tracked) == 1  # the training step alone
    assert all(module.training for module in net.modules())


def test_augmentation_acts_and_grows() -> None:
    x = torch.rand(64, 3, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    changes = []
    for magnitude in (0.0, 0.2, 0.5, 1.0):
        out = augment(x, magnitude, torch.Generator().manual_seed(1))
        assert out.shape == x.shape
        assert out.isfinite().all()
        changes.append((out - x).abs().mean().item())
    assert changes[0] == 0
    assert changes == sorted(changes)
    assert changes[-1] > 0.1
    # The library's own set really is applied in an epoch, and with the same draws after a resume.
    method = at(EfficientTrain(epochs=10), 10)
    assert method.report()["magnitude"] == 1
    out = method.view(nn.Identity(), batch(x, 10)).x
    assert not torch.equal(out, x)
    assert torch.equal(out, method.view(nn.Identity(), batch(x, 10)).x)


def test_each_image_gets_two_operations() -> None:
    # Contrast and brightness leave the place of every pixel; of seven operations two are drawn, so that both are these
    # two with probability 1 / 21, and none is geometric.
    ramp = torch.linspace(0, 1, 64, dtype=torch.float64).view(1, 1, 8, 8).expand(4200, 1, 8, 8)
    out = augment(ramp, 1.0, torch.Generator().manual_seed(2)).flatten(1)
    line = torch.linspace(0, 1, 64, dtype=torch.float64)
    centred = out - out.mean(1, keepdim=True)
    fit = centred @ (line - line.mean()) / (line - line.mean()).square().sum()
    still = (centred - fit[:, None] * (line - line.mean())).abs().amax(1) < 1e-9
    assert still.double().mean().item() == pytest.approx(1 / 21, abs=0.012)


def test_an_augmentation_of_ones_own() -> None:
    calls = []

    def own(x: torch.Tensor, magnitude: float, generator: torch.Generator) -> torch.Tensor:
        calls.append(magnitude)
        return x + magnitude

    method = EfficientTrain(epochs=5, stages=(), augment=own)
    x = torch.zeros(2, 1, 8, 8)
    for number in range(1, 6):
        out = at(method, number).view(nn.Identity(), batch(x, number)).x
    assert calls == [0.25, 0.5, 0.75, 1.0]  # nothing to do in the first epoch
    assert torch.equal(out, x + 1)


def test_half_precision_and_odd_sizes() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        out = EfficientTrain(epochs=10).view(nn.Identity(), batch(torch.rand(2, 3, 15, 9).to(dtype), 5)).x
        assert out.dtype == dtype
        assert out.shape == (2, 3, 10, 6)  # 15 * 5/7 = 10.7, 9 * 5/7 = 6.4


def test_bad_knobs_and_bad_data_are_refused() -> None:
    for options, words in (
        ({"epochs": 0}, "epochs"),
        ({"epochs": 5, "stages": ((0.8, 0.5), (0.6, 0.7))}, "stages"),
        ({"epochs": 5, "stages": ((0.6, 0.0),)}, "stages"),
        ({"epochs": 5, "stages": ((0.6, 1.5),)}, "stages"),
        ({"epochs": 5, "magnitude": 2.0}, "magnitude"),
    ):
        with pytest.raises(ValueError, match=words):
            EfficientTrain(**options)
    for x in (torch.zeros(2, 5), torch.zeros(2, 3, 8, 8, dtype=torch.uint8)):
        with pytest.raises(TypeError, match=r"images of shape \(B, C, H, W\)"):
            EfficientTrain(epochs=5).view(nn.Identity(), batch(x))


def test_the_stages_of_the_authors_scripts() -> None:
    # _ET_pp_main_swinT.py with --epoch 200: sizes 96, 96, 160 (four times), 224 (four times); stage i ends at epoch
    # int(rp / 10 * (i + 1)) of a schedule of rp = int(200 * (224 / size)^2) epochs, so it trains for these numbers:
    rp = {size: int(200 * (224 * 224) / (size * size)) for size in (96, 160, 224)}
    sizes = [96] * 2 + [160] * 4 + [224] * 4
    trained = [int(rp[size] / 10 * (i + 1)) - int(rp[size] / 10 * i) for i, size in enumerate(sizes)]
    assert trained == [108, 109, 39, 39, 40, 39, 20, 20, 20, 20]
    method = EfficientTrainPlus.for_run(10, sum(trained))
    shown = [round(224 * method._share(k)) for k in range(1, 455)]
    assert [shown.count(size) for size in (96, 160, 224)] == [217, 157, 80]
    # --aa rand-m{i}: the magnitude of stage i is i of 10.
    expected = [i / 10 for i, epochs in enumerate(trained) for _ in range(epochs)]
    found = [method._magnitude(k) for k in range(1, 455)]
    assert sum(abs(a - b) > 1e-9 for a, b in zip(found, expected, strict=True)) <= 9  # a stage ends within an epoch
    assert (found[0], found[-1]) == (0.0, 0.9)


def test_the_computation_of_the_sizes() -> None:
    # By hand: 3/7 of the side for a fifth, 5/7 for two, all for two: 0.2 * 49/9, 0.4 * 49/25, 0.4 epochs.
    (first, _), (second, _) = stages_of_computation(((0.2, 3 / 7), (0.6, 5 / 7)))
    total = 0.2 * 49 / 9 + 0.4 * 49 / 25 + 0.4
    assert first == pytest.approx(0.2 * 49 / 9 / total)
    assert second == pytest.approx((0.2 * 49 / 9 + 0.4 * 49 / 25) / total)


def test_randaugment_says_what_it_needs() -> None:
    with pytest.raises(ValueError, match=r"std must be positive, got 0\.0"):
        RandAugment(std=0.0)
    with pytest.raises((ImportError, ValueError), match=r"needs torchvision|must lie in \[0, 1\] after undoing"):
        RandAugment()(torch.full((1, 3, 4, 4), 7.0), 0.5, torch.Generator())


def test_randaugment_is_torchvisions() -> None:
    transforms = pytest.importorskip("torchvision.transforms")
    mean, std = torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1), torch.tensor([0.2, 0.25, 0.3]).view(3, 1, 1)
    pixels = torch.randint(0, 256, (4, 3, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    x = (pixels.float() / 255 - mean) / std
    made, before = RandAugment([0.5, 0.4, 0.3], [0.2, 0.25, 0.3]), torch.get_rng_state()
    found = made(x, 0.9, torch.Generator().manual_seed(7))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(found, made(x, 0.9, torch.Generator().manual_seed(7)))
    seed = int(torch.randint(2**62, (), generator=torch.Generator().manual_seed(7)))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        own = transforms.RandAugment(2, 27, 31)
        expected = torch.stack([own(image) for image in pixels])
    torch.testing.assert_close(found, (expected.float() / 255 - mean) / std)
    assert not torch.equal(expected, pixels)
