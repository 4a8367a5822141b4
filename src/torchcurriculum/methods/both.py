"""Both: one method chooses and transforms rows, another weights them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ..core import Batch, Epoch, Method, checks
from ._base.wrapper import Wrapper

__all__ = ["Both"]


class Both(Wrapper):
    """Plan and view of ``planner``, weights and loss of ``weigher``; for example SuperLoss under baby steps.

    The planner's own weights are not used, so a method whose weights belong to its plan (InfoBatch) cannot be the
    planner. The weigher also sees every epoch, and may transform the batch after the planner; it must not choose rows.

    Args:
        planner: A method that chooses or transforms rows.
        weigher: A method that weights rows.

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

    @property
    def now(self) -> Method:
        """The weigher."""
        return self.weigher

    def plan(self, epoch: Epoch) -> Tensor | None:
        """The planner's rows; the weigher begins the epoch, too."""
        rows = self.planner.plan(epoch)
        if self.weigher.plan(epoch) is not None:
            raise ValueError(
                f"{type(self.weigher).__name__} chooses rows itself and cannot weigh under "
                f"{type(self.planner).__name__}; make it the planner, or use only one of the two"
            )
        return rows

    @checks.forwards
    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """The planner's view, then the weigher's."""
        return self.weigher.view(model, self.planner.view(model, batch))

    def report(self) -> Mapping[str, Any]:
        """The scalars of both; the weigher's if they share a name."""
        return {**self.planner.report(), **self.weigher.report()}
