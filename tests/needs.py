"""What methods cannot be made without, for tests that make every method by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchcurriculum import Method, methods

NEEDED: dict[str, Callable[[int], dict[str, Any]]] = {
    "group-dro": lambda n: {"groups": torch.arange(n) % 3},
    "given-weights": lambda n: {"weights": torch.linspace(0.0, 1.0, n)},
    "rho-loss": lambda n: {"irreducible": torch.linspace(0.0, 1.0, n)},
    "length-warmup": lambda n: {"lengths": 1 + torch.arange(n) % 20},  # else it cuts tokens
}


def needed(name: str, n: Any) -> dict[str, Any]:
    """Options without which ``build`` would refuse, for ``n`` rows."""
    return NEEDED[name](n) if name in NEEDED and isinstance(n, int) and n > 0 else {}


def build(name: str, n: Any, epochs: Any, **options: Any) -> Method:
    """``methods.build`` with what the method needs."""
    return methods.build(name, n, epochs, **{**needed(name, n), **options})
