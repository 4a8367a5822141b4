"""`Wrapper`: base class of methods around other methods, which forwards every verb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ...core import Batch, Epoch, Method, Step, checks

__all__ = ["Wrapper"]


class Wrapper(Method):
    """Abstract: a method around others. Forwards every verb to the epoch's inner method unless a subclass overrides it.

    Args:
        parts: The methods inside, by the name of their attribute. They must have the same number of rows.
    """

    n: int
    method: Method

    def __init__(self, **parts: Method) -> None:
        super().__init__()
        name = type(self).__name__
        for word, method in parts.items():
            if not isinstance(method, Method):
                raise TypeError(f"{word} of {name} must be a method such as APW(n, q), got {type(method).__name__}")
        sizes: dict[str, Any] = {word: method.n for word, method in parts.items() if hasattr(method, "n")}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"the methods of {name} were made for different numbers of rows: {sizes}")
        for word, method in parts.items():
            setattr(self, word, method)
        if sizes:
            self.n = next(iter(sizes.values()))

    def inner(self, epoch: int) -> Method:
        """The method whose weights and loss count in this epoch; by default the part called ``method``."""
        return self.method

    def active(self, epoch: int) -> Method:
        """The same, inside all wrappers."""
        inner = self.inner(epoch)
        return inner.active(epoch) if isinstance(inner, Wrapper) else inner

    @property
    def weights(self) -> Tensor:
        """(N,) weights of the inner method; no such attribute if it has none."""
        return self.now.weights  # type: ignore[return-value]

    @property
    def now(self) -> Method:
        """The method whose weights count outside a step."""
        return self.method

    def plan(self, epoch: Epoch) -> Tensor | None:
        """The inner method's."""
        return self.inner(epoch.number).plan(epoch)

    @checks.forwards
    def view(self, model: nn.Module, batch: Batch) -> Batch:
        """The inner method's."""
        return self.inner(batch.epoch).view(model, batch)

    def weigh(self, step: Step) -> Tensor:
        """The inner method's."""
        return self.inner(step.epoch).weigh(step)

    @checks.forwards
    def loss(self, step: Step) -> Tensor:
        """The inner method's."""
        return self.inner(step.epoch).loss(step)

    def report(self) -> Mapping[str, Any]:
        """The inner method's."""
        return self.now.report()
