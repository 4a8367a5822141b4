"""Transfer teacher: difficulty as another model sees it, fixed once, then a paced curriculum."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from ..core import Batch, Epoch, check_losses
from ..functional.pacing import Shape, pace
from .ranked import Ranked
from .registry import register

__all__ = ["TTCL"]


class TTCL(Ranked):
    """Curriculum by transfer: rows are ordered by the loss of a teacher, measured once, in evaluation mode.

    The student then trains on the easiest share lambda_t (see ``functional.pace``). Without a teacher the student
    after its own warm-up is the teacher, so no label is used that training does not see. A teacher trained on clean
    labels knows more than the other methods; say so beside its figures.

    Args:
        n: Rows of the training set.
        grow: T, epochs from lambda_0 to 1. By its name in ``build``, half of the run.
        teacher: A model of the student's inputs and outputs; it is used through the same forward and loss functions,
            is not trained and is not part of the state. None takes the student.
        start: lambda_0; 1 is plain training.
        shape: ``"linear"``, ``"geometric"`` or ``"root"``.
        p: The root of ``"root"``.
        warmup: Epochs of plain training first; None is 0 with a teacher and 1 without. By its name in ``build``,
            without a teacher, a tenth of the run.
        groups: (N,) int64 groups that keep their shares in every subset; None lets them not.

    Example:
        >>> TTCL(1000, grow=50).warmup, TTCL(1000, grow=50, teacher=nn.Linear(2, 2)).warmup
        (1, 0)

    Reference:
        Weinshall et al., Curriculum Learning by Transfer Learning: Theory and Experiments with Deep Networks, ICML
        2018.
    """

    def __init__(
        self,
        n: int,
        grow: int,
        teacher: nn.Module | None = None,
        start: float = 0.1,
        shape: Shape = "linear",
        p: float = 2.0,
        warmup: int | None = None,
        groups: Any = None,
    ) -> None:
        rule = partial(pace, grow=grow, start=start, shape=shape, p=p)
        super().__init__(n, rule, None, warmup if warmup is not None else int(teacher is None), groups=groups)
        self._teacher = [teacher]  # in a list: not a submodule, so neither in the state nor in parameters()

    def score(self, epoch: Epoch) -> Tensor:
        """(N,) losses of the teacher, or of the student where there is none."""
        teacher = self._teacher[0]
        if teacher is None:
            return epoch.losses()
        return check_losses(epoch.measure(_losses, teacher.to(self.ranks.device)), None, "error")[0]


def _losses(model: nn.Module, batch: Batch) -> Tensor:
    assert batch.task is not None
    return batch.task.losses(model, batch)[1]


@register(
    "ttcl",
    TTCL,
    "the order of a teacher's losses, measured once, with a growing easy share",
    when="A good model of the same task is at hand. Without one it is `lambda-step` with a longer warm-up.",
    cost="One forward pass of the teacher in the whole run, and the teacher's own training if you have none; 16 bytes "
    "a sample.",
)
def _ttcl(n: int, epochs: int, **options: Any) -> TTCL:
    warmup = 0 if options.get("teacher") is not None else max(1, epochs // 10)
    return TTCL(n, **{"grow": max(1, epochs // 2), "warmup": warmup, **options})
