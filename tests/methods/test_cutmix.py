from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from torchcurriculum import Batch, Mixup, Task
from torchcurriculum.functional.mixup import box_masks
from torchcurriculum.methods import CutMix


def rand_bbox(width: int, height: int, lam: float, cx: int, cy: int) -> tuple[int, int, int, int]:
    """What ``rand_bbox`` in the authors' train.py (clovaai/CutMix-PyTorch) computes from its draws."""
    ratio = np.sqrt(1.0 - lam)
    wide, high = int(width * ratio), int(height * ratio)
    left, right = np.clip([cx - wide // 2, cx + wide // 2], 0, width)
    low, top = np.clip([cy - high // 2, cy + high // 2], 0, height)
    return int(left), int(low), int(right), int(top)


def test_golden_boxes() -> None:
    # By hand, on 32 x 32: lambda = 0.75 gives a box of 16 x 16; at (3, 30) it is cut to rows 0-10 and columns 22-31.
    mask = box_masks(torch.tensor([0.75]), torch.tensor([[3, 30]]), 32, 32)[0]
    assert mask.nonzero().min(0).values.tolist() == [0, 22]
    assert mask.nonzero().max(0).values.tolist() == [10, 31]
    assert int(mask.sum()) == 11 * 10
    draw = np.random.default_rng(0)
    for _ in range(200):
        lam, height, width = draw.uniform(), int(draw.integers(3, 40)), int(draw.integers(3, 40))
        row, column = int(draw.integers(height)), int(draw.integers(width))
        top, left, bottom, right = rand_bbox(height, width, lam, row, column)
        expected = torch.zeros(height, width, dtype=torch.bool)
        expected[top:bottom, left:right] = True
        made = box_masks(torch.tensor([lam], dtype=torch.float64), torch.tensor([[row, column]]), height, width)
        assert torch.equal(made[0], expected)


def images(n: int = 64) -> Batch:
    x = torch.arange(float(n)).view(n, 1, 1, 1).expand(n, 1, 12, 10)
    return Batch(x, torch.arange(n), torch.arange(n), seed=5)


@pytest.mark.parametrize("per", ["batch", "pair"])
def test_the_share_is_that_of_the_pixels(per: str) -> None:
    batch = images()
    mixed = CutMix(per=per).view(nn.Identity(), batch)  # type: ignore[arg-type]
    assert mixed.pair is not None
    own = (mixed.x == batch.x).double().mean((1, 2, 3))
    moved = mixed.pair.index != batch.index
    torch.testing.assert_close(mixed.pair.share[moved], own[moved], rtol=0, atol=1e-15)
    others = mixed.pair.y.view(-1, 1, 1, 1).expand_as(mixed.x)
    assert bool(((mixed.x == batch.x) | (mixed.x == others)).all())
    assert (len(mixed.pair.share.unique()) == 1) == (per == "batch")


def test_the_loss_is_that_of_both_labels() -> None:
    batch = images(4)
    mixed = CutMix().view(nn.Identity(), batch)
    task = Task(lambda model, x: x, lambda x, y: y.double() + 1)
    assert mixed.pair is not None
    share = mixed.pair.share
    expected = share * (batch.y + 1) + (1 - share) * (mixed.pair.y + 1)
    torch.testing.assert_close(task.losses_of(mixed.x, mixed), expected)


def test_some_batches_are_left_as_they_are() -> None:
    method, batch = CutMix(probability=0.3), images(2)
    mixed = [method.view(nn.Identity(), batch.with_(seed=seed)).pair is not None for seed in range(400)]
    assert 80 < sum(mixed) < 160  # 120 expected, a standard deviation of 9
    assert CutMix(probability=0.0).view(nn.Identity(), batch) is batch


@pytest.mark.parametrize("x", [torch.zeros(2, 3), {"x": torch.zeros(2)}], ids=["flat", "dict"])
def test_other_inputs_are_refused(x: Tensor) -> None:
    with pytest.raises(TypeError, match=r"CutMix cuts boxes out of images \(B, C, H, W\), but this batch has"):
        CutMix().view(nn.Identity(), Batch(x, torch.zeros(2), torch.arange(2)))


def test_mixup_with_one_coefficient_for_the_batch() -> None:
    # mixup-cifar10's train.py draws one lambda for a batch. Inputs and losses must be mixed by the same one.
    batch = images()
    mixed = Mixup(per="batch").view(nn.Identity(), batch)
    assert mixed.pair is not None
    (share,) = mixed.pair.share.unique().tolist()
    expected = share * batch.x + (1 - share) * batch.x[mixed.pair.index]
    torch.testing.assert_close(mixed.x, expected)
    assert len(Mixup().view(nn.Identity(), batch).pair.share.unique()) == 64  # type: ignore[union-attr]
    pairs = (Mixup(per="batch").view(nn.Identity(), batch.with_(seed=seed)).pair for seed in range(500))
    draws = torch.tensor([float(pair.share[0]) for pair in pairs if pair is not None])
    assert draws.mean().item() == pytest.approx(0.5, abs=0.06)  # Beta(1, 1)
    assert draws.var().item() == pytest.approx(1 / 12, abs=0.02)
