"""Local to global learning: a few classes first, then more of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn

from ..core import Batch, Epoch, Method, Step, checks
from ..functional.classes import class_means, keep_classes, next_classes
from ..functional.mcl import project
from ._base.classes import check_classes, check_labels
from .registry import register

__all__ = ["LGL"]

Order = Literal["random", "similar", "dissimilar"]
WIDTH = 64  # columns of the outputs used for similarity


class LGL(Method):
    """Local to global learning (LGL): the classes of the problem are added a few at a time.

    Stage s of ``interval`` epochs trains on the rows of the first ``start + s * growth`` of the classes. The loss
    function is called on the logits of only these classes, with renumbered labels, so that softmax and label smoothing
    run over the included classes. A loss function with class weights is refused. Once all classes are included, this is
    plain training.

    The first classes are drawn at random; later ones at random too, or one after another by smallest (or largest)
    distance of mean logits to those included, measured in a pass when classes are added. Distances between mean logits
    are our choice; the paper measures similarity with features.

    Args:
        n: Rows of the training set.
        interval: Epochs of a stage; ``for_run`` takes a tenth of the run, so that all classes are included after a
            third.
        start: Share of the classes in the first stage, at least two classes (the softmax of a single class is
            constant). At 1 the method is plain training.
        growth: Share of the classes added by each stage, at least one class.
        order: ``"random"``, ``"similar"`` or ``"dissimilar"``.
        labels: (N,) labels trained on; by default read from the training set once, without a forward pass.

    Reference:
        Cheng et al., Local to Global Learning: Gradually Adding Classes for Training Deep Neural Networks, CVPR 2019.
    """

    needs_classes = True
    labels: Tensor
    included: Tensor

    def __init__(
        self,
        n: int,
        interval: int,
        start: float = 0.1,
        growth: float = 0.3,
        order: Order = "random",
        labels: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.n = n = checks.whole("n", n, what="the number of training rows")
        self.interval = checks.whole("interval", interval)
        checks.real("start", start, "(0, 1]", "a share of the classes")
        checks.real("growth", growth, "(0, 1]", "a share of the classes")
        checks.one_of("order", order, get_args(Order))
        self.start, self.growth, self.order = start, growth, order
        known = torch.full((n,), -1) if labels is None else checks.row_values("labels", labels, n, integers=True).long()
        self.given = labels is not None
        self.register_buffer("labels", known.clone())
        # (C,) classes in use, of a size known only with the labels; saved as extra state.
        self.register_buffer("included", torch.zeros(0, dtype=torch.bool), persistent=False)
        self.partial = False  # on the host, so that a step need not synchronise
        self._kept = torch.zeros(0, dtype=torch.int64)  # the included classes as numbers, for the same reason

    @classmethod
    def for_run(cls, n: int, epochs: int, interval: int | None = None, **options: Any) -> Self:
        """A tenth of the run for each stage."""
        return cls(n, max(1, epochs // 10) if interval is None else interval, **options)

    def plan(self, epoch: Epoch) -> Tensor | None:
        """The rows of the included classes."""
        if self.start == 1:
            return None
        if epoch.number == 1 and not self.given:
            self.labels.copy_(epoch.measure(lambda model, batch: check_labels(batch.y, "LGL")))
        labels = self.labels.cpu()
        present = torch.bincount(labels) > 0
        included = self.included.cpu() if len(self.included) else torch.zeros_like(present)
        total = int(present.sum())
        stage = (epoch.number - 1) // self.interval
        wanted = max(2, round(self.start * total)) + stage * max(1, round(self.growth * total))
        if wanted >= total:
            self._include(torch.ones_like(present))
            return None
        missing = wanted - int(included.sum())
        if missing:
            included = self._add(epoch, labels, present, included, missing)
        self._include(included)
        return included[labels].nonzero().flatten()

    def loss(self, step: Step) -> Tensor:
        """The loss over the included classes; the plain one once all are."""
        if not self.partial or not len(step.losses):
            return super().loss(step)
        assert step.batch.task is not None
        loss_fn = step.batch.task.loss_fn
        if getattr(getattr(loss_fn, "criterion", loss_fn), "weight", None) is not None:
            raise ValueError("LGL calls the loss function on a subset of the classes, but this one has class weights")
        logits, labels = check_classes(step.logits, step.batch.y, "LGL")
        logits, places = keep_classes(logits, labels, self._kept)
        foreign = places < 0  # would crash an accelerator
        if places.device.type == "cpu" and foreign.any():
            rows = step.index[foreign][:8].tolist()
            raise ValueError(f"LGL's labels are not those of the training set: rows {rows} have classes left out now")
        losses = loss_fn(logits, places.clamp_min(0))
        return super().loss(step.with_(losses=losses.masked_fill(foreign, torch.nan)))

    def get_extra_state(self) -> Tensor:
        """The classes in use."""
        return self.included.cpu()

    def set_extra_state(self, state: Tensor) -> None:
        """Restores the state from ``get_extra_state``."""
        self._include(state.cpu())

    def report(self) -> Mapping[str, Any]:
        """The number of classes in use, once known."""
        return {"classes": int(self.included.sum())} if len(self.included) else {}

    def _include(self, included: Tensor) -> None:
        self.included = included.to(self.labels.device)
        self._kept = included.nonzero().flatten().to(self.labels.device)
        self.partial = not bool(included.all())

    def _add(self, epoch: Epoch, labels: Tensor, present: Tensor, included: Tensor, count: int) -> Tensor:
        if self.order == "random" or not included.any():
            left = (present & ~included).nonzero().flatten()
            drawn = left[torch.randperm(len(left), generator=epoch.generator("lgl"))[:count]]
            return included.index_fill(0, drawn, True)

        def outputs(model: nn.Module, batch: Batch) -> Tensor:
            assert batch.task is not None
            logits, _ = check_classes(batch.task.forward(model, batch.x), batch.y, "LGL")
            return project(logits, WIDTH, epoch.generator("lgl-projection"))

        means = class_means(epoch.measure(outputs).cpu().nan_to_num(), labels, len(present))
        return next_classes(means, included, present, count, self.order == "similar")


register(
    "lgl",
    LGL,
    "a few classes first, then more of them",
    when="Classification with many classes. With few classes the first stages are a different, easier problem.",
    cost="One reading of the labels, fewer steps while classes are missing; with order='similar' or 'dissimilar' one "
    "forward pass over the set for each stage; 8 bytes per sample.",
)
