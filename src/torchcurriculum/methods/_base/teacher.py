"""The losses of a model other than the one in training: a teacher, or one trained on other rows."""

from __future__ import annotations

from torch import Tensor, nn

from ...core import Batch, checks

__all__ = ["teacher_losses"]


def teacher_losses(model: nn.Module, batch: Batch) -> Tensor:
    """(B,) losses of ``model`` by the task of the batch, for ``epoch.measure``."""
    assert batch.task is not None
    return checks.check_losses(batch.task.losses(model, batch)[1], batch.index, batch.task.nan_strategy)[0]
