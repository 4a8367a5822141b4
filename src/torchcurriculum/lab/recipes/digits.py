"""The demo: scikit-learn's digits with 40 % of the training labels flipped; easy-first against plain training."""

from __future__ import annotations

from ..recipe import Recipe

__all__ = ["recipe"]


def recipe() -> Recipe:
    """1,078 noisy training images, a small convolutional network, five seeds; about two minutes on one core."""
    return Recipe(
        name="digits",
        summary="digits with 40 % of the training labels flipped: plain training against APW, S-APW, M-APW and RAPW",
        data="digits",
        model="digits-cnn",
        methods=("vanilla", "apw-e", "s-apw-e", "m-apw-beta-e", "rapw"),
        seeds=(0, 1, 2, 3, 4),
        epochs=40,
        batch_size=64,
        lr=0.05,
        noise_rate=0.4,
    )
