"""A tiny problem that every method of the contract table can learn: 37 images of 8x8, 3 classes, float64."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from torchcurriculum import Arrays, Curriculum, Method, methods

from .row import Row

N, CLASSES, BATCH, EPOCHS = 37, 3, 8, 4


def data() -> Arrays:
    """Three blurry patterns plus noise, every fifth label wrong."""
    generator = torch.Generator().manual_seed(7)
    patterns = torch.rand(CLASSES, 1, 8, 8, generator=generator, dtype=torch.float64)
    y = torch.arange(N) % CLASSES
    x = patterns[y] + 0.3 * torch.randn(N, 1, 8, 8, generator=generator, dtype=torch.float64)
    y[::5] = (y[::5] + 1) % CLASSES
    return Arrays(x, y)


def model() -> nn.Module:
    """A convolution and a linear layer, no batch statistics: one rank and two can then agree exactly."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(CLASSES)).double()
        net(torch.zeros(1, 1, 8, 8, dtype=torch.float64))
    return net


def method(row: Row, zero: bool = False) -> Method:
    """The row's method; ``zero`` makes it with the knobs at which it is vanilla, or nearest to it."""
    if row.make is not None:
        return row.zero(data()) if zero and callable(row.zero) else row.make(data())
    options = row.options(data()) if callable(row.options) else row.options
    knobs = row.zero if zero and isinstance(row.zero, dict) else {}
    return methods.build(row.name, N, EPOCHS, **{**options, **knobs})


class Run:
    """A training run that can be stopped after any step and taken up again from its state."""

    def __init__(
        self,
        made: Method,
        row: Row,
        wrap: Callable[[nn.Module], nn.Module] = lambda net: net,
        rows: Arrays | None = None,
        **more: Any,
    ) -> None:
        self.net = model()
        self.wrapped = wrap(self.net)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1, momentum=0.9)
        options: dict[str, Any] = {"batch_size": BATCH, "seed": 5, "measure": row.measure, **more}
        self.curriculum = Curriculum(made, rows or data(), **options)

    def train(self, epochs: int = EPOCHS, stop_after: int | None = None) -> Run:
        """Trains until ``epochs`` epochs are done in all, or until ``stop_after`` more steps are."""
        steps = 0
        while self.curriculum.number < epochs or self.curriculum.is_open:
            for batch in self.curriculum.epoch(self.wrapped):
                loss = self.curriculum.loss(self.wrapped, batch)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                steps += 1
                if steps == stop_after:
                    return self
        return self

    def state(self) -> dict[str, Any]:
        """Everything, as a user would put it into one checkpoint."""
        parts = {"net": self.net, "optimizer": self.optimizer, "curriculum": self.curriculum}
        return copy.deepcopy({name: part.state_dict() for name, part in parts.items()})

    def load(self, state: dict[str, Any]) -> Run:
        """Takes everything back."""
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.curriculum.load_state_dict(state["curriculum"])
        return self

    def tensors(self) -> dict[str, Tensor]:
        """Parameters and the method's state: what must be equal between two runs that are the same."""
        state = {f"net.{name}": value for name, value in self.net.state_dict().items()}
        state.update({f"method.{name}": value for name, value in self.curriculum.method.state_dict().items()})
        return state


def differences(a: dict[str, Tensor], b: dict[str, Tensor]) -> dict[str, float]:
    """The largest absolute difference of each entry."""
    assert a.keys() == b.keys()
    return {
        name: (a[name].double() - b[name].double()).abs().nan_to_num(0.0).max().item() for name in a if a[name].numel()
    }
