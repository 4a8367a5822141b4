"""RHO-LOSS: trains on rows that are learnable, worth learning and not yet learnt."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..core import Epoch, Step, checks, distributed
from ..functional.pacing import subset_size
from ._base.chosen import Chosen, Scope
from ._base.teacher import teacher_losses
from .registry import register

__all__ = ["RHOLoss"]


class RHOLoss(Chosen):
    r"""RHO-LOSS: of a large batch, the rows of highest reducible holdout loss :math:`L_i - L_i^{IL}`.

    The irreducible loss :math:`L^{IL}` of a row is that of a model trained on other rows: high if the label is wrong or
    the row unusual. It is given, or measured once at the start of the run with a given model. Of a batch, the share
    ``fraction`` of highest difference is trained on with the average loss; ties with the last of them are included.

    Differences from the paper and its authors' code: there gradients are computed only for the chosen rows; here the
    others have weight zero, so a step costs as much as plain training on the large batch. ``scope="epoch"`` saves steps
    instead: it chooses the same share of the whole set at the start of an epoch. The authors choose with a separate
    pass in training mode, this method with the losses of the step. Their batch is 320, of which 32 are taken. Choose
    the learning rate for the number of rows taken: one for the large batch can diverge.

    Args:
        n: Rows of the training set.
        irreducible: (N,) losses of the training rows by a model that was not trained on them, or such a model with the
            same inputs, which is run once.
        fraction: The share that is trained on, in (0, 1]; the paper's 0.1. 1 is plain training.
        scope: ``"batch"`` chooses in every batch, ``"epoch"`` once an epoch.

    Example:
        >>> from torchcurriculum import Batch
        >>> method = RHOLoss(4, irreducible=[0.0, 2.0, 0.0, 0.0], fraction=0.5)
        >>> batch = Batch(None, None, torch.arange(4))
        >>> method.weigh(Step(None, batch, None, torch.tensor([1.0, 2.5, 0.1, 0.7])))        # 1.0, 0.5, 0.1, 0.7
        tensor([0.5000, 0.0000, 0.0000, 0.5000], dtype=torch.float64)

    Reference:
        Mindermann et al., Prioritized Training on Points that are Learnable, Worth Learning, and Not Yet Learnt, ICML
        2022.
    """

    irreducible: Tensor
    measured: Tensor

    def __init__(self, n: int, irreducible: Any, fraction: float = 0.1, scope: Scope = "batch") -> None:
        super().__init__(n, scope, warmup=0)
        checks.real("fraction", fraction, "(0, 1]", "the paper takes 0.1; 1 is plain training")
        self.fraction = fraction
        given = isinstance(irreducible, nn.Module)
        self._model = [irreducible if given else None]  # in a list: not a submodule, so not in the state
        values = torch.zeros(n) if given else checks.row_values("irreducible", irreducible, n)
        if not bool(values.isfinite().all()):
            rows = (~values.isfinite()).nonzero().flatten()
            raise ValueError(f"irreducible must hold finite losses, but is infinite at rows {rows[:8].tolist()}")
        self.register_buffer("irreducible", values.double())
        self.register_buffer("measured", torch.tensor(not given))

    def plan(self, epoch: Epoch) -> Tensor | None:
        """Measures the irreducible losses once, if a model was given."""
        if not self.measured:
            model = self._model[0]
            assert model is not None
            self.irreducible.copy_(epoch.measure(teacher_losses, model.to(self.irreducible.device)))
            self.measured.fill_(True)
        return super().plan(epoch)

    def choose(self, losses: Tensor, index: Tensor, step: Step | None) -> Tensor:
        """Rows whose reducible loss is among the highest of the global batch, or of all rows."""
        reducible = losses - self.irreducible[index]
        if step is None or distributed.world_size() == 1:
            # Rows with unknown loss are chosen anyway and must not displace others.
            known = reducible if step is not None else reducible[reducible.isfinite()]
            least = known.topk(subset_size(self.fraction, len(known))).values[-1:] if len(known) else known
        else:
            size = int(step.size())
            place = torch.tensor([size - subset_size(self.fraction, size)])
            least = distributed.order_statistics(reducible, place)
        return reducible >= least


register(
    "rho-loss",
    RHOLoss,
    "the rows whose loss most exceeds that of a model trained on other rows",
    when="You have rows to spare for a small model of irreducible losses, the set is large, redundant or noisy, and "
    "steps matter more than passes. Needs irreducible=.",
    cost="The model of irreducible losses and one pass of it. scope='batch' then costs a plain step of the large "
    "batch, including gradients of unused rows; scope='epoch' one forward pass per epoch "
    "(measure='pass') and a tenth of the steps. 8 bytes per sample.",
)
