"""User-given weights: a column of the data is the weight of each row."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..core import Method, Step, checks
from .registry import register

__all__ = ["GivenWeights"]


class GivenWeights(Method):
    r"""The loss of a batch is :math:`\frac1B \sum_i v_i L_i`, with the user's weights scaled to an average of one.

    Args:
        n: Rows of the training set.
        weights: (N,) numbers >= 0, for example a column with the annotator's confidence.

    Attributes:
        weights: (N,) float64, summing to one.

    Example:
        >>> import torch
        >>> from torchcurriculum import Batch
        >>> method = GivenWeights(3, weights=[1.0, 2.0, 0.0])
        >>> method.weigh(Step(None, Batch(None, None, torch.tensor([0, 1])), None, torch.ones(2)))
        tensor([0.5000, 1.0000], dtype=torch.float64)

    Reference:
        Shimodaira, Improving Predictive Inference under Covariate Shift by Weighting the Log-Likelihood Function,
        Journal of Statistical Planning and Inference 2000.
    """

    factors: Tensor

    def __init__(self, n: int, weights: Any) -> None:
        super().__init__()
        self.n = checks.whole("n", n, what="the number of training rows")
        values = checks.row_values("weights", weights, self.n).double()
        if not bool(((values >= 0) & values.isfinite()).all()) or not bool(values.any()):
            low, high = values.min().item(), values.max().item()
            raise ValueError(f"weights must be finite, at least zero and not all zero; they range from {low} to {high}")
        self.register_buffer("factors", values / values.mean(), persistent=False)

    @property
    def weights(self) -> Tensor:
        """(N,) float64 weights that sum to one."""
        return self.factors / self.factors.sum()

    def weigh(self, step: Step) -> Tensor:
        """The average loss, times each row's weight."""
        return step.uniform() * self.factors[step.index]


register(
    "given-weights",
    GivenWeights,
    "weights from a column of your data",
    when="The data has a weight per row: the confidence of an annotator, how often a text occurs in a corpus, how "
    "clear a preference is.",
    cost="8 bytes per sample.",
)
