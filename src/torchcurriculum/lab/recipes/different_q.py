"""The paper's figure different_q: APW-E on CIFAR-100 (N-40) with q from a quarter to four times the epochs."""

from __future__ import annotations

from ..recipe import Recipe
from .cifar_10_100 import cifar100

__all__ = ["q_sensitivity"]

SHARES = (0.25, 0.5, 1, 2, 4)


def q_sensitivity() -> Recipe:
    """CIFAR-100 (N-40) as in ``cifar``; the variants ``apw-e@0.25K`` to ``apw-e@4K`` differ only in q."""
    variants = {f"apw-e@{share:g}K": {"q_epochs": share} for share in SHARES}
    return cifar100(0.4).with_(
        name="q-sensitivity",
        summary="CIFAR-100 with 40 % synthetic label noise: APW-E with q from K/4 to 4K (needs --data)",
        methods=("vanilla", *variants),
        options=variants,
    )
