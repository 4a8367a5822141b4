"""A recipe: the complete, frozen description of a set of runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

__all__ = ["Recipe"]


@dataclass(frozen=True)
class Recipe:
    """Everything that a set of runs depends on, except the code.

    Args:
        name: Its name on the command line.
        summary: What it shows, one line.
        data: Name of the data set.
        model: Name of the network.
        methods: Names for ``methods.build``; ``vanilla`` first.
        seeds: Split, label noise, initial weights and order all change with the seed.
        epochs: Epochs of each run.
        batch_size: Rows in a batch.
        lr: Learning rate of SGD.
        momentum: Its momentum.
        weight_decay: Its weight decay.
        lr_min: Where the cosine schedule ends.
        noise_rate: Share of training labels that are flipped.
        threshold: The error threshold e of APW: a number, or ``"paper"`` for the rule of the paper at ``noise_rate``.
        measure: Where the losses come from: ``"pass"`` or ``"running"``.
        precision: ``"float32"``, or ``"bfloat16"`` for mixed precision.
        compile: Whether training steps go through ``torch.compile``.
        options: Further options for a method, by its name.
    """

    name: str
    summary: str
    data: str
    model: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    epochs: int
    batch_size: int
    lr: float
    momentum: float = 0.9
    weight_decay: float = 5e-4
    lr_min: float = 1e-6
    noise_rate: float = 0.0
    threshold: float | Literal["paper", "auto"] = "paper"
    measure: Literal["pass", "running"] = "pass"
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False
    options: dict[str, dict[str, Any]] = field(default_factory=dict)

    def with_(self, **changes: Any) -> Recipe:
        """A copy with some fields replaced."""
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
