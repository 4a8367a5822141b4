"""The demo: scikit-learn's digits with 40 % of the training labels flipped; learning easy-first against plain."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..data import load_digits
from .recipe import Recipe

__all__ = ["load", "model", "recipe"]


def recipe() -> Recipe:
    """1,078 noisy training images, a small convolutional network, five seeds; about two minutes on one core."""
    return Recipe(
        name="digits",
        summary="digits with 40 % of the training labels flipped: plain training against APW, S-APW, M-APW and RAPW",
        data="digits",
        model="digits-cnn",
        methods=("vanilla", "apw-e", "s-apw-e", "m-apw-e", "rapw"),
        seeds=(0, 1, 2, 3, 4),
        epochs=40,
        batch_size=64,
        lr=0.05,
        noise_rate=0.4,
    )


def load(seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Train, validation and test parts, all with clean labels."""
    return load_digits(seed)


def model() -> nn.Module:
    """Two convolutions with batch norm, one pooling, one linear layer: 10,026 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def pictures(x: Tensor) -> Tensor:
    """(M, 8, 8) uint8 grey values of M inputs."""
    return ((x.reshape(-1, 8, 8) + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
