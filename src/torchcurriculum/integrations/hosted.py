"""Shared by adapters to trainers with their own loop: a weighted criterion, and batches for the loader."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from ..core import Batch, checks
from ..curriculum import Curriculum
from ..data.batches import LOADER_OPTIONS, take
from ..data.identity import length_of
from ..losses import reduce_positions, reduction_of

__all__ = ["SHOWN", "CriterionPatch", "Epochs", "knobs_given_by", "loader_settings", "row_by_row"]

SHOWN = ("rho", "alpha", "eprop", "phase", "rows")  # columns of the record for the trainer's log


class CriterionPatch:
    """Patches a module's criterion to weight losses during training steps, and sets ``module.curriculum``.

    Args:
        module: The module whose criterion gets another ``forward``; its parameters and state do not change.
        name: The attribute that holds the criterion.
        loss_fn: ``(outputs, y) -> (B,)`` for the measuring pass; None for the criterion's own losses.
    """

    curriculum: Curriculum

    def __init__(self, module: nn.Module, name: str, loss_fn: Callable[[Any, Any], Tensor] | None) -> None:
        if hasattr(module, "curriculum"):
            raise ValueError(f"{type(module).__name__} already has an attribute 'curriculum'; rename it")
        self.module, self.name, self.loss_fn = module, name, loss_fn
        self.criterion = self._find()
        self._inside = self._weighted = self._again = False
        self._batch: tuple[Any, Batch] | None = None  # of this step, as given and as the method sees it
        self._step = 0  # tracked by number, because an optimizer may compute the loss of a batch more than once
        module.curriculum = self  # type: ignore[assignment]
        if self.criterion is not None:
            self.criterion.forward = self._reduced

    def _find(self) -> nn.Module | None:
        criterion = getattr(self.module, self.name, None)
        reduction = getattr(criterion, "reduction", None)
        if isinstance(criterion, nn.Module) and not hasattr(criterion, "reduction"):
            return criterion  # evaluated row by row
        if not isinstance(criterion, nn.Module) or reduction in (None, "none"):
            if self.name != "criterion":
                raise TypeError(f"{type(self.module).__name__}.{self.name} is not a loss module with a reduction")
            return None
        if reduction_of(criterion) == "sum":
            owner = type(self.module).__name__
            raise ValueError(f"{owner}.{self.name} has reduction='sum', but weights of a batch sum to one; use 'mean'")
        return criterion

    def __call__(self, losses: Tensor, batch: Any = None, outputs: Any = None, y: Any = None) -> Tensor:
        """The weighted scalar of (B,) losses of the current batch; outside training steps their mean."""
        if not self._inside:
            return losses.mean()
        self._weighted = True
        if self.curriculum.method.changes_batches:
            name, instead = type(self.curriculum.method).__name__, "return self.curriculum.loss(batch) instead"
            raise TypeError(f"{name} changes the batch before the module sees it; in training_step, {instead}")
        if self.curriculum.nan_strategy != "error" and not checks.all_finite(losses):
            return self._skip()
        again, self._again = self._again, False  # a second loss of the same training_step is another one
        return self.curriculum.reduce(losses, step=self._step, outputs=outputs, y=y, again=again)

    def _skip(self) -> Tensor:
        """A loss of zero for a batch whose losses are not finite; skips the whole batch."""
        if self.curriculum.nan_strategy == "warn":
            rows = self.curriculum.batches()[self._step][:8].tolist()
            warnings.warn(f"losses in the batch of rows {rows}, ... are NaN or infinite; skipping it", stacklevel=2)
        self.curriculum.done(self._step)
        return sum((p.sum() * 0 for p in self.module.parameters() if p.requires_grad), torch.zeros(()))

    def loss(self, batch: Any) -> Tensor:
        """The scalar loss of the current batch with its forward pass, for methods that change it or use outputs."""
        self._weighted = True
        if self._batch is None or self._batch[0] is not batch:
            self._batch = batch, self.curriculum.batch(batch, step=self._step)
        return self.curriculum.loss(self.module, self._batch[1])

    def losses(self, outputs: Any, y: Any) -> Tensor:
        """(B,) losses for the measuring pass."""
        if self.loss_fn is not None:
            return self.loss_fn(outputs, y)
        if self.criterion is None:
            raise RuntimeError(
                f"{type(self.module).__name__} has no {self.name} such as nn.CrossEntropyLoss() to measure with; "
                "pass loss_fn=(outputs, y) -> (B,), or measure='running' for those that training_step computes"
            )
        return self._unreduced(self.criterion, outputs, y)

    def begin(self) -> None:
        """Begins a training step."""
        self._inside, self._weighted, self._step = True, False, self.curriculum.steps_done
        self._again, self._batch = False, None

    def evaluated(self) -> None:
        """Ends one evaluation of the training step; if another follows, in a closure, it is of the same batch."""
        self._again = self._weighted

    def end(self, skipped: bool = False) -> None:
        """Ends a training step; raises an error if it used no weights, unless it was skipped."""
        self._inside = False
        if self._weighted or skipped:
            self.curriculum.done(self._step)
            return
        raise RuntimeError(
            f"training_step of {type(self.module).__name__} neither used self.{self.name} with a reduction (such as "
            "nn.CrossEntropyLoss()) nor called self.curriculum(losses, batch), so no weights were applied"
        )

    def detach(self) -> None:
        """Removes the patch."""
        self._inside = False
        vars(self.module).pop("curriculum", None)
        if self.criterion is not None:
            vars(self.criterion).pop("forward", None)

    def __deepcopy__(self, memo: Any) -> CriterionPatch:
        return self  # a copy of the module belongs to the same training

    def _reduced(self, *given: Any, **named: Any) -> Tensor:
        criterion = self.criterion
        assert criterion is not None
        if self._inside:
            bound = inspect.signature(type(criterion).forward).bind(criterion, *given, **named)  # in the order of names
            given, named = bound.args[1:], bound.kwargs
            outputs, y = [*given, *named.values()][:2]
            return self(self._unreduced(criterion, *given, **named), outputs=outputs, y=y)
        return type(criterion).forward(criterion, *given, **named)

    @staticmethod
    def _unreduced(criterion: nn.Module, *given: Any, **named: Any) -> Tensor:
        """(B,) losses: the criterion's own without its reduction, averaged over the positions of a sample."""
        if not hasattr(criterion, "reduction"):
            return row_by_row(lambda *parts: type(criterion).forward(criterion, *parts), *given, *named.values())
        reduction, criterion.reduction = criterion.reduction, "none"  # type: ignore[assignment]
        try:
            losses = type(criterion).forward(criterion, *given, **named)
        finally:
            criterion.reduction = reduction
        return reduce_positions(losses, [*given, *named.values()][1], criterion, str(reduction))[0]


