"""Per-sample losses from any ``nn`` loss with a ``reduction``, and a weighted scalar instead of the reduced one."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..core import Batch, Epoch, Method, Step, Task, checks
from ..distributed import derive, merge_rows, rank, total, world_size
from ..named import MethodLike, find_maker, make_method

__all__ = ["PerSample", "Weighted", "per_sample", "reduce_positions", "reduction_of", "weighted"]

CLASSES = (nn.CrossEntropyLoss, nn.NLLLoss)  # those whose mean divides by the sum of the targets' class weights


class PerSample(nn.Module):
    """A criterion that returns one loss per sample, shape (B,); made by ``per_sample``.

    Args:
        criterion: A loss module with a ``reduction``. It is not changed; its parameters, if any, are shared.
    """

    def __init__(self, criterion: nn.Module) -> None:
        super().__init__()
        self.reduction = reduction_of(criterion)
        self.criterion = copy.copy(criterion)  # another reduction, the same parameters and class weights
        self.criterion.reduction = "none"  # type: ignore[assignment]

    def forward(self, outputs: Tensor, y: Tensor) -> Tensor:
        """(B,) losses; positions (tokens, pixels, labels) of a sample are averaged, or summed if the criterion sums."""
        return self.measure(outputs, y)[0]

    def measure(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor | None]:
        """(B,) losses, and the weight of each in the criterion's own mean; None if all weights are one."""
        _follow(self.criterion, _device_of(outputs))
        own = (*self.criterion.parameters(), *self.criterion.buffers())
        if not any(tensor.dtype in checks.HALVES for tensor in own):
            outputs, y = checks.at_least_float32(outputs), checks.at_least_float32(y)
        losses = checks.losses_of(self.criterion, outputs, y)
        _refuse_other_shapes(self.criterion, losses, outputs, y)
        return reduce_positions(losses, y, self.criterion, self.reduction)


def reduction_of(criterion: nn.Module) -> str:
    """The criterion's reduction; refuses criteria without one, or that do more than average or sum."""
    reduction = getattr(criterion, "reduction", None)
    if not isinstance(criterion, nn.Module) or reduction not in ("none", "mean", "sum", "batchmean"):
        raise TypeError(
            f"{_name(criterion)} is not a loss module with a reduction such as nn.CrossEntropyLoss(); for a loss_fn, "
            "you can also pass a function (outputs, y) -> (B,)"
        )
    if isinstance(criterion, nn.CTCLoss):
        raise TypeError("CTCLoss needs lengths besides its targets; wrap it in loss_fn(outputs, y) -> (B,)")
    return reduction


def reduce_positions(losses: Tensor, y: Tensor, criterion: nn.Module, reduction: str) -> tuple[Tensor, Tensor | None]:
    """One loss per sample from one per position; see ``per_sample``.

    Args:
        losses: (B, ...) the criterion's unreduced losses.
        y: Targets.
        criterion: Has the class weights and ``ignore_index``.
        reduction: The criterion's original reduction.

    Returns:
        (B,) losses, and the weight of each in the criterion's own mean; None if all weights are one.
    """
    if reduction in ("sum", "batchmean"):
        return losses.flatten(1).sum(1) if losses.ndim > 1 else losses, None
    share = _share(losses, y, criterion)
    if losses.ndim <= 1:
        return losses, share
    losses = losses.flatten(1)
    if share is None:
        return losses.mean(1), None
    share = share.flatten(1)
    places = (share > 0).sum(1).clamp_min(1)  # a sample whose positions are all ignored has a loss of zero
    return losses.sum(1) / places, share.sum(1) / places


def _share(losses: Tensor, y: Tensor, criterion: nn.Module) -> Tensor | None:
    """The weight of each position: its target's class weight, zero if it is ignored."""
    ignored = getattr(criterion, "ignore_index", None)
    weight = criterion.weight if isinstance(criterion, CLASSES) else None
    if y.shape != losses.shape or y.is_floating_point() or (ignored is None and weight is None):
        return None
    share = torch.ones_like(losses) if ignored is None else (y != ignored).to(losses.dtype)
    if weight is not None:
        share = share * weight[torch.where(share > 0, y, 0)]
    return share.detach()


