"""Every method, one row: how to make it, and what it promises beyond the contract that all keep."""

from __future__ import annotations

import math
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


STILL = {"q": math.inf}
GROWTH = "the set grows from a fraction; only the weights, not the growth, have a strength"
MIXING = "it mixes inputs whatever the weights; equal weights give plain mixup, not vanilla"
PAIRS = "partners are drawn within a rank's part of the batch"

TABLE = [
    Row("vanilla", zero={}),
    Row("apw-e", {"q": 3}, zero=STILL),
    Row("apw-i", {"q": 3}, zero=STILL),
    Row("apw-ei", {"q": 3}, zero=STILL),
    Row("apw-e", {"q": 3, "tau": 0.7}, zero={"q": math.inf}),
    Row("apw-e", {"q": 3}, zero=STILL, measure="running"),
    Row("apw-ei", {"q": 3}, zero=STILL, measure="running"),
    Row("apw-e", {"q": 3, "threshold": "auto"}, zero=STILL),
    Row("s-apw-a", {"q": 3, "fraction": 0.4}, zero_reason=GROWTH),
    Row("s-apw-e", {"q": 3, "fraction": 0.4}, zero_reason=GROWTH),
    Row("s-apw-i", {"q": 3, "fraction": 0.4}, zero_reason=GROWTH),
    Row("s-apw-ei", {"q": 3, "fraction": 0.4}, zero_reason=GROWTH),
    Row("m-apw-e", {"q": 3}, zero_reason=MIXING, ranks_reason=PAIRS),
    Row("m-apw-e", {"q": 3, "reading": "weights"}, zero_reason=MIXING, ranks_reason=PAIRS),
    Row("m-apw-e", {"q": 3, "reading": "labels"}, zero_reason=MIXING, ranks_reason=PAIRS),
    Row("m-apw-i", {"q": 3}, zero_reason=MIXING, ranks_reason=PAIRS),
    Row("m-apw-ei", {"q": 3}, zero_reason=MIXING, ranks_reason=PAIRS),
    Row("mixup", zero_reason=MIXING, ranks_reason=PAIRS),
]
