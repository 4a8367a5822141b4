"""EMA: the exponential moving average of the weights, around any method."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from ..core import Batch, Method, checks
from ._base.weights import Weights, bare
from ._base.wrapper import Wrapper
from .registry import register
from .vanilla import Vanilla

__all__ = ["EMA"]


class EMA(Wrapper):
    r"""Weight averaging: :math:`\bar\theta \leftarrow d_t \bar\theta + (1 - d_t)\,\theta`, around any method.

    Training is that of the method inside, bit for bit; the average is for evaluation. ``averaged_model(model)`` returns
    it as a model. :math:`d_t = \min(d, (1 + t)/(10 + t))` in step t, so that the initial weights are soon forgotten.
    Statistics of batch norm are averaged in the same way, and counters are copied.

    A method sees the weights before a step, not after it, so the average ends with the weights before the last step.

    Args:
        method: The method inside. ``for_run`` takes plain training.
        decay: d in [0, 1); 0 follows the weights. An average spans about 1 / (1 - d) steps.

    Example:
        >>> from torchcurriculum import Curriculum, Arrays, SuperLoss
        >>> method = EMA(SuperLoss(), decay=0.99)
        >>> curriculum = Curriculum(method, Arrays(torch.randn(8, 2), torch.arange(8) % 2), batch_size=4)
        >>> model = nn.Linear(2, 2)
        >>> for batch in curriculum.epoch(model):
        ...     loss = curriculum.loss(model, batch)               # and your backward and optimizer step
        >>> method.averaged_model(model)
        Linear(in_features=2, out_features=2, bias=True)

    Reference:
        Polyak and Juditsky, Acceleration of Stochastic Approximation by Averaging, SIAM 1992; Tarvainen and Valpola,
        Mean Teachers are Better Role Models, NeurIPS 2017. The growth of d_t is TensorFlow's.
    """

    steps: Tensor

    def __init__(self, method: Method, decay: float = 0.999) -> None:
        super().__init__(method=method)
        checks.real("decay", decay, "[0, 1)", "0 follows the weights")
        self.decay = decay
        self.average = Weights()
        self.register_buffer("steps", torch.tensor(0.0, dtype=torch.float64))

    @classmethod
    def for_run(cls, n: int, epochs: int, decay: float = 0.999) -> Self:  # type: ignore[override]
        """The average of plain training."""
        return cls(Vanilla(), decay)

    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """The inner method's; updates the average with the weights of the model."""
        net = bare(model)
        if not self.average.known:
            self.average.take(net)
        share = (1 - (1 + self.steps) / (10 + self.steps)).clamp_min(1 - self.decay)
        self.average.move(net, share.to(self.average.values.dtype))
        self.steps += 1
        return self.method.view(model, batch)

    def averaged_model(self, model: nn.Module) -> nn.Module:
        """A copy of ``model`` with the averaged weights and statistics, to evaluate or to save."""
        return self.average.model_like(model)


register(
    "ema",
    EMA,
    "an average of the weights over the last steps, for evaluation, around any method",
    when="An average of the weights is steadier than the last ones. It changes what you evaluate, not how you train: "
    "use `EMA(method)` and `averaged_model(model)` in your own loop; `curriculum run` evaluates the average. It does "
    "not cure wrong labels: digits, 40 % wrong, five seeds, last epoch: 73.17 ± 7.86 with "
    "decay=0.99; plain training 72.69 ± 8.15.",
    cost="No extra pass; one copy of the parameters in memory, and one element-wise operation on them in each step.",
)
