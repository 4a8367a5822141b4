"""Images by their low frequencies, and augmentation of a growing magnitude (EfficientTrain, Wang et al., 2023)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .precision import at_least_float32

__all__ = [
    "RandAugment",
    "augment",
    "bandwidth",
    "growing_magnitude",
    "low_frequency_crop",
    "low_pass",
    "stages_of_computation",
]

OPERATIONS = 2  # RandAug's operations per image
GEOMETRIC, ROTATION, SHEAR, SHIFT = 5, math.pi / 6, 0.3, 0.3
CHOICES, CONTRAST = GEOMETRIC + 2, 0.9


def bandwidth(epoch: int, epochs: int, stages: Sequence[tuple[float, float]]) -> float:
    """B of epoch k as a share of the image's side: that of the first stage whose end k has not passed, else 1.

    Args:
        epoch: k, counted from 1.
        epochs: Epochs of the run.
        stages: (end as a share of the run, share of the side), in order.

    Returns:
        The share of the side.

    Example:
        >>> paper = ((0.6, 160 / 224), (0.8, 192 / 224))
        >>> [round(224 * bandwidth(k, 300, paper)) for k in (1, 180, 181, 240, 241, 300)]
        [160, 160, 192, 192, 224, 224]
    """
    for end, share in stages:
        if epoch <= end * epochs + 1e-9:
            return share
    return 1.0


def stages_of_computation(budget: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The stages of a run that gives shares of its computation, not of its epochs, to each size (EfficientTrain++).

    An epoch of images with the share s of the side costs s^2 of one of whole images, so small images get more epochs.

    Args:
        budget: (end as a share of the computation, share of the side), in order; whole images get the rest.

    Returns:
        (end as a share of the epochs, share of the side), as for ``bandwidth``.

    Example:
        >>> stages = stages_of_computation([(0.2, 96 / 224), (0.6, 160 / 224)])   # 98/90, 0.784 and 0.4 epochs in each
        >>> [round(end, 4) for end, _ in stages]                                  # that whole images would take
        [0.4791, 0.824]
    """
    ends = [0.0, *(end for end, _ in budget), 1.0]
    sides = [*(share for _, share in budget), 1.0]
    epochs = [(ends[i + 1] - ends[i]) / side**2 for i, side in enumerate(sides)]
    return [(sum(epochs[: i + 1]) / sum(epochs), side) for i, side in enumerate(sides[:-1])]


def growing_magnitude(epoch: int, epochs: int, magnitude: float) -> float:
    """The magnitude of epoch k: linear from 0 in the first epoch to ``magnitude`` in the last.

    Example:
        >>> [growing_magnitude(k, 5, 1.0) for k in (1, 2, 5)]
        [0.0, 0.25, 1.0]
    """
    return magnitude * min(1.0, (epoch - 1) / max(1, epochs - 1))


def _spectrum(x: Tensor, height: int, width: int) -> Tensor:
    """The (height, width) lowest frequencies, zero in the middle; "forward" makes them independent of the size."""
    full = at_least_float32(x)
    shifted = torch.fft.fftshift(torch.fft.fft2(full, norm="forward"), dim=(-2, -1))
    top, left = x.shape[-2] // 2 - height // 2, x.shape[-1] // 2 - width // 2
    return shifted[..., top : top + height, left : left + width]


def _image(spectrum: Tensor, dtype: torch.dtype) -> Tensor:
    whole = torch.fft.ifftshift(spectrum, dim=(-2, -1))
    return torch.fft.ifft2(whole, norm="forward").real.to(dtype).contiguous()


def low_frequency_crop(x: Tensor, height: int, width: int) -> Tensor:
    r"""Images of ``height`` x ``width`` with exactly the lowest frequencies: crop the middle of the spectrum.

    With :math:`c_{uv} = \frac1{HW}\sum_{mn} x_{mn} e^{-2\pi i(um/H + vn/W)}`, the small image is the real part of
    :math:`\sum c_{uv} e^{2\pi i(um/B_h + vn/B_w)}` over the B_h x B_w lowest (u, v). Dividing by HW, not by B_h B_w,
    keeps the mean of the image and the amplitudes.

    Args:
        x: (..., H, W) images.
        height: B_h, at most H.
        width: B_w, at most W.

    Returns:
        (..., B_h, B_w) images, in the precision of ``x``.

    Example:
        >>> low_frequency_crop(torch.tensor([[3.0, 1.0, 3.0, 1.0], [5.0, 3.0, 5.0, 3.0]]), 2, 2)   # loses the stripes
        tensor([[2., 2.],
                [4., 4.]])
    """
    if (height, width) == x.shape[-2:]:
        return x
    return _image(_spectrum(x, height, width), x.dtype)


