"""Your own data: a folder of images or a CSV file, plain training against APW, SuperLoss, mixup and RAPW."""

from __future__ import annotations

from ..recipe import Recipe

__all__ = ["own_csv", "own_images"]


def own_images() -> Recipe:
    """ResNet-18 on 64x64 images, one folder per class, with the given labels."""
    return Recipe(
        name="image-folder",
        summary="your own images, one folder per class, ResNet-18, 30 epochs (needs --data DIR)",
        data="image-folder",
        model="resnet18-3x3",
        methods=("vanilla", "apw-e", "superloss", "mixup", "rapw"),
        seeds=(0,),
        epochs=30,
        batch_size=64,
        lr=0.05,
        size=64,
        threshold="auto",
    )


def own_csv() -> Recipe:
    """A small perceptron on the features of a table, with the given labels."""
    return Recipe(
        name="csv",
        summary="your own table, a perceptron with two hidden layers, 60 epochs (needs --data FILE)",
        data="csv",
        model="perceptron",
        methods=("vanilla", "apw-e", "superloss", "mixup", "rapw"),
        seeds=(0, 1, 2, 3, 4),
        epochs=60,
        batch_size=64,
        lr=0.05,
        threshold="auto",
    )
