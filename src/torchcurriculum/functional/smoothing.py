"""Gaussian smoothing of feature maps (curriculum by smoothing, Sinha et al., 2020)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["annealed_sigma", "gaussian", "smooth"]

_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def annealed_sigma(epoch: int, sigma: float, decay: float, interval: float) -> float:
    """sigma of epoch k: ``sigma * decay ** floor((k - 1) / interval)``.

    Args:
        epoch: k, counted from 1.
        sigma: The first epochs' standard deviation, in pixels of the feature map.
        decay: Factor of each reduction.
        interval: Epochs between reductions; below 1 there are several per epoch.

    Returns:
        The standard deviation of epoch k.

    Example:
        >>> [round(annealed_sigma(k, 1.0, 0.9, 5), 3) for k in (1, 5, 6, 11)]
        [1.0, 1.0, 0.9, 0.81]
    """
    # The small number keeps 3 / 0.3 from rounding down to 9.
    return sigma * decay ** math.floor((epoch - 1) / interval + 1e-9)


def gaussian(size: int, sigma: float) -> Tensor:
    r"""A sampled Gaussian :math:`g_i \propto \exp(-i^2 / 2\sigma^2)` around the middle, summing to one.

    Args:
        size: Taps, an odd number.
        sigma: Standard deviation in pixels; zero gives the identity.

    Returns:
        (size,) float64 weights.

    Example:
        >>> gaussian(3, 1.0)
        tensor([0.2741, 0.4519, 0.2741], dtype=torch.float64)
        >>> gaussian(3, 0.0)
        tensor([0., 1., 0.], dtype=torch.float64)
    """
    offsets = torch.arange(size, dtype=torch.float64) - size // 2
    if sigma == 0:
        return (offsets == 0).double()
    return torch.softmax(-(offsets / sigma).square() / 2, 0)  # sigma squared could under- or overflow


def smooth(x: Tensor, kernel: Tensor, dims: int) -> Tensor:
    """Blurs every channel separately with the product kernel, keeping the size; pads with zeros.

    Args:
        x: (..., C, *spatial) feature maps, with or without a batch dimension.
        kernel: (K,) weights of one axis, K odd.
        dims: Spatial dimensions: 1, 2 or 3.

    Returns:
        Like ``x``.

    Example:
        >>> smooth(torch.tensor([[0.0, 0.0, 4.0, 0.0]]), torch.tensor([0.25, 0.5, 0.25]), dims=1)
        tensor([[0., 1., 2., 1.]])
    """
    kernel = kernel.to(x.dtype)
    product = kernel
    for _ in range(dims - 1):
        product = product.unsqueeze(-1) * kernel
    channels = x.shape[-dims - 1]
    stacked = product.expand(channels, 1, *product.shape)
    return _CONVOLUTIONS[dims](x, stacked, padding=len(kernel) // 2, groups=channels)
