"""RAPW, the remembering APW: labels are believed as far as a memory of the network's own predictions supports them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core import Epoch, Method, Step, checks
from ..functional.rapw import believed, channel, remember, sharpen, trust
from .registry import register

__all__ = ["RAPW"]

PLAIN = 0.4  # of the epochs: a network that is believed too early confirms its own mistakes
MARGIN = 1.02
POWER_OF_COUNTS = 3
PATIENCE = 2  # epochs in a row in which held rows are predicted worse than before
ASIDE = -14.0  # log-weight of a held row: a millionth of the others
CHUNK = 1 << 22  # numbers of the memory that are looked at together


def held_back(n: int) -> int:
    """Rows that do not count in the plain epochs: a twentieth, at least 200 of a small set, at most a fifth."""
    return min(n // 5, max(n // 20, 200))


class RAPW(Method):
    r"""Plain training first; then every label is replaced by what the label and a memory of predictions say together.

    While training, each row's softmax outputs are remembered as a mean over epochs: a network that memorises wrong
    labels at the end has not done so for most of the run. After ``plain`` epochs, with q the memory of a row and y its
    label:

    - :math:`s \propto q^{power} / \bar q`, sharpened, and divided by the classes' means.
    - :math:`T_{kj}`, the share of label j among rows that are of class k by s, is how labels err in this set. It is
      estimated anew at each epoch.
    - :math:`p_k \propto s_k T_{ky}` is the probability of class k given the memory and the label. It is the row's
      target, and the row counts by :math:`\max_k p_k`, normalised over the batch.

    A memory that is no better than guessing is not believed: the target is p and the label, mixed by a trust in [0, 1].
    Needs no noise rate, no clean labels and no pass of its own, and works for any number of classes.

    Args:
        n: Rows of the training set.
        plain: Epochs before the memory is used; ``for_run`` takes 0.4 of the run.
        decay: The largest share of the old memory that stays at each visit, in [0, 1).
        power: At least 1; larger believes the memory more.

    Attributes:
        rho: The expected share of wrong labels, once the memory is used.
        weights: (N,) float64 the probability that each label is right, summing to one.

    Reference:
        Ours (docs/decisions/0005-better-labels.md). Named after Li et al., Adaptively Point-weighting Curriculum
        Learning: the state of training decides what counts.
    """

    memory: Tensor
    seen: Tensor
    labels: Tensor
    means: Tensor
    table: Tensor
    trust: Tensor
    rho: Tensor

    def __init__(self, n: int, plain: int, decay: float = 0.85, power: float = 1.5) -> None:
        super().__init__()
        self.n = n = checks.whole("n", n, what="the number of training rows")
        self.plain = checks.whole("plain", plain, 1, "epochs before the memory is used")
        checks.real("decay", decay, "[0, 1)", "0 remembers the last prediction only")
        checks.real("power", power, "[1, inf)")
        self.decay, self.power = decay, power
        self.add_rows("memory", torch.zeros(n, 0, dtype=torch.float16))
        self.add_rows("seen", torch.zeros(n))
        self.add_rows("labels", torch.full((n,), -1.0))  # as numbers that ranks can merge
        self.register_buffer("means", torch.zeros(0))
        self.register_buffer("table", torch.zeros(0, 0))
        self.register_buffer("trust", torch.tensor(0.0))
        self.register_buffer("rho", torch.tensor(torch.nan))
        held = torch.zeros(n, dtype=torch.bool)
        held[torch.randperm(n, generator=torch.Generator().manual_seed(0))[: held_back(n)]] = True
        self.register_buffer("held", held, persistent=False)
        self.register_buffer("sums", torch.zeros(2, dtype=torch.float64))  # of the losses of held rows in this epoch
        self.register_buffer("best", torch.tensor(torch.inf, dtype=torch.float64))  # their least mean
        self.register_buffer("worse", torch.tensor(0.0))  # epochs in a row above it
        self.register_buffer("late", torch.tensor(0.0))  # 1 once the memory is used
        self._now: tuple[Tensor, Tensor] | None = None  # targets and weights of the batch in hand

    @classmethod
    def for_run(cls, n: int, epochs: int, plain: int | None = None, **knobs: Any) -> Self:  # type: ignore[override]
        """The method of a run of this length."""
        return cls(n, max(1, round(PLAIN * epochs)) if plain is None else plain, **knobs)

    @property
    def weights(self) -> Tensor:
        """(N,) float64 how far each label is believed, summing to one; equal before the memory is used."""
        right = torch.ones(self.n, dtype=torch.float64, device=self.memory.device)
        if self.trust > 0:
            for rows in self._chunks():
                right[rows] = self._right(rows).double()
        return right / right.sum()

    def plan(self, epoch: Epoch) -> None:
        """Estimates how labels err; every row is visited."""
        if not self.means.numel() or not self._is_late(epoch):
            return
        known = self.seen > 0
        self.means.copy_(sum(self.memory[rows].float().T @ known[rows].float() for rows in self._chunks()) / known.sum())
        counts, agreed = torch.zeros_like(self.table), torch.zeros_like(self.trust)
        for rows in self._chunks():
            given = F.one_hot(self.labels[rows].clamp_min(0).long(), len(counts)).float() * known[rows, None]
            sharp = sharpen(self.memory[rows].float(), self.means, self.power)
            counts += (sharp**POWER_OF_COUNTS).T @ given
            agreed += (sharp * given).sum()
        self.table.copy_(channel(counts))
        self.trust.copy_(trust(agreed / known.sum(), len(counts)))
        right = sum((self._right(rows) * known[rows]).sum() for rows in self._chunks())
        self.rho.copy_(1 - right / known.sum())

    def _is_late(self, epoch: Epoch) -> bool:
        """Whether the plain epochs are over: at the latest after ``plain``, or once held rows get worse."""
        if not self.late:
            mean = self.sums[0] / self.sums[1].clamp_min(1)
            self.worse.copy_(torch.where(mean > MARGIN * self.best, self.worse + 1, torch.zeros_like(self.worse)))
            self.best.copy_(torch.minimum(self.best, mean))
            self.late.fill_(float(epoch.number > self.plain or self.worse >= PATIENCE))
            print('epoch', epoch.number, 'held', round(float(mean), 4), 'late', float(self.late)) if __import__('os').environ.get('SHOW') else None
        self.sums.zero_()
        return bool(self.late)

    def weigh(self, step: Step) -> Tensor:
        """How far each label is believed, normalised over the global batch; the memory takes the predictions in."""
        logits, labels = self._outputs(step)
        logits, index = logits.detach(), step.index
        memory, seen = self.memory[index].float(), self.seen[index]
        trust = torch.where(seen > 0, self.trust, 0.0)[:, None]  # 0 in the plain epochs
        target = believed(sharpen(memory, self.means, self.power), labels, self.table, trust)
        self.memory.index_copy_(0, index, remember(memory, logits.softmax(1), seen, self.decay).to(self.memory.dtype))
        self.seen.index_copy_(0, index, seen + 1)
        self.labels.index_copy_(0, index, labels.to(self.labels.dtype))
        aside = torch.where((self.late == 0) & self.held[index], ASIDE, 0.0).double()
        held = (aside < 0).double()
        self.sums += step.total(torch.stack([held @ step.losses.detach().double(), held.sum()]))
        self._now = target, step.normalise(target.amax(1).double().log() + aside)
        return step.normalise(target.gather(1, labels[:, None]).squeeze(1).double().clamp_min(1e-30).log() + aside)

    def loss(self, step: Step) -> Tensor:
        """Cross-entropy with the targets; of the user's own loss, it is the part for the label that is exchanged."""
        self.weigh(step)
        assert self._now is not None
        target, weights = self._now
        logits, labels = self._outputs(step)
        log = logits.log_softmax(1)
        exchanged = log.gather(1, labels[:, None]).squeeze(1) - (target * log).sum(1)
        return step.with_(losses=step.losses + exchanged).reduce(weights)

    def report(self) -> Mapping[str, Any]:
        """rho and the trust in the memory."""
        return {"rho": self.rho, "trust": self.trust}

    def _outputs(self, step: Step) -> tuple[Tensor, Tensor]:
        """(B, C) outputs in float32 and (B,) labels."""
        logits, labels = getattr(step.logits, "logits", step.logits), step.batch.y
        if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[1] < 2:
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ValueError(f"RAPW needs outputs of shape (B, C), one for each class, got {shape}; SuperLoss does not")
        if not isinstance(labels, Tensor) or labels.shape != step.index.shape or labels.is_floating_point():
            shape = (tuple(labels.shape), labels.dtype) if isinstance(labels, Tensor) else type(labels).__name__
            raise ValueError(f"RAPW needs one class number for each row, (B,) of integers, got {shape}; SuperLoss does not")
        if logits.shape[1] != self.means.numel():
            self._resize(logits.shape[1], logits.device)
        return checks.at_least_float32(logits).float(), labels

    def _chunks(self) -> list[slice]:
        size = max(1, CHUNK // max(1, self.memory.shape[1]))
        return [slice(start, start + size) for start in range(0, self.n, size)]

    def _right(self, rows: slice) -> Tensor:
        """The probability that the labels of these rows are right."""
        sharp = sharpen(self.memory[rows].float(), self.means, self.power)
        labels = self.labels[rows].clamp_min(0).long()
        return believed(sharp, labels, self.table, self.trust).gather(1, labels[:, None]).squeeze(1)

    def _resize(self, classes: int, device: torch.device) -> None:
        self.memory = torch.zeros(self.n, classes, dtype=torch.float16, device=device)
        self.means = torch.full((classes,), 1 / max(1, classes), device=device)
        self.table = torch.eye(classes, device=device)
        if self.seen.device != device:
            self.to(device)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        means = state_dict.get(f"{prefix}means")
        size = len(means) if isinstance(means, Tensor) and means.ndim == 1 else self.means.numel()
        if size != self.means.numel():  # else in place, where a captured step reads
            self._resize(size, self.seen.device)
        super()._load_from_state_dict(state_dict, prefix, *rest)


register(
    "rapw",
    RAPW,
    "a memory of predictions and the labels say together what is right (ours, not the paper's)",
    when="Many wrong labels, any number of classes, cross-entropy.",
    cost="No extra pass; 2 bytes for each row and class, and a few operations on (B, C) outputs.",
)
