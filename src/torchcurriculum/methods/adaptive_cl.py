"""Adaptive curriculum learning: easiest rows first, by a difficulty that follows the student."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..core import Batch, Epoch, Method, Step, check_losses
from ..functional.adaptive import adapt, distillation, geometric_pace
from ._targets import check_classes, with_losses
from .registry import register

__all__ = ["AdaptiveCL"]


class AdaptiveCL(Method):
    r"""Adaptive curriculum learning (Adaptive CL).

    Difficulty d begins as the losses of a teacher and is moved towards the student's own every ``interval`` epochs,
    :math:`d \leftarrow (1-\alpha) d + \alpha L`. An epoch trains on the easiest :math:`n \min(1, p q^{\lfloor t/r
    \rfloor})` rows. With ``classes``, the loss is :math:`L_i + \gamma\, \mathrm{KL}(\mathrm{teacher}_i \| \mathrm
    {student}_i)`, with the teacher's logits of each row kept by its index.

    Args:
        n: Rows of the training set.
        warmup: Epochs on everything before the student is asked as its own teacher; 0 with a ``teacher``.
        start: p, share of the rows at the beginning; 0.1 as in CurML and CurBench. At 1 the method is plain training.
        factor: q >= 1, by which the share grows; 1.2 reaches all rows in 200 epochs, ``build`` takes more for a
            shorter run.
        pace: r, epochs between two growths; ``build`` takes 15 of 200.
        interval: Epochs between two looks at the student; ``build`` takes 20 of 200.
        alpha: How far difficulty moves to the student's losses at each look, in [0, 1].
        gamma: Weight of the KL divergence >= 0.
        classes: Number of classes, for the divergence; None for none. A student after its warm-up is a poor teacher to
            imitate: give a ``teacher`` with it.
        teacher: A trained net, called through the same forward function; by default the student after the warm-up. It
            is asked once, and is not part of the method's state.

    Example:
        >>> from torchcurriculum import Epoch
        >>> method = AdaptiveCL(4, warmup=1, start=0.5, interval=1)
        >>> for number, losses in enumerate([[0.0] * 4, [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 0.0]], 1):
        ...     now = torch.tensor(losses)
        ...     print(method.plan(Epoch(number, 4, now, lambda: now)))
        None
        tensor([0, 1])
        tensor([0, 3])

    Reference:
        Kong et al., Adaptive Curriculum Learning, ICCV 2021.
    """

    difficulty: Tensor
    teacher_logits: Tensor | None

    def __init__(
        self,
        n: int,
        warmup: int,
        start: float = 0.1,
        factor: float = 1.2,
        pace: int = 15,
        interval: int = 20,
        alpha: float = 0.7,
        gamma: float = 0.1,
        classes: int | None = None,
        teacher: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if n < 1 or pace < 1 or interval < 1:
            raise ValueError(f"n, pace and interval must be at least 1, got {n!r}, {pace!r} and {interval!r}")
        if warmup < (0 if teacher is not None else 1):
            raise ValueError(f"without a teacher the student needs a warmup of at least 1 epoch, got {warmup!r}")
        if not (0 < start <= 1 and factor >= 1):
            raise ValueError(f"start must lie in (0, 1] and factor be at least 1, got {start!r} and {factor!r}")
        if not (0 <= alpha <= 1 and gamma >= 0):
            raise ValueError(f"alpha must lie in [0, 1] and gamma be at least 0, got {alpha!r} and {gamma!r}")
        if classes is not None and classes < 2:
            raise ValueError(f"classes must be at least 2, got {classes!r}")
        self.n, self.warmup, self.start, self.factor, self.pace = n, warmup, start, factor, pace
        self.interval, self.alpha, self.gamma, self.classes = interval, alpha, gamma, classes
        self._teacher = (teacher,)  # in a tuple: not a submodule, so that checkpoints do not carry it
        self.register_buffer("difficulty", torch.zeros(n, dtype=torch.float64))
        self.register_buffer("teacher_logits", None if classes is None else torch.zeros(n, classes))
        self.distilling = False  # on the host: there are no logits to imitate before the teacher was asked

    def plan(self, epoch: Epoch) -> Tensor | None:
        """Everything in the warm-up, then the easiest rows."""
        past = epoch.number - self.warmup - 1
        if past < 0:
            return None
        size = geometric_pace(past, self.n, self.start, self.factor, self.pace)
        self.distilling = self.classes is not None and self.gamma > 0
        if past == 0 and (size < self.n or self.distilling):
            self._ask(epoch)
        elif size < self.n and past % self.interval == 0:
            self.difficulty.copy_(adapt(self.difficulty.cpu(), epoch.losses().cpu().double(), self.alpha))
        if size == self.n:
            return None
        return self.difficulty.cpu().argsort(stable=True)[:size].sort().values

    def loss(self, step: Step) -> Tensor:
        """The average loss, and the pull to the teacher where there is one."""
        if not self.distilling:
            return super().loss(step)
        assert self.teacher_logits is not None
        logits, _ = self._check(step.logits, step.batch.y)
        pull = distillation(logits, self.teacher_logits[step.index[: len(logits)]])
        step = with_losses(step, step.losses + self.gamma * pull)
        return step.reduce(self.weigh(step))

    def get_extra_state(self) -> Tensor:
        """Whether the teacher was asked for its logits."""
        return torch.tensor(self.distilling)

    def set_extra_state(self, state: Tensor) -> None:
        """Takes back what ``get_extra_state`` gave."""
        self.distilling = bool(state)

    def report(self) -> Mapping[str, Any]:
        """The mean difficulty."""
        return {"difficulty": self.difficulty.mean()}

    def _ask(self, epoch: Epoch) -> None:
        (teacher,) = self._teacher
        if teacher is None and self.classes is None:
            self.difficulty.copy_(epoch.losses())
            return
        if teacher is not None:
            teacher.to(epoch.last.device)
        answers = epoch.measure(self._answers, teacher)
        losses, _ = check_losses(answers[:, 0], None, "error")
        self.difficulty.copy_(losses)
        if self.teacher_logits is not None:
            self.teacher_logits.copy_(answers[:, 1:])

    def _answers(self, model: nn.Module, batch: Batch) -> Tensor:
        assert batch.task is not None
        outputs, losses = batch.task.losses(model, batch)
        losses = losses if losses.dtype == torch.float64 else losses.float()
        if self.classes is None:
            return losses[:, None]
        logits, _ = self._check(outputs, batch.y)
        return torch.cat([losses[:, None], logits.to(losses.dtype)], 1)

    def _check(self, outputs: Any, y: Any) -> tuple[Tensor, Tensor]:
        logits, labels = check_classes(outputs, y, "AdaptiveCL with classes")
        if logits.shape[1] != self.classes:
            raise ValueError(f"the model has {logits.shape[1]} logits, and AdaptiveCL was made for {self.classes}")
        return logits, labels


@register(
    "adaptive-cl",
    AdaptiveCL,
    "easiest rows first, by a difficulty that follows the student",
    when="Hard rows hurt early on, and a trained teacher is at hand; without one the student is asked after a warm-up.",
    cost="One forward pass of the teacher, one of the student for each interval (a tenth of the epochs), fewer steps "
    "while the set grows; 8 bytes a sample, and 4 more for each class with classes=.",
)
def _adaptive_cl(n: int, epochs: int, **options: Any) -> AdaptiveCL:
    warmup = options.setdefault("warmup", 0 if options.get("teacher") is not None else max(1, epochs // 20))
    pace = options.setdefault("pace", max(1, round(epochs * 15 / 200)))
    start = options.get("start", 0.1)
    if "factor" not in options and 0 < start <= 1:
        # The last growth reaches all rows, as 0.1 * 1.2^13 does in 200 epochs.
        options["factor"] = max(1.2, start ** (-1 / max(1, (epochs - warmup - 1) // max(1, pace))))
    return AdaptiveCL(n, **{"interval": max(1, epochs // 10), **options})
