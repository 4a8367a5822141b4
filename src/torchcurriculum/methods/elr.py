"""ELR: early-learning regularisation, which pulls predictions towards earlier ones."""

from __future__ import annotations

from torch import Tensor

from ..core import Step, checks
from ..functional.elr import early_learning_penalty, early_learning_target
from ._base.remembering import Remembering, classes_of
from .registry import register

__all__ = ["ELR"]


class ELR(Remembering):
    r"""Early-learning regularisation: :math:`L_i + \lambda \log(1 - \langle p_i, t_i \rangle)`, averaged.

    The target t is a running mean of the row's predictions, :math:`t \leftarrow \beta t + (1 - \beta) p`, and
    takes no gradient. It cancels the gradient of labels that the network contradicts, so that wrong labels are not
    memorised. All weights are equal: ELR changes the loss, not the weights.

    As in the authors' code, t starts at zero, is updated with this step's prediction before use, and probabilities are
    kept 1e-4 away from 0 and 1. L is the user's ``loss_fn``. ELR+ (two networks, weight averaging and mixup) is not
    here.

    Args:
        n: Rows of the training set.
        lam: lambda >= 0; 0 is plain training. The authors take 3 for CIFAR-10 and 7 for CIFAR-100.
        beta: Share of the old target, in [0, 1). The authors take 0.7 for CIFAR-10 and 0.9 for CIFAR-100.

    Attributes:
        predictions: (N, C) t.

    Example:
        >>> import torch
        >>> from torchcurriculum.core import Batch, Step
        >>> batch = Batch(None, torch.tensor([0]), torch.arange(1))
        >>> step = Step(None, batch, torch.zeros(1, 2), torch.tensor([0.6931]))
        >>> ELR(1, beta=0.0).loss(step)               # log 2 + 3 log(1 - 1/2)
        tensor(-1.3863)

    Reference:
        Liu et al., Early-Learning Regularization Prevents Memorization of Noisy Labels, NeurIPS 2020.
    """

    needs_classes = True

    def __init__(self, n: int, lam: float = 3.0, beta: float = 0.7) -> None:
        super().__init__(n, beta, "beta")
        checks.real("lam", lam, "[0, inf)", "the authors take 3 for ten classes and 7 for a hundred")
        self.lam = lam

    def weigh(self, step: Step) -> Tensor:
        """Equal weights, after updating the targets with this batch."""
        logits, _ = classes_of(step, "ELR")
        self.update_average(step, early_learning_target(logits.detach()))
        return step.uniform()

    def loss(self, step: Step) -> Tensor:
        """The average of loss and penalty."""
        weights = self.weigh(step)
        logits, _ = classes_of(step, "ELR")
        penalty = early_learning_penalty(logits, self.predictions[step.index].to(logits.dtype))
        return step.with_(losses=checks.at_least_float32(step.losses) + self.lam * penalty).reduce(weights)


register(
    "elr",
    ELR,
    "a regulariser pulls each prediction towards the row's earlier ones, against wrong labels",
    when="Many wrong labels, classes that the network learns before it memorises, and no estimate of the noise rate. "
    "More classes need larger lam and beta. Digits, 40 % wrong, five seeds, last epoch: 95.36 ± 0.81; plain training "
    "72.69 ± 8.15.",
    cost="No extra pass; 4 C bytes per sample.",
)