def low_pass(x: Tensor, height: int, width: int) -> Tensor:
    """The same frequencies as ``low_frequency_crop``, at the full size of the image.

    Example:
        >>> low_pass(torch.tensor([[3.0, 1.0, 3.0, 1.0]]), 1, 2)
        tensor([[2., 2., 2., 2.]])
    """
    if (height, width) == x.shape[-2:]:
        return x
    top, left = x.shape[-2] // 2 - height // 2, x.shape[-1] // 2 - width // 2
    bottom, right = x.shape[-2] - top - height, x.shape[-1] - left - width
    return _image(F.pad(_spectrum(x, height, width), (left, right, top, bottom)), x.dtype)


def augment(x: Tensor, magnitude: float, generator: torch.Generator) -> Tensor:
    """Two random operations per image, of a strength drawn up to ``magnitude``: a small substitute for RandAug.

    The operations are rotation (up to 30 degrees), shear and shift along either axis (up to 0.3 of the side), contrast
    (0.1 to 1.9 times the deviation from the image's mean) and brightness (a shift by up to 0.9 standard deviations of
    the image). RandAug's colour-table operations need byte images, but inputs here may have any scale. Pixels from
    outside the image are zero, the mean colour of normalised images.

    Args:
        x: (B, C, H, W) floating-point images.
        magnitude: Strength in [0, 1]; 0 changes nothing.
        generator: On the device of ``x``.

    Returns:
        Like ``x``.

    Example:
        >>> x = torch.rand(2, 3, 8, 8)
        >>> torch.equal(augment(x, 0.0, torch.Generator()), x)
        True
    """
    if magnitude == 0:
        return x
    images = at_least_float32(x)
    lots, draws = torch.rand(2, len(x), CHOICES, generator=generator, device=x.device, dtype=images.dtype)
    chosen = lots.argsort(1).argsort(1) < OPERATIONS
    amounts = magnitude * (2 * draws - 1) * chosen
    images = _move(images, amounts)
    contrast, brightness = (amounts[:, GEOMETRIC + i].view(-1, 1, 1, 1) * CONTRAST for i in (0, 1))
    mean, deviation = images.mean((1, 2, 3), keepdim=True), images.std((1, 2, 3), keepdim=True, correction=0)
    # Added to the image, so that an image with zero draws is unchanged.
    return (images + contrast * (images - mean) + brightness * deviation).to(x.dtype)


class RandAugment:
    """torchvision's RandAugment as ``augment=`` of ``EfficientTrain``, image by image; it needs torchvision.

    Inputs are turned into bytes by ``mean`` and ``std`` and back. Random draws use only the given generator; the global
    one is restored.

    Args:
        mean: The mean used to normalise pixels in [0, 1], per channel or for all.
        std: The standard deviation used.
        operations: Operations for each image, 2 in the paper.

    Example:
        >>> RandAugment(mean=0.5, std=0.25).bin_of(0.9)   # 0.9, the paper's m = 9 of 10, is torchvision's 27 of 30
        27
    """

    BINS = 31  # torchvision's default

    def __init__(
        self, mean: float | Sequence[float] = 0.0, std: float | Sequence[float] = 1.0, operations: int = OPERATIONS
    ) -> None:
        self.mean, self.std = (torch.as_tensor(value, dtype=torch.float32).view(-1, 1, 1) for value in (mean, std))
        if not bool((self.std > 0).all()):
            raise ValueError(f"std must be positive, got {std!r}")
        self.operations = operations

    def bin_of(self, magnitude: float) -> int:
        """torchvision's number for a magnitude in [0, 1]."""
        return round(magnitude * (self.BINS - 1))

    def __call__(self, x: Tensor, magnitude: float, generator: torch.Generator) -> Tensor:
        """Like ``augment``."""
        try:
            from torchvision.transforms import RandAugment as Operations
        except ImportError as error:
            raise ImportError("RandAugment needs torchvision; omit augment= to use the library's own") from error
        mean, std = self.mean.to(x.device), self.std.to(x.device)
        pixels = x.float() * std + mean
        if not bool((pixels.amin() > -0.01) & (pixels.amax() < 1.01)):
            raise ValueError(
                f"pixels lie between {float(pixels.amin()):.3g} and {float(pixels.amax()):.3g} and must lie in [0, 1] "
                "after undoing mean= and std=; pass those used to normalise the images"
            )
        operate = Operations(self.operations, self.bin_of(magnitude), self.BINS)
        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            images = torch.stack([operate(image) for image in (pixels * 255).round().clamp(0, 255).to(torch.uint8)])
        return ((images.float() / 255 - mean) / std).to(x.dtype)


def _move(images: Tensor, amounts: Tensor) -> Tensor:
    angle, shear_x, shear_y = amounts[:, 0] * ROTATION, amounts[:, 1] * SHEAR, amounts[:, 2] * SHEAR
    sine, cosine = angle.sin(), angle.cos()
    # A unit of affine_grid is half a side.
    rows = [[cosine, shear_x - sine, 2 * SHIFT * amounts[:, 3]], [sine + shear_y, cosine, 2 * SHIFT * amounts[:, 4]]]
    matrix = torch.stack([torch.stack(row, 1) for row in rows], 1)
    grid = F.affine_grid(matrix, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)
