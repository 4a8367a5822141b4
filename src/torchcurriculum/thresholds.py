"""The error threshold e: the paper's three rules, its parameter-dissimilarity estimate, and rules made from losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from .core import checks
from .functional.noise import AutoThreshold, estimate_noise_rate

__all__ = ["AutoThreshold", "Noise", "ParameterDissimilarity", "error_threshold", "estimate_noise_rate", "quantile"]

Noise = Literal["clean", "inherent", "synthetic"]


def error_threshold(noise_rate: float = 0.0, noise: Noise = "clean") -> float:
    r"""e, Section 4: log 2 for clean labels, log 2 + log(1-p) for inherent noise, log 2 - log(1-p) for synthetic noise.

    At log 2 a sample is easy if its label has a probability of at least one half.

    Args:
        noise_rate: :math:`p_{noise}`, the share of wrong labels, in [0, 1).
        noise: ``"clean"``; ``"inherent"`` if the data came with the wrong labels; ``"synthetic"`` if they were added.

    Returns:
        The error threshold e > 0, for ``APW(threshold=...)``.

    Example:
        >>> [round(error_threshold(*case), 6) for case in ((), (0.4, "inherent"), (0.4, "synthetic"))]
        [0.693147, 0.182322, 1.203973]

    Reference:
        Li et al., Adaptively Point-weighting Curriculum Learning, Section 4.
    """
    checks.one_of("noise", noise, get_args(Noise))
    checks.real("noise_rate", noise_rate, "[0, 1)", "it is the share of wrong labels")
    if noise == "clean" and noise_rate > 0:
        raise ValueError(
            f"noise_rate is {noise_rate!r} and noise is 'clean'; pass noise='inherent' if the data came with the wrong "
            "labels, or noise='synthetic' if they were added"
        )
    if noise == "inherent" and noise_rate >= 0.5:
        raise ValueError(
            f"inherent noise of rate {noise_rate!r} gives e = log(2) + log(1 - {noise_rate!r}) <= 0, and no loss is "
            "below that: the paper's rule holds for rates below 1/2. Pass your own threshold e > 0, or "
            "ParameterDissimilarity().threshold, or threshold='auto'."
        )
    change = math.log1p(-noise_rate)
    return math.log(2) - change if noise == "synthetic" else math.log(2) + change


@dataclass(frozen=True)
class _Quantile:
    """The rule that ``quantile`` makes: a class, so that it can be compared, printed and pickled."""

    p: float

    def __call__(self, losses: Tensor) -> Tensor:
        finite = losses.detach()[losses.isfinite()]
        finite = finite if finite.dtype == torch.float64 else finite.float()
        if not len(finite):
            return torch.tensor(math.log(2), dtype=torch.float64, device=losses.device)
        # The small number keeps 0.07 * 100 from rounding up to 8 rows.
        value = finite.kthvalue(max(1, math.ceil(self.p * len(finite) - 1e-9))).values
        # e must be positive; if that share of rows has zero loss, the same rows are easy.
        return torch.where(value == 0, torch.finfo(finite.dtype).tiny, value).double()

    def __repr__(self) -> str:
        return f"quantile({self.p})"


def quantile(p: float) -> Callable[[Tensor], Tensor]:
    """A rule for e on losses of any scale, such as those of a regression: the p-quantile of the current losses.

    e is the smallest loss such that at least a share p of the finite losses are at most e, so that a share p of the
    rows is easy in every epoch. While no loss is finite (no row was seen yet) e is log 2, and every row is hard.

    Args:
        p: Share of the rows that are easy, in (0, 1].

    Returns:
        A rule ``losses (N,) -> e`` for ``APW(threshold=...)``.

    Example:
        >>> quantile(0.5)(torch.tensor([4.0, 1.0, 3.0, 2.0, torch.inf])).item()
        2.0
    """
    checks.real("p", p, "(0, 1]", "it is the share of the rows that are easy")
    return _Quantile(p)


class ParameterDissimilarity:
    r"""The parameter-dissimilarity estimate of e, Appendix A.2: the mean loss where the parameters turn the most.

    Over the checkpoints :math:`\Theta^{(1)}, \dots, \Theta^{(T)}` of a vanilla run,

    .. math:: d(t_0, t_1) = 1 - \cos\langle\Theta^{(t_0)}, \Theta^{(t_1)}\rangle, \qquad
        d^\dagger(t_1) = \frac{1}{t_1 - 1} \sum_{t_0 < t_1} d(t_0, t_1), \qquad
        t^* = \arg\max_{t_1 \ge 2} d^\dagger(t_1),

    and e is the mean loss at :math:`t^*`. No checkpoint is kept: with the unit vectors
    :math:`u_t = \Theta^{(t)} / \|\Theta^{(t)}\|` the cosine is :math:`\langle u_{t_0}, u_{t_1}\rangle`, and since the
    inner product is linear

    .. math:: d^\dagger(t_1)
        = \frac{1}{t_1 - 1} \sum_{t_0 < t_1} \left(1 - \langle u_{t_0}, u_{t_1}\rangle\right)
        = 1 - \frac{1}{t_1 - 1} \Big\langle \sum_{t_0 < t_1} u_{t_0},\; u_{t_1} \Big\rangle.

    The running sum of the unit vectors, one float64 vector as long as the parameters, is all that is needed.

    Attributes:
        dissimilarity: (T-1,) float64, :math:`d^\dagger(2), \dots, d^\dagger(T)`.
        transition: :math:`t^*`, counted from 1; the first one if several are the largest.
        threshold: e, the mean loss at :math:`t^*`.

    Example:
        >>> pd = ParameterDissimilarity()
        >>> for vector, loss in (([1.0, 0.0], 2.3), ([0.0, 2.0], 0.9), ([3.0, 3.0], 0.4)):
        ...     pd.observe(torch.tensor(vector), loss)
        >>> pd.dissimilarity                                        # 1 - 0, then 1 - cos(45 degrees)
        tensor([1.0000, 0.2929], dtype=torch.float64)
        >>> pd.transition, pd.threshold
        (2, 0.9)

    Reference:
        Li et al., Adaptively Point-weighting Curriculum Learning, Appendix A.2.
    """

    def __init__(self) -> None:
        self._sum: Tensor | None = None
        self._curve: list[float] = []
        self._losses: list[float] = []

    def observe(self, parameters: nn.Module | Tensor, mean_loss: float | Tensor) -> None:
        """Adds the next checkpoint.

        Args:
            parameters: The model, or all its parameters as one (P,) vector.
            mean_loss: The mean loss over the training set under these parameters.
        """
        name = f"checkpoint {len(self._losses) + 1}"
        loss, vector = float(mean_loss), _flat(parameters, name)
        if not math.isfinite(loss):
            raise ValueError(f"the mean loss of {name} is {loss}; it must be finite")
        if self._sum is not None and vector.shape != self._sum.shape:
            raise ValueError(
                f"{name} has {len(vector)} parameters and those before it {len(self._sum)}; use one "
                "ParameterDissimilarity for each model"
            )
        norm = vector.norm()
        if not 0 < float(norm) < math.inf:
            raise ValueError(f"the parameters of {name} have norm {float(norm)}; they must be finite and not all zero")
        unit = vector / norm
        if self._sum is None:
            self._sum = unit
        else:
            self._curve.append(1 - float(self._sum.to(unit.device) @ unit) / len(self._losses))
            self._sum = self._sum.to(unit.device) + unit
        self._losses.append(loss)

    @property
    def dissimilarity(self) -> Tensor:
        """(T-1,) float64: the curve for t1 = 2, ..., T."""
        return torch.tensor(self._curve, dtype=torch.float64)

    @property
    def transition(self) -> int:
        """t*, the checkpoint (counted from 1) at which the curve is largest."""
        if not self._curve:
            raise RuntimeError(
                f"{len(self._losses)} checkpoints were observed and the estimate needs at least 2; call observe(model, "
                "mean_loss) once per epoch of a vanilla run"
            )
        return 2 + self._curve.index(max(self._curve))

    @property
    def threshold(self) -> float:
        """e, the mean loss at t*."""
        return self._losses[self.transition - 1]

    def state_dict(self) -> dict[str, Any]:
        """The state to resume from: one vector, and one or two numbers per checkpoint."""
        total = None if self._sum is None else self._sum.clone()
        return {"sum": total, "curve": list(self._curve), "losses": list(self._losses)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a ``state_dict``."""
        self._sum = None if state["sum"] is None else state["sum"].clone()
        self._curve, self._losses = list(state["curve"]), list(state["losses"])


def _flat(parameters: nn.Module | Tensor, name: str) -> Tensor:
    if isinstance(parameters, nn.Module):
        parts = [parameter.detach().double().flatten() for parameter in parameters.parameters()]
        if not parts:
            raise ValueError(f"the model of {name}, {type(parameters).__name__}, has no parameters")
        return torch.cat([part.to(parts[0].device) for part in parts])
    if not isinstance(parameters, Tensor) or parameters.ndim != 1 or not parameters.is_floating_point():
        got = checks.describe(parameters)
        raise TypeError(f"{name} must be a model or a floating-point vector of shape (P,), got {got}")
    return parameters.detach().double()