class Epochs:
    """A training loader: each loop reads the rest of the curriculum's epoch.

    Args:
        curriculum: The curriculum; its epoch must have begun before the first batch.
        count: Returns the number of batches of an epoch.
    """

    def __init__(self, curriculum: Curriculum, count: Callable[[], int]) -> None:
        self.curriculum, self.count, self.dataset = curriculum, count, curriculum.train_set

    def __len__(self) -> int:
        return self.count()

    def __iter__(self) -> Iterator[Any]:
        yield from self.curriculum.read_finite()

    def state_dict(self) -> dict[str, Any]:
        """Empty: the position is part of the curriculum's state."""
        return {}

    def load_state_dict(self, state: Any) -> None:
        """Nothing."""


def loader_settings(loader: Any, ranks: int = 1) -> dict[str, Any]:
    """The settings of a user's training loader, as arguments of ``Curriculum``; conflicting ones are refused.

    Args:
        loader: A ``DataLoader`` over a map-style data set.
        ranks: Processes that each take a batch of the loader's size.

    Example:
        >>> loader_settings(DataLoader([1, 2, 3], batch_size=2, shuffle=True), ranks=2)["batch_size"]
        4
    """
    if not isinstance(loader, DataLoader):
        raise TypeError(f"a curriculum needs one torch DataLoader for training, got {type(loader).__name__}")
    n = length_of(loader.dataset, "the training set")
    sampler: Any = loader.sampler
    if type(loader.batch_sampler) is not BatchSampler:
        name = _name(loader.batch_sampler)
        raise ValueError(f"the training loader has the batch sampler {name}, but the curriculum makes the batches")
    shuffled = type(sampler) is RandomSampler and not sampler.replacement and sampler._num_samples is None
    if not (shuffled or type(sampler) is SequentialSampler) or len(sampler) != n:
        name = _name(sampler)
        raise ValueError(f"the training loader has the sampler {name}, but the curriculum chooses rows; pass shuffle=")
    if loader.num_workers and not getattr(loader, "in_order", True):
        raise ValueError("the training loader has in_order=False, but batches are matched with their rows by order")
    assert loader.batch_size is not None
    return {
        "batch_size": loader.batch_size * ranks,
        "collate_fn": loader.collate_fn,
        "workers": loader.num_workers,
        "pin_memory": loader.pin_memory,
        "drop_last": loader.drop_last,
        "shuffle": shuffled,
        "loader_options": {name: value for name in LOADER_OPTIONS if (value := getattr(loader, name))},
    }


@contextmanager
def knobs_given_by(owner: str, such_as: str) -> Iterator[None]:
    """Tells users of a trainer, who do not call ``load_state_dict``, how to resume a state with other knobs."""
    try:
        yield
    except checks.OtherKnobs as error:
        instead = f"give {owner} those of the state, such as {such_as}, or method_options="
        raise checks.OtherKnobs(error.args[0], instead) from error


def row_by_row(loss: Callable[..., Tensor], *parts: Any) -> Tensor:
    """(B,) losses from a function that returns only the mean over a batch, by calling it for each row.

    Args:
        loss: ``loss(*parts) -> scalar``.
        parts: Outputs, targets, ...: tensors, or dicts, tuples and lists of them; the first has B rows.

    Raises:
        ValueError: If the mean over the rows is not the loss of the batch, so that rows have no separate losses.

    Example:
        >>> x, y = torch.tensor([[1.0], [2.0]]), torch.tensor([[0.0], [0.0]])
        >>> row_by_row(nn.functional.mse_loss, x, y)
        tensor([1., 4.])
    """
    size = _rows(parts)
    losses = torch.stack([loss(*(take(part, torch.tensor([row]), size) for part in parts)) for row in range(size)])
    whole = loss(*parts)
    if not torch.allclose(losses.detach().mean().to(whole), whole.detach(), rtol=1e-3, atol=1e-5, equal_nan=True):
        raise ValueError(
            f"the loss has no reduction='none', and that of a batch ({whole.item():.6g}) is not the mean over "
            f"its rows ({losses.mean().item():.6g}); return one loss per sample, shape ({size},)"
        )
    return losses


def _rows(value: Any) -> int:
    """Rows of the first tensor in ``value``."""
    if isinstance(value, Tensor):
        return len(value) if value.ndim else 0
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else ()
    return next((rows for part in parts if (rows := _rows(part))), 0)


def _name(value: Any) -> str:
    return "None" if value is None else type(value).__name__
