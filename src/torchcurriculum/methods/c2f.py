"""Coarse to fine: first distinguish groups of easily confused classes, then the classes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..core import Batch, Epoch, Method, Step, checks, distributed
from ..functional.classes import affinity_levels, coarse_losses, confusion, similarity
from ._base.classes import check_classes
from ._base.meta_set import count_rows, rows_of
from .registry import register

__all__ = ["C2F"]

ASKED_AT_ONCE = 1000  # rows of ``valid`` per pass


class C2F(Method):
    r"""Coarse-to-fine curriculum over the labels (C2F).

    A teacher's confusion matrix on rows it was not trained on gives the similarity of classes, and affinity clustering
    a hierarchy of them: level by level, coarsest first, the net trains on clusters for ``interval`` epochs each, then
    on the labels themselves. The authors train a separate teacher and use its confusion on their validation set. By
    default the teacher here is the student after a warm-up that holds out a share of the rows; these are trained on
    afterwards.

    Our version of a coarse level needs no extra classifier and works with any net: the probability of a cluster is the
    sum over its classes,

    .. math:: L_i = -\log \sum_{c \in \mathrm{cluster}(y_i)} p_c(x_i)

    so nothing is re-initialised between levels. Coarse levels always use this loss; the labels use yours. Without
    confusion the method is plain training, and warns.

    Args:
        warmup: Epochs on the labels before the student becomes its own teacher; 0 with a ``teacher`` or a
            ``hierarchy``.
        interval: Epochs of a coarse level; ``for_run`` takes a tenth of the run.
        levels: At most so many coarse levels, the finest of the hierarchy; at 0 the method is plain training.
        teacher: A trained net for the same classes, called through the same forward function; by default the student
            after the warm-up. It is run once, and is not part of the method's state. Pass ``valid`` with it: otherwise
            it is run on the training rows, and a teacher that has memorised them shows no confusion.
        valid: Rows for measuring the confusion: a pair (x, y) or a dataset of such rows.
        held_out: Share of the training rows that the warm-up holds out to measure the student's confusion; refused with
            ``teacher``, ``valid`` or ``hierarchy``. None is 0.1; 0 uses all rows.
        hierarchy: (L, C) known clusters of the classes, coarsest first; no teacher is needed then.

    Reference:
        Stretcu et al., Coarse-to-Fine Curriculum Learning, 2021.
    """

    needs_classes = True
    hierarchy: Tensor
    clusters: Tensor

    def __init__(
        self,
        warmup: int,
        interval: int,
        levels: int = 3,
        teacher: nn.Module | None = None,
        valid: Any = None,
        held_out: float | None = None,
        hierarchy: Any = None,
    ) -> None:
        super().__init__()
        alone = teacher is None and hierarchy is None
        others = {"teacher": teacher, "valid": valid, "hierarchy": hierarchy}
        if held_out is not None and (named := [name for name, value in others.items() if value is not None]):
            raise ValueError(f"held_out={held_out} would be ignored: no training rows are held out with {named[0]}=")
        held_out = 0.1 if held_out is None else held_out
        self.warmup = checks.whole("warmup", warmup, 1 if alone else 0, "epochs (none with a teacher or a hierarchy)")
        self.interval, self.levels = checks.whole("interval", interval), checks.whole("levels", levels, 0)
        checks.real("held_out", held_out, "[0, 1)", "a share of the rows")
        if hierarchy is not None and (teacher is not None or valid is not None):
            ignored = "teacher" if teacher is not None else "valid"
            raise ValueError(f"{ignored} would be ignored, because hierarchy= is given; pass only one of them")
        if valid is not None:
            count_rows(valid, "valid")
        self.given, self.valid = hierarchy is not None, valid
        self.held_out = held_out if alone and valid is None else 0.0
        self._teacher = (teacher,)  # in a tuple: not a submodule, so not in checkpoints
        # (L, C) clusters, of a size known only after the teacher has run; saved as extra state.
        known = torch.zeros(0, 0, dtype=torch.int64) if hierarchy is None else _check_hierarchy(hierarchy)
        self.register_buffer("hierarchy", known[len(known) - min(levels, len(known)) :], persistent=False)
        self.register_buffer("clusters", torch.tensor(0))  # number of clusters in this epoch; 0 for the labels

    @classmethod
    def for_run(
        cls,
        n: int,
        epochs: int,
        warmup: int | None = None,
        interval: int | None = None,
        teacher: nn.Module | None = None,
        hierarchy: Any = None,
        **options: Any,
    ) -> Self:
        """A tenth of the run for each level, and as much for the warm-up of a student that is its own teacher."""
        tenth = max(1, epochs // 10)
        warmup = (tenth if teacher is None and hierarchy is None else 0) if warmup is None else warmup
        interval = tenth if interval is None else interval
        return cls(warmup, interval, teacher=teacher, hierarchy=hierarchy, **options)

    def plan(self, epoch: Epoch) -> Tensor | None:
        """Runs the teacher once, and moves from level to level; the warm-up skips the held-out rows."""
        past = epoch.number - self.warmup - 1
        if past == 0 and self.levels and not self.given:
            self.hierarchy = self._ask(epoch).to(epoch.last.device)
        clusters = self._clusters(epoch.number)
        self.clusters.fill_(0 if clusters is None else int(clusters.max()) + 1)
        if past >= 0 or not self.levels or not self.held_out or epoch.n == 1:
            return None
        return (~self._held_out(epoch)).nonzero().flatten()

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
        """Restores the state from ``get_extra_state``."""
        rows, columns = state[:2].tolist()
        self.hierarchy = state[2:].view(rows, columns).to(self.hierarchy.device)

    def report(self) -> Mapping[str, Any]:
        """The number of clusters in a coarse level."""
        return {"clusters": int(self.clusters)} if self.clusters else {}

    def _clusters(self, epoch: int) -> Tensor | None:
        """(C,) the cluster of each class in this epoch; None for the labels themselves."""
        level = (epoch - self.warmup - 1) // self.interval
        return self.hierarchy[level] if 0 <= level < len(self.hierarchy) else None

    def _held_out(self, epoch: Epoch) -> Tensor:
        """(N,) bool, the same in every epoch; a single row is not held out."""
        if epoch.n == 1:
            return torch.ones(1, dtype=torch.bool)
        generator = torch.Generator().manual_seed(distributed.derive(epoch.seed, "c2f"))
        size = min(epoch.n - 1, max(1, round(self.held_out * epoch.n)))
        return torch.zeros(epoch.n, dtype=torch.bool).index_fill_(
            0, torch.randperm(epoch.n, generator=generator)[:size], True
        )

    def _ask(self, epoch: Epoch) -> Tensor:
        (teacher,) = self._teacher
        if teacher is not None:
            teacher.to(epoch.last.device)
        labels, predictions, classes = self._answers(epoch, teacher).cpu().unbind(1)
        levels = affinity_levels(similarity(confusion(labels, predictions, int(classes[0]))))[-self.levels :]
        if not len(levels):
            warnings.warn(
                f"C2F is plain training: {'the teacher' if teacher is not None else 'the student'} confuses no classes "
                f"on the {len(labels)} rows it was run on (or there are only two classes), so there is no "
                "hierarchy; pass valid=(x, y) with rows it was not trained on, or hierarchy=",
                stacklevel=2,
            )
        return levels

    def _answers(self, epoch: Epoch, teacher: nn.Module | None) -> Tensor:
        """(M, 3) label, prediction and number of classes of each row that the teacher is run on."""
        if self.valid is None:
            answers = epoch.measure(_answer, teacher)
            return answers[self._held_out(epoch).to(answers.device)] if self.held_out else answers
        found: list[Tensor] = []

        def ask(model: nn.Module, batch: Batch) -> Tensor:
            """All of ``valid`` at the first batch of the pass, whose forward function is needed; nothing afterwards."""
            for rows in [] if found else torch.arange(count_rows(self.valid)).split(ASKED_AT_ONCE):
                asked = rows_of(self.valid, rows, batch.x, batch.index.device, "valid")
                found.append(_answer(model, asked.with_(task=batch.task)))
            return batch.index

        epoch.measure(ask, teacher)
        return torch.cat(found)


def _answer(model: nn.Module, batch: Batch) -> Tensor:
    assert batch.task is not None
    logits, labels = check_classes(batch.task.forward(model, batch.x), batch.y, "C2F")
    return torch.stack([labels, logits.argmax(1), torch.full_like(labels, logits.shape[1])], 1)


def _check_hierarchy(hierarchy: Any) -> Tensor:
    try:
        levels = torch.as_tensor(hierarchy)
    except (RuntimeError, TypeError, ValueError):
        levels = torch.zeros(0)
    if levels.ndim != 2 or levels.is_floating_point() or not levels.numel() or int(levels.min()) < 0:
        raise ValueError(
            "hierarchy must be whole numbers of shape (levels, classes), the cluster of each class at each level, got "
            f"{hierarchy!r:.60}"
        )
    return torch.stack([level.unique(return_inverse=True)[1] for level in levels.long()])


register(
    "c2f",
    C2F,
    "clusters of confused classes first, then the classes",
    when="Classification with many classes that have a hierarchy; with two classes it is plain training.",
    cost="One forward pass over the set after the warm-up, or over valid=; without a teacher the warm-up leaves out a "
    "tenth of the rows.",
)
