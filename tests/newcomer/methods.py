"""Methods as a newcomer writes them: each overrides one verb, sets no class attribute and knows nothing of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchcurriculum import Batch, Epoch, Method, Step

MASK = 1  # the token that stands for a masked one


class Thirds(Method):
    """Leaves out a third of the rows, another one in each epoch."""

    def plan(self, epoch: Epoch) -> Tensor:
        rows = torch.arange(epoch.n)
        return rows[(rows + epoch.number) % 3 != 0]


class WithoutHardest(Method):
    """Leaves out the tenth of the rows with the largest losses, after the first epoch."""

    def plan(self, epoch: Epoch) -> Tensor | None:
        if epoch.number == 1:
            return None
        return epoch.last.argsort(stable=True)[: epoch.n - epoch.n // 10]


class Dims(Method):
    """Dark inputs that become brighter with each epoch; of tokens, every fourth kind is masked, another each epoch."""

    def view(self, model: nn.Module, batch: Batch) -> Batch:
        if isinstance(batch.x, Mapping):
            ids = batch.x["input_ids"]
            return batch.with_(x={**batch.x, "input_ids": torch.where(ids % 4 == batch.epoch % 4, MASK, ids)})
        return batch.with_(x=batch.x * (1 - 0.5**batch.epoch))


class Shakes(Method):
    """Noise on the inputs, less with each epoch."""

    def view(self, model: nn.Module, batch: Batch) -> Batch:
        noise = torch.randn(batch.x.shape, generator=batch.generator("shakes"), dtype=batch.x.dtype)
        return batch.with_(x=batch.x + noise / batch.epoch)


class Trusts(Method):
    """Weights proportional to exp(-loss), sharper with each epoch and equal in the first."""

    def weigh(self, step: Step) -> Tensor:
        return step.normalise((1 - step.epoch) * step.losses.detach())


class Clips(Method):
    """The average of losses that are clipped, at a higher value in each epoch."""

    def loss(self, step: Step) -> Tensor:
        clipped = step.losses.clamp_max(0.8 + 0.1 * step.epoch)
        return step.with_(losses=clipped).reduce(self.weigh(step))


class Remembers(Method):
    """Weights proportional to exp(-m), m a running mean of each row's losses."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.add_rows("mean", torch.zeros(n, dtype=torch.float64))

    def weigh(self, step: Step) -> Tensor:
        mean = (self.mean[step.index] + step.losses.detach()) / 2
        self.mean[step.index] = mean
        return step.normalise(-mean)


class Shrinks(Method):
    """Every second pixel, for a network that takes small images only."""

    def view(self, model: nn.Module, batch: Batch) -> Batch:
        return batch.with_(x=batch.x[..., ::2, ::2])


class Counts(Method):
    """Weights proportional to exp(-visits), which asks for no losses."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.add_rows("visits", torch.zeros(n, dtype=torch.float64))

    def weigh(self, step: Step) -> Tensor:
        self.visits[step.index] += 1
        return step.normalise(-self.visits[step.index])


VERBS: dict[type[Method], str] = {
    Thirds: "plan",
    WithoutHardest: "plan",
    Dims: "view",
    Shakes: "view",
    Trusts: "weigh",
    Clips: "loss",
    Remembers: "weigh",
}
METHODS = list(VERBS)
PLANS, VIEWS = (Thirds, WithoutHardest), (Dims, Shakes)
DRAWS = (Shakes,)  # what a rank draws is a function of the rank


def made(cls: type[Method], n: int) -> Any:
    """The method for a set of ``n`` rows."""
    return cls(n) if cls in (Remembers, Counts) else cls()


# ---------------------------------------------------------------------- the same, worked out without the library


class Oracle:
    """What a method must do, in plain PyTorch and in one process.

    Args:
        cls: The method's class; None is plain training.
        n: Rows of the training set.
    """

    def __init__(self, cls: type[Method] | None, n: int) -> None:
        self.cls, self.n = cls, n
        self.memory = torch.zeros(n, dtype=torch.float64)

    def rows(self, epoch: int, last: Tensor) -> list[int]:
        """The rows of an epoch, in ascending order."""
        if self.cls is Thirds:
            return [row for row in range(self.n) if (row + epoch) % 3]
        if self.cls is WithoutHardest and epoch > 1:
            order = sorted(range(self.n), key=lambda row: last[row].item())
            return sorted(order[: self.n - self.n // 10])
        return list(range(self.n))

    def view(self, batch: Batch, epoch: int) -> Any:
        """The inputs as the model must see them."""
        if self.cls is Dims and isinstance(batch.x, Mapping):
            ids = batch.x["input_ids"].clone()
            ids[ids % 4 == epoch % 4] = MASK
            return {**batch.x, "input_ids": ids}
        if self.cls is Dims:
            return batch.x * (1 - 0.5**epoch)
        if self.cls is Shakes:
            generator = batch.generator("shakes")
            return batch.x + torch.randn(batch.x.shape, generator=generator, dtype=batch.x.dtype) / epoch
        return batch.x

    def weights(self, losses: Tensor, index: Tensor, epoch: int) -> Tensor:
        """(B,) weights; remembers what the method must remember."""
        if self.cls is Trusts:
            return torch.softmax((1 - epoch) * losses.detach(), 0)
        if self.cls is Remembers:
            self.memory[index] = 0.5 * self.memory[index] + 0.5 * losses.detach()
            return torch.softmax(-self.memory[index], 0)
        return torch.full_like(losses, 1 / len(losses)).detach()

    def scalar(self, losses: Tensor, index: Tensor, epoch: int) -> Tensor:
        """The scalar loss of a batch."""
        weights = self.weights(losses, index, epoch).to(losses.dtype)
        if self.cls is Clips:
            losses = torch.minimum(losses, torch.full_like(losses, 0.8 + 0.1 * epoch))
        return (weights * losses).sum()
