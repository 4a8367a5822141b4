"""ScreenerNet: a second network that learns how much each sample counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..core import Method, Step, checks
from ..functional.screener import screener_objective
from ._base.side_net import Perceptron, SideNet
from .registry import register

__all__ = ["ScreenerNet"]


class ScreenerNet(Method):
    r"""ScreenerNet: weights :math:`w_i = \mathrm{sigmoid}(S(x_i))` of a network S that is trained with the model.

    The model minimises :math:`\frac1B \sum_i w_i L_i`, and S minimises
    :math:`\frac1B \sum_i (1 - w_i)^2 L_i + w_i^2 \max(M - L_i, 0)`: weights of samples above the margin go to 1, those
    of easy ones towards their loss over M.

    Differences from the paper: its S is a network like the model, on the input. Ours is a perceptron with 32 hidden
    units on the model's own detached outputs, because that works on any input (images, dicts, graphs) and costs no
    pass; ``net=scorer_like(model)`` is the paper's version. Both networks learn from the losses of this step, where the
    authors run the model once more after its update. The authors' L1 penalty on S is left out.

    Args:
        net: S before its sigmoid: ``forward(net, x) -> (B,)`` or ``(B, 1)``, such as ``methods.scorer_like(model)``;
            None makes the perceptron.
        margin: M > 0; 1 in the paper.
        lr: Learning rate of S (Adam).

    Example:
        >>> from torchcurriculum.core import Batch, Step
        >>> step = Step(None, Batch(None, None, torch.arange(2)), torch.zeros(2, 3), torch.tensor([0.1, 3.0]))
        >>> ScreenerNet().weigh(step)      # the perceptron starts at w = 1/2, here over B = 2
        tensor([0.2500, 0.2500], dtype=torch.float64)

    Reference:
        Kim and Choi, ScreenerNet: Learning Self-Paced Curriculum for Deep Neural Networks, 2018.
    """

    mean_weight: Tensor

    def __init__(self, net: nn.Module | None = None, margin: float = 1.0, lr: float = 1e-3) -> None:
        super().__init__()
        checks.real("margin", margin, "(0, inf)", "the paper takes 1")
        self.margin = margin
        self.screener = SideNet(Perceptron() if net is None else net, lr)
        self.register_buffer("mean_weight", torch.tensor(0.5, dtype=torch.float64))

    def weigh(self, step: Step) -> Tensor:
        """w_i / B of each row; the screener then takes its step."""
        uniform = step.uniform()
        weights = torch.sigmoid(self.screener.scores(step))
        losses = step.losses.detach().double()
        self.screener.descend((uniform * screener_objective(weights, losses, self.margin)).sum())
        weights = weights.detach() * uniform
        self.mean_weight.copy_(step.total(weights.sum()))
        return weights

    def report(self) -> Mapping[str, Any]:
        """The mean weight of the last batch."""
        return {"mean_weight": self.mean_weight}


register(
    "screenernet",
    ScreenerNet,
    "a second network learns each sample's weight from its input",
    when="Mostly right labels, for faster convergence: it favours samples with large losses, so wrong labels gain.",
    cost="The default screener reads the model's outputs: no extra pass. With net=, one forward and one backward pass "
    "of it in each step.",
)
