"""The paper's table details_webvision: Inception-ResNet-v2 on WebVision 1.0 with all variants of APW."""

from __future__ import annotations

from ..recipe import Recipe

__all__ = ["webvision"]


def webvision() -> Recipe:
    """100 epochs of SGD 0.02, a tenth of it after the 50th; batch 32 is our choice, since the paper does not give it.

    WebVision's test labels are not public: its validation set selects and reports, as in the paper.
    """
    weightings = ("e", "i", "ei")
    kinds = [f"{kind}-{weighting}" for kind in ("apw", "s-apw", "m-apw", "m-apw-beta") for weighting in weightings]
    return Recipe(
        name="webvision",
        summary="WebVision 1.0, Inception-ResNet-v2, 100 epochs (needs --data and timm)",
        data="webvision",
        model="inception-resnet-v2",
        methods=("vanilla", *kinds[:3], "s-apw-a", *kinds[3:]),
        seeds=(0, 1, 2, 3, 4),
        epochs=100,
        batch_size=32,
        lr=0.02,
        weight_decay=0.0,
        schedule="step",
        size=299,
        noise_rate=0.2,
        noise="inherent",
        one_set=True,
    )
