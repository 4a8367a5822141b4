"""APW: each sample's weight from its loss and the state of training, easy samples first, hard ones later."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor

from ..core import Epoch, Method, Step, checks, distributed
from ..functional.apw import RHO_CLIP, masses, shift_, weight_change
from ..functional.noise import AutoThreshold
from .registry import register

__all__ = ["APW", "Weighting"]

LOG_2 = math.log(2)
Weighting = Literal["E", "I", "EI"]
Rule = Callable[[Tensor], Tensor | float]


class APW(Method):
    r"""Adaptively point-weighting (Eqs. 1-4 and Appendix A.1).

    At the start of epoch k, a sample is easy (:math:`\beta_k = +1`) if its loss is at most e, and hard (-1) if not;
    :math:`\rho_k` is the weight that lies on hard samples and :math:`\alpha_k = \frac1q \log\frac{1-\rho_k}{\rho_k}`.
    Weights are multiplied by :math:`\exp(-\alpha_k\beta_k)` and normalised: while :math:`\rho_k > \tau` easy samples
    gain, afterwards hard ones do. E-weighting updates all weights once an epoch, I-weighting those of each batch from
    the batch's own losses, EI-weighting does both. State is the logarithm of the weights in float64, so nothing
    overflows however long the run.

    Args:
        n: Rows of the training set.
        q: Strength, at least 2; larger is gentler. The paper takes the number of epochs.
        threshold: The error threshold e > 0 (see ``error_threshold``), ``"auto"`` to estimate it from the losses, or
            a rule ``losses (N,) -> e``, called at each epoch.
        tau: Phase threshold in (0, 1); 1/2 is the paper's method, others its APW with a double dagger.
        weighting: ``"E"``, ``"I"`` or ``"EI"``.
        nan_strategy: What ``advance`` does about a loss that is not finite: ``"error"``, ``"warn"`` or ``"ignore"``
            (it counts as hard). ``batch_weights`` always refuses it; on an accelerator only if the strategy is not
            ``"error"``, since the check would synchronise every step.

    Attributes:
        weights: (N,) float64, always summing to one.
        rho: rho_k of the last update, a scalar tensor.
        alpha: alpha_k of the last update, a scalar tensor.

    Example:
        >>> method = APW(4, q=2, threshold=1.0)
        >>> method.advance(torch.tensor([0.5, 2.0, 2.0, 2.0]))     # rho = 3/4, alpha = -log(3) / 2: easy samples gain
        >>> method.weights                                         # sqrt(3) : 1/sqrt(3) -> 1/2 and three times 1/6
        tensor([0.5000, 0.1667, 0.1667, 0.1667], dtype=torch.float64)
        >>> method.batch_weights(torch.tensor([0.4, 2.0]), torch.tensor([0, 1]))
        tensor([0.7500, 0.2500])

    Reference:
        Li et al., Adaptively Point-weighting Curriculum Learning.
    """

    log_weights: Tensor
    rho: Tensor
    alpha: Tensor
    z: Tensor
    eprop: Tensor
    threshold: Tensor

    def __init__(
        self,
        n: int,
        q: float,
        threshold: float | Literal["auto"] | Rule = LOG_2,
        tau: float = 0.5,
        weighting: Weighting = "E",
        nan_strategy: checks.NanStrategy = "error",
    ) -> None:
        super().__init__()
        self._started = False  # whether an epoch has begun or a state was loaded
        checks.real("q", q, "[2, inf]", "the paper takes the number of epochs")
        checks.real("tau", tau, "(0, 1)", "the paper takes 0.5")
        checks.one_of("weighting", weighting, get_args(Weighting))
        checks.one_of("nan_strategy", nan_strategy, get_args(checks.NanStrategy))
        _refuse_bad_threshold(threshold)
        self.n = n = checks.whole("n", n, what="the number of training rows")
        self.q, self.tau, self.weighting, self.nan_strategy = q, tau, weighting, nan_strategy
        self.rule: Rule | None = AutoThreshold() if threshold == "auto" else threshold if callable(threshold) else None
        start = float(threshold) if isinstance(threshold, Real) else LOG_2
        declare = self.register_buffer if weighting == "E" else self.add_rows  # E writes all rows, equal on all ranks
        declare("log_weights", torch.full((n,), -math.log(n), dtype=torch.float64))
        for name, value in {"rho": 1 - RHO_CLIP, "alpha": 0.0, "z": 1.0, "eprop": 0.0, "threshold": start}.items():
            self.register_buffer(name, torch.tensor(value, dtype=torch.float64))

    @classmethod
    def for_run(cls, n: int, epochs: int, q: float | None = None, **options: Any) -> Self:
        """The paper's q: the number of epochs."""
        return cls(n, max(2, epochs) if q is None else q, **options)

    @property
    def weights(self) -> Tensor:
        """(N,) float64 weights that sum to one."""
        # Not softmax, which on an accelerator would use a single block of threads for all rows.
        return (self.log_weights - torch.logsumexp(self.log_weights, 0)).exp_()

    def advance(self, losses: Tensor) -> None:
        """Begins an epoch: rho_k and alpha_k from all losses, and for E and EI the new weights (Eqs. 1-4).

        Args:
            losses: (N,) losses of all rows at the start of the epoch, in row order.
        """
        _refuse_other_than_losses(losses, self.n, f"advance needs one loss for each of the {self.n} rows")
        losses, _ = checks.check_losses(losses.detach(), None, self.nan_strategy)
        self._begin(losses <= self._threshold_for(losses).to(losses), self.weighting)

    def batch_weights(self, losses: Tensor, index: Tensor) -> Tensor:
        """(B,) weights of a batch, summing to one over the global batch; I and EI also update its rows (Appendix A.1).

        Args:
            losses: (B,) losses of the batch under the current parameters, without gradients.
            index: (B,) rows of the training set.

        Returns:
            Weights in the precision of the losses (at least float32), on their device.
        """
        if not self._started and not torch.compiler.is_compiling():
            self._started = True  # warn once
            warnings.warn("all weights are equal before advance; call advance(losses) in every epoch", stacklevel=2)
        _refuse_other_than_losses(losses, None, "batch_weights needs one loss for each row of the batch")
        checks.check_index(index, self.n, len(losses))
        losses = losses.detach()
        looks = losses.device.type == "cpu" or self.nan_strategy != "error"
        if looks and not torch.compiler.is_compiling() and not checks.all_finite(losses):
            rows = index[~losses.isfinite().to(index.device)][:8].tolist()
            raise ValueError(f"losses of rows {rows} are NaN or infinite; drop them with indexed(loader, finite=True)")
        self._follow(losses)
        index = index.to(losses.device, non_blocking=True)
        weights = self._shares(index) if self.weighting == "E" else self._change(losses, index)
        self.visited(index)
        return weights.to(losses.dtype if losses.dtype in (torch.float32, torch.float64) else torch.float32)

    def plan(self, epoch: Epoch) -> None:
        """Measures and begins the epoch; every row is visited.

        If rows are drawn by weight (S-APW), all weights are updated once an epoch with any weighting.
        """
        weighting: Weighting = "E" if epoch.whole else self.weighting
        if self.rule is None:
            easy = epoch.easy(self.threshold)
        else:
            losses = epoch.losses()
            easy = losses <= self._threshold_for(losses).to(losses)
        self._begin(easy, weighting)

    def weigh(self, step: Step) -> Tensor:
        """The weights of the batch."""
        self._follow(step.index)
        return self._shares(step.index) if self.weighting == "E" else self._change(step.losses.detach(), step.index)

    def report(self) -> Mapping[str, Any]:
        """rho, alpha, Z, e, the phase, E-Prop at e, and the settings that the theory needs."""
        early = self.rho > self.tau
        return {
            "rho": self.rho,
            "alpha": self.alpha,
            "z": self.z,
            "threshold": self.threshold,
            "phase": "early" if early else "later",
            "eprop": self.eprop,
            "q": self.q,
            "tau": self.tau,
            "weighting": self.weighting,
            "threshold_kind": "fixed" if self.rule is None else "moving",
        }

    def _threshold_for(self, losses: Tensor) -> Tensor:
        if self.rule is not None:
            value = float(self.rule(losses))
            if not 0 < value < math.inf:
                raise ValueError(f"the threshold rule returned e = {value}; e must be positive and finite")
            self.threshold.fill_(value)
        return self.threshold

    def _begin(self, easy: Tensor, weighting: Weighting) -> None:
        """Eqs. 2-4 in two passes over the rows: easy rows all change by one factor, hard rows by another."""
        self._started = True
        self._follow(easy)
        self.agree()
        top, light, heavy, count = masses(self.log_weights, easy)
        whole = light + heavy
        self.eprop.copy_(count / self.n)
        self.rho.copy_((heavy / whole).clamp(RHO_CLIP, 1 - RHO_CLIP))
        self.alpha.copy_(weight_change(self.rho, self.q, self.tau))
        self.z.copy_((light * torch.exp(-self.alpha) + heavy * torch.exp(self.alpha)) / whole)
        change, scale = self.alpha, top + whole.log() + self.z.log()
        if weighting == "I":
            change, scale = torch.zeros_like(change), top + whole.log()
        shift_(self.log_weights, easy, -change - scale, change - scale)

    def _shares(self, index: Tensor) -> Tensor:
        """(B,) the rows' weights, normalised over the global batch."""
        log_weights = self.log_weights[index]
        alone = distributed.world_size() == 1
        return torch.softmax(log_weights, 0) if alone else distributed.normalise(log_weights)[0]

    def _change(self, losses: Tensor, index: Tensor) -> Tensor:
        """I-weighting (Appendix A.1): the batch's rows change by their own losses, and stay on the scale of all N."""
        easy = losses <= self.threshold.to(losses.dtype)
        log_weights = self.log_weights[index] + torch.where(easy, -self.alpha, self.alpha)
        if distributed.world_size() == 1:  # fewer operations than the general case
            share = math.log(max(1, len(index)) / self.n)
            self.log_weights.index_copy_(0, index, torch.log_softmax(log_weights, 0).add_(share))
            return torch.softmax(log_weights, 0)
        weights, log_z = distributed.normalise(log_weights)
        size = distributed.total(torch.full_like(log_z, len(log_weights)))
        self.log_weights.index_copy_(0, index, log_weights - log_z + torch.log(size / self.n))
        return weights

    def _load_from_state_dict(self, *given: Any) -> None:
        super()._load_from_state_dict(*given)
        self._started = True

    def _follow(self, x: Tensor) -> None:
        if self.log_weights.device != x.device:
            self.to(x.device)


