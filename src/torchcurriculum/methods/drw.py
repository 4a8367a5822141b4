"""DRW: deferred re-weighting, which makes rare classes count more in the last epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from ..core import Epoch, Method, Step, checks
from ..functional.imbalance import effective_weights
from ._base.classes import check_labels
from ._base.sized import Resizing
from .registry import register

__all__ = ["DRW"]


class DRW(Resizing, Method):
    r"""Deferred re-weighting: equal weights for ``start`` epochs, then :math:`w_i \propto (1-\beta)/(1-\beta^{n_y})`.

    n_y is the number of rows with the label of row i; weights sum to one over a batch, as those of
    ``nn.CrossEntropyLoss(weight=...)`` do. LDAM-DRW is this method with ``loss_fn=losses.LDAM(counts)``.

    Args:
        start: Epochs with equal weights. ``for_run`` takes four fifths of the run, as the authors do (160 of 200).
        beta: In [0, 1); 0 is plain training, 0.9999 the authors'.
        counts: (C,) rows of each class, at least 1; by default counted in the training set, once, without a forward
            pass.

    Attributes:
        log_weights: (C,) the logarithm of the class weights, whose mean is one.

    Example:
        >>> from torchcurriculum.core import Batch, Step
        >>> method = DRW(start=1, beta=0.5, counts=[1, 2])
        >>> batch = Batch(None, torch.tensor([0, 1]), torch.arange(2), epoch=2)
        >>> method.weigh(Step(None, batch, None, torch.ones(2)))         # 1 and 2/3, over their sum
        tensor([0.6000, 0.4000], dtype=torch.float64)

    Reference:
        Cao et al., Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss, NeurIPS 2019.
    """

    needs_classes = True
    log_weights: Tensor

    def __init__(self, start: int, beta: float = 0.9999, counts: Tensor | Sequence[int] | None = None) -> None:
        super().__init__()
        checks.real("beta", beta, "[0, 1)", "0 is plain training")
        self.start, self.beta = checks.whole("start", start, 0), beta
        self.register_buffer("log_weights", torch.zeros(0, dtype=torch.float64))
        if counts is not None:
            self._count(checks.class_counts(counts))

    @classmethod
    def for_run(  # type: ignore[override]
        cls,
        n: int,
        epochs: int,
        start: int | None = None,
        beta: float = 0.9999,
        counts: Tensor | Sequence[int] | None = None,
    ) -> Self:
        """Four fifths of the run have equal weights by default."""
        return cls(round(0.8 * epochs) if start is None else start, beta, counts)

    def plan(self, epoch: Epoch) -> None:
        """All rows; their labels are counted before the first epoch if no counts were given."""
        if not self.log_weights.numel():
            labels = epoch.measure(lambda model, batch: check_labels(batch.y, "DRW")).cpu()
            if len(labels) and int(labels.min()) < 0:
                raise ValueError(f"DRW needs class numbers from 0, got {int(labels.min())}; number the classes from 0")
            self._count(torch.bincount(labels))

    def weigh(self, step: Step) -> Tensor:
        """Equal weights at first, then those of the rows' classes."""
        if step.epoch <= self.start:
            return step.uniform()
        rows = len(step.losses)  # reads the losses, since labels must be known to weight these rows
        return step.normalise(self.log_weights[check_labels(step.batch.y, "DRW")[:rows]])

    def _count(self, counts: Tensor) -> None:
        """Weights by counts; classes without rows are not used."""
        present, weights = counts > 0, torch.ones(len(counts), dtype=torch.float64)
        weights[present] = effective_weights(counts[present], self.beta)
        self.log_weights = weights.log().to(self.log_weights.device)


register(
    "drw",
    DRW,
    "rare classes count more in the last fifth of the run",
    when="Imbalanced classes, right labels; use `losses.LDAM` or plain cross-entropy. Lower the learning rate when it "
    "starts, as the authors do.",
    cost="One reading of the labels without counts=; nothing else.",
)
