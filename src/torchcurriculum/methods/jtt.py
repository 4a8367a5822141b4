"""Just Train Twice: rows that plain training gets wrong after some epochs count more afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..core import Batch, Epoch, Method, Step, checks
from ._base.classes import check_classes
from .registry import register

__all__ = ["JTT"]


class JTT(Method):
    r"""Just Train Twice: T plain epochs, then :math:`\lambda \sum_{i \in E} L_i + \sum_{i \notin E} L_i`.

    E is the error set: the rows that the model classifies wrongly after the first T epochs, in evaluation mode. They
    count lambda times from then on, normalised over the batch.

    Differences from the paper: there the second stage trains another model from the start, and rows of E are drawn
    lambda times as often. Here the same run continues unless you start the second stage with a new model and optimizer,
    for example in a second run with ``errors=method.errors``; and rows count lambda times, which in a batch without
    rows of E is the average loss. The authors' code adds lambda copies, so its rows count lambda + 1 times, and
    takes the errors that were made while training in the last of the T epochs; this follows the paper.

    Args:
        n: Rows of the training set.
        first: T, plain epochs before the errors are found. ``for_run`` takes a fifth of the run, as the authors on
            Waterbirds; with ``errors``, none.
        weight: lambda, 1 or more; the authors try 20, 50 and 100 (5 and 6 on text). 1 is plain training.
        errors: (N,) bool or 0 and 1, the error set of an earlier run; ``first`` must then be 0.

    Attributes:
        errors: (N,) bool, the error set; none before it is found.
        weights: (N,) float64, summing to one.

    Example:
        >>> method = JTT(4, first=0, weight=3.0, errors=[0, 1, 0, 0])
        >>> method.weigh(Step(None, Batch(None, None, torch.arange(4)), None, torch.rand(4)))
        tensor([0.1667, 0.5000, 0.1667, 0.1667], dtype=torch.float64)

    Reference:
        Liu et al., Just Train Twice: Improving Group Robustness without Training Group Information, ICML 2021.
    """

    needs_classes = True
    errors: Tensor

    def __init__(self, n: int, first: int, weight: float = 20.0, errors: Any = None) -> None:
        super().__init__()
        self.n = checks.whole("n", n, what="the number of training rows")
        self.first = checks.whole("first", first, 0, "a number of epochs")
        checks.real("weight", weight, "[1, inf)", "1 is plain training")
        found = torch.zeros(n) if errors is None else checks.row_values("errors", errors, n)
        if bool(((found != 0) & (found != 1)).any()):
            raise ValueError(f"errors must be 0 or 1 for each of the {n} rows, got {found.unique()[:8].tolist()}")
        if (errors is None) != (first > 0):
            given = "no errors=" if errors is None else "errors="
            raise ValueError(
                f"first={first} of JTT with {given}: pass first=1 or more to find the errors, or errors= and first=0"
            )
        self.weight = weight
        self.register_buffer("errors", found.bool())

    @classmethod
    def for_run(cls, n: int, epochs: int, first: int | None = None, errors: Any = None, **options: Any) -> Self:
        """The first stage is a fifth of the run; with ``errors`` there is none."""
        usual = max(1, epochs // 5) if errors is None else 0
        return cls(n, usual if first is None else first, errors=errors, **options)

    @property
    def weights(self) -> Tensor:
        """(N,) float64 weights that sum to one."""
        factor = 1 + (self.weight - 1) * self.errors.double()
        return factor / factor.sum()

    def plan(self, epoch: Epoch) -> None:
        """Finds the errors when the first stage is over; every row is visited."""
        if self.first and epoch.number == self.first + 1:
            self.errors.copy_(epoch.measure(_wrong))

    def weigh(self, step: Step) -> Tensor:
        """lambda for rows of the error set and 1 for others, normalised over the global batch."""
        factor = 1 + (self.weight - 1) * self.errors[step.index].double()
        return step.normalise(factor.log())

    def report(self) -> Mapping[str, Any]:
        """The size of the error set."""
        return {"errors": int(self.errors.sum())}


def _wrong(model: nn.Module, batch: Batch) -> Tensor:
    assert batch.task is not None
    outputs, losses = batch.task.losses(model, batch)
    checks.check_losses(losses, batch.index, batch.task.nan_strategy)
    logits, labels = check_classes(getattr(outputs, "logits", outputs), batch.y, "JTT")
    return logits.argmax(1) != labels


register(
    "jtt",
    JTT,
    "rows that plain training gets wrong after some epochs count many times as much",
    when="Some unknown group is neglected, but you can choose first and weight by a "
    "validation set with known groups. Not with wrong labels: they would be the errors.",
    cost="One forward pass in the whole run; 1 byte per sample.",
)
