"""Sequence-length warm-up: short sequences first, cut to a length that grows, or chosen by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..core import Batch, Epoch, Method, checks, distributed
from .registry import register

__all__ = ["LengthWarmup"]


class LengthWarmup(Method):
    r"""Sequence-length warm-up: :math:`l_t = l_0 + (l_{max} - l_0) \min(1, t / T)`, in steps of ``multiple``.

    Without ``lengths``, batches of tokens are cut: every tensor of shape (B, L, ...) in the inputs and targets, where L
    is that of the integer inputs (``input_ids`` of a dict), keeps its first :math:`l_t` positions. t counts rows seen,
    in epochs, so that it grows with every step. With ``lengths`` nothing is cut: an epoch trains on the rows of length
    at most :math:`l_t`, or the shortest, and :math:`l_{max}` is the longest; t then counts whole epochs.

    What differs from the paper, by its authors' code in DeepSpeed: t and T count steps there, and the first step has
    t = 1, not 0. Both discard the rest of a sequence instead of packing it into later batches.

    Args:
        n: Rows of the training set.
        grow: T > 0, in epochs; may be fractional. ``for_run`` takes a fifth of the run.
        start: l_0; the authors take 8 for short contexts, and 64 and more for longer ones. At the length of the
            sequences it is plain training.
        multiple: Lengths are rounded down to multiples of this, for half-precision kernels; the authors' 8.
        lengths: (N,) whole numbers, the length of each row, to choose rows instead of cutting them.

    Example:
        >>> method = LengthWarmup(4, grow=1.0, start=2, multiple=2)
        >>> tokens = Batch(torch.zeros(2, 8, dtype=torch.int64), torch.zeros(2), torch.tensor([0, 1]))
        >>> [method.view(nn.Identity(), tokens).x.shape[1] for _ in range(3)]                # t = 0, 1/2 and 1
        [2, 4, 8]

    Reference:
        Li, Zhang and He, The Stability-Efficiency Dilemma: Investigating Sequence Length Warmup for Training GPT
        Models, NeurIPS 2022.
    """

    def __init__(self, n: int, grow: float, start: int = 8, multiple: int = 8, lengths: Any = None) -> None:
        super().__init__()
        self.n = checks.whole("n", n, what="the number of training rows")
        checks.real("grow", grow, "(0, inf)", "a number of epochs")
        self.grow, self.start = grow, checks.whole("start", start, what="a length")
        self.multiple = checks.whole("multiple", multiple)
        self.lengths = None if lengths is None else checks.row_values("lengths", lengths, n, integers=True).long()
        self.seen = 0  # rows; on the host, where the length is needed
        self.length = 0  # of the last batch, or of this epoch

    @classmethod
    def for_run(cls, n: int, epochs: int, grow: float | None = None, **options: Any) -> Self:
        """A fifth of the run."""
        return cls(n, epochs / 5 if grow is None else grow, **options)

    def plan(self, epoch: Epoch) -> Tensor | None:
        """With ``lengths``, the rows of at most this epoch's length; otherwise all."""
        if self.lengths is None:
            return None
        self.length = self._at(epoch.number - 1, int(self.lengths.max()))
        rows = self.lengths <= max(self.length, int(self.lengths.min()))
        return None if bool(rows.all()) else rows.nonzero().flatten()

    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """The batch, cut to this step's length."""
        if self.lengths is not None:
            return batch
        whole = _length(batch.x)
        self.length = self._at(self.seen / self.n, whole)
        self.seen += _rows(batch.index)
        if self.length >= whole:
            return batch
        return batch.with_(x=_cut(batch.x, whole, self.length), y=_cut(batch.y, whole, self.length))

    def report(self) -> Mapping[str, Any]:
        """The length."""
        return {"length": self.length}

    def get_extra_state(self) -> Tensor:
        """Rows seen, and the length."""
        return torch.tensor([self.seen, self.length])

    def set_extra_state(self, state: Tensor) -> None:
        """Restores the state from ``get_extra_state``."""
        self.seen, self.length = (int(value) for value in state)

    def _at(self, t: float, whole: int) -> int:
        """l_t for sequences of length ``whole``: at least one ``multiple`` and at most ``whole``."""
        if t >= self.grow or self.start >= whole:
            return whole
        length = int(self.start + (whole - self.start) * t / self.grow)
        return min(whole, max(length - length % self.multiple, min(self.start, self.multiple)))


def _rows(index: Tensor) -> int:
    """Rows of the global batch; does not synchronise in a single process."""
    if distributed.world_size() == 1:
        return len(index)
    return int(distributed.total(torch.tensor(len(index), device=index.device)))


def _length(x: Any) -> int:
    """L of the tokens in a batch's inputs."""
    parts = list(x.values()) if isinstance(x, Mapping) else list(x) if isinstance(x, tuple | list) else [x]
    if isinstance(x, Mapping) and "input_ids" in x:
        parts = [x["input_ids"]]
    for part in parts:
        if isinstance(part, Tensor) and part.ndim == 2 and not part.is_floating_point():
            return part.shape[1]
    raise TypeError(
        f"length-warmup cuts tokens, whole numbers of shape (B, L), but the inputs are {checks.describe(x)}; pass "
        "lengths= to choose rows by their length instead"
    )


def _cut(value: Any, whole: int, length: int) -> Any:
    """Every tensor in ``value`` of shape (B, ``whole``, ...) cut to its first ``length`` positions."""

    def cut(leaf: Any) -> Any:
        long = isinstance(leaf, Tensor) and leaf.ndim > 1 and leaf.shape[1] == whole
        return leaf[:, :length] if long else leaf

    return checks.map_leaves(cut, value)


register(
    "length-warmup",
    LengthWarmup,
    "sequences are cut to a length that grows, or chosen by it",
    when="Language models at large batch sizes and learning rates, where the first steps are unstable. With lengths=, "
    "any set in which short rows are easy.",
    cost="Saves time: shorter sequences in the first fifth of the run, or fewer rows; 8 bytes per sample with lengths.",
)
