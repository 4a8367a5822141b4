"""Importance sampling: draws rows by their loss or a bound of their gradient, with inverse weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..core import Batch, Epoch, Method, Step, checks, distributed
from ..functional.scores import error_norms
from ..functional.selection import draws, row_uniform, variance_reduction
from ._base.classes import check_classes
from .registry import register

__all__ = ["ImportanceSampling"]


class ImportanceSampling(Method):
    r"""Importance sampling: row i is drawn with :math:`p_i \propto \hat G_i` and counts :math:`\frac{1}{N p_i}`.

    :math:`\hat G_i` is the norm of the loss's gradient for the outputs, for cross-entropy
    :math:`\lVert softmax(z_i) - y_i \rVert_2`, which bounds the norm of the row's gradient up to a constant; or the
    loss. With these weights the expected gradient is that of plain training, with less variance. It pays off only once
    scores are uneven: while :math:`\tau = \sqrt{N \sum p_i^2}` is at most ``threshold``, an epoch is plain training.

    Differences from the paper and its authors' code: there a large batch is scored at each step and a small one drawn
    from it. Here all rows are scored at the start of an epoch and the rows of the epoch are drawn from all, because
    only ``plan`` saves steps; tau is then that of all scores, not a moving average over batches. A row drawn twice is
    visited once and counts twice, and row i is drawn :math:`\lfloor M p_i + u_i \rfloor` times, which has the mean of
    drawing with replacement and less variance.

    Args:
        n: Rows of the training set.
        score: ``"gradient"``, the bound, or ``"loss"``.
        fraction: M / N, draws in an epoch as a share of the rows; the authors score three times as many rows as they
            train on.
        threshold: tau from which on rows are drawn; None is the authors' :math:`(B + 3b) / 3b` with b / B =
            ``fraction``. ``math.inf`` is plain training.

    Attributes:
        tau: That of this epoch's scores, a scalar tensor.

    Example:
        >>> losses = torch.tensor([0.0, 0.0, 0.0, 8.0])                       # p = 0, 0, 0, 1 and tau = 2
        >>> method = ImportanceSampling(4, score="loss", fraction=0.5, threshold=1.5)
        >>> method.plan(Epoch(2, 4, losses, lambda: losses))
        tensor([3])
        >>> method.factor                                                      # counts 1/4: the mean loss is 2
        tensor([0.0000, 0.0000, 0.0000, 0.2500], dtype=torch.float64)

    Reference:
        Katharopoulos and Fleuret, Not All Samples Are Created Equal: Deep Learning with Importance Sampling, ICML 2018.
    """

    factor: Tensor
    tau: Tensor

    def __init__(
        self,
        n: int,
        score: Literal["gradient", "loss"] = "gradient",
        fraction: float = 1 / 3,
        threshold: float | None = None,
    ) -> None:
        super().__init__()
        self.n = checks.whole("n", n, what="the number of training rows")
        checks.one_of("score", score, ("gradient", "loss"))
        checks.real("fraction", fraction, "(0, 1]", "the authors take 1/3")
        if threshold is not None:
            checks.real("threshold", threshold, "[1, inf]", "tau is 1 for equal scores; infinity is plain training")
        self.score, self.fraction, self.needs_classes = score, fraction, score == "gradient"
        self.threshold = (1 / fraction + 3) / 3 if threshold is None else threshold
        self.register_buffer("factor", torch.ones(n, dtype=torch.float64))
        self.register_buffer("tau", torch.ones((), dtype=torch.float64))

    def plan(self, epoch: Epoch) -> Tensor | None:
        """The drawn rows; all while the scores are even or a loss is unknown."""
        self.factor.fill_(1.0)
        scores = (epoch.losses() if self.score == "loss" else epoch.measure(_bounds)).to(self.factor)
        if not bool(scores.isfinite().all()):
            return None
        if bool((scores < 0).any()):
            raise ValueError(
                "importance sampling needs losses of at least zero, but some are negative; pass "
                "score='gradient' or a non-negative loss"
            )
        scores = torch.where(scores >= checks.NAN_LOSS, 0.0, scores)  # rows that cannot be trained on
        self.tau.copy_(variance_reduction(scores))
        if not bool(self.tau > self.threshold):
            return None
        random = row_uniform(torch.arange(self.n), distributed.derive(epoch.seed, epoch.number, "importance"))
        size = max(1.0, self.fraction * self.n)
        times, each = draws(scores, size, random)
        rows = times.nonzero().flatten()
        if not len(rows):
            return None
        self.factor.copy_(times * each * len(rows) / size)
        return rows

    def weigh(self, step: Step) -> Tensor:
        """Draws times 1 / (N p), over the size of the global batch."""
        return step.uniform() * self.factor[step.index]

    def report(self) -> Mapping[str, Any]:
        """tau."""
        return {"tau": self.tau}


def _bounds(model: nn.Module, batch: Batch) -> Tensor:
    assert batch.task is not None
    outputs = batch.task.forward(model, batch.x)
    logits, labels = check_classes(getattr(outputs, "logits", outputs), batch.y, "importance sampling by gradients")
    losses = batch.task.losses_of(outputs, batch)
    checks.check_losses(losses, batch.index, batch.task.nan_strategy)
    return error_norms(checks.at_least_float32(logits), labels).nan_to_num(0.0)


register(
    "importance-sampling",
    ImportanceSampling,
    "draws rows by their loss or a bound of their gradient, with inverse weights",
    when="Long runs on clean sets where most rows are learnt: fewer steps for the same expected gradient. Not if "
    "labels are wrong: their gradients are the largest.",
    cost="One forward pass over the set per epoch (score='loss' with measure='running': none), then about a third "
    "of the steps once tau exceeds the threshold; 8 bytes per sample.",
)
