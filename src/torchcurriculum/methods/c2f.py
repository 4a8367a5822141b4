"""Coarse to fine: first tell apart groups of classes that are easily confused, then the classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..core import Batch, Epoch, Method, Step
from ..functional.classes import affinity_levels, coarse_losses, confusion, similarity
from ._targets import check_classes, with_losses
from .registry import register

__all__ = ["C2F"]


class C2F(Method):
    r"""Coarse-to-fine curriculum over the labels (C2F).

    A teacher's confusion matrix on the training rows gives the similarity of classes, and affinity clustering a
    hierarchy of them: level by level, coarsest first, the net trains on clusters for ``interval`` epochs each, then on
    the labels themselves. Our reading of a coarse level needs no other classifier and suits any net: the probability of
    a cluster is that of its classes together,

    .. math:: L_i = -\log \sum_{c \in \mathrm{cluster}(y_i)} p_c(x_i)

    so that nothing is initialised anew when a level ends. Coarse levels use this loss whatever the loss function; the
    labels use yours. Without confusion there is nothing to coarsen: the method is then plain training.

    Args:
        warmup: Epochs on the labels before the student is asked as its own teacher; 0 with a ``teacher``.
        interval: Epochs of a coarse level; ``build`` takes a tenth of the run.
        levels: At most so many coarse levels, the finest of the hierarchy; at 0 the method is plain training.
        teacher: A trained net for the same classes, called through the same forward function; by default the student
            after the warm-up. It is asked once, and is not part of the method's state.

    Reference:
        Stretcu et al., Coarse-to-Fine Curriculum Learning, 2021.
    """

    hierarchy: Tensor

    def __init__(self, warmup: int, interval: int, levels: int = 3, teacher: nn.Module | None = None) -> None:
        super().__init__()
        if interval < 1 or levels < 0:
            raise ValueError(f"interval must be at least 1 and levels at least 0, got {interval!r} and {levels!r}")
        if warmup < (0 if teacher is not None else 1):
            raise ValueError(f"without a teacher the student needs a warmup of at least 1 epoch, got {warmup!r}")
        self.warmup, self.interval, self.levels = warmup, interval, levels
        self._teacher = (teacher,)  # in a tuple: not a submodule, so that checkpoints do not carry it
        # (L, C) clusters, of a size known only once the teacher was asked; they travel as extra state.
        self.register_buffer("hierarchy", torch.zeros(0, 0, dtype=torch.int64), persistent=False)
        self.level = -1  # row of the hierarchy in use, on the host; -1 for the labels themselves

    def plan(self, epoch: Epoch) -> None:
        """Asks the teacher once, and moves from level to level; every row is visited."""
        past = epoch.number - self.warmup - 1
        if past == 0 and self.levels:
            self.hierarchy = self._ask(epoch).to(epoch.last.device)
        stage = past // self.interval
        self.level = stage if 0 <= stage < len(self.hierarchy) else -1

    def loss(self, step: Step) -> Tensor:
        """The coarse loss in a coarse level, the plain one otherwise."""
        if self.level < 0:
            return super().loss(step)
        logits, labels = check_classes(step.logits, step.batch.y, "C2F")
        clusters = self.hierarchy[self.level].to(logits.device)
        step = with_losses(step, coarse_losses(logits, labels, clusters))
        return step.reduce(self.weigh(step))

    def get_extra_state(self) -> Tensor:
        """The level in use and the hierarchy with its shape."""
        head = torch.tensor([self.level, *self.hierarchy.shape])
        return torch.cat([head, self.hierarchy.cpu().flatten()])

    def set_extra_state(self, state: Tensor) -> None:
        """Takes back what ``get_extra_state`` gave."""
        self.level, rows, columns = state[:3].tolist()
        self.hierarchy = state[3:].view(rows, columns).to(self.hierarchy.device)

    def report(self) -> Mapping[str, Any]:
        """Labels that the net is asked to tell apart, where they are fewer than the classes."""
        return {"clusters": int(self.hierarchy[self.level].max()) + 1} if self.level >= 0 else {}

    def _ask(self, epoch: Epoch) -> Tensor:
        def answers(model: nn.Module, batch: Batch) -> Tensor:
            assert batch.task is not None
            logits, labels = check_classes(batch.task.forward(model, batch.x), batch.y, "C2F")
            return torch.stack([labels, logits.argmax(1), torch.full_like(labels, logits.shape[1])], 1)

        (teacher,) = self._teacher
        if teacher is not None:
            teacher.to(epoch.last.device)
        labels, predictions, classes = epoch.measure(answers, teacher).cpu().unbind(1)
        levels = affinity_levels(similarity(confusion(labels, predictions, int(classes[0]))))
        return levels[-self.levels :]


@register(
    "c2f",
    C2F,
    "clusters of confused classes first, then the classes",
    when="Classification with many classes that have a hierarchy; with two classes it is plain training.",
    cost="One forward pass over the set after the warm-up; without a teacher of your own the student is the teacher.",
)
def _c2f(n: int, epochs: int, **options: Any) -> C2F:
    warmup = 0 if options.get("teacher") is not None else max(1, epochs // 10)
    return C2F(**{"warmup": warmup, "interval": max(1, epochs // 10), **options})
