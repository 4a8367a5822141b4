"""`Resizing`: tensors that get their size from the first step or from a loaded state. `Adam`: an optimizer's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...functional.optim import adam_step

__all__ = ["Adam", "Resizing"]


class Resizing(nn.Module):
    """Takes shapes that are unknown before the first step from a loaded state."""

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        for name, tensor in [*self._parameters.items(), *self._buffers.items()]:
            value = state_dict.get(prefix + name)
            if not isinstance(value, Tensor) or tensor is None or (value.numel() and tensor.numel()):
                continue
            # Only the last dimension is unknown at first; PyTorch refuses other differences.
            if value.ndim == tensor.ndim and value.shape[:-1] == tensor.shape[:-1]:
                tensor.data = torch.empty_like(value, device=tensor.device)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class Adam(Resizing):
    """Adam over a flat vector of parameters, with its state in buffers."""

    first: Tensor
    second: Tensor
    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("first", "second"):
            self.register_buffer(name, torch.zeros(0))
        self.register_buffer("steps", torch.tensor(0.0, dtype=torch.float64))

    def change(self, slope: Tensor, lr: float) -> Tensor:
        """(P,) the change of the parameters for this gradient, weight decay included."""
        if not self.first.numel():
            self.first, self.second = torch.zeros_like(slope), torch.zeros_like(slope)
        self.steps += 1
        change, self.first, self.second = adam_step(slope, self.first, self.second, self.steps.to(slope), lr)
        return change
