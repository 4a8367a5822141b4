"""Self-paced learning: trains on rows that the model finds easy now, and on more of them over time."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from ..core import Epoch
from ..functional.pacing import Shape, pace
from ..functional.spl import Scheme
from ._base.paced import Paced
from .registry import register

__all__ = ["SPL"]


class SPL(Paced):
    r"""Self-paced learning: :math:`\min_{w, v} \sum_i v_i L_i(w) + f(v; \lambda)`, v in closed form at every epoch.

    Losses are measured at the start of each epoch, in evaluation mode. The age parameter lambda is their quantile at
    the pace lambda_t, so that a share lambda_t of the rows is in use for any scale of the losses; the weights
    :math:`v^*` are those of ``functional.self_paced_weights``, divided by their average over the rows in use. Once
    the pace reaches one, lambda is infinite: all rows are in use with the average loss, and measuring stops.

    Args:
        n: Rows of the training set.
        grow: Epochs from ``start`` to all rows. ``for_run`` takes half of the run.
        start: The share at first; 1 is plain training.
        scheme: ``"hard"``, ``"linear"``, ``"logarithmic"``, ``"mixture"``, ``"root-mixture"`` or ``"polynomial"``.
        power: t > 1 of ``"polynomial"``.
        ratio: Share of lambda below which the mixtures give full weight.
        shape: ``"linear"``, ``"geometric"`` or ``"root"`` pacing.
        p: The root of ``"root"``.
        warmup: Epochs of plain training first; the paper also starts with a few iterations on all rows.
        batch_size: Rows of the global batch; then ``grow`` counts optimizer steps, not epochs (see ``Paced``).

    Attributes:
        weights: (N,) float64, summing to one; zero for rows not in use.

    Example:
        >>> import torch
        >>> from torchcurriculum import Epoch
        >>> method = SPL(4, grow=2, start=0.75, scheme="linear", warmup=0)
        >>> method.plan(Epoch(1, 4, torch.zeros(4), lambda: torch.tensor([0.0, 4.0, 1.0, 3.0])))   # lambda = 4
        tensor([0, 2, 3])
        >>> method.weights                                               # 1, 3/4, 1/4 over their sum
        tensor([0.5000, 0.0000, 0.3750, 0.1250], dtype=torch.float64)

    Reference:
        Kumar et al., Self-Paced Learning for Latent Variable Models, NeurIPS 2010.
    """

    def __init__(
        self,
        n: int,
        grow: int,
        start: float = 0.1,
        scheme: Scheme = "hard",
        power: float = 3.0,
        ratio: float = 0.5,
        shape: Shape = "linear",
        p: float = 2.0,
        warmup: int = 1,
        batch_size: int | None = None,
    ) -> None:
        rule = partial(pace, grow=grow, start=start, shape=shape, p=p)
        super().__init__(n, rule, warmup, scheme, power, ratio, batch_size)

    def difficulty(self, epoch: Epoch) -> Tensor:
        """The losses at the start of this epoch."""
        return epoch.losses()


register(
    "spl",
    SPL,
    "rows the model finds easy now, and more of them over time",
    when="Some labels are wrong and you want the classic method. Classes the model finds hard come last; see `spld`.",
    cost="One forward pass over the set per epoch of the growth (measure='pass'), fewer steps while it lasts; 8 "
    "bytes a sample.",
)
