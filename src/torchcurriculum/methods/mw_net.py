"""MW-Net: a small network from loss to weight, learnt so that steps with its weights help on a meta set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..core import Epoch, Method, Step, checks
from ..functional.meta import shares
from ._base.meta_set import MetaSet, rate_now
from ._base.side_net import Perceptron, SideNet
from .registry import register

__all__ = ["MWNet"]


class MWNet(Method):
    r"""Meta-Weight-Net: :math:`w_i \propto V(L_i; \Theta)` with a perceptron V, 1-100-1 and a sigmoid.

    A virtual step :math:`\hat\theta = \theta - \eta \sum_i w_i \nabla L_i(\theta)` and the loss M of a meta batch give
    the meta-gradient :math:`\nabla_\Theta M = -\eta \sum_i \nabla_\Theta w_i\, \langle \nabla L_i(\theta), \nabla
    M(\hat\theta) \rangle`, exactly, from the inner products of one forward-mode pass. Theta then takes a step of Adam,
    and the batch is weighted with the new V.

    Weights are :math:`w_i = V(L_i) / \sum_j V(L_j)` in the virtual and in the real step, as in the authors' scripts for
    WRN-28-10 and for class imbalance. With ``normalise=False`` they are :math:`V(L_i) / B` in both, as in the paper's
    equations and the authors' ``MW-Net.py``.

    One difference: the last layer of V starts at zero, so the first weights are equal. The authors' starts at random.

    Args:
        n: Rows of the training set.
        meta: The meta set, ideally with verified labels: a pair (x, y) or a dataset (see ``MetaSet``). None holds
            out rows of the training set, which are then not trained on.
        meta_fraction: Share of rows held out; not used with ``meta``.
        meta_batch: Rows of a meta batch, 100 in the paper.
        virtual_lr: eta of the virtual step: a number, or a function called in each step. The paper takes the
            learning rate of the model's SGD: ``lambda: optimizer.param_groups[0]["lr"]``. 0.01 lies in the middle of
            its schedule from 0.1 to 0.001.
        lr: Learning rate of V (Adam); the authors' 1e-3.
        weight_decay: Weight decay of V; the authors' 1e-4.
        normalise: True divides V by its sum over the batch, in the virtual and in the real step; False by B in both.
        features: ``features(step) -> (B, F)``, further inputs of V, without gradients: the class, its size, the length
            of a sentence. None is the paper's V of only the loss.

    Reference:
        Shu et al., Meta-Weight-Net: Learning an Explicit Mapping For Sample Weighting, NeurIPS 2019.
    """

    def __init__(
        self,
        n: int,
        meta: Any = None,
        meta_fraction: float = 0.1,
        meta_batch: int = 100,
        virtual_lr: float | Callable[[], float] = 0.01,
        lr: float = 1e-3,
        weight_decay: float = 1e-4,
        normalise: bool = True,
        features: Callable[[Step], Tensor] | None = None,
    ) -> None:
        super().__init__()
        rate_now(virtual_lr, "(0, inf)")
        self.n, self.virtual_lr = checks.whole("n", n, what="the number of training rows"), virtual_lr
        self.normalise, self.features = normalise, features
        self.meta_set = MetaSet(n, meta, meta_fraction, meta_batch)
        self.net = SideNet(Perceptron(1 if features is None else 0, 100, torch.relu), lr, weight_decay)

    def plan(self, epoch: Epoch) -> Tensor | None:
        """Every row that is not in the meta set."""
        return self.meta_set.plan(epoch)

    def weigh(self, step: Step) -> Tensor:
        """V moves along the meta-gradient; then the weights of each loss by the new V."""
        losses, more, rate = step.losses.detach().double(), self._features(step), rate_now(self.virtual_lr, "(0, inf)")
        with torch.enable_grad():
            values = self.weight_of(losses, more)
            weights = self._weights(values.detach(), step)
            products = self.meta_set.agreement(step, rate * weights)
            slope = rate * self._slope(weights, values.detach(), products, step)
            self.net.descend(-(slope * values).sum())
        with torch.no_grad():
            return self._weights(self.weight_of(losses, more), step)

    def weight_of(self, losses: Tensor, features: Tensor | None = None) -> Tensor:
        """(B,) V of each loss and its features, in (0, 1)."""
        inputs = losses.double().unsqueeze(1)
        return torch.sigmoid(self.net.net(inputs if features is None else torch.cat([inputs, features], 1)))

    def _features(self, step: Step) -> Tensor | None:
        if self.features is None:
            return None
        made = self.features(step)
        if isinstance(made, Tensor) and not len(step.losses):
            made = made[:0]  # padding on a rank without rows
        if not isinstance(made, Tensor) or made.ndim != 2 or len(made) != len(step.losses):
            got = checks.describe(made)
            raise ValueError(f"features must be a tensor of shape ({len(step.losses)}, F) for this batch, got {got}")
        return made.detach().to(step.losses.device, torch.float64)

    def _weights(self, values: Tensor, step: Step) -> Tensor:
        return shares(values, step.total) if self.normalise else values * step.uniform()

    def _slope(self, weights: Tensor, values: Tensor, products: Tensor, step: Step) -> Tensor:
        """(B,) the derivative of sum_j w_j p_j for each V_i; with a sum in w, every V_i moves all of them."""
        if not self.normalise:
            return products * step.uniform()
        total = step.total(values.sum())
        mean = step.total((weights * products).sum())
        return (products - mean) / torch.where(total == 0, 1.0, total)

    def report(self) -> Mapping[str, Any]:
        """V at a few losses, to show whether weights fall or rise with the loss; nothing if V has features."""
        if self.features is not None:
            return {}
        with torch.no_grad():
            low, high = self.weight_of(torch.tensor([0.1, 5.0], device=self.net.steps.device))
        return {"weight_at_loss_0.1": low, "weight_at_loss_5": high}


register(
    "mw-net",
    MWNet,
    "a small network from loss to weight, learnt on a meta set",
    when="You have a small set with right labels (pass it as meta), or classes of very different size.",
    cost="Per step a backward pass for the virtual step, a forward and backward pass over the meta batch and a "
    "forward-mode pass over the batch (about three forward passes). Without meta=, a tenth of the rows is not trained "
    "on. No memory per sample.",
)
