"""Masks of salient patches (curriculum by masking, Jarca et al., 2024)."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from .precision import at_least_float32

__all__ = ["SCHEDULES", "Schedule", "mask_patches", "masking_ratio", "patch_salience"]

Schedule = Literal["linear-repeat", "linear", "log", "exp"]
SCHEDULES: tuple[Schedule, ...] = ("linear-repeat", "linear", "log", "exp")
FIRST = 0.07  # of a cycle of "linear-repeat": one of 16 patches
STEEPNESS = 7.25  # of "exp", whose first epochs mask almost nothing


def masking_ratio(epoch: int, epochs: int, ratio: float, schedule: Schedule, cycle: int = 5) -> float:
    r"""r_k, the share of patches that epoch k masks, at most ``ratio``.

    With t = (k - 1) / (T - 1): ``"linear"`` is r t, ``"log"`` is r log k / log T, ``"exp"`` is
    r (e^{ct} - 1) / (e^c - 1) with c = 7.25. ``"linear-repeat"`` repeats a cycle. The paper has no formula for it; the
    authors' code uses r log F_j / log F_n with the Fibonacci numbers F = 1, 2, 3, 5, 8 of a cycle of n = 5 epochs, and
    0.07 instead of the first value, which would be 0. With r = 0.4 and 16 patches that masks 1, 2, 3, 4, 6.

    The authors' other schedules take a step every fourth epoch; ours takes one in every epoch.

    Args:
        epoch: k, counted from 1.
        epochs: T; later epochs stay at ``ratio`` (``"linear-repeat"`` keeps repeating).
        ratio: The largest share.
        schedule: One of the four.
        cycle: Epochs of a cycle of ``"linear-repeat"``.

    Returns:
        The share of masked patches.

    Example:
        >>> [round(masking_ratio(k, 200, 0.4, "linear-repeat"), 2) for k in (1, 2, 3, 4, 5, 6)]
        [0.07, 0.13, 0.21, 0.31, 0.4, 0.07]
        >>> [round(masking_ratio(k, 5, 0.4, "log"), 2) for k in (1, 2, 5)]
        [0.0, 0.17, 0.4]
    """
    if schedule == "linear-repeat":
        place = (epoch - 1) % cycle
        return ratio * math.log(_fibonacci(place)) / math.log(_fibonacci(cycle - 1)) if place else min(FIRST, ratio)
    time = min(1.0, (epoch - 1) / max(1, epochs - 1))
    if schedule == "log":
        return ratio * math.log(min(epoch, epochs)) / math.log(epochs) if epochs > 1 else 0.0
    return ratio * (time if schedule == "linear" else math.expm1(STEEPNESS * time) / math.expm1(STEEPNESS))


def _fibonacci(place: int) -> int:
    """1, 2, 3, 5, 8, ..., from position 0."""
    small, large = 1, 1
    for _ in range(place):
        small, large = large, small + large
    return large


def _cells(side: int, grid: int, like: Tensor) -> Tensor:
    """(side,) the patch of each pixel: patches differ by at most one pixel if ``grid`` does not divide ``side``."""
    return torch.arange(side, device=like.device) * grid // side


def patch_salience(x: Tensor, grid: int) -> Tensor:
    r"""m_i: the mean magnitude :math:`\sqrt{g_x^2 + g_y^2}` of the Sobel gradient in each patch, over all channels.

    Args:
        x: (B, C, H, W) floating-point images.
        grid: Patches along each side.

    Returns:
        (B, grid * grid) magnitudes, row by row.

    Example:
        >>> x = torch.zeros(1, 1, 4, 4)
        >>> x[..., 3] = 1                                       # an edge between the last two columns
        >>> patch_salience(x, 2)
        tensor([[0., 4., 0., 4.]])
    """
    images = at_least_float32(x)
    flat = F.pad(images.reshape(-1, 1, *x.shape[-2:]), (1, 1, 1, 1), mode="replicate")
    # Sobel is a difference along one axis after (1, 2, 1) along the other.
    down = flat[..., :-2, :] + 2 * flat[..., 1:-1, :] + flat[..., 2:, :]
    across = flat[..., :-2] + 2 * flat[..., 1:-1] + flat[..., 2:]
    magnitude = torch.hypot(down[..., 2:] - down[..., :-2], across[..., 2:, :] - across[..., :-2, :])
    magnitude = magnitude.view(images.shape).mean(1)
    members = [F.one_hot(_cells(side, grid, x), grid).to(images.dtype) for side in x.shape[-2:]]
    rows, columns = (member / member.sum(0) for member in members)
    return (rows.T @ magnitude @ columns).flatten(1)


def mask_patches(x: Tensor, ratio: float, grid: int, generator: torch.Generator) -> Tensor:
    """Sets ``floor(ratio * grid^2)`` patches of each image to zero, drawn with probabilities m_i / sum_j m_j.

    Drawn one after another without replacement, by an exponential race. Patches without a gradient are drawn last.

    Args:
        x: (B, C, H, W) floating-point images.
        ratio: Share of patches to mask.
        grid: Patches along each side, at most the shorter side.
        generator: On the device of ``x``.

    Returns:
        Like ``x``. Zero is the mean colour of normalised images.

    Example:
        >>> x = torch.ones(1, 1, 4, 4)
        >>> mask_patches(x, 0.25, 2, torch.Generator().manual_seed(0)).sum()
        tensor(12.)
    """
    count = math.floor(ratio * grid * grid + 1e-9)
    if count == 0:
        return x
    salience = patch_salience(x, grid)
    clock = torch.empty_like(salience).exponential_(generator=generator)
    # The smallest times E_i / m_i win; the tiny number orders patches without a gradient among themselves.
    times = clock / salience.clamp_min(torch.finfo(salience.dtype).tiny ** 0.5)
    hidden = torch.zeros_like(salience, dtype=torch.bool)
    hidden.scatter_(1, times.topk(count, largest=False).indices, True)
    hidden = hidden.view(-1, grid, grid)[:, _cells(x.shape[-2], grid, x)][..., _cells(x.shape[-1], grid, x)]
    return x.masked_fill(hidden.unsqueeze(1), 0.0)