def _refuse_other_shapes(criterion: nn.Module, losses: Any, outputs: Tensor, y: Tensor) -> None:
    shape = tuple(losses.shape) if isinstance(losses, Tensor) else None
    known = (tuple(outputs.shape[:1]), tuple(outputs.shape), tuple(y.shape))
    if not shape or shape[0] != len(outputs) or shape not in known:
        raise ValueError(
            f"{_name(criterion)} returned losses of shape {shape} for outputs of shape {tuple(outputs.shape)} and "
            f"targets of shape {tuple(y.shape)}; there must be one loss for each of {len(outputs)} samples, or one for "
            "each target"
        )


def per_sample(criterion: nn.Module) -> PerSample:
    """Per-sample losses from any ``nn`` loss that has a ``reduction``: the ``loss_fn`` of a ``Curriculum``.

    Losses are those of ``reduction="none"``; half-precision outputs are measured in float32. Where a sample has more
    than one loss (tokens, pixels, labels), they are averaged over the sample, without the positions of
    ``ignore_index``; a criterion that sums (``"sum"``, ``"batchmean"``) is summed over the sample. Class weights
    multiply a sample's loss, so that it depends only on the sample. PyTorch's reduced loss divides by their sum over
    the batch, which only ``weighted`` can do.

    Args:
        criterion: A loss module with a ``reduction``. It is not changed; its parameters, if any, are shared.

    Returns:
        A module ``(outputs, y) -> (B,)``.

    Example:
        >>> losses = per_sample(nn.CrossEntropyLoss(label_smoothing=0.1))
        >>> losses(torch.zeros(3, 4), torch.tensor([0, 1, 2]))
        tensor([1.3863, 1.3863, 1.3863])
        >>> per_sample(nn.MSELoss())(torch.zeros(2, 3), torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 3.0]]))
        tensor([1., 3.])
    """
    return PerSample(criterion)


