"""SuperLoss: a per-sample confidence in closed form, from only the loss."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from ..core import Method, Step, checks
from ..functional.superloss import confidence
from .registry import register

__all__ = ["SuperLoss"]


class SuperLoss(Method):
    r"""SuperLoss: :math:`L_\lambda(l, \sigma) = (l - \tau)\sigma + \lambda (\log\sigma)^2` at its best sigma.

    The best sigma has a closed form, :math:`\sigma^* = \exp(-W(\frac12 \max(-\frac2e, \frac{l-\tau}{\lambda})))` with
    Lambert's W. The regulariser has no gradient for the model, so a batch is trained with
    :math:`\frac1B \sum_i \sigma_i^* l_i`; sigma lies in (0, e] and is 1 at :math:`l = \tau`.

    Args:
        tau: The threshold between easy and hard. ``"auto"`` is the paper's rule for classification, log C, if the first
            step has outputs of shape (B, C) and whole-number labels, and ``"running"`` otherwise. ``"running"`` is an
            exponential mean of the batch losses, ``"average"`` the mean of all losses so far; a number is constant.
        lam: The strength lambda > 0; larger is gentler, and ``math.inf`` is vanilla.
        smoothing: Share of the old value in the exponential mean, in [0, 1); 0 is the mean of the batch.

    Attributes:
        tau: The threshold of the last step, a scalar tensor.
        rule: How tau follows the losses: ``"running"``, ``"average"``, None if it is constant, and ``"auto"`` before
            the first step.

    Example:
        >>> from math import e
        >>> from torchcurriculum.core import Batch, Step
        >>> losses = torch.tensor([0.0, 2.0, 2.0 + 2 * e])
        >>> batch = Batch(None, None, torch.arange(3))
        >>> SuperLoss(tau=2.0).weigh(Step(None, batch, None, losses)) * 3      # e, 1 and 1/e
        tensor([2.7183, 1.0000, 0.3679], dtype=torch.float64)

    Reference:
        Castells, Weinzaepfel and Revaud, SuperLoss: A Generic Loss for Robust Curriculum Learning, NeurIPS 2020.
    """

    tau: Tensor
    seen: Tensor
    strength: Tensor

    def __init__(
        self, tau: float | Literal["auto", "running", "average"] = "auto", lam: float = 1.0, smoothing: float = 0.9
    ) -> None:
        super().__init__()
        if isinstance(tau, str):
            checks.one_of("tau", tau, ("auto", "running", "average"))
        else:
            checks.real("tau", tau, "(-inf, inf)", "log C for C classes is the paper's")
        checks.real("lam", lam, "(0, inf]", "infinity is vanilla")
        checks.real("smoothing", smoothing, "[0, 1)")
        self.smoothing = smoothing
        self.rule: str | None = tau if isinstance(tau, str) else None
        self.register_buffer("tau", torch.tensor(0.0 if isinstance(tau, str) else tau, dtype=torch.float64))
        self.register_buffer("seen", torch.tensor(0.0, dtype=torch.float64))
        self.register_buffer("strength", torch.tensor(0.0, dtype=torch.float64), persistent=False)
        self.lam = lam

    @property
    def lam(self) -> float:
        """The strength lambda; it may be changed while training."""
        return self._lam

    @lam.setter
    def lam(self, value: float) -> None:
        self._lam = float(value)
        self.strength.fill_(self._lam)  # read by kernels, also in captured steps

    def weigh(self, step: Step) -> Tensor:
        """sigma* / B of each row, after updating tau with this batch."""
        losses = step.losses.detach().double()
        if self.rule == "auto":
            self.resolve_tau(step._logits, step.batch.y)  # None if the loop passes only losses
        if self.rule is not None:
            self._follow_losses(losses, step)
        return confidence(losses, self.tau, self.lam) * step.uniform()

    def resolve_tau(self, outputs: Any, y: Any) -> None:
        """Resolves ``"auto"`` at the first step: log C for (B, C) class outputs, else a running mean."""
        if self.rule != "auto":
            return
        if outputs is None:
            warnings.warn(
                "SuperLoss cannot count classes if the loop passes only losses, so tau is the running mean of the "
                "losses; pass tau=math.log(C) for C classes, or tau='running' to silence this",
                stacklevel=2,
            )
        outputs = getattr(outputs, "logits", outputs)
        classes = isinstance(outputs, Tensor) and outputs.ndim == 2 and outputs.shape[1] > 1
        labels = isinstance(y, Tensor) and y.ndim == 1 and not y.is_floating_point()
        self.rule = None if classes and labels else "running"
        if self.rule is None:
            self.tau += math.log(outputs.shape[1]) - self.tau  # torch.compile of 2.13 loses a fill_ of a scalar buffer

    def report(self) -> Mapping[str, Any]:
        """tau."""
        return {"tau": self.tau}

    def _follow_losses(self, losses: Tensor, step: Step) -> None:
        """Moves tau to the mean of the batch: completely at first, then by its share."""
        first, count = self.seen == 0, step.size()
        self.seen += count
        share = count / self.seen if self.rule == "average" else torch.full_like(count, 1 - self.smoothing)
        share = torch.where(first, torch.ones_like(share), share)
        self.tau += share * (step.total(losses.sum()) / count - self.tau)


register(
    "superloss",
    SuperLoss,
    "a per-sample confidence from the loss, in closed form",
    when="Many wrong labels and no time for tuning: one knob, no state per sample. If the loop passes "
    "only losses, set tau to log C.",
    cost="No extra pass and no memory per sample; a few element-wise operations on B losses.",
)
