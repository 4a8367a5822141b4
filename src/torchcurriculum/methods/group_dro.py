"""Group DRO: the loss of the worst group, found by exponentiated gradient ascent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..core import Method, Step, checks
from ..functional.groups import ascend, group_means
from .registry import register

__all__ = ["GroupDRO"]


class GroupDRO(Method):
    r"""Group DRO: :math:`\min_\theta \max_q \sum_g q_g L_g(\theta)`, q by exponentiated gradient ascent.

    In every step :math:`q_g \leftarrow q_g \exp(\eta (L_g + C / \sqrt{n_g}))`, normalised, with the mean loss
    :math:`L_g` of the group in the batch and its size :math:`n_g` in the training set; a row of group g counts
    :math:`q_g` over the rows of g in the batch. The weights of a batch sum to the q of the groups in it. The adjustment
    C compensates for the memorisation of small groups.

    As in the authors' code, and unlike the paper's algorithm, which draws one group at a time, a batch holds rows of
    several groups, and groups missing from it have loss 0. The authors balance groups in their batches and regularise
    strongly (weight decay of 0.1 and more, or early stopping), without which the worst group is memorised, too; both
    are up to you. Their code uses the adjustment only if all C are positive, which is the same with a single C.

    Args:
        n: Rows of the training set.
        groups: (N,) whole numbers, the group of each row.
        step_size: eta; the authors' 0.01. 0 gives every group the same weight.
        adjustment: C >= 0 of the generalisation adjustment; the authors try 0 to 5.

    Attributes:
        q: (G,) float64 weights of the groups, in the order of their numbers.

    Example:
        >>> from torchcurriculum import Batch
        >>> method = GroupDRO(3, groups=[0, 0, 1], step_size=1.0)
        >>> method.weigh(Step(None, Batch(None, None, torch.arange(3)), None, torch.tensor([0.0, 0.0, 1.0])))
        tensor([0.1345, 0.1345, 0.7311], dtype=torch.float64)
        >>> method.q                                                           # 1 : e
        tensor([0.2689, 0.7311], dtype=torch.float64)

    Reference:
        Sagawa et al., Distributionally Robust Neural Networks for Group Shifts: On the Importance of Regularization
        for Worst-Case Generalization, ICLR 2020.
    """

    groups: Tensor
    adjustments: Tensor
    log_q: Tensor

    def __init__(self, n: int, groups: Any, step_size: float = 0.01, adjustment: float = 0.0) -> None:
        super().__init__()
        self.n = checks.whole("n", n, what="the number of training rows")
        checks.real("step_size", step_size, "[0, inf)", "the authors take 0.01")
        checks.real("adjustment", adjustment, "[0, inf)")
        self.step_size, self.adjustment = step_size, adjustment
        numbers = checks.row_values("groups", groups, self.n, integers=True).long()
        self.names, own, sizes = numbers.unique(return_inverse=True, return_counts=True)
        self.register_buffer("groups", own, persistent=False)
        self.register_buffer("adjustments", adjustment / sizes.double().sqrt(), persistent=False)
        self.register_buffer("log_q", torch.full((len(sizes),), 1 / len(sizes), dtype=torch.float64).log())

    @property
    def q(self) -> Tensor:
        """(G,) weights of the groups."""
        return self.log_q.exp()

    def weigh(self, step: Step) -> Tensor:
        """q of the row's group over its rows in the global batch, after updating q with this batch."""
        mine = self.groups[step.index]
        sums, counts = step.total(group_means(step.losses.detach(), mine, len(self.log_q)))
        self.log_q.copy_(ascend(self.log_q, sums / counts.clamp_min(1), self.step_size, self.adjustments))
        return (self.q / counts.clamp_min(1))[mine]

    def report(self) -> Mapping[str, Any]:
        """The group of most weight, and its weight."""
        weight, place = self.q.cpu().max(0)
        return {"group": int(self.names[place]), "group_weight": weight}


register(
    "group-dro",
    GroupDRO,
    "minimises the loss of the worst group by increasing its weight",
    when="You know groups that must not be neglected, and measure the worst group's accuracy. Regularise more than "
    "usual. Without groups, see `jtt`. Needs groups=.",
    cost="No extra pass; a few operations on B losses; 8 bytes per sample.",
)
