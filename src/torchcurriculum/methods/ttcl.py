"""Transfer teacher: a paced curriculum with difficulty measured once by another model."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

from torch import Tensor, nn

from ..core import Epoch
from ..functional.pacing import Shape, pace
from ._base.ranked import Ranked
from ._base.teacher import teacher_losses
from .registry import register

__all__ = ["TTCL"]


class TTCL(Ranked):
    """Curriculum by transfer: rows are ordered by the loss of a teacher, measured once, in evaluation mode.

    The student then trains on the easiest share lambda_t (see ``functional.pace``). Without a teacher the student after
    its warm-up is used, which needs no further labels. A teacher trained on clean labels has more information than
    other methods; mention it with its results.

    Differences from the paper: there the teacher is a network that was trained on another, larger set, and difficulty
    comes from a support vector machine on its features. Here it is the loss of a model of the same task, which needs no
    other set and no choice of a layer. For the paper's version, score the rows yourself and use
    ``LambdaStep(scores=...)``.

    Args:
        n: Rows of the training set.
        grow: T, epochs from lambda_0 to 1. ``for_run`` takes half of the run.
        warmup: Epochs of plain training first. ``for_run`` takes none with a teacher, and a tenth of the run without.
        teacher: A model of the student's inputs and outputs; it is used through the same forward and loss functions,
            is not trained and is not part of the state. None uses the student.
        start: lambda_0; 1 is plain training.
        shape: ``"linear"``, ``"geometric"`` or ``"root"``.
        p: The root of ``"root"``.
        groups: (N,) int64 groups that keep their shares in every subset; None does not balance.
        batch_size: Rows of the global batch; then ``grow`` counts optimizer steps, not epochs (see ``Paced``).

    Example:
        >>> TTCL.for_run(1000, 100).warmup, TTCL.for_run(1000, 100, teacher=nn.Linear(2, 2)).warmup
        (10, 0)

    Reference:
        Weinshall et al., Curriculum Learning by Transfer Learning: Theory and Experiments with Deep Networks, ICML
        2018.
    """

    def __init__(
        self,
        n: int,
        grow: int,
        warmup: int,
        teacher: nn.Module | None = None,
        start: float = 0.1,
        shape: Shape = "linear",
        p: float = 2.0,
        groups: Any = None,
        batch_size: int | None = None,
    ) -> None:
        rule = partial(pace, grow=grow, start=start, shape=shape, p=p)
        super().__init__(n, rule, None, warmup, groups=groups, batch_size=batch_size)
        self._teacher = [teacher]  # in a list: not a submodule, so neither in the state nor in parameters()

    @classmethod
    def for_run(  # type: ignore[override]
        cls,
        n: int,
        epochs: int,
        grow: int | None = None,
        warmup: int | None = None,
        teacher: nn.Module | None = None,
        **options: Any,
    ) -> Self:
        """No warm-up with a teacher, and a tenth of the run without."""
        usual = 0 if teacher is not None else max(1, epochs // 10)
        return super().for_run(n, epochs, grow, warmup=usual if warmup is None else warmup, teacher=teacher, **options)

    def score(self, epoch: Epoch) -> Tensor:
        """(N,) losses of the teacher, or of the student without one."""
        teacher = self._teacher[0]
        if teacher is None:
            return epoch.losses()
        return epoch.measure(teacher_losses, teacher.to(self.ranks.device))


register(
    "ttcl",
    TTCL,
    "the order of a teacher's losses, measured once, with a growing easy share",
    when="You have a good model of the same task. Without one it is `lambda-step` with a longer warm-up.",
    cost="One forward pass of the teacher in the whole run, and the teacher's own training if you have none; 16 bytes "
    "a sample.",
)
