"""M-: mixup whose coefficients follow the method's weights (M-APW)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..core import Batch, Epoch, Method, Step
from ..functional.mixup import READINGS, Reading, mixing_share, pair_share
from .apw import APW, Weighting
from .mixup import LARGEST_ALPHA, mix, partners
from .registry import register

__all__ = ["Mixed"]


class Mixed(Method):
    r"""mixup biased by a method's weights (over APW it is M-APW).

    With c = w_i / (w_i + w_j) for a pair, the paper says that c replaces mixup's coefficient and prints only the loss.
    Three readings of that:

    - ``"weights"``, the literal one: inputs and labels are mixed by c.
    - ``"labels"``: inputs by Beta(alpha, alpha), labels by c.
    - ``"beta"``, the default: inputs and labels by one draw of Beta(2 alpha c, 2 alpha (1 - c)), whose mean is c; it is
      plain mixup when the weights are equal. ``docs/decisions/0003-mixup.md`` says why it is the default.

    The batch loss is the average of the mixed losses. The loss that drives a method's per-batch update (I-weighting)
    is each row's own, unmixed one, from one more forward pass; E-weighting pays nothing.

    Args:
        method: A method whose ``weigh`` gives weights of a batch, for example ``APW``.
        reading: Which of the three.
        alpha: mixup's alpha > 0; not used by ``"weights"``.

    Reference:
        Li et al., Adaptively Point-weighting Curriculum Learning, Appendix A.4.
    """

    views = True
    view_exchanges = True  # the weights are those of the global batch

    def __init__(self, method: Method, reading: Reading = "beta", alpha: float = 1.0) -> None:
        super().__init__()
        if not isinstance(method, Method):
            raise TypeError(f"Mixed needs a method whose weights mix the inputs, got {type(method).__name__}")
        if reading not in READINGS:
            raise ValueError(f"reading must be one of {', '.join(map(repr, READINGS))}, got {reading!r}")
        if not isinstance(alpha, int | float) or not 0 < alpha <= LARGEST_ALPHA:
            raise ValueError(f"mixup's alpha must be positive, got {alpha!r} (the largest is {LARGEST_ALPHA:g})")
        self.method, self.reading, self.alpha = method, reading, alpha

    @property
    def weights(self) -> Tensor:
        """(N,) weights of the inner method."""
        weights = self.method.weights
        assert isinstance(weights, Tensor)
        return weights

    def plan(self, epoch: Epoch) -> Tensor | None:
        """The inner method's plan."""
        return self.method.plan(epoch)

    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """The batch mixed with its partners by the weights."""
        batch = self.method.view(model, batch)
        if self.method.weighs_by_loss:
            losses = batch.losses(model)
        else:
            device = batch.x.device if isinstance(batch.x, Tensor) else batch.index.device
            losses = torch.zeros(len(batch.index), dtype=torch.float64, device=device)
        weights = self.method.weigh(Step(model, batch, None, losses)).double()
        logs, partner = weights.clamp_min(1e-300).log(), partners(batch)
        share = pair_share(logs, logs[partner])
        return mix(
            batch, partner, *mixing_share(share, self.reading, self.alpha, batch.generator("mixed", share.device))
        )

    def graph_key(self) -> Hashable:
        """The weights are in the view; the loss is the average."""
        return "mixed"

    def sync(self) -> None:
        """The inner method's."""
        self.method.sync()

    def report(self) -> Mapping[str, Any]:
        """The inner method's scalars."""
        return self.method.report()


def _register(weighting: Weighting) -> None:
    @register(
        f"m-apw-{weighting.lower()}",
        Mixed,
        f"mixup with coefficients from APW's weights, {weighting}-weighting",
        when="Inputs that can be averaged and many wrong labels: mixup's robustness, less of its loss of confidence.",
        cost="As APW, and for I and EI one more forward pass in each step.",
    )
    def _m_apw(n: int, epochs: int, reading: Reading = "beta", alpha: float = 1.0, **options: Any) -> Mixed:
        inner = APW(n, **{"q": max(2, epochs), "weighting": weighting, **options})
        return Mixed(inner, reading, alpha)


_register("E")
_register("I")
_register("EI")
