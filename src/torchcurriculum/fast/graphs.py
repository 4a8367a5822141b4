"""`GraphedStep`: a whole training step, captured once in a CUDA graph and replayed for every batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ..core import Batch, Pair, distributed
from . import graph_key

__all__ = ["GraphedStep"]

WARM_UP = 3  # eager steps before a capture, as PyTorch requires


class GraphedStep:
    """Loss, backward and optimizer step of a batch; on CUDA as one replayed graph where possible.

    A small network spends most of a step's time on launching kernels; a replay launches all of them at once. The table
    in ``torchcurriculum.fast`` lists the methods that can be captured. Batches of another size, other devices, several
    ranks and other methods run eagerly, with the same result.

    Args:
        curriculum: The curriculum, whose ``epoch`` gives the batches.
        model: The model.
        optimizer: One whose step can be captured, such as ``SGD(..., lr=torch.tensor(0.1, device="cuda"),
            fused=True)``, or Adam with ``capturable=True``: a learning rate that is a plain number would be frozen by
            the capture.
        autocast: ``autocast() -> context manager`` for mixed precision, or None.
        capture: False runs every step eagerly.

    Example:
        >>> from torchcurriculum import Arrays, Curriculum, methods
        >>> x = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
        >>> data, model = Arrays(x, (x[:, 0] > 0).long()), nn.Linear(2, 2)
        >>> curriculum = Curriculum(methods.build("apw-e", 8, 5), data, batch_size=4)
        >>> step = GraphedStep(curriculum, model, torch.optim.SGD(model.parameters(), 0.1))
        >>> for batch in curriculum.epoch(model):
        ...     loss = step(batch)
        >>> curriculum.steps_done
        2
    """

    def __init__(
        self,
        curriculum: Any,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        autocast: Callable[[], AbstractContextManager[Any]] | None = None,
        capture: bool = True,
    ) -> None:
        self.curriculum, self.model, self.optimizer = curriculum, model, optimizer
        self._autocast = autocast or nullcontext
        self._captured: dict[Hashable, _Captured] = {}
        self._warm: dict[Hashable, int] = {}
        self._stream = torch.cuda.Stream() if capture and torch.cuda.is_available() else None
        self._capturable = self._stream is not None and _can_be_captured(optimizer)

    def __call__(self, batch: Batch) -> Tensor:
        """Takes one training step; returns the loss, whose value the next call may overwrite."""
        with self._autocast():
            batch = self.curriculum.view(self.model, batch)
        key = self._key(batch)
        if key is None:
            return self._step(batch)
        if key not in self._captured:
            if self._warm.setdefault(key, 0) < WARM_UP:
                self._warm[key] += 1
                return self._warm_up_step(batch)
            self._captured[key] = _Captured(batch, self._step, self.optimizer)
        loss = self._captured[key].replay(batch)
        self.curriculum.done(batch.step)
        return loss

    def _key(self, batch: Batch) -> Hashable | None:
        """The key under which a captured step can be reused for this batch; None if it must run eagerly."""
        method = graph_key(self.curriculum.method, batch.epoch)
        whole = isinstance(batch.x, Tensor) and isinstance(batch.y, Tensor) and batch.x.is_cuda
        whole = whole and len(batch.index) == self.curriculum.batch_size
        right = self._capturable and distributed.world_size() == 1 and self.curriculum.nan_strategy == "error"
        right = right and not self.curriculum.accumulates
        if method is None or not whole or not right:
            return None
        return method, batch.x.shape, batch.x.dtype, batch.y.shape, batch.pair is None, self.model.training

    def _warm_up_step(self, batch: Batch) -> Tensor:
        """A step on a side stream, so that PyTorch's lazy set-up is not captured."""
        assert self._stream is not None
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            loss = self._step(batch)
        torch.cuda.current_stream().wait_stream(self._stream)
        return loss

    def _step(self, batch: Batch) -> Tensor:
        if len(batch.index) == self.curriculum.batch_size:
            return self._run(lambda: self.curriculum.viewed_loss(self.model, batch))
        # The last batch may have another size in every epoch. A compiled model would be compiled again, and cuDNN would
        # benchmark its algorithms again, which takes longer than an epoch.
        model = distributed.uncompiled(self.model)
        tries, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False
        try:
            return self._run(lambda: self.curriculum.viewed_loss(model, batch))
        finally:
            torch.backends.cudnn.benchmark = tries

    def _run(self, compute: Callable[[], Tensor]) -> Tensor:
        with self._autocast():
            loss = compute()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def _can_be_captured(optimizer: torch.optim.Optimizer) -> bool:
    groups = optimizer.param_groups
    # Optimizers with this option can be captured only with capturable=True.
    if all(isinstance(group["lr"], Tensor) and group.get("capturable", group.get("fused")) for group in groups):
        return True
    warnings.warn(
        "steps run one kernel at a time, because a replayed graph would not see the learning rate change; make the "
        "optimizer with lr=torch.tensor(..., device='cuda') and capturable=True, or for SGD fused=True",
        stacklevel=3,
    )
    return False


class _Captured:
    """A graph and the tensors that it reads."""

    def __init__(self, batch: Batch, step: Callable[[Batch], Tensor], optimizer: torch.optim.Optimizer) -> None:
        self._batch = batch.with_(x=batch.x.clone(), y=batch.y.clone(), index=batch.index.clone())
        if batch.pair is not None:
            pair = Pair(batch.pair.y.clone(), batch.pair.index.clone(), batch.pair.share.clone())
            self._batch = self._batch.with_(pair=pair)
        self._graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)  # gradients must be allocated by the graph
        with torch.cuda.graph(self._graph):
            self._loss = step(self._batch)

    def replay(self, batch: Batch) -> Tensor:
        here = self._batch
        pairs = [(here.x, batch.x), (here.y, batch.y), (here.index, batch.index)]
        if here.pair is not None and batch.pair is not None:
            pairs += [(here.pair.y, batch.pair.y), (here.pair.index, batch.pair.index)]
            pairs += [(here.pair.share, batch.pair.share)]
        torch._foreach_copy_([mine for mine, _ in pairs], [new for _, new in pairs])  # one kernel for each type
        self._graph.replay()
        return self._loss
