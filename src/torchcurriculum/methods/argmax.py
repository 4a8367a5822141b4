"""Argmax equals label: rows count while the network predicts their label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from ..core import Step, checks
from ._base.remembering import Remembering, classes_of
from .registry import register

__all__ = ["Argmax"]


class Argmax(Remembering):
    r"""Argmax equals label: :math:`w_i \propto 1` if :math:`\arg\max_c t_{ic} = y_i`, else 0.

    t is an exponential mean of the row's predicted probabilities over its training steps: :math:`t \leftarrow m\,t + (1
    - m)\,p`. The loss of a batch is the mean over the rows that agree. All rows pass through the network in every
    epoch, so a row that was dropped may come back.

    It is the filter of SELF without its second network and consistency loss, and the selection step of many methods. On
    its own it is a baseline that methods for noisy labels should beat.

    Args:
        n: Rows of the training set.
        warmup: Epochs of plain training first. ``for_run`` takes a quarter of the run.
        memory: m in [0, 1); 0 uses only the prediction of this step.

    Attributes:
        predictions: (N, C) t; its argmax is the network's label for the row.
        kept: (N,) 1 where a row counted when it was last visited, 0 where it did not; 1 before that.

    Example:
        >>> from torchcurriculum.core import Batch, Step
        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
        >>> batch = Batch(None, torch.tensor([0, 0, 0]), torch.arange(3))
        >>> Argmax(3, warmup=0).weigh(Step(None, batch, logits, torch.zeros(3)))
        tensor([0.5000, 0.0000, 0.5000], dtype=torch.float64)

    Reference:
        Nguyen et al., SELF: Learning to Filter Noisy Labels with Self-Ensembling, ICLR 2020.
    """

    needs_classes = True
    kept: Tensor

    def __init__(self, n: int, warmup: int, memory: float = 0.7) -> None:
        super().__init__(n, memory, "memory")
        self.warmup = checks.whole("warmup", warmup, 0, "a number of epochs")
        self.add_rows("kept", torch.ones(n))

    @classmethod
    def for_run(cls, n: int, epochs: int, warmup: int | None = None, memory: float = 0.7) -> Self:  # type: ignore[override]
        """A quarter of the run is plain training by default."""
        return cls(n, max(1, epochs // 4) if warmup is None else warmup, memory)

    def weigh(self, step: Step) -> Tensor:
        """Equal weights over the rows whose label is predicted; all zero if there is none."""
        logits, labels = classes_of(step, "Argmax")
        mean = self.update_average(step, logits.detach().softmax(1))
        if step.epoch <= self.warmup:
            return step.uniform()
        kept = (mean.argmax(1) == labels).double()
        self.kept.index_copy_(0, step.index, kept.to(self.kept.dtype))
        return kept / step.total(kept.sum()).clamp_min(1)

    def report(self) -> Mapping[str, Any]:
        """The share of rows that count."""
        return {"kept": self.kept.double().mean()}


register(
    "argmax",
    Argmax,
    "rows count while the network's own prediction equals their label",
    when="Wrong labels, and a network that learns the right ones first: the baseline that needs no noise rate. A class "
    "that the network does not predict yet after the warm-up can lose all its rows. Digits, 40 % wrong, five "
    "seeds, last epoch: 95.5 to 98.3 in four, 72.0 in one; plain training 72.69 ± 8.15.",
    cost="No extra pass; 4 (C + 1) bytes per sample.",
)
