"""APW: each sample's weight from its loss and the state of training, easy samples first, hard ones later."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from numbers import Real
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from .. import kernels
from ..core import FLOATS, Batch, Epoch, Method, NanStrategy, Step, check_index, check_losses, normalise, ranks, total
from ..functional.apw import RHO_CLIP, weight_change
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
            a rule ``losses (N,) -> e`` asked at each epoch.
        tau: Phase threshold in (0, 1); 1/2 is the paper's method, others its APW with a double dagger.
        weighting: ``"E"``, ``"I"`` or ``"EI"``.
        nan_strategy: What to do about a loss that is not finite: ``"error"``, ``"warn"`` or ``"ignore"``. Inside a
            step on an accelerator such losses are not looked for (looking would make every step wait); the next
            ``advance`` finds them.

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
    touched: Tensor

    def __init__(
        self,
        n: int,
        q: float,
        threshold: float | Literal["auto"] | Rule = LOG_2,
        tau: float = 0.5,
        weighting: Weighting = "E",
        nan_strategy: NanStrategy = "error",
    ) -> None:
        super().__init__()
        _refuse_bad_knobs(n, q, threshold, tau, weighting, nan_strategy)
        self.n, self.q, self.tau, self.weighting, self.nan_strategy = n, q, tau, weighting, nan_strategy
        self.weighs_by_loss = weighting != "E"
        self.rule: Rule | None = AutoThreshold() if threshold == "auto" else threshold if callable(threshold) else None
        start = float(threshold) if isinstance(threshold, Real) else LOG_2
        self.register_buffer("log_weights", torch.full((n,), -math.log(n), dtype=torch.float64))
        for name, value in {"rho": 1 - RHO_CLIP, "alpha": 0.0, "z": 1.0, "eprop": 0.0, "threshold": start}.items():
            self.register_buffer(name, torch.tensor(value, dtype=torch.float64))
        # Which rows this rank wrote since the ranks last agreed; only I and EI write rows one batch at a time.
        self.register_buffer("touched", torch.zeros(n if weighting != "E" else 0, dtype=torch.bool), persistent=False)

    @property
    def weights(self) -> Tensor:
        """(N,) float64 weights that sum to one."""
        # Not softmax, which on an accelerator takes all rows for one and gives them to a single block of threads.
        return (self.log_weights - torch.logsumexp(self.log_weights, 0)).exp_()

    def advance(self, losses: Tensor) -> None:
        """Begins an epoch: rho_k and alpha_k from all losses, and for E and EI the new weights (Eqs. 1-4).

        Args:
            losses: (N,) losses of all rows at the start of the epoch, in row order.
        """
        _refuse_other_than_losses(losses, self.n, f"advance needs one loss for each of the {self.n} rows")
        losses, _ = check_losses(losses.detach(), None, self.nan_strategy)
        self._follow(losses)
        self._begin(losses <= self._threshold_for(losses).to(losses), self.weighting)

    def batch_weights(self, losses: Tensor, index: Tensor) -> Tensor:
        """(B,) weights of a batch, summing to one over the global batch; I and EI also update its rows (Appendix A.1).

        Args:
            losses: (B,) losses of the batch under the current parameters, without gradients.
            index: (B,) rows of the training set.

        Returns:
            Weights in the precision of the losses (at least float32), on their device.
        """
        _refuse_other_than_losses(losses, None, "batch_weights needs one loss for each row of the batch")
        check_index(index, self.n, len(losses))
        losses, valid = losses.detach(), None
        looks = losses.device.type == "cpu" or self.nan_strategy != "error"
        if looks and not torch.compiler.is_compiling():
            losses, valid = check_losses(losses, index, self.nan_strategy)
        weights = self._batch_weights(losses, index)
        return weights if valid is None else weights * valid

    def plan(self, epoch: Epoch) -> None:
        """Measures and begins the epoch; every row is visited."""
        self._plan(epoch, self.weighting)

    def plan_whole(self, epoch: Epoch) -> None:
        """Measures and updates all weights, whatever the weighting: S-APW grows by E-weighting."""
        self._plan(epoch, "E")

    def weigh(self, step: Step) -> Tensor:
        """The weights of the batch."""
        return self._batch_weights(step.losses.detach(), step.index)

    def fused(self, batch: Batch, logits: Any) -> tuple[Any, ...] | None:
        """The same in one kernel."""
        if type(self) is not APW:
            return None
        return "apw", self.log_weights, None if self.weighting == "E" else (self.threshold, self.alpha)

    def graph_key(self) -> Hashable:
        """Every step is the same; all state is in buffers."""
        return self.weighting

    def sync(self) -> None:
        """Gives every rank the rows that I and EI weighting wrote on the others."""
        if ranks() == 1 or not len(self.touched):
            return
        written = total(self.touched.to(torch.uint8)) > 0
        merged = total(torch.where(self.touched, self.log_weights, 0.0))
        self.log_weights = torch.where(written, merged, self.log_weights)
        self.touched.zero_()

    def report(self) -> Mapping[str, Any]:
        """rho, alpha, Z, e, the phase and E-Prop at e."""
        early = self.rho > self.tau
        return {
            "rho": self.rho,
            "alpha": self.alpha,
            "z": self.z,
            "threshold": self.threshold,
            "phase": "early" if early else "later",
            "eprop": self.eprop,
        }

    def _plan(self, epoch: Epoch, weighting: Weighting) -> None:
        if self.rule is None:
            easy = epoch.easy(self.threshold)
        else:
            losses = epoch.losses()
            easy = losses <= self._threshold_for(losses).to(losses)
        self._follow(easy)
        self._begin(easy, weighting)

    def _threshold_for(self, losses: Tensor) -> Tensor:
        if self.rule is not None:
            value = float(self.rule(losses))
            if not 0 < value < math.inf:
                raise ValueError(f"the threshold rule gave e = {value}; e must be positive and finite")
            self.threshold.fill_(value)
        return self.threshold

    def _begin(self, easy: Tensor, weighting: Weighting) -> None:
        """Eqs. 2-4 in two passes over the rows: easy rows all change by one factor, hard rows by another."""
        self.sync()
        top, light, heavy, count = kernels.masses(self.log_weights, easy)
        whole = light + heavy
        self.eprop.copy_(count / self.n)
        self.rho.copy_((heavy / whole).clamp(RHO_CLIP, 1 - RHO_CLIP))
        self.alpha.copy_(weight_change(self.rho, self.q, self.tau))
        self.z.copy_((light * torch.exp(-self.alpha) + heavy * torch.exp(self.alpha)) / whole)
        change, scale = self.alpha, top + whole.log() + self.z.log()
        if weighting == "I":
            change, scale = torch.zeros_like(change), top + whole.log()
        kernels.shift_(self.log_weights, easy, -change - scale, change - scale)

    def _batch_weights(self, losses: Tensor, index: Tensor) -> Tensor:
        self._follow(losses)
        index = index.to(self.log_weights.device, non_blocking=True)
        log_weights = self.log_weights[index]
        if self.weighting == "E":
            weights = torch.softmax(log_weights, 0) if ranks() == 1 else normalise(log_weights)[0]
        else:
            easy = losses <= self.threshold.to(losses)
            weights, written = _shares(log_weights + torch.where(easy, -self.alpha, self.alpha), self.n)
            self.log_weights.index_copy_(0, index, written)
            if ranks() > 1:
                self.touched.index_fill_(0, index, True)  # assigning a number would make the host wait
        return weights.to(losses.dtype if losses.dtype in (torch.float32, torch.float64) else torch.float32)

    def _follow(self, x: Tensor) -> None:
        if self.log_weights.device != x.device:
            self.to(x.device)


def _shares(log_weights: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Weights of the global batch that sum to one, and what Appendix A.1 writes back: log (w N_ks / N).

    N_ks / N keeps the rows on the scale of the whole vector.
    """
    if ranks() == 1 and not torch.compiler.is_compiling():  # a few kernels where the general way takes a dozen
        share = math.log(max(1, len(log_weights)) / n)
        return torch.softmax(log_weights, 0), torch.log_softmax(log_weights, 0).add_(share)
    weights, log_z = normalise(log_weights)
    size = total(torch.full_like(log_z, len(log_weights)))
    return weights, log_weights - log_z + torch.log(size / n)


