"""SOP: sparse over-parameterisation, a few parameters per row that absorb the error of its label."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core import Method, Step, checks, distributed
from ..functional.sop import overparametrised_losses
from ._base.remembering import classes_of
from ._base.sized import Resizing
from .registry import register

__all__ = ["SOP"]

STD = 1e-8  # of the initial u and v, as in the authors' code


class SOP(Resizing, Method):
    r"""SOP: the network and :math:`s_i = u_i^2 y_i - v_i^2 (1 - y_i)` fit the label together.

    u and v start near zero and are learnt with the network, by gradient descent without momentum. Squares keep them
    sparse, so that s absorbs the error of a wrong label instead of the network. A batch is trained with the mean of
    :math:`H(y, p + s) + \|\hat y + s - y\|^2` (``functional.sop``), which replaces the user's ``loss_fn``; losses in
    the record are still those of ``loss_fn``.

    As in the authors' code with ratio_consistency = ratio_balance = 0, which is SOP. SOP+, with a second view of each
    row and a class-balance term, is not implemented.

    Args:
        n: Rows of the training set.
        lr_u: Learning rate of u, for the mean loss of a batch; 1 in the authors' configuration for CIFAR-100.
        lr_v: Learning rate of v; 10 there.

    Attributes:
        u: (N, 1), after the first step. u squared is how far the label counts as right for this row beyond p.
        v: (N, C), after the first step.

    Reference:
        Liu et al., Robust Training under Label Noise by Over-parameterization, ICML 2022.
    """

    needs_classes = True
    u: Tensor
    v: Tensor

    def __init__(self, n: int, lr_u: float = 1.0, lr_v: float = 10.0) -> None:
        super().__init__()
        self.n = checks.whole("n", n)
        for name, value in {"lr_u": lr_u, "lr_v": lr_v}.items():
            checks.real(name, value, "[0, inf)")
        self.lr_u, self.lr_v = lr_u, lr_v
        self.add_rows("u", torch.zeros(n, 0))
        self.add_rows("v", torch.zeros(n, 0))
        self._held: tuple[Tensor, Tensor] | None = None  # u and v of the current batch, before their step

    def weigh(self, step: Step) -> Tensor:
        """Equal weights; u and v of the batch then take their step."""
        logits, labels = classes_of(step, "SOP")
        self._begin(logits)
        weights = step.uniform()
        with torch.enable_grad():
            u, v = (rows[step.index].requires_grad_() for rows in (self.u, self.v))
            losses = overparametrised_losses(logits.detach(), _one_hot(labels, logits), u, v)
            slopes = torch.autograd.grad((weights.to(losses.dtype) * losses).sum(), (u, v))
        self._held = u.detach(), v.detach()
        self.u.index_copy_(0, step.index, self._held[0] - self.lr_u * slopes[0])
        self.v.index_copy_(0, step.index, self._held[1] - self.lr_v * slopes[1])
        return weights

    def loss(self, step: Step) -> Tensor:
        """The mean loss, with u and v as they were before their step."""
        weights = self.weigh(step)
        assert self._held is not None
        logits, labels = classes_of(step, "SOP")
        return step.with_(losses=overparametrised_losses(logits, _one_hot(labels, logits), *self._held)).reduce(weights)

    def _begin(self, logits: Tensor) -> None:
        """Draws u and v at the first step, when the number of classes is known; on the host, equal on all ranks."""
        classes = logits.shape[1]
        if self.v.numel() and self.v.shape[1] != classes:
            raise ValueError(f"the model had {self.v.shape[1]} outputs and has {classes} now; make a new SOP")
        if not self.v.numel():
            generator = torch.Generator().manual_seed(distributed.derive("sop", self.n, classes))
            drawn = STD * torch.randn(self.n, 1 + classes, generator=generator, dtype=torch.float64)
            self.u, self.v = (part.contiguous().to(logits) for part in drawn.split([1, classes], 1))


def _one_hot(labels: Tensor, like: Tensor) -> Tensor:
    return F.one_hot(labels, like.shape[1]).to(like.dtype)


register(
    "sop",
    SOP,
    "a few parameters per row absorb the error of its label",
    when="Many wrong labels and many epochs: u and v move only when their row is visited, and their learning rates are "
    "meant for batches of 128 and hundreds of epochs. Digits, 40 % wrong, 40 epochs, five seeds, last epoch: "
    "72.50 ± 8.42 with the defaults, no gain; 88.42 ± 6.13 with lr_u=10; plain training 72.69 ± 8.15.",
    cost="No extra pass; 4 (C + 1) bytes per sample, and the loss a second time on the logits.",
)
