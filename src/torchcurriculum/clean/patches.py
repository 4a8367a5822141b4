"""Features of pictures without pretrained weights: one layer of filters, learnt from patches of the pictures.

Coates, Ng and Lee, "An Analysis of Single-Layer Networks in Unsupervised Feature Learning" (AISTATS 2011): patches are
normalised and whitened, k-means finds the filters, the responses are ``max(0, mean distance - distance)`` and are
summed over the quarters of a picture. Labels are not used, so wrong labels cannot be memorised.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .userdata import Watch

__all__ = ["patch_features"]

SIDE = 32  # of the pictures
PATCH = 6
FILTERS = 400
DRAWN, OF_EACH = 60_000, 200  # most patches to learn from: in total and per picture
STEPS = 12  # of k-means
BATCH = 32  # pictures at a time


def patch_features(pixels: np.ndarray, seed: int = 0, watch: Watch = lambda what, done, total: None) -> np.ndarray:
    """Features of small pictures.

    Args:
        pixels: (N, 32, 32, 3) uint8.
        seed: Seed for drawing patches.
        watch: Called as ``watch(what, done, total)``.

    Returns:
        (N, 4 * FILTERS) float32.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = _draw(pixels, generator)
    centre, white = _whitening(drawn)
    filters = _means((drawn - centre) @ white, generator)
    found = np.empty((len(pixels), 4 * len(filters)), np.float32)
    for start in range(0, len(pixels), BATCH):
        some = torch.from_numpy(pixels[start : start + BATCH]).permute(0, 3, 1, 2).float()
        patches = _normal(F.unfold(some, PATCH).transpose(1, 2))  # (B, 27 * 27, 108)
        found[start : start + len(some)] = _encode((patches - centre) @ white, filters).numpy()
        watch("looking at pictures", start + len(some), len(pixels))
    return found


def _draw(pixels: np.ndarray, generator: torch.Generator) -> Tensor:
    count = min(DRAWN, OF_EACH * len(pixels))
    rows = torch.randint(len(pixels), (count,), generator=generator).numpy()
    places = torch.randint(SIDE - PATCH + 1, (count, 2), generator=generator).numpy()
    views = np.lib.stride_tricks.sliding_window_view(pixels, (PATCH, PATCH), axis=(1, 2))  # (N, 27, 27, 3, 6, 6)
    return _normal(torch.from_numpy(views[rows, places[:, 0], places[:, 1]].reshape(count, -1)).float())


def _normal(patches: Tensor) -> Tensor:
    """Removes brightness and contrast."""
    patches = patches - patches.mean(-1, keepdim=True)
    return patches / (patches.square().mean(-1, keepdim=True) + 10).sqrt()


def _whitening(patches: Tensor) -> tuple[Tensor, Tensor]:
    centre = patches.mean(0)
    values, vectors = torch.linalg.eigh(torch.cov((patches - centre).T))
    return centre, vectors @ torch.diag((values.clamp_min(0) + 0.1).rsqrt()) @ vectors.T


def _means(patches: Tensor, generator: torch.Generator) -> Tensor:
    """k-means from patches drawn at random; an empty cluster is drawn again."""
    filters = patches[torch.randperm(len(patches), generator=generator)[:FILTERS]].clone()
    for _ in range(STEPS):
        nearest = (patches @ filters.T - filters.square().sum(1) / 2).argmax(1)
        counts = torch.bincount(nearest, minlength=FILTERS)
        sums = torch.zeros_like(filters).index_add_(0, nearest, patches)
        again = patches[torch.randint(len(patches), (FILTERS,), generator=generator)]
        filters = torch.where(counts[:, None] > 0, sums / counts[:, None].clamp_min(1), again)
    return filters


def _encode(patches: Tensor, filters: Tensor) -> Tensor:
    """(B, P, d) to (B, 4 * filters): how much closer than average each filter is, summed over the quarters."""
    square = patches.square().sum(-1, keepdim=True) + filters.square().sum(1) - 2 * patches @ filters.T
    distance = square.clamp_min(0).sqrt()
    near = (distance.mean(-1, keepdim=True) - distance).clamp_min(0)
    side = SIDE - PATCH + 1
    maps = near.transpose(1, 2).reshape(len(patches), len(filters), side, side)
    return F.adaptive_avg_pool2d(maps, 2).flatten(1)
