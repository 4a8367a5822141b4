"""`Remembering`: base class of methods that keep a running mean of the predictions for each row."""

from __future__ import annotations

import torch
from torch import Tensor

from ...core import Method, Step, checks
from .classes import check_classes
from .sized import Resizing

__all__ = ["Remembering", "classes_of"]


def classes_of(step: Step, name: str) -> tuple[Tensor, Tensor]:
    """(B, C) logits in float32 or more and (B,) labels of a step; raises an error for ``name`` if there are none."""
    if step.batch.pair is not None:
        raise TypeError(f"{name} compares predictions with one label per row, but these rows are mixtures of two")
    logits, labels = check_classes(step.logits, step.batch.y, name)
    return checks.at_least_float32(logits), labels


class Remembering(Resizing, Method):
    """Abstract: t, a running mean of the predicted probabilities of each row.

    Args:
        n: Rows of the training set.
        keep: Share of the old mean in the new one, in [0, 1).

    Attributes:
        predictions: (N, C) the running means; C is known after the first step.
    """

    predictions: Tensor

    def __init__(self, n: int, keep: float, name: str) -> None:
        super().__init__()
        self.n = checks.whole("n", n)
        checks.real(name, keep, "[0, 1)", "0 uses only the prediction of this step")
        self.keep = keep
        self.add_rows("predictions", torch.zeros(n, 0))

    def grow_rows(self, n: int) -> None:
        """New rows have no predictions yet."""
        self.add_room("predictions", n, 0.0)
        self.n = max(self.n, n)

    def check_outputs(self, probabilities: Tensor) -> None:
        """Raises an error if the model had another number of outputs before."""
        was, now = self.predictions.shape[1], probabilities.shape[1]
        if self.predictions.numel() and was != now:
            raise ValueError(f"the model had {was} outputs and has {now} now; make a new {type(self).__name__}")

    def update_average(self, step: Step, probabilities: Tensor, settled: Tensor | None = None) -> Tensor:
        """(B, C) the running means of the batch, after updating them with these predictions.

        If ``settled``, a number, is not zero, those that exist stay as they are.
        """
        self.check_outputs(probabilities)
        if not self.predictions.numel():
            self.predictions = probabilities.new_zeros(self.n, probabilities.shape[1])
        mean = self.predictions[step.index]
        found = self.keep * mean + (1 - self.keep) * probabilities.detach().to(mean.dtype)
        if settled is not None:
            found = torch.where((settled > 0) & (mean.sum(1, keepdim=True) > 0), mean, found)
        self.predictions.index_copy_(0, step.index, found)
        return found
