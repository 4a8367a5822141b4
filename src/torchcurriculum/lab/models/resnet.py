"""ResNet-18 for small images: a 3x3 stem and no pooling before the first stage, in plain torch."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["resnet18"]


class Block(nn.Module):
    """Two 3x3 convolutions with batch norm and a shortcut; the names of its parts are torchvision's."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample: nn.Module = nn.Identity()
        if stride > 1 or inputs != width:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(inner)) + self.downsample(x))


class ResNet18(nn.Module):
    """Four stages of two blocks, 64 to 512 channels, global average pooling, one linear layer."""

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
        self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
        self.fc = nn.Linear(512, classes)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def resnet18(classes: int = 10, channels: int = 3) -> nn.Module:
    """ResNet-18 with the 3x3 stem that 32x32 images need; it reads torchvision's weights except stem and head.

    Args:
        classes: Outputs C.
        channels: Channels of the input.

    Returns:
        The network, with the initialisation of He et al. (fan out) for its convolutions; 11,173,962 parameters for
        three channels and ten classes.

    Example:
        >>> sum(p.numel() for p in resnet18().parameters())
        11173962
        >>> resnet18(100)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 100])

    Reference:
        He, Zhang, Ren, Sun, Deep Residual Learning for Image Recognition, CVPR 2016.
    """
    return ResNet18(classes, channels)
