"""CIFAR-10 with 40 % synthetic label noise and Simple-CNN: the N-40 half of the paper's figure CIFAR_10_100."""

from __future__ import annotations

from .recipe import Recipe

__all__ = ["noisy_cifar"]


def noisy_cifar() -> Recipe:
    """CurML's settings, which the paper follows: SGD 0.1 with cosine to 1e-6, batch 100, 200 epochs, crop and flip."""
    return Recipe(
        name="cifar10-n40",
        summary="CIFAR-10 with 40 % synthetic label noise, Simple-CNN, 200 epochs (needs --data)",
        data="cifar10",
        model="simple-cnn",
        methods=("vanilla", "apw-e", "apw-i", "apw-ei", "s-apw-e", "m-apw-e", "mixup", "superloss"),
        seeds=(0, 1, 2),
        epochs=200,
        batch_size=100,
        lr=0.1,
        noise_rate=0.4,
    )
