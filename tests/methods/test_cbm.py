"""CBM: salience and schedules by hand, patches drawn in proportion, any grid and size."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from torchcurriculum import Batch, methods
from torchcurriculum.core import Epoch
from torchcurriculum.functional.masking import SCHEDULES, mask_patches, masking_ratio, patch_salience
from torchcurriculum.methods import CBM


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(x: torch.Tensor, epoch: int = 1, seed: int = 3) -> Batch:
    return Batch(x, torch.zeros(len(x)), torch.arange(len(x)), seed=seed, epoch=epoch)


def at(method: CBM, number: int) -> CBM:
    method.plan(Epoch(number, 4, torch.zeros(4), losses=lambda: torch.zeros(4)))
    return method


def edges(low: float = 1.0, high: float = 3.0) -> torch.Tensor:
    """8x8, grid 2: a vertical edge of height ``low`` in the upper left patch and of ``high`` in the lower right one."""
    x = torch.zeros(1, 1, 8, 8, dtype=torch.float64)
    x[..., 1, 1], x[..., 6, 6] = low, high
    return x


def test_the_salience_by_hand() -> None:
    # A step of 1 down the middle of 4x4: the Sobel difference is (1 + 2 + 1) * 1 = 4 on both sides of it and 0 at the
    # borders, where the last pixel repeats. Each 2x2 patch holds one column of 4 and one of 0: the mean is 2.
    x = torch.zeros(1, 1, 4, 4)
    x[..., 2:] = 1
    torch.testing.assert_close(patch_salience(x, 2), torch.full((1, 4), 2.0))
    # A diagonal ramp x + 2 y: g_x = 8, g_y = 16 inside, so the magnitude is sqrt(320) = 17.8885.
    ramp = torch.arange(6.0) + 2 * torch.arange(6.0)[:, None]
    assert patch_salience(ramp.view(1, 1, 6, 6), 3)[0, 4].item() == pytest.approx(math.sqrt(320))
    # The mean over channels: one flat channel halves it.
    both = torch.cat([x, torch.zeros_like(x)], 1)
    torch.testing.assert_close(patch_salience(both, 2), torch.full((1, 4), 1.0))


def test_the_schedules_by_hand() -> None:
    # linear-repeat: 0.07, then 0.4 log F / log 8 for F = 2, 3, 5, 8. linear over 5 epochs: 0, .1, .2, .3, .4, once.
    repeat = [masking_ratio(k, 200, 0.4, "linear-repeat") for k in range(1, 11)]
    assert repeat == pytest.approx([0.07, 0.4 / 3, 0.4 * math.log(3) / math.log(8), 0.3095904, 0.4] * 2, abs=1e-6)
    assert [masking_ratio(k, 9, 0.4, "linear-repeat", cycle=2) for k in (1, 2, 3)] == pytest.approx([0.07, 0.4, 0.07])
    assert masking_ratio(1, 9, 0.0, "linear-repeat") == 0
    assert [masking_ratio(k, 5, 0.4, "linear") for k in range(1, 7)] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.4])
    # log: 0.4 log 3 / log 9 = 0.2 in epoch 3 of 9. exp: half-way (e^3.625 - 1) / (e^7.25 - 1) = 1 / (e^3.625 + 1).
    assert masking_ratio(3, 9, 0.4, "log") == pytest.approx(0.2)
    assert masking_ratio(3, 5, 0.4, "exp") == pytest.approx(0.4 / (math.exp(3.625) + 1))


def test_the_patches_of_a_cycle_are_those_of_the_authors_code() -> None:
    # lin_repeat() of CroitoruAlin/CBM (ca907b0), experiments/resnet_experiments.py, with fibonacci(7) = 0, 1, 1, 2, 3,
    # 5, 8 gives these shares for its maximum 0.4036067977500615. MaskIn of models/resnet.py masks int(share * 16).
    authors = [0.07, 0.13453559925, 0.213233879823, 0.312381987661, 0.40360679775]
    ours = [masking_ratio(k, 200, 0.4036067977500615, "linear-repeat") for k in range(1, 6)]
    assert ours == pytest.approx(authors, abs=1e-11)
    x = torch.rand(2, 1, 8, 8, generator=generator()) + 1
    masked = [
        int((mask_patches(x, masking_ratio(k, 200, 0.4, "linear-repeat"), 4, generator()) == 0).sum())
        for k in range(1, 6)
    ]
    assert [count / (2 * 4) for count in masked] == [1, 2, 3, 4, 6]


@given(st.sampled_from(SCHEDULES), st.integers(1, 40), st.floats(0, 1))
def test_schedules_stay_between_zero_and_the_ratio(schedule: str, epochs: int, ratio: float) -> None:
    values = [masking_ratio(k, epochs, ratio, schedule) for k in range(1, epochs + 3)]
    assert values[0] == (min(0.07, ratio) if schedule == "linear-repeat" else 0)
    assert all(0 <= value <= ratio * (1 + 1e-12) for value in values)
    if schedule != "linear-repeat":
        assert values == sorted(values)


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 5), st.integers(5, 13), st.integers(5, 13), st.floats(0, 1))
def test_exactly_the_share_is_masked_at_any_size(grid: int, height: int, width: int, ratio: float) -> None:
    x = torch.rand(3, 2, height, width, generator=generator()) + 1
    out = mask_patches(x, ratio, grid, generator(1))
    assert torch.equal(out[out != 0], x[out != 0])
    cells = [torch.arange(side) * grid // side for side in (height, width)]
    for image in out:
        masked = {(int(cells[0][i]), int(cells[1][j])) for i, j in (image[0] == 0).nonzero().tolist()}
        assert len(masked) == math.floor(ratio * grid * grid + 1e-9)
        for row, column in masked:  # whole patches, in all channels
            assert (image[:, cells[0] == row][:, :, cells[1] == column] == 0).all()


def test_patches_are_drawn_in_proportion_to_their_salience() -> None:
    # Gradients scale with the height of the dot: saliences 1 : 3, so the one masked patch of four is the lower right
    # one with probability 3/4 (standard error over 4000 images: 0.007), and a flat patch never.
    salience = patch_salience(edges(), 2)[0]
    torch.testing.assert_close(salience / salience.sum(), torch.tensor([0.25, 0, 0, 0.75], dtype=torch.float64))
    out = mask_patches(edges().expand(4000, 1, 8, 8), 0.25, 2, generator())
    assert (out[:, 0, 6, 6] == 0).double().mean().item() == pytest.approx(0.75, abs=0.03)
    assert ((out[:, 0, 6, 6] == 0) ^ (out[:, 0, 1, 1] == 0)).all()


def test_a_flat_image_is_masked_evenly() -> None:
    out = mask_patches(torch.ones(4000, 1, 4, 4), 0.25, 2, generator())
    shares = (out[:, 0, ::2, ::2] == 0).float().mean(0).flatten()
    torch.testing.assert_close(shares, torch.full((4,), 0.25), atol=0.03, rtol=0)


def test_an_epoch_draws_from_the_batch_alone() -> None:
    x = torch.rand(4, 3, 8, 8)
    method = at(CBM(epochs=20), 5)
    assert method.report()["masked"].item() == pytest.approx(0.4)
    state = torch.get_rng_state()
    once, twice = (method.view(nn.Identity(), batch(x, 5)).x for _ in range(2))
    assert torch.equal(once, twice)
    assert not torch.equal(once, x)
    assert not torch.equal(once, method.view(nn.Identity(), batch(x, 5, seed=4)).x)
    assert torch.equal(torch.get_rng_state(), state)
    first = at(method, 6).view(nn.Identity(), batch(x, 6)).x  # a new cycle begins with one of 16 patches
    assert (first == 0).sum().item() == 4 * 3 * 4
    assert method.report()["masked"].item() == pytest.approx(0.07)
    assert methods.build("cbm", 4, 20, ratio=0.0).view(nn.Identity(), batch(x, 5)).x is x


def test_bad_knobs_and_bad_data_are_refused() -> None:
    for options, words in (
        ({"epochs": 0}, "epochs"),
        ({"ratio": 1.5}, "ratio"),
        ({"grid": 1}, "grid"),
        ({"schedule": "cosine"}, "schedule must be 'linear-repeat'.* got 'cosine'"),
        ({"cycle": 1}, "cycle"),
    ):
        with pytest.raises(ValueError, match=words):
            CBM(**{"epochs": 5, **options})
    method = CBM(epochs=5)
    with pytest.raises(TypeError, match=r"images of shape \(B, C, H, W\), but this batch has torch.int64"):
        method.view(nn.Identity(), batch(torch.zeros(2, 5, dtype=torch.int64), 5))
    with pytest.raises(ValueError, match="images of 3x8 have no 4 patches"):
        method.view(nn.Identity(), batch(torch.rand(2, 1, 3, 8), 5))
