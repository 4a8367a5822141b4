"""Two views of the same inputs: augmentations of images, and the target that one view gives the other."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .precision import at_least_float32
from .rapw import sharpen

__all__ = ["answer", "strong", "weak"]

OPERATIONS = 13


def weak(images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Shifts each image by up to an eighth of its side, with mirrored borders, and flips half of them.

    Args:
        images: (B, C, H, W) of any scale.
        generator: On their device; None draws from PyTorch's own.

    Example:
        >>> weak(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 3, 32, 32])
    """
    _check(images)
    n, _, height, width = images.shape
    rows, columns = height // 8, width // 8
    padded = F.pad(at_least_float32(images), (columns, columns, rows, rows), mode="reflect")
    draw = torch.rand(3, n, 1, generator=generator, device=images.device)
    down = (draw[0] * (2 * rows + 1)).long() + torch.arange(height, device=images.device)
    right = (draw[1] * (2 * columns + 1)).long() + torch.arange(width, device=images.device)
    right = torch.where(draw[2] < 0.5, right, right.flip(1))
    row = torch.arange(n, device=images.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[row, down[:, :, None], right[:, None, :]].permute(0, 3, 1, 2).to(images.dtype)


def strong(images: Tensor, generator: torch.Generator | None = None, operations: int = 2) -> Tensor:
    """RandAugment's kind of change: ``operations`` of 13 on each image, then a square of half its side is cut out.

    The operations are rotation, shear and shift along either axis, zoom, brightness, contrast, colour, posterising,
    solarising, autocontrast and sharpness, with continuous strengths. Images of any scale are taken as lying between
    the least and the largest value of the batch.

    Args:
        images: (B, C, H, W) of any scale.
        generator: On their device; None draws from PyTorch's own.
        operations: Operations on each image, at most 13.

    Example:
        >>> strong(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 3, 32, 32])
    """
    _check(images)
    low, high = images.amin(), images.amax()
    span = (high - low).clamp_min(1e-12)
    x = (at_least_float32(images) - low) / span
    mean = x.mean((0, 2, 3), keepdim=True)
    x = _cut(_colour(*_move(x, operations, generator), generator), mean, generator)
    return (x * span + low).to(images.dtype)


def answer(logits: Tensor, usual: Tensor, temperature: float) -> Tensor:
    """(B, C) the target that a network's answer to one view gives another view; its sum is what the row counts.

    Sharpened by the temperature, divided by how usual each class is among the answers, so that none takes over, and
    multiplied by its largest probability, so that sure answers count more.

    Args:
        logits: (B, C) outputs for the one view.
        usual: (C,) mean probability of each class.
        temperature: In (0, 1]; 1 does not sharpen.

    Example:
        >>> logits = torch.tensor([[0.8, 0.2]]).log()
        >>> answer(logits, torch.tensor([0.5, 0.5]), 0.5)               # 64 : 4 is 0.94 : 0.06, times 0.94
        tensor([[0.8858, 0.0554]])
    """
    own = sharpen(logits.softmax(1), usual, 1 / temperature)
    return own * own.amax(1, keepdim=True)


def _check(images: Tensor) -> None:
    if not isinstance(images, Tensor) or images.ndim != 4 or not images.is_floating_point():
        kind = f"{images.dtype} of shape {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        raise TypeError(f"these views are for floating-point images (B, C, H, W), got {kind}; pass weak= and strong=")


def _move(x: Tensor, operations: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor, Tensor]:
    """The images turned, sheared, shifted and zoomed; the signed strength of all operations, and which are on."""
    n, device = len(x), x.device
    lots = torch.rand(n, OPERATIONS, generator=generator, device=device)
    on = torch.zeros_like(lots).scatter_(1, lots.topk(operations, 1).indices, 1.0)
    size = (torch.rand(n, OPERATIONS, generator=generator, device=device) * 2 - 1) * on
    turn, shear_x, shear_y = size[:, 0] * math.pi / 6, size[:, 1] * 0.3, size[:, 2] * 0.3
    zoom, cos, sin = 1 + 0.3 * size[:, 5], turn.cos(), turn.sin()
    top = torch.stack([(cos - sin * shear_y) * zoom, (cos * shear_x - sin) * zoom, size[:, 3] * 0.5], 1)
    low = torch.stack([(sin + cos * shear_y) * zoom, (sin * shear_x + cos) * zoom, size[:, 4] * 0.5], 1)
    grid = F.affine_grid(torch.stack([top, low], 1).to(x.dtype), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode="reflection", align_corners=False), size, on


def _colour(x: Tensor, size: Tensor, on: Tensor, generator: torch.Generator | None) -> Tensor:
    """Images in [0, 1] with other brightness, contrast, colour, levels and sharpness."""
    strength, flag = size[:, :, None, None, None].to(x.dtype), on[:, :, None, None, None] > 0
    x = x * (1 + 0.7 * strength[:, 6])
    mean = x.mean((1, 2, 3), keepdim=True)
    x = mean + (x - mean) * (1 + 0.8 * strength[:, 7])
    grey = x.mean(1, keepdim=True)
    x = (grey + (x - grey) * (1 + 0.9 * strength[:, 8])).clamp(0, 1)
    levels = 4 + 28 * torch.rand(len(x), 1, 1, 1, generator=generator, device=x.device).to(x.dtype)
    x = torch.where(flag[:, 9], (x * levels).floor() / levels, x)
    x = torch.where(flag[:, 10] & (x > 0.5 + 0.5 * strength[:, 10].abs()), 1 - x, x)
    least, most = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    x = torch.where(flag[:, 11], (x - least) / (most - least).clamp_min(0.05), x)
    soft = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
    return (soft + (x - soft) * (1 + 0.9 * strength[:, 12])).clamp(0, 1)


def _cut(x: Tensor, fill: Tensor, generator: torch.Generator | None) -> Tensor:
    """Images with a square of half their sides filled; its centre may lie anywhere."""
    height, width = x.shape[2:]
    centre = torch.rand(2, len(x), 1, 1, generator=generator, device=x.device)
    down = torch.arange(height, device=x.device)[:, None] - (centre[0] * height).floor()
    right = torch.arange(width, device=x.device) - (centre[1] * width).floor()
    inside = (down.abs() < height / 4) & (right.abs() < width / 4)
    return torch.where(inside[:, None], fill, x)
