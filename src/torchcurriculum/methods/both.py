"""Both: one method says which rows and how they look, another how much they count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ..core import Batch, Epoch, Method, checks
from ._base.wrapper import Wrapper

__all__ = ["Both"]


class Both(Wrapper):
    """The rows and the looks of ``planner``, the weights and the loss of ``weigher``: SuperLoss under baby steps.

    The planner's own weights are not used, so a method whose weights belong to its plan (InfoBatch) cannot be the
    planner. The weigher learns of every epoch, and may change how the batch looks after the planner has; it must leave
    the choice of rows to the planner.

    Args:
        planner: A method that chooses rows or changes how they look.
        weigher: A method that weighs.

    Example:
        >>> from torchcurriculum import APW, methods
        >>> apw_under_blur = Both(methods.CBS(interval=0.5), APW(100, q=20))
    """

    planner: Method
    weigher: Method

    def __init__(self, planner: Method, weigher: Method) -> None:
        super().__init__(planner=planner, weigher=weigher)

    def inner(self, epoch: int) -> Method:
        """The weigher."""
        return self.weigher

    def plan(self, epoch: Epoch) -> Tensor | None:
        """The planner's rows; the weigher begins the epoch, too."""
        rows = self.planner.plan(epoch)
        if self.weigher.plan(epoch) is not None:
            raise ValueError(
                f"{type(self.weigher).__name__} chooses rows itself and cannot weigh under "
                f"{type(self.planner).__name__}; make it the planner, or use one of the two alone"
            )
        return rows

    @checks.forwards
    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """The planner's view, then the weigher's."""
        return self.weigher.view(model, self.planner.view(model, batch))

    def report(self) -> Mapping[str, Any]:
        """The scalars of both; the weigher's where they share a name."""
        return {**self.planner.report(), **self.weigher.report()}
