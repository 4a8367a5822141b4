"""EfficientNet-B0 in plain torch, for features of pictures; its tensors have torchvision's names."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

__all__ = ["EfficientNetB0"]

# Expansion, kernel, stride, channels in and out, blocks: Table 1 of Tan and Le, "EfficientNet" (ICML 2019).
STAGES = (
    (1, 3, 1, 32, 16, 1),
    (6, 3, 2, 16, 24, 2),
    (6, 5, 2, 24, 40, 2),
    (6, 3, 2, 40, 80, 3),
    (6, 5, 1, 80, 112, 3),
    (6, 5, 2, 112, 192, 4),
    (6, 3, 1, 192, 320, 1),
)


class EfficientNetB0(nn.Module):
    """From pictures to 1,280 features; for inference only (no dropout, no stochastic depth).

    Example:
        >>> EfficientNetB0().eval()(torch.zeros(1, 3, 64, 64)).shape
        torch.Size([1, 1280])
    """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [_convolution(3, 32, 3, 2)]
        for expansion, kernel, stride, inputs, outputs, blocks in STAGES:
            first = _Block(expansion, kernel, stride, inputs, outputs)
            layers.append(
                nn.Sequential(first, *(_Block(expansion, kernel, 1, outputs, outputs) for _ in range(blocks - 1)))
            )
        self.features = nn.Sequential(*layers, _convolution(320, 1280, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) to (B, 1280)."""
        found: Tensor = self.features(x).mean((2, 3))
        return found

    @staticmethod
    def fits(held: Mapping[str, Tensor]) -> bool:
        """Whether these tensors belong to this network."""
        first, last = held.get("features.0.0.weight"), held.get("features.8.0.weight")
        shapes = [None if part is None else tuple(part.shape) for part in (first, last)]
        return shapes == [(32, 3, 3, 3), (1280, 320, 1, 1)]


def _convolution(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, active: bool = True
) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)]
    return nn.Sequential(*layers, nn.BatchNorm2d(outputs), *([nn.SiLU()] if active else []))


class _Block(nn.Module):
    """Mobile inverted bottleneck with squeeze and excitation."""

    def __init__(self, expansion: int, kernel: int, stride: int, inputs: int, outputs: int) -> None:
        super().__init__()
        width = inputs * expansion
        layers = [] if expansion == 1 else [_convolution(inputs, width, 1)]
        layers += [_convolution(width, width, kernel, stride, groups=width), _Excitation(width, max(1, inputs // 4))]
        self.block = nn.Sequential(*layers, _convolution(width, outputs, 1, active=False))
        self.skips = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.block(x)
        return x + out if self.skips else out


class _Excitation(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(width, inner, 1), nn.Conv2d(inner, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.sigmoid(self.fc2(nn.functional.silu(self.fc1(x.mean((2, 3), keepdim=True)))))
        return x * scale
