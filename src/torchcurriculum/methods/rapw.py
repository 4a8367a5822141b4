"""RAPW, the remembering APW: a label's weight is the probability that it is right, given its losses so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core import Epoch, Method, Step, checks
from ..functional.apw import RHO_CLIP
from ..functional.rapw import graded_easiness, moving_threshold, remember, right_odds, trust
from ..functional.superloss import log_confidence
from ._base.classes import is_class
from .registry import register

__all__ = ["RAPW"]


class RAPW(Method):
    r"""APW with a memory, a graded easiness and a threshold that follows training; not of the paper.

    What stays of APW: the whole set is weighed, and the state of training, :math:`\rho_k`, decides who counts. What
    changes:

    - The loss of a sample is the mean of its losses over epochs, from some epoch on an exponential one. A network that
      memorises makes every sample look easy in the end; the memory keeps which were not.
    - Its easiness is graded: :math:`\beta = 2 P - 1` with P the probability that the label is right if a share
      :math:`\rho` of labels is wrong. Eq. 2 becomes :math:`\rho_k = \frac1N \sum_n \frac{1-\beta_n}{2}`, the expected
      share of wrong labels (one step of expectation-maximisation an epoch), and e the loss at which
      :math:`\beta = 0`: log C at :math:`\rho = 1/2`, and higher as :math:`\rho` falls.
    - A sample's weight in a batch is :math:`\frac{1+\beta}{2}`, times SuperLoss' confidence in its current loss,
      normalised over the batch. No weight is carried over, so nothing grows without end.
    - No class loses weight as a whole: a weight is divided by the mean of its class in the epoch before (from the third
      epoch on; the second has no mean to go by). Otherwise rare classes, and all but one in a network that has learned
      nothing yet, would be taken for wrong labels.
    - A network that knows nothing is not believed: all this is raised to the power of a trust in [0, 1], which is 0
      while the remembered losses are no better than guessing.

    Args:
        n: Rows of the training set.
        decay: How much of the remembered loss stays at each epoch at most, in [0, 1); 0 remembers nothing. Until
            1 / (1 - decay) losses are known, all count alike.
        lam: lambda of the confidence, positive; larger is gentler, and ``math.inf`` leaves it out.
        classes: C, at least 2; None takes it from the model's outputs of shape (B, C).

    Attributes:
        weights: (N,) float64 (1 + beta) / 2 of the remembered losses, to the power of the trust, summing to one.
        rho: The expected share of wrong labels.
        trust: How far the remembered losses are believed, in [0, 1].

    Example:
        >>> method = RAPW(2, decay=0.5, lam=math.inf, classes=2)
        >>> losses = torch.tensor([4 / 3, 2.0]).log()                 # p = 3/4 and 1/2
        >>> method.plan(Epoch(2, 2, losses, lambda: losses))
        >>> method.rho, method.trust                                  # mean of 1/4 and 1/2, with rho = 1/2 before
        (tensor(0.3750, dtype=torch.float64), tensor(1., dtype=torch.float64))
        >>> method.weights * 7                                        # odds 5 and 5/3: 5/6 and 5/8
        tensor([4.0000, 3.0000], dtype=torch.float64)

    Reference:
        Ours (docs/decisions/0004-beyond-the-paper.md), after Li et al., Adaptively Point-weighting Curriculum Learning,
        and Castells et al., SuperLoss.
    """

    memory: Tensor
    times: Tensor
    rho: Tensor
    classes: Tensor
    trust: Tensor
    knobs: Tensor
    sums: Tensor
    means: Tensor

    def __init__(self, n: int, decay: float = 0.9, lam: float = 2.0, classes: int | None = None) -> None:
        super().__init__()
        checks.real("decay", decay, "[0, 1)", "0 remembers nothing")
        checks.real("lam", lam, "(0, inf]", "infinity leaves the confidence out")
        if classes is not None:
            classes = checks.whole("classes", classes, 2, "the number of classes")
        self.n = n = checks.whole("n", n, what="the number of training rows")
        self._given: int | None = classes
        self.register_buffer("memory", torch.full((n,), math.nan))
        self.register_buffer("times", torch.tensor(0.0, dtype=torch.float64))
        self.register_buffer("rho", torch.tensor(0.5, dtype=torch.float64))
        self.register_buffer("classes", torch.tensor(classes or math.nan, dtype=torch.float64))
        self.register_buffer("trust", torch.tensor(0.0, dtype=torch.float64))
        self.register_buffer("knobs", torch.zeros(2, dtype=torch.float64), persistent=False)
        self.decay, self.lam = decay, lam
        self._resize(classes or 0)

    @property
    def decay(self) -> float:
        """How much of the remembered loss stays; it may be changed while training."""
        return self._decay

    @decay.setter
    def decay(self, value: float) -> None:
        self._decay = float(value)
        self.knobs[0] = self._decay  # what a kernel reads, also one in a captured step

    @property
    def lam(self) -> float:
        """lambda of the confidence; it may be changed while training."""
        return self._lam

    @lam.setter
    def lam(self, value: float) -> None:
        self._lam = float(value)
        self.knobs[1] = self._lam

    @property
    def weights(self) -> Tensor:
        """(N,) float64 weights that sum to one."""
        right = ((1 + self._easiness(self.memory)) / 2) ** self.trust
        return right / right.sum()

    def plan(self, epoch: Epoch) -> None:
        """Remembers the losses and estimates rho; every row is visited.

        Those of the first epoch are a measuring pass's guesses before anything was learned, and are not remembered.
        """
        if epoch.number == 1:
            return
        losses = epoch.losses()
        self._follow(losses)
        self.means.copy_(torch.where(self.sums[1] > 0, self.sums[0] / self.sums[1], self.means))
        self.sums.zero_()
        self.memory.copy_(remember(self.memory, losses.to(self.memory.dtype), self._keep()))
        self.times += losses.isfinite().any()
        memory = self.memory
        known = ~memory.isnan()
        if not bool(known.all()):
            memory = memory[known]
        if self.means.numel() and len(memory):
            self.rho.copy_(((1 - self._easiness(memory)) / 2).mean().clamp(RHO_CLIP, 1 - RHO_CLIP))
            self.trust.copy_(trust(memory, self.classes))

    def weigh(self, step: Step) -> Tensor:
        """The probability that each label is right, times the confidence, normalised over the global batch."""
        losses = step.losses.detach().double()
        self._follow(losses)
        if self._given is None and not self.count_classes(step.logits, step.batch.y):
            raise ValueError(
                f"RAPW counts the classes in outputs of shape (B, C), got {_kind(step.logits)}, with one label for "
                f"each row, got {_kind(step.batch.y)}; pass classes=, 2 for multi-label targets and single logits"
            )
        kept = self.memory[step.index].double()
        # What the memory will hold after this epoch; rows without one are as likely right as any.
        keep = self._keep()
        value = torch.where(kept.isnan(), kept, keep * kept + (1 - keep) * losses)
        sure = F.logsigmoid(right_odds(value, self.rho, self.classes))
        if self.lam != math.inf:
            sure = sure + log_confidence(losses, self.classes.log(), self.lam)
        sure = self.trust * sure
        given = self._one_hot(step.batch.y, sure)
        self.sums += step.total(torch.stack([sure.exp() @ given, given.sum(0)]))
        return step.normalise(sure - given @ self.means.log())

    def count_classes(self, logits: Any, y: Any) -> bool:
        """Takes the number of classes from outputs (B, C) and labels, unless it was given; whether it is known now."""
        if self._given is None and isinstance(logits, Tensor) and logits.ndim == 2 and logits.shape[1] > 1:
            if logits.shape[1] != self.means.numel():
                if y is not None and not is_class(y):
                    return False
                self.classes.fill_(logits.shape[1])
                self._resize(logits.shape[1])
            return True
        return self._given is not None

    def grow_rows(self, n: int) -> None:
        """Rows that come later have no memory yet."""
        self.add_room("memory", n, math.nan)
        self.n = max(self.n, n)

    def report(self) -> Mapping[str, Any]:
        """rho, e, the phase (later once fewer than half of the labels seem wrong), E-Prop at e and the trust."""
        threshold = moving_threshold(self.rho, self.classes)
        easy = (self.memory <= threshold).double().mean()
        phase = "early" if self.rho >= 0.5 else "later"
        return {"rho": self.rho, "threshold": threshold, "phase": phase, "eprop": easy, "trust": self.trust}

    def _keep(self) -> Tensor:
        """The old share in a mean of all losses so far, until it would exceed ``decay``."""
        return (self.times / (self.times + 1)).clamp_max(self.decay)

    def _easiness(self, losses: Tensor) -> Tensor:
        beta = graded_easiness(losses, self.rho, self.classes)
        return torch.where(self.classes.isnan(), torch.zeros_like(beta), beta)

    def _one_hot(self, y: Any, like: Tensor) -> Tensor:
        """(B, C) which class each label is; labels of another form are all of one class."""
        if not _are_classes(y, like):
            y = torch.zeros_like(like, dtype=torch.int64)
        classes = torch.arange(self.means.numel(), device=like.device)
        return (y.to(like.device)[:, None] == classes).to(like.dtype)

    def _resize(self, classes: int) -> None:
        """Sums and counts of the classes' weights in this epoch, and their means in the one before."""
        self.register_buffer("sums", self.memory.new_zeros(2, classes, dtype=torch.float64))
        self.register_buffer("means", self.memory.new_ones(classes, dtype=torch.float64))

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        means = state_dict.get(f"{prefix}means")
        size = len(means) if isinstance(means, Tensor) and means.ndim == 1 else self.means.numel()
        if self._given is None and size != self.means.numel():  # else in place, where a captured step reads
            self._resize(size)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _follow(self, x: Tensor) -> None:
        if self.memory.device != x.device:
            self.to(x.device)


def _kind(x: Any) -> str:
    return str(tuple(x.shape)) if isinstance(x, Tensor) else type(x).__name__


def _are_classes(y: Any, losses: Tensor) -> bool:
    return isinstance(y, Tensor) and y.shape == losses.shape and not y.is_floating_point()


register(
    "rapw",
    RAPW,
    "APW that remembers: the probability that a label is right, from its losses so far (ours, not the paper's)",
    when="Many wrong labels, about ten classes, and cross-entropy. Not with a hundred classes: there its estimate of "
    "the share of wrong labels fails, and SuperLoss is ahead. Two knobs whose defaults need no noise rate. With "
    "measure='running' it costs no pass. Its figures and what was tried stand in docs/results/beyond.md.",
    cost="With measure='running' no extra pass; 4 bytes a sample and a few element-wise operations on B losses.",
)
