"""An epoch with given losses, for tests of methods that plan."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcurriculum import Epoch


def epoch(number: int, losses: list[float] | Tensor, seed: int = 0) -> Epoch:
    values = torch.as_tensor(losses, dtype=torch.float64)
    return Epoch(number, len(values), values, lambda: values, seed=seed)


def unmeasured(number: int, n: int) -> Epoch:
    """An epoch in which asking for losses is a mistake."""

    def refuse() -> Tensor:
        raise AssertionError("nobody should measure here")

    return Epoch(number, n, torch.zeros(n), refuse)
