"""Both: one method says which rows and how they look, another how much they count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ..core import Batch, Epoch, Method, Step

__all__ = ["Both"]


class Both(Method):
    """The rows and the looks of ``planner``, the weights and the loss of ``weigher``: SuperLoss under baby steps.

    The planner's own weights are not used, so a method whose weights belong to its plan (InfoBatch) is no planner. The
    weigher learns of every epoch, and may change how the batch looks after the planner has; it must leave the choice of
    rows to the planner.

    Args:
        planner: A method that chooses rows or changes how they look.
        weigher: A method that weighs.

    Example:
        >>> from torchcurriculum import APW, methods
        >>> apw_under_blur = Both(methods.CBS(), APW(100, q=20))
    """

    def __init__(self, planner: Method, weigher: Method) -> None:
        super().__init__()
        for method in (planner, weigher):
            if not isinstance(method, Method):
                raise TypeError(f"Both needs two methods, got {type(method).__name__}")
        sizes = {method.n for method in (planner, weigher) if hasattr(method, "n")}
        if len(sizes) > 1:
            raise ValueError(f"the two methods were made for different numbers of rows: {planner.n} and {weigher.n}")
        if sizes:
            self.n = sizes.pop()
        self.planner, self.weigher = planner, weigher

    @property
    def weighs_by_loss(self) -> bool:  # type: ignore[override]
        """Whether the weigher looks at the losses of the batch."""
        return self.weigher.weighs_by_loss

    @property
    def weights(self) -> Tensor:
        """(N,) weights of the weigher; no such attribute if it has none."""
        return self.weigher.weights  # type: ignore[return-value]

    def plan(self, epoch: Epoch) -> Tensor | None:
        """The planner's rows; the weigher begins the epoch, too."""
        rows = self.planner.plan(epoch)
        if self.weigher.plan(epoch) is not None:
            raise ValueError(
                f"{type(self.weigher).__name__} chooses rows itself and cannot weigh under "
                f"{type(self.planner).__name__}; make it the planner, or use one of the two alone"
            )
        return rows

    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """The planner's view, then the weigher's."""
        return self.weigher.view(model, self.planner.view(model, batch))

    def weigh(self, step: Step) -> Tensor:
        """The weigher's weights."""
        return self.weigher.weigh(step)

    def loss(self, step: Step) -> Tensor:
        """The weigher's loss."""
        return self.weigher.loss(step)

    def sync(self) -> None:
        """Both methods'."""
        self.planner.sync()
        self.weigher.sync()

    def report(self) -> Mapping[str, Any]:
        """The scalars of both; the weigher's where they share a name."""
        return {**self.planner.report(), **self.weigher.report()}