def _refuse_other_than_losses(losses: Any, size: int | None, words: str) -> None:
    if not isinstance(losses, Tensor) or losses.dtype not in checks.FLOATS:
        got = losses.dtype if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(f"{words}, a tensor of floating-point numbers of 16 bits or more, got {got}")
    if losses.ndim != 1 or size not in (None, len(losses)):
        raise ValueError(f"{words}, shape ({'B' if size is None else size},), got {tuple(losses.shape)}")


def _refuse_bad_threshold(threshold: Any) -> None:
    if isinstance(threshold, Real):
        checks.real("threshold", threshold, "(0, inf)", "see error_threshold")
    elif not callable(threshold) and threshold != "auto":
        raise ValueError(f"threshold must be a number, a rule or 'auto', got {threshold!r}")


for _weighting, _words in {
    "E": "once an epoch (the paper's default)",
    "I": "in every batch",
    "EI": "once an epoch and in every batch",
}.items():
    register(
        f"apw-{_weighting.lower()}",
        APW,
        f"adaptive point weights from losses, updated {_words}",
        when="Some labels are wrong and you want two interpretable knobs, a weight for every sample and a theory.",
        cost="With measure='pass' one forward pass over the set per epoch, with 'running' none; 8 bytes per sample.",
        weighting=_weighting,
    )
