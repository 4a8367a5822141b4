"""`Resizing`: a module whose tensors get their size from the first step or from a loaded state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Resizing"]


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