class Weighted(nn.Module):
    """A criterion that weights samples by a method; made by ``weighted``.

    The method and the losses last seen are part of its ``state_dict``.

    Args:
        criterion: A loss module with a ``reduction``. It is not changed; its parameters, if any, are shared.
        method: A method that weighs samples.
        n: Rows of the training set, for a method that does not know them.
        grows: Whether rows come while training.
    """

    last: Tensor
    seen: Tensor
    writer: Tensor

    def __init__(self, criterion: nn.Module, method: Method, n: int | None = None, grows: bool = False) -> None:
        super().__init__()
        if method.changes_batches:
            raise TypeError(f"{type(method).__name__} changes the batch, which a criterion cannot; use Curriculum")
        checks.check_task(method, criterion, None)
        rows = getattr(method, "n", 1 if grows else n)
        if n is not None and not grows and rows != n:
            raise ValueError(f"{type(method).__name__} was made for {rows} rows, but n={n}; omit n, or make it for {n}")
        if rows is None:
            raise ValueError(f"{type(method).__name__} does not know the size of the training set; pass n= to weighted")
        if grows:
            if n is not None:
                raise TypeError(f"n={n} would be ignored: with grows=True rows are counted as they are seen")
            method.grow_rows(rows)
        self.losses, self.method, self.n, self.grows = per_sample(criterion), method, rows, grows
        self.register_buffer("last", torch.full((rows,), math.inf))
        self.register_buffer("seen", torch.zeros(rows, dtype=torch.bool))  # since the ranks last synchronised
        self.number, self.step = 0, 0  # of the epoch and of its batch; on the host, to avoid synchronising
        self._visits = 0  # rows since ``advance``
        self._before = torch.empty(0, dtype=torch.int64)  # the rows of the last call
        self.register_buffer("writer", torch.tensor(-1), persistent=False)  # the rank that wrote these losses

    def advance(self, losses: Tensor | None = None) -> None:
        """Begins an epoch.

        Args:
            losses: (N,) losses of all rows at its start, or None for those last seen while training.
        """
        self._agree()
        if losses is not None:
            if losses.shape != (self.n,):
                raise ValueError(f"there must be one loss for each of {self.n} rows, got shape {tuple(losses.shape)}")
            checks.check_losses(losses, None, "error")
        self.number, self.step, self._visits = self.number + 1, 0, 0
        measured = self.last if losses is None else losses.detach()
        rows = self.method.plan(Epoch(self.number, self.n, self.last, lambda: measured))
        if rows is not None:
            raise TypeError(f"{type(self.method).__name__} chooses rows, which a criterion cannot; use Curriculum")

    def forward(self, outputs: Tensor, y: Tensor, index: Tensor | None = None) -> Tensor:
        """The scalar loss of a training batch: the criterion's own if all weights are equal.

        Args:
            outputs: The model's outputs.
            y: Targets.
            index: (B,) rows of the training set, from ``indexed(loader)``; required.
        """
        if index is None:
            raise TypeError(
                "a weighted criterion needs the row numbers of the batch, criterion(outputs, y, index); take them from "
                "indexed(loader), and call your own criterion on data that are not trained on"
            )
        if not torch.is_grad_enabled():
            raise RuntimeError(
                "a weighted criterion was called without gradients, but the method remembers every loss as one of the "
                "training set; call your own criterion on data that are not trained on"
            )
        _follow(self, _device_of(outputs))
        self._refuse_broadcast()
        losses, share = self.losses.measure(outputs, y)
        if self.grows and len(index):
            self._grow(int(index.max()) + 1)
        checks.check_index(index, self.n, len(losses))
        given, index = index, index.to(losses.device)
        if losses.device.type == "cpu":
            checks.check_losses(losses.detach(), index, "error")
        self._refuse_forgotten_advance(given)
        seed = derive("weighted", self.number, self.step, rank())
        task, epoch = Task(_no_forward, self.losses), max(1, self.number)
        batch = Batch(None, y, index, task=task, seed=seed, epoch=epoch, step=self.step)
        self.step += 1
        step = _SharedStep(batch, outputs, losses, share)
        loss = self.method.loss(step)
        self.last[index] = losses.detach().to(self.last.dtype)
        if not self.grows:
            self.seen.index_fill_(0, index, True)
            self.method.visited(index)
        self.writer.fill_(rank())
        return loss * step.size().to(loss.dtype) if self.losses.reduction == "sum" else loss

    def _refuse_broadcast(self) -> None:
        """Raises an error on every rank, in the second step of an epoch, if a rank's buffers were replaced."""
        if world_size() > 1 and self.step == 1 and int(total(((self.writer != -1) & (self.writer != rank())).int())):
            raise RuntimeError(
                "the weighted criterion is part of the model that DistributedDataParallel wraps, which replaces each "
                "rank's losses by the first rank's in every pass; keep the criterion outside the model, or pass "
                "broadcast_buffers=False to DistributedDataParallel"
            )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Weighted:
        """Moves to another device, but keeps dtypes: row numbers, labels and losses would not fit in half precision."""

        def moved(tensor: Tensor) -> Tensor:
            made = fn(tensor)
            return made if made.dtype == tensor.dtype else tensor.to(made.device)

        return super()._apply(moved, recurse)

    def _refuse_forgotten_advance(self, index: Tensor) -> None:
        if type(self.method).plan is Method.plan:
            return  # it does not need epochs
        if not self.number:
            raise RuntimeError("the criterion was called before advance(); call criterion.advance() in every epoch")
        if index.device.type == "cpu":
            if index.dtype == self._before.dtype and torch.equal(index, self._before):
                return  # a closure computes the losses of a batch again
            self._before = index
        before, self._visits = self._visits, self._visits + len(index)
        if before <= 2 * self.n < self._visits:
            seen, n = self._visits, self.n
            warnings.warn(f"{seen} losses of {n} rows since the last advance(); call it in every epoch", stacklevel=3)

    def _grow(self, n: int) -> None:
        """Makes room for ``n`` rows, at least doubling it so that this is rare."""
        if n <= self.n:
            return
        self.n = max(n, 2 * self.n)
        self.last = torch.cat([self.last, self.last.new_full((self.n - len(self.last),), math.inf)])
        self.seen = torch.cat([self.seen, self.seen.new_zeros(self.n - len(self.seen))])
        self.method.grow_rows(self.n)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        last = state_dict.get(f"{prefix}last")
        if not self.grows and isinstance(last, Tensor) and last.shape != self.last.shape:
            raise ValueError(
                f"the state of this criterion holds losses of shape {tuple(last.shape)}, but it was made for "
                f"n={self.n} rows; make it with the n of the state, or begin anew if the training set is another"
            )
        if self.grows and isinstance(last, Tensor) and last.ndim == 1:
            self.n, self.last, self.seen = len(last), self.last.new_empty(len(last)), self.seen.new_zeros(len(last))
            self.method.grow_rows(self.n)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def get_extra_state(self) -> Tensor:
        """The number of the epoch and of the batch in it."""
        return torch.tensor([self.number, self.step])

    def set_extra_state(self, state: Tensor) -> None:
        """Restores the state from ``get_extra_state``."""
        self.number, self.step = map(int, state)

    def _agree(self) -> None:
        """Gives every rank the losses that the others saw; rows of a stream are not shared."""
        self.writer.fill_(-1)
        if self.grows:
            return
        self.method.agree()
        self.last.copy_(merge_rows(self.last, self.seen))
        self.seen.zero_()


