"""The paper's figure CIFAR_10_100: Simple-CNN on CIFAR-10 and CIFAR-100, clean and with 40 % label noise (N-40)."""

from __future__ import annotations

from ..recipe import Recipe

__all__ = ["cifar", "cifar10", "cifar100", "noisy_cifar"]

METHODS = ("vanilla", "apw-e", "apw-i", "apw-ei", "s-apw-a", "s-apw-e", "s-apw-i", "s-apw-ei", "superloss", "mixup")


def cifar10(noise_rate: float = 0.0, classes: int = 10) -> Recipe:
    """CurML's settings, which the paper follows: SGD 0.1 with cosine to 1e-6, batch 100, 200 epochs, crop and flip."""
    noise = " with 40 % synthetic label noise" if noise_rate else ""
    return Recipe(
        name=f"cifar{classes}{'-n40' if noise_rate else ''}",
        summary=f"CIFAR-{classes}{noise}, Simple-CNN, 200 epochs (needs --data)",
        data=f"cifar{classes}",
        model="simple-cnn",
        methods=METHODS,
        seeds=(0, 1, 2, 3, 4),
        epochs=200,
        batch_size=100,
        lr=0.1,
        noise_rate=noise_rate,
        options={"superloss": {"tau": "running"}},  # as in the tables of docs/results, which were run so
    )


def cifar100(noise_rate: float = 0.0) -> Recipe:
    """The same on CIFAR-100."""
    return cifar10(noise_rate, classes=100)


def noisy_cifar() -> Recipe:
    """CIFAR-10 (N-40), the setting that the peers report, too."""
    return cifar10(0.4)


def cifar() -> tuple[Recipe, ...]:
    """The four parts of the figure."""
    return cifar10(), noisy_cifar(), cifar100(), cifar100(0.4)
