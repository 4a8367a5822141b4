"""M-: mixup whose coefficients follow the method's weights (M-APW)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from torch import Tensor, nn

from ..core import Batch, Epoch, Method, Step, checks
from ..functional.mixup import READINGS, Reading, mixing_share, pair_share
from ._base.wrapper import Wrapper
from .apw import APW, LOG_2, Rule, Weighting
from .mixup import LARGEST_ALPHA, mix, partners
from .registry import register
from .vanilla import Vanilla

__all__ = ["Mixed"]


class Mixed(Wrapper):
    r"""mixup biased by a method's weights (over APW it is M-APW).

    With c = w_i / (w_i + w_j) for a pair, the paper says that c replaces mixup's coefficient, and gives only the loss.
    Three readings of that:

    - ``"weights"``, the literal one: inputs and labels are mixed by c. The paper's names ``m-apw-*`` build it.
    - ``"labels"``: inputs by Beta(alpha, alpha), labels by c.
    - ``"beta"``, ours and the one we recommend: inputs and labels by one draw of Beta(2 alpha c, 2 alpha (1 - c)),
      whose mean is c; it is plain mixup when the weights are equal. The names ``m-apw-beta-*`` build it, and so does
      this class by default; see ``docs/decisions/0003-mixup.md``.

    The batch loss is the average of the mixed losses. The loss that drives a method's per-batch update (I-weighting)
    is each row's own, unmixed one, from one more forward pass in evaluation mode; E-weighting needs none.

    Args:
        method: A method whose ``weigh`` returns weights of a batch, for example ``APW``.
        reading: One of the three.
        alpha: mixup's alpha > 0; not used by ``"weights"``.

    Reference:
        Li et al., Adaptively Point-weighting Curriculum Learning, Appendix A.4.
    """

    def __init__(self, method: Method, reading: Reading = "beta", alpha: float = 1.0) -> None:
        super().__init__(method=method)
        checks.one_of("reading", reading, READINGS)
        checks.real("alpha", alpha, f"(0, {LARGEST_ALPHA:g}]")
        self.reading, self.alpha = reading, alpha
        self.uniform = Vanilla()

    @classmethod
    def for_run(  # type: ignore[override]
        cls,
        n: int,
        epochs: int,
        reading: Reading = "weights",
        alpha: float | None = None,
        q: float | None = None,
        threshold: float | Literal["auto"] | Rule = LOG_2,
        tau: float = 0.5,
        weighting: Weighting = "E",
        nan_strategy: checks.NanStrategy = "error",
    ) -> Self:
        """M-APW: mixup by the weights of the APW of the run; alpha is 1 by default."""
        if reading == "weights" and alpha is not None:
            raise ValueError(
                f"alpha={alpha} would be ignored: reading='weights' mixes by the weights and draws nothing; "
                "m-apw-beta-e, -i and -ei and reading='labels' have an alpha"
            )
        inner = APW.for_run(n, epochs, q, threshold=threshold, tau=tau, weighting=weighting, nan_strategy=nan_strategy)
        return cls(inner, reading, 1.0 if alpha is None else alpha)

    def inner(self, epoch: int) -> Method:
        """The average of the mixed losses."""
        return self.uniform

    def plan(self, epoch: Epoch) -> Tensor | None:
        """The inner method's."""
        return self.method.plan(epoch)

    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """The batch mixed with its partners by the weights."""
        batch = self.method.view(model, batch)
        weights = self.method.weigh(Step(model, batch)).double()
        logs, partner = weights.clamp_min(1e-300).log(), partners(batch)
        share = pair_share(logs, logs[partner])
        return mix(
            batch, partner, *mixing_share(share, self.reading, self.alpha, batch.generator("mixed", share.device))
        )

    def report(self) -> Mapping[str, Any]:
        """The inner method's scalars and the reading."""
        return {**self.method.report(), "reading": self.reading}


for _weighting in ("E", "I", "EI"):
    register(
        f"m-apw-{_weighting.lower()}",
        Mixed,
        f"mixup with APW's weights as coefficients, {_weighting}-weighting: the paper's sentence taken literally",
        when="To run what the paper says. On CIFAR-10N it was far behind mixup (docs/results/m-apw.md); m-apw-beta-e "
        "was not.",
        cost="As APW, and for I and EI one more forward pass in each step.",
        weighting=_weighting,
    )

for _weighting in ("E", "I", "EI"):
    register(
        f"m-apw-beta-{_weighting.lower()}",
        Mixed,
        f"mixup with coefficients drawn around APW's weights, {_weighting}-weighting: our reading of M-APW",
        when="Inputs that can be averaged and many wrong labels: mixup's robustness, less of its loss of confidence.",
        cost="As APW, and for I and EI one more forward pass in each step.",
        weighting=_weighting,
        reading="beta",
    )