class _SharedStep(Step):
    """A step whose weighted mean also uses the criterion's own weights of the samples."""

    def __init__(self, batch: Batch, outputs: Any, losses: Tensor, share: Tensor | None) -> None:
        super().__init__(None, batch, outputs, losses)
        self._share = share

    def reduce(self, weights: Tensor) -> Tensor:
        """The scalar loss; the criterion's own if all weights are equal."""
        loss = super().reduce(weights)
        if self._share is None:
            return loss
        kept = total((weights * self._share).sum())
        return loss * torch.where(kept > 0, total(weights.sum()) / kept, 0.0).to(loss.dtype)


def _device_of(outputs: Any) -> torch.device:
    if not isinstance(outputs, Tensor):
        raise TypeError(
            f"the criterion needs the model's logits, got {type(outputs).__name__}; pass the tensor that it holds, "
            "such as outputs[0], or with Curriculum a forward function that returns it"
        )
    return outputs.device


def _no_forward(model: nn.Module, x: Any) -> Any:
    raise TypeError("the method needs a forward pass, but a criterion has no model; use Curriculum")


def weighted(
    criterion: nn.Module,
    method: MethodLike,
    n: int | None = None,
    grows: bool = False,
    *,
    epochs: int | None = None,
    method_options: Mapping[str, Any] | None = None,
) -> Weighted:
    """A drop-in criterion for code with a reduced loss: ``criterion(outputs, y, index)`` is a weighted scalar.

    With equal weights it equals the criterion itself, also with class weights and ``ignore_index`` if all samples have
    the same number of targets. ``advance()`` begins an epoch with the losses seen in the last one.

    Args:
        criterion: A loss module with a ``reduction``. It is not changed; its parameters, if any, are shared.
        method: A method that weights samples, by name (``"rapw"``), class or instance. One that chooses rows or changes
            the batch needs a ``Curriculum``.
        n: Rows of the training set, for a name, a class, or a method that does not know them.
        grows: Whether new rows appear during training, as with ``data.streamed``. For methods without per-row state
            (SuperLoss) or whose rows are independent (RAPW, ELR); others are refused. Each rank has its own rows.
        epochs: Epochs of the run, for the schedule of a method given by name or class.
        method_options: Options of such a method, by name.

    Returns:
        A module ``(outputs, y, index) -> scalar``.

    Example:
        >>> from torchcurriculum import APW
        >>> criterion = weighted(nn.CrossEntropyLoss(), APW(4, q=2))
        >>> outputs, y, index = torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1]), torch.tensor([3, 1])
        >>> for _ in range(2):
        ...     criterion.advance()
        ...     loss = criterion(outputs, y, index)
        >>> loss                                     # row 3 is easy and counts more than row 1, which is hard
        tensor(0.6269)
        >>> nn.CrossEntropyLoss()(outputs, y)
        tensor(1.1269)
    """
    if n is None and not grows and not isinstance(method, Method):
        find_maker(method)
        raise ValueError("a method given by name or class needs the size of the training set; pass n= to weighted")
    made = make_method(method, 1 if n is None else checks.whole("n", n), epochs, method_options)
    return Weighted(criterion, made, n, grows)


def _follow(module: nn.Module, device: torch.device) -> None:
    if any(buffer.device != device for buffer in module.buffers()):
        module.to(device)


def _name(criterion: Any) -> str:
    return type(criterion).__name__ if isinstance(criterion, nn.Module) else repr(criterion)
