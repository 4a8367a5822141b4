"""S-: the training set grows by rows drawn with the method's weights as probabilities (S-APW, Algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from ..core import Batch, Epoch, Method, checks
from ..functional.sampling import draw
from ._base.wrapper import Wrapper
from .apw import APW, LOG_2, Rule, Weighting
from .registry import register
from .vanilla import Vanilla

__all__ = ["Sampled"]


class Sampled(Wrapper):
    """Curriculum sampling over any method with a weight vector (Algorithm 1; over APW it is S-APW).

    While growing, each epoch k updates the weights w_k of the whole set, draws ``floor(fraction * N)`` rows of the
    whole set without replacement with probabilities w_k, adds them to the rows drawn before, and trains on the union
    with the average loss. Once fewer than ``floor(fraction * N)`` rows are missing, all following epochs train on
    everything, weighted by the method or, with ``average=True``, by the average loss (S-APW-A).

    Args:
        method: A method with ``weights`` (N,), for example ``APW``. Its own weighting is used after the growth;
            during it, all its weights are updated once an epoch.
        fraction: Share r_s of the set that is drawn each epoch.
        average: Train with the average loss after the growth, too.

    Example:
        >>> from torchcurriculum import APW, Sampled
        >>> s_apw_e = Sampled(APW(1000, q=50), fraction=0.05)
        >>> s_apw_a = Sampled(APW(1000, q=50), average=True)

    Reference:
        Li et al., Adaptively Point-weighting Curriculum Learning, Appendix A.3.
    """

    drawn: Tensor

    def __init__(self, method: Method, fraction: float = 0.05, average: bool = False) -> None:
        super().__init__(method=method)
        weights = getattr(method, "weights", None)
        if not isinstance(weights, Tensor) or weights.ndim != 1:
            raise TypeError(f"Sampled needs a method with a weight for every row, which {type(method).__name__} lacks")
        checks.real("fraction", fraction, "(0, 1]")
        self.fraction, self.average = fraction, average
        self.n = len(weights)
        # A set of fewer than 1 / fraction rows grows one by one; the small number keeps 0.29 * 100 from rounding down
        # to 28.
        self.size = max(1, math.floor(fraction * self.n + 1e-9))
        self.uniform = Vanilla()
        self.register_buffer("drawn", torch.zeros(self.n, dtype=torch.bool))
        # On the host, to avoid synchronising: the last epoch of the growth once known, else 0.
        self.grown, self.growing = 0, True

    @classmethod
    def for_run(  # type: ignore[override]
        cls,
        n: int,
        epochs: int,
        fraction: float = 0.05,
        average: bool = False,
        q: float | None = None,
        threshold: float | Literal["auto"] | Rule = LOG_2,
        tau: float = 0.5,
        weighting: Weighting = "E",
        nan_strategy: checks.NanStrategy = "error",
    ) -> Self:
        """S-APW: sampling over the APW of the run."""
        inner = APW.for_run(n, epochs, q, threshold=threshold, tau=tau, weighting=weighting, nan_strategy=nan_strategy)
        return cls(inner, fraction, average)

    def inner(self, epoch: int) -> Method:
        """The average loss during the growth; the inner method afterwards."""
        growing = not self.grown or epoch <= self.grown
        return self.uniform if growing or self.average else self.method

    def plan(self, epoch: Epoch) -> Tensor | None:
        """The union of everything drawn so far; everything once the growth is complete."""
        self.growing = not self.grown
        if not self.growing:
            return None if self.average else self.method.plan(epoch)
        self.method.plan(epoch.with_(whole=True))
        held = getattr(self.method, "log_weights", None)  # unnormalised, and without copying N weights
        log_weights = held if isinstance(held, Tensor) else self.weights.log()
        rows = draw(log_weights, self.size, epoch.generator("sampled", log_weights.device))
        self.drawn[rows.to(self.drawn.device)] = True
        if self.n - int(self.drawn.sum()) < self.size:
            self.grown = epoch.number
        return self.drawn.nonzero().flatten()

    @checks.forwards
    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """The inner method's, also during the growth."""
        return self.method.view(model, batch)

    def get_extra_state(self) -> Tensor:
        """The last epoch of the growth, and whether this epoch belongs to it."""
        return torch.tensor([self.grown, self.growing])

    def set_extra_state(self, state: Tensor) -> None:
        """Restores the state from ``get_extra_state``."""
        self.grown, self.growing = int(state[0]), bool(state[1])

    def report(self) -> Mapping[str, Any]:
        """The inner method's scalars, whether the set is growing, and the share drawn so far."""
        inner = {} if self.average and not self.growing else self.method.report()  # S-APW-A no longer uses weights then
        return {**inner, "growing": self.growing, "drawn": int(self.drawn.sum())}


for _weighting in ("A", "E", "I", "EI"):
    _after = "the average loss" if _weighting == "A" else f"{_weighting}-weighting"
    register(
        f"s-apw-{_weighting.lower()}",
        Sampled,
        f"the set grows by draws with APW's weights, then {_after}",
        when="Early epochs should be short and easy. A run too short for the set to fill never sees the hard rows.",
        cost="One forward pass over the set per epoch (measure='pass'), fewer steps while the set grows; 9 bytes "
        "a sample.",
        weighting="E" if _weighting == "A" else _weighting,
        average=_weighting == "A",
    )
