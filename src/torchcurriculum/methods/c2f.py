"""Coarse to fine: first tell apart groups of classes that are easily confused, then the classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..core import Batch, Epoch, Method, Step, checks
from ..functional.classes import affinity_levels, coarse_losses, confusion, similarity
from ._base.classes import check_classes
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
        interval: Epochs of a coarse level; ``for_run`` takes a tenth of the run.
        levels: At most so many coarse levels, the finest of the hierarchy; at 0 the method is plain training.
        teacher: A trained net for the same classes, called through the same forward function; by default the student
            after the warm-up. It is asked once, and is not part of the method's state.

    Reference:
        Stretcu et al., Coarse-to-Fine Curriculum Learning, 2021.
    """

    hierarchy: Tensor
    clusters: Tensor

    def __init__(self, warmup: int, interval: int, levels: int = 3, teacher: nn.Module | None = None) -> None:
        super().__init__()
        self.warmup = checks.whole("warmup", warmup, 0 if teacher is not None else 1, "epochs (none with a teacher)")
        self.interval, self.levels = checks.whole("interval", interval), checks.whole("levels", levels, 0)
        self._teacher = (teacher,)  # in a tuple: not a submodule, so that checkpoints do not carry it
        # (L, C) clusters, of a size known only once the teacher was asked; they travel as extra state.
        self.register_buffer("hierarchy", torch.zeros(0, 0, dtype=torch.int64), persistent=False)
        self.register_buffer("clusters", torch.tensor(0))  # how many there are in this epoch; 0 for the labels

    @classmethod
    def for_run(
        cls,
        n: int,
        epochs: int,
        warmup: int | None = None,
        interval: int | None = None,
        teacher: nn.Module | None = None,
        **options: Any,
    ) -> Self:
        """A tenth of the run for each level, and as much for the warm-up of a student that is its own teacher."""
        tenth = max(1, epochs // 10)
        warmup = (0 if teacher is not None else tenth) if warmup is None else warmup
        return cls(warmup, tenth if interval is None else interval, teacher=teacher, **options)

    def plan(self, epoch: Epoch) -> None:
        """Asks the teacher once, and moves from level to level; every row is visited."""
        past = epoch.number - self.warmup - 1
        if past == 0 and self.levels:
            self.hierarchy = self._ask(epoch).to(epoch.last.device)
        clusters = self._clusters(epoch.number)
        self.clusters.fill_(0 if clusters is None else int(clusters.max()) + 1)

    def loss(self, step: Step) -> Tensor:
        """The coarse loss in a coarse level, the plain one otherwise."""
        clusters = self._clusters(step.epoch)
        if clusters is None:
            return super().loss(step)
        logits, labels = check_classes(step.logits, step.batch.y, "C2F")
        return super().loss(step.with_(losses=coarse_losses(logits, labels, clusters.to(logits.device))))

    def get_extra_state(self) -> Tensor:
        """The hierarchy and its shape."""
        return torch.cat([torch.tensor(self.hierarchy.shape), self.hierarchy.cpu().flatten()])

    def set_extra_state(self, state: Tensor) -> None:
        """Takes back what ``get_extra_state`` gave."""
        rows, columns = state[:2].tolist()
        self.hierarchy = state[2:].view(rows, columns).to(self.hierarchy.device)

    def report(self) -> Mapping[str, Any]:
        """Labels that the net is asked to tell apart, where they are fewer than the classes."""
        return {"clusters": int(self.clusters)} if self.clusters else {}

    def _clusters(self, epoch: int) -> Tensor | None:
        """(C,) the cluster of each class in this epoch; None for the labels themselves."""
        level = (epoch - self.warmup - 1) // self.interval
        return self.hierarchy[level] if 0 <= level < len(self.hierarchy) else None

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


register(
    "c2f",
    C2F,
    "clusters of confused classes first, then the classes",
    when="Classification with many classes that have a hierarchy; with two classes it is plain training.",
    cost="One forward pass over the set after the warm-up; without a teacher of your own the student is the teacher.",
)
