"""S-: the training set grows by rows drawn with the method's weights as probabilities (S-APW, Algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..core import Batch, Epoch, Method, Step
from ..functional.sampling import draw
from .apw import APW, Weighting
from .registry import register

__all__ = ["Sampled"]


class Sampled(Method):
    """Curriculum sampling over any method with a weight vector (Algorithm 1; over APW it is S-APW).

    While growing, each epoch k updates the weights w_k of the whole set, draws ``floor(fraction * N)`` rows of the
    whole set without replacement with probabilities w_k, joins them to the rows drawn before, and trains on the
    union with the average loss. Once fewer than ``floor(fraction * N)`` rows are missing, all following epochs train
    on everything, weighted by the method or, with ``average=True``, by the average loss (S-APW-A).

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
        super().__init__()
        weights = getattr(method, "weights", None)
        if not isinstance(weights, Tensor) or weights.ndim != 1:
            raise TypeError(f"Sampled needs a method with a weight for every row, and {type(method).__name__} has none")
        if not isinstance(fraction, int | float) or not 0 < fraction <= 1:
            raise ValueError(f"fraction must lie in (0, 1], got {fraction!r}")
        self.method, self.fraction, self.average = method, fraction, average
        self.n = len(weights)
        # A set of fewer than 1 / fraction rows grows one by one; the small number keeps 0.29 * 100 from being 28.
        self.size = max(1, math.floor(fraction * self.n + 1e-9))
        self.register_buffer("drawn", torch.zeros(self.n, dtype=torch.bool))
        self.growing, self.complete = True, False  # on the host: a step must not wait for the device to know

    @property
    def weights(self) -> Tensor:
        """(N,) weights of the inner method."""
        weights = self.method.weights
        assert isinstance(weights, Tensor)
        return weights

    @property
    def weighs_by_loss(self) -> bool:  # type: ignore[override]
        """Whether the weights of this epoch look at losses."""
        return not (self.growing or self.average) and self.method.weighs_by_loss

    def plan(self, epoch: Epoch) -> Tensor | None:
        """The union of everything drawn so far; everything once the growth is complete."""
        self.growing = not self.complete
        if not self.growing:
            return None if self.average else self.method.plan(epoch)
        self.method.plan_whole(epoch)
        held = getattr(self.method, "log_weights", None)  # of any normalisation, and no copies of N weights
        log_weights = held if isinstance(held, Tensor) else self.weights.log()
        rows = draw(log_weights, self.size, epoch.generator("sampled", log_weights.device))
        self.drawn[rows.to(self.drawn.device)] = True
        self.complete = self.n - int(self.drawn.sum()) < self.size
        return self.drawn.nonzero().flatten()

    def view(self, model: torch.nn.Module, batch: Batch) -> Batch:
        """The inner method's view."""
        return self.method.view(model, batch)

    def weigh(self, step: Step) -> Tensor:
        """The average while growing; the inner method's weights afterwards."""
        return step.uniform() if self.growing or self.average else self.method.weigh(step)

    def graph_key(self) -> Hashable | None:
        """The average and the inner method take turns."""
        return "average" if self.growing or self.average else self.method.graph_key()

    def get_extra_state(self) -> Tensor:
        """Whether the set is growing and whether this epoch's rows complete it."""
        return torch.tensor([self.growing, self.complete])

    def set_extra_state(self, state: Tensor) -> None:
        """Takes back what ``get_extra_state`` gave."""
        self.growing, self.complete = map(bool, state)

    def sync(self) -> None:
        """The inner method's."""
        self.method.sync()

    def report(self) -> Mapping[str, Any]:
        """The inner method's scalars and how much of the set has been drawn."""
        inner = {} if self.average and not self.growing else self.method.report()  # S-APW-A stops weighing then
        return {**inner, "growing": self.growing, "drawn": int(self.drawn.sum())}


def _register(weighting: Weighting | None) -> None:
    after = f"{weighting}-weighting" if weighting else "the average loss"

    @register(
        f"s-apw-{(weighting or 'a').lower()}",
        Sampled,
        f"the set grows by draws with APW's weights, then {after}",
        when="Early epochs should be short and easy. A run too short for the set to fill never sees the hard rows.",
        cost="One forward pass over the set for each epoch (measure='pass'), fewer steps while the set grows; 9 bytes "
        "a sample.",
    )
    def _s_apw(n: int, epochs: int, fraction: float = 0.05, **options: Any) -> Sampled:
        inner = APW(n, **{"q": max(2, epochs), "weighting": weighting or "E", **options})
        return Sampled(inner, fraction, average=weighting is None)


_register(None)
_register("E")
_register("I")
_register("EI")
