"""LRE: learning to reweight examples by how much their gradients help on a meta set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..core import Epoch, Method, Step, checks
from ..functional.meta import shares
from ._base.meta_set import MetaSet
from .registry import register

__all__ = ["LRE"]


class LRE(Method):
    r"""Learning to reweight: a sample counts as much as a step on it would help on the meta set.

    A virtual step :math:`\hat\theta(\epsilon) = \theta - \eta \sum_i \epsilon_i \nabla L_i(\theta)` at
    :math:`\epsilon = 0` and the loss M of a meta batch give
    :math:`u_i = -\partial M(\hat\theta) / \partial \epsilon_i = \eta \langle \nabla L_i, \nabla M \rangle`; weights are
    :math:`\max(u_i, 0)` divided by their sum, which cancels eta; all are zero if no sample helps. The inner products
    come from one forward-mode pass over the batch in the direction of the meta gradient; if an operation of the model
    has no forward mode, which the first step detects, from a double backward pass.

    Args:
        n: Rows of the training set.
        meta: The meta set, ideally with verified labels: a pair (x, y) or a dataset (see ``MetaSet``). None holds
            out rows of the training set, which are then not trained on.
        meta_fraction: Share of rows held out; not used with ``meta``.
        meta_batch: Rows of a meta batch, 100 in the paper.

    Example:
        >>> from torchcurriculum.core import Batch, Step, Task
        >>> net = torch.nn.Linear(1, 1, bias=False)
        >>> task = Task(lambda net, x: net(x), lambda out, y: y * out[:, 0])      # grad L_i = y_i x_i
        >>> x, y = torch.tensor([[1.0], [3.0], [1.0]]), torch.tensor([1.0, 1.0, -1.0])
        >>> step = Step(net, Batch(x, y, torch.arange(3), task=task), None, torch.zeros(3))
        >>> LRE(3, meta=(torch.ones(1, 1), torch.ones(1))).weigh(step)             # products 1, 3 and -1
        tensor([0.2500, 0.7500, 0.0000], dtype=torch.float64)

    Reference:
        Ren et al., Learning to Reweight Examples for Robust Deep Learning, ICML 2018.
    """

    helpful: Tensor

    def __init__(self, n: int, meta: Any = None, meta_fraction: float = 0.1, meta_batch: int = 100) -> None:
        super().__init__()
        self.n = checks.whole("n", n, what="the number of training rows")
        self.meta_set = MetaSet(n, meta, meta_fraction, meta_batch)
        self.register_buffer("helpful", torch.tensor(0.0, dtype=torch.float64))

    def plan(self, epoch: Epoch) -> Tensor | None:
        """Every row that is not in the meta set."""
        return self.meta_set.plan(epoch)

    def weigh(self, step: Step) -> Tensor:
        """The rectified inner products with the meta gradient, divided by their sum."""
        products = self.meta_set.agreement(step)
        self.helpful.copy_(step.total((products > 0).sum(dtype=torch.float64)) / step.size())
        return shares(products.clamp_min(0), step.total)

    def report(self) -> Mapping[str, Any]:
        """Share of the last batch with a positive weight."""
        return {"helpful": self.helpful}


register(
    "lre",
    LRE,
    "weights are the rectified agreement of each gradient with a meta set's",
    when="You have a small set with right labels (pass it as meta). Held-out rows of a noisy set protect less.",
    cost="Per step a forward and backward pass over the meta batch and a forward-mode pass over the batch (about "
    "three forward passes). Without meta=, a tenth of the rows is not trained on. No memory per sample.",
)
