"""Adaptive curriculum learning: easiest rows first, by a difficulty that follows the student."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..core import Batch, Epoch, Method, Step, checks
from ..functional.adaptive import adapt, distillation, geometric_pace
from ._base.classes import check_classes
from .registry import register

__all__ = ["AdaptiveCL"]

GAMMA = 0.1  # of CurML and CurBench


class AdaptiveCL(Method):
    r"""Adaptive curriculum learning (Adaptive CL).

    Difficulty d starts as the losses of a teacher and moves towards the student's own every ``refresh`` epochs,
    :math:`d \leftarrow (1-\alpha) d + \alpha L`. An epoch trains on the easiest :math:`n \min(1, p q^{\lfloor t/r
    \rfloor})` rows. With ``gamma``, the loss is :math:`L_i + \gamma\, \mathrm{KL}(\mathrm{teacher}_i \| \mathrm
    {student}_i)`, with the teacher's logits of each row kept by its index.

    The paper uses a trained teacher. Without one, the student after its warm-up replaces it, and the divergence is off
    unless ``gamma`` is set, because such a student is a poor teacher to imitate.

    Args:
        n: Rows of the training set.
        warmup: Epochs on all rows before the student becomes its own teacher; 0 with a ``teacher``.
        start: p, share of the rows at the beginning; 0.1 as in CurML and CurBench. At 1 the method is plain training.
        factor: q >= 1, by which the share grows; 1.2 reaches all rows in 200 epochs, ``for_run`` uses a larger factor
            for a shorter run.
        interval: r, epochs between two growths; ``for_run`` takes 15 of 200.
        refresh: Epochs between two measurements of the student; ``for_run`` takes 20 of 200.
        rate: alpha, how far difficulty moves to the student's losses each time, in [0, 1].
        gamma: Weight of the KL divergence >= 0; None is 0.1 (as in CurML and CurBench) with a ``teacher``
            or ``classes``, and 0 without.
        classes: Number of classes that the model must have; None takes it from the teacher's outputs.
        teacher: A trained net, called through the same forward function; by default the student after the warm-up. It
            is run once, and is not part of the method's state.

    Example:
        >>> from torchcurriculum import Epoch
        >>> method = AdaptiveCL(4, warmup=1, factor=1.2, interval=15, refresh=1, start=0.5)
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
    teacher_logits: Tensor

    def __init__(
        self,
        n: int,
        warmup: int,
        factor: float,
        interval: int,
        refresh: int,
        start: float = 0.1,
        rate: float = 0.7,
        gamma: float | None = None,
        classes: int | None = None,
        teacher: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.n = n = checks.whole("n", n, what="the number of training rows")
        self.interval, self.refresh = checks.whole("interval", interval), checks.whole("refresh", refresh)
        self.warmup = checks.whole("warmup", warmup, 0 if teacher is not None else 1, "epochs (none with a teacher)")
        checks.real("start", start, "(0, 1]")
        checks.real("factor", factor, "[1, inf)")
        checks.real("rate", rate, "[0, 1]")
        self.classes = None if classes is None else checks.whole("classes", classes, 2)
        if gamma is None:
            gamma = 0.0 if teacher is None and classes is None else GAMMA
        checks.real("gamma", gamma, "[0, inf)")
        self.gamma = gamma
        self.start, self.factor, self.rate = start, factor, rate
        self._teacher = (teacher,)  # in a tuple: not a submodule, so not in checkpoints
        self.register_buffer("difficulty", torch.zeros(n, dtype=torch.float64))
        # (N, C); C may be known only after the teacher has run.
        self.register_buffer("teacher_logits", torch.zeros(n, classes or 0))

    @classmethod
    def for_run(
        cls,
        n: int,
        epochs: int,
        warmup: int | None = None,
        factor: float | None = None,
        interval: int | None = None,
        refresh: int | None = None,
        start: float = 0.1,
        teacher: nn.Module | None = None,
        **options: Any,
    ) -> Self:
        """The last growth reaches all rows, as 0.1 * 1.2^13 does in the 200 epochs of the paper."""
        usual = 0 if teacher is not None else max(1, epochs // 20)
        warmup = usual if warmup is None else checks.whole("warmup", warmup, 0)
        interval = max(1, round(epochs * 15 / 200)) if interval is None else checks.whole("interval", interval)
        checks.real("start", start, "(0, 1]")
        growths = max(1, (epochs - warmup - 1) // interval)
        factor = max(1.2, start ** (-1 / growths)) if factor is None else factor
        refresh = max(1, epochs // 10) if refresh is None else refresh
        return cls(n, warmup, factor, interval, refresh, start, teacher=teacher, **options)

    def plan(self, epoch: Epoch) -> Tensor | None:
        """All rows in the warm-up, then the easiest rows."""
        past = epoch.number - self.warmup - 1
        if past < 0:
            return None
        size = geometric_pace(past, self.n, self.start, self.factor, self.interval)
        if past == 0 and (size < self.n or self._distils(epoch.number)):
            self._ask(epoch)
        elif size < self.n and past % self.refresh == 0:
            self.difficulty.copy_(adapt(self.difficulty.cpu(), epoch.losses().cpu().double(), self.rate))
        if size == self.n:
            return None
        return self.difficulty.cpu().argsort(stable=True)[:size].sort().values

    def loss(self, step: Step) -> Tensor:
        """The average loss, plus the divergence from the teacher if there is one."""
        if not self._distils(step.epoch):
            return super().loss(step)
        logits = self._check(step.logits, step.batch.y, self.teacher_logits.shape[1])
        pull = distillation(logits, self.teacher_logits[step.index[: len(logits)]])
        return super().loss(step.with_(losses=step.losses + self.gamma * pull))

    def report(self) -> Mapping[str, Any]:
        """The mean difficulty."""
        return {"difficulty": self.difficulty.mean()}

    def _distils(self, epoch: int) -> bool:
        """Whether there are teacher logits to imitate."""
        return self.gamma > 0 and epoch > self.warmup

    def _ask(self, epoch: Epoch) -> None:
        (teacher,) = self._teacher
        if teacher is None and not self.gamma:
            self.difficulty.copy_(epoch.losses())
            return
        if teacher is not None:
            teacher.to(epoch.last.device)
        answers = epoch.measure(self._answers, teacher)
        self.difficulty.copy_(answers[:, 0])
        if self.gamma:
            self.teacher_logits = answers[:, 1:].to(self.difficulty.device, torch.float32)

    def _answers(self, model: nn.Module, batch: Batch) -> Tensor:
        assert batch.task is not None
        outputs, losses = batch.task.losses(model, batch)
        losses, _ = checks.check_losses(losses, batch.index, batch.task.nan_strategy)
        losses = losses if losses.dtype == torch.float64 else losses.float()
        if not self.gamma:
            return losses[:, None]
        return torch.cat([losses[:, None], self._check(outputs, batch.y, self.classes).to(losses.dtype)], 1)

    def _check(self, outputs: Any, y: Any, classes: int | None) -> Tensor:
        logits, _ = check_classes(outputs, y, "the divergence of AdaptiveCL (gamma=0 turns it off)")
        if classes is not None and logits.shape[1] != classes:
            raise ValueError(f"the model has {logits.shape[1]} logits, but AdaptiveCL was made for {classes}")
        return logits

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        logits = state_dict.get(f"{prefix}teacher_logits")
        if isinstance(logits, Tensor) and logits.shape != self.teacher_logits.shape:
            self.teacher_logits = torch.empty_like(logits, device=self.difficulty.device)
        super()._load_from_state_dict(state_dict, prefix, *rest)


register(
    "adaptive-cl",
    AdaptiveCL,
    "easiest rows first, by a difficulty that follows the student",
    when="Hard rows hurt early on, and a trained teacher is available; without one the student is its own.",
    cost="One forward pass of the teacher, one of the student for each interval (a tenth of the epochs), fewer steps "
    "while the set grows; 8 bytes per sample, and 4 more for each class with a divergence.",
)
