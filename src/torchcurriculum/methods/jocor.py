"""JoCoR: two networks that are pulled together, and trained on the rows with small joint losses."""

from __future__ import annotations

from torch import Tensor, nn

from ..core import Step, checks
from ..functional.coteaching import joint_losses
from ._base.forgetting import TwoNetworks
from ._base.remembering import classes_of
from .registry import register

__all__ = ["JoCoR"]


class JoCoR(TwoNetworks):
    r"""JoCoR: both networks minimise :math:`(1-\lambda)(L_1 + L_2) + \lambda (KL(p_1\|p_2) + KL(p_2\|p_1))`.

    The mean is over the :math:`\lfloor R(T) B \rfloor` rows of a batch for which this joint loss is smallest, with
    Co-teaching's :math:`R(T) = 1 - \tau \min(T / T_k, 1)`: rows on which the networks agree with the label and with
    each other. The user's model is network 1: the loop trains and evaluates it as usual. The method holds network 2, of
    the same structure with other initial weights; ``weigh`` chooses the rows and trains it, ``loss`` gives network 1
    its part of the joint loss, in which the outputs of network 2 are constants.

    Differences from the authors' code: network 2 has its own Adam with a constant rate, because a method does not see
    the user's optimizer (theirs is one Adam with 0.001 over both, with a decay after epoch 80); and R(T) is that of
    the paper, which reaches tau one epoch later. L is the user's ``loss_fn``.

    Args:
        gradual: T_k, the epochs until the whole share is left out. ``for_run`` takes the authors' 10, or a quarter
            of a run that is shorter than forty epochs.
        forget: tau, the share of wrong labels; half of it if labels are wrong in one direction only. 0.2 is the
            default of the authors' program.
        lam: lambda in [0, 1]. 0.1 is the default of the authors' program; their example for MNIST has 0.95.
        lr: Adam's learning rate for network 2.
        net: Network 2 before training, built like the model. By default the layers of a copy are re-initialised, so
            only frozen parameters of a pretrained model are kept; pass a second one then.

    Reference:
        Wei et al., Combating Noisy Labels by Agreement: A Joint Training Method with Co-Regularization, CVPR 2020.
    """

    needs_classes = True

    def __init__(
        self, gradual: int, forget: float = 0.2, lam: float = 0.1, lr: float = 1e-3, net: nn.Module | None = None
    ) -> None:
        super().__init__(gradual, forget, lr, net)
        checks.real("lam", lam, "[0, 1]")
        self.lam = lam
        self._others: tuple[Tensor, Tensor] | None = None  # outputs and losses of network 2 on the current batch

    def weigh(self, step: Step) -> Tensor:
        """Equal weights over the rows with the smallest joint losses; network 2 then takes its step."""
        own, _ = classes_of(step, "JoCoR")
        logits, losses = self.peer.measure(step)
        self._others = checks.at_least_float32(logits.detach()), losses.detach()
        joint = joint_losses(step.losses.detach(), losses, own.detach(), checks.at_least_float32(logits), self.lam)
        weights = self.smallest(step, joint)
        self.peer.descend((weights.to(joint.dtype) * joint).sum())
        return weights

    def loss(self, step: Step) -> Tensor:
        """The mean joint loss of the rows that are kept, with gradients for network 1."""
        weights = self.weigh(step)
        assert self._others is not None
        logits, _ = classes_of(step, "JoCoR")
        joint = joint_losses(step.losses, self._others[1], logits, self._others[0], self.lam)
        return step.with_(losses=joint).reduce(weights)


register(
    "jocor",
    JoCoR,
    "two networks that are pulled together, trained on the rows with small joint losses",
    when="The share of wrong labels is roughly known, and you can afford two networks. lam matters. Digits, 40 % wrong,"
    " five seeds, last epoch, forget=0.4: 92.58 ± 1.66 with lam=0.1, 61.15 ± 13.42 with lam=0.85; plain training "
    "72.69 ± 8.15.",
    cost="A forward and a backward pass of the second network in each step; three times the parameters in memory, none "
    "for each sample.",
)