def _refuse_other_than_losses(losses: Any, size: int | None, words: str) -> None:
    if not isinstance(losses, Tensor) or losses.dtype not in FLOATS:
        got = losses.dtype if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(f"{words}, a tensor of floating-point numbers of 16 bits or more, got {got}")
    if losses.ndim != 1 or size not in (None, len(losses)):
        raise ValueError(f"{words}, shape ({'B' if size is None else size},), got {tuple(losses.shape)}")


def _refuse_bad_knobs(n: int, q: float, threshold: Any, tau: float, weighting: str, nan_strategy: str) -> None:
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ValueError(f"n must be the number of training rows, at least 1, got {n!r}")
    if not isinstance(q, Real) or not q >= 2:
        raise ValueError(f"q must be at least 2 (the paper takes the number of epochs), got {q!r}")
    known = isinstance(threshold, Real) or callable(threshold) or isinstance(threshold, str)
    if not known or (isinstance(threshold, str) and threshold != "auto"):
        raise ValueError(f"threshold must be a number, a rule or 'auto', got {threshold!r}")
    if isinstance(threshold, Real) and not 0 < threshold < math.inf:
        raise ValueError(f"the error threshold e must be positive and finite, got {threshold!r}; see error_threshold")
    if not isinstance(tau, Real) or not 0 < tau < 1:
        raise ValueError(f"tau must lie between 0 and 1, got {tau!r}; the paper takes 0.5")
    if weighting not in get_args(Weighting):
        raise ValueError(f"weighting must be 'E', 'I' or 'EI', got {weighting!r}")
    if nan_strategy not in get_args(NanStrategy):
        raise ValueError(f"nan_strategy must be 'error', 'warn' or 'ignore', got {nan_strategy!r}")


def _register(weighting: Weighting, words: str) -> None:
    @register(
        f"apw-{weighting.lower()}",
        APW,
        f"adaptive point weights from losses, updated {words}",
        when="Some labels are wrong and you want two interpretable knobs, a weight for every sample and a theory.",
        cost="With measure='pass' one forward pass over the set for each epoch, with 'running' none; 8 bytes a sample.",
    )
    def _apw(n: int, epochs: int, **options: Any) -> APW:
        return APW(n, **{"q": max(2, epochs), "weighting": weighting, **options})


_register("E", "once an epoch (the paper's default)")
_register("I", "in every batch")
_register("EI", "once an epoch and in every batch")
