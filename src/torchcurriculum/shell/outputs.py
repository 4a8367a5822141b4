"""`Outputs`: the network's predictions for every row during training, for the label audit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ..distributed import is_first, total

__all__ = ["PARTS", "Outputs"]

PARTS = ("shares", "visits", "labels")
LARGEST = 2**28  # most values to keep, rows times classes


class Outputs:
    """The mean of each row's probabilities over its visits, and the labels it came with.

    Keeps nothing unless the task is classification: outputs (B, C) and B whole targets below C.

    Args:
        n: Rows of the training set.

    Example:
        >>> outputs = Outputs(2)
        >>> outputs.note(torch.tensor([[3.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1]), torch.tensor([1, 0]))
        >>> {name: values.tolist() for name, values in outputs.arrays().items() if name != "mean_probabilities"}
        {'labels': [1, 0], 'predicted': [0, 0]}
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.shares: Tensor | None = None  # (N, C) sums, then (N,) visits and labels
        self.visits = self.labels = torch.zeros(n, dtype=torch.float32)

    @torch.no_grad()
    def note(self, logits: object, y: object, index: Tensor) -> None:
        """Adds a batch."""
        if not isinstance(logits, Tensor) or not isinstance(y, Tensor) or logits.ndim != 2 or y.shape != index.shape:
            return
        classes = logits.shape[1]
        if y.is_floating_point() or not len(y) or classes < 2 or self.n * classes > LARGEST:
            return
        if self.shares is None or self.shares.device != logits.device:
            self._make(logits, classes)
        assert self.shares is not None
        if self.shares.shape[1] != classes:
            return
        outputs = logits.float()
        # skorch's nets return probabilities
        already = (outputs.min() >= 0) & ((outputs.sum(1) - 1).abs().max() < 1e-3)
        shares = torch.where(already, outputs, outputs.softmax(1)).nan_to_num(0.0)
        self.shares.index_add_(0, index, shares)
        self.visits.index_add_(0, index, torch.ones_like(shares[:, 0]))
        self.labels.index_copy_(0, index, y.to(self.labels))

    def _make(self, logits: Tensor, classes: int) -> None:
        held = torch.zeros(self.n, classes, dtype=torch.float32) if self.shares is None else self.shares
        labels = torch.zeros(self.n, dtype=torch.float64) if self.shares is None else self.labels
        self.shares, self.visits, self.labels = (part.to(logits.device) for part in (held, self.visits, labels))

    def state_dict(self) -> dict[str, Tensor]:
        """What all ranks have noted; empty if nothing. All ranks must call it."""
        if self.shares is None:
            return {}
        visits, labels = total(self.visits), total(self.labels * self.visits)
        return dict(zip(PARTS, (total(self.shares), visits, labels / visits.clamp_min(1)), strict=True))

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restores a state; the first rank goes on with all of it."""
        self.shares, self.visits, self.labels = None, torch.zeros(self.n), torch.zeros(self.n)
        if state and is_first():
            self.shares, self.visits, self.labels = (state[name].clone() for name in PARTS)

    def arrays(self) -> dict[str, np.ndarray]:
        """For ``record.set_array``: ``labels``, ``predicted``, ``mean_probabilities``; empty until all rows were seen.

        All ranks must call it.
        """
        if self.shares is None:
            return {}
        shares, visits, labels = total(self.shares), total(self.visits), total(self.labels * self.visits)
        labels = (labels / visits.clamp_min(1)).round().long()
        if not bool((visits > 0).all()) or bool((labels < 0).any()) or bool((labels >= shares.shape[1]).any()):
            return {}
        mean = (shares / visits[:, None]).half().cpu()
        return {
            "labels": labels.cpu().numpy(),
            "predicted": mean.float().argmax(1).numpy(),
            "mean_probabilities": mean.numpy(),
        }
