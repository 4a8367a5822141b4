"""Data sets held in memory, on any device, that return whole batches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils.data import Dataset

__all__ = ["Arrays", "Rows"]


class Rows(Dataset[tuple[Any, Tensor]]):
    """Abstract: a data set in memory with targets ``y`` and tensors that move together.

    A subclass adds ``batch(index, generator) -> (inputs, targets)``, and ``names`` if its rows have readable names:
    sentences, files, lines.
    """

    y: Tensor
    names: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.y)

    def batch(self, index: Tensor, generator: torch.Generator | None = None) -> tuple[Any, Tensor]:
        """The rows of ``index``, augmented when there is a generator to do it with."""
        raise NotImplementedError

    def with_labels(self, y: Tensor) -> Self:
        """The same inputs with other targets."""
        if len(y) != len(self):
            raise ValueError(f"there are {len(self)} inputs and {len(y)} targets")
        other = copy.copy(self)
        other.y = y.to(self.y.device)
        return other

    def to(self, device: torch.device | str) -> Self:
        """A copy on ``device``."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            setattr(other, name, value.to(device) if isinstance(value, Tensor) else value)
        return other


class Arrays(Rows):
    """Inputs and targets as two tensors; ``batch`` is fast because it gathers many rows at once.

    Args:
        x: (N, ...) inputs.
        y: (N, ...) targets.
        augment: ``augment(x, generator) -> x`` for whole batches, or None.

    Example:
        >>> data = Arrays(torch.arange(6.0).view(3, 2), torch.tensor([0, 1, 0]))
        >>> data.batch(torch.tensor([2, 0]))
        (tensor([[4., 5.],
                [0., 1.]]), tensor([0, 0]))
    """

    def __init__(
        self, x: Tensor, y: Tensor, augment: Callable[[Tensor, torch.Generator], Tensor] | None = None
    ) -> None:
        for name, given in (("x", x), ("y", y)):
            if not isinstance(given, Tensor):
                raise TypeError(f"{name} must be a tensor, got {type(given).__name__}; pass torch.as_tensor({name})")
        if len(x) != len(y):
            raise ValueError(f"there are {len(x)} inputs and {len(y)} targets")
        self.x, self.y, self.augment = x, y, augment

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return self.x[row], self.y[row]

    def batch(self, index: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """The rows of ``index``, augmented when there is a generator to do it with."""
        x = self.x.index_select(0, index.to(self.x.device))  # several times as fast as x[index]
        y = self.y.index_select(0, index.to(self.y.device))
        if self.augment is not None and generator is not None:
            x = self.augment(x, generator)
        return x, y
