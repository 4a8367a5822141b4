"""What a row of the contract table says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Row:
    """A method of ``methods.build`` under the contract.

    Args:
        name: Its name.
        options: Options for ``build``, or a function of the data set that gives them.
        zero: The options at which it is vanilla bit for bit; None with ``zero_reason``.
        zero_reason: Why it has no such setting.
        ranks_reason: Why one rank and two may differ; empty if they agree to 1e-12.
        permutes_reason: Why permuting a batch does not just permute its weights; empty if it does.
        sums: What the weights of a batch add up to: ``"one"``, or ``"any"`` for weights that are not normalised.
        measure: Where the losses come from.
    """

    name: str
    options: dict[str, Any] | Callable[[Any], dict[str, Any]] = field(default_factory=dict)
    zero: dict[str, Any] | None = None
    zero_reason: str = ""
    ranks_reason: str = ""
    permutes_reason: str = ""
    sums: Literal["one", "any"] = "one"
    measure: Literal["pass", "running"] = "pass"

    @property
    def label(self) -> str:
        """The name, and what tells rows of the same name apart."""
        extra = self.options if isinstance(self.options, dict) else {}
        marks = [f"{key}={value}" for key, value in extra.items() if isinstance(value, str | float | int)]
        return "-".join([self.name, *marks, *(["running"] if self.measure == "running" else [])])
