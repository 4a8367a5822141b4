"""Small networks: Simple-CNN of the APW paper's CIFAR experiments (CurML's ConvNet), one for digits, one for tables."""

from __future__ import annotations

from torch import nn

__all__ = ["digits_cnn", "perceptron", "simple_cnn"]


def simple_cnn(classes: int = 10, channels: int = 3, size: int = 32) -> nn.Sequential:
    """Two blocks of two 3x3 convolutions of 32 channels without padding, then a linear layer with batch norm on top.

    The batch norm on the logits is part of it: without it the network does not train at a learning rate of 0.1.

    Args:
        classes: Outputs C.
        channels: Channels of the input.
        size: Height and width of the input, at least 16.

    Returns:
        The network, with PyTorch's default initialisation; 36,926 parameters for 32x32x3 and ten classes.

    Example:
        >>> sum(p.numel() for p in simple_cnn().parameters())
        36926
    """
    layers: list[nn.Module] = []
    for inputs in (channels, 32):
        for width in (inputs, 32):
            layers += [nn.Conv2d(width, 32, 3), nn.BatchNorm2d(32), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
    side = ((size - 4) // 2 - 4) // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * side * side, classes), nn.BatchNorm1d(classes))


def digits_cnn() -> nn.Sequential:
    """Two convolutions with batch norm, one pooling, one linear layer, for 8x8 digits: 10,026 parameters.

    Example:
        >>> sum(p.numel() for p in digits_cnn().parameters())
        10026
    """
    layers: list[nn.Module] = []
    for inputs, width in ((1, 16), (16, 32)):
        layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 4 * 4, 10))


def perceptron(inputs: int, classes: int) -> nn.Sequential:
    """Two hidden layers of 64 with batch norm."""
    layers: list[nn.Module] = []
    for width in (inputs, 64):
        layers += [nn.Linear(width, 64), nn.BatchNorm1d(64), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, classes))
