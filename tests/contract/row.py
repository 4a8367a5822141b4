"""What a row of the contract table says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from torchcurriculum import Method

Maker = Callable[[Any], Method]


@dataclass(frozen=True)
class Row:
    """A method under the contract: one of ``methods.build``, or several put together.

    A reason is an expected failure: the check is run and must fail, so a reason that no longer holds fails the test.

    Args:
        name: Its name in ``methods.build``; with ``make``, any name.
        options: Options for ``build``, or a function of the data set that gives them.
        make: ``make(data) -> Method`` for methods that ``build`` does not know.
        zero: The options (with ``make``: the maker) at which it is vanilla bit for bit. With ``zero_reason``, those
            that come nearest; None is the method as it is.
        zero_reason: Why it has no such setting.
        trains_reason: Why the loss does not fall in a short run.
        ranks_reason: Why one rank and several differ; empty if they agree to 1e-12.
        permutes_reason: Why permuting a batch does not just permute its weights; empty if it does.
        sums: What the weights of a batch add up to: ``"one"``, or ``"any"`` for weights that are not normalised.
        inner_sums: The same for the methods inside; None is as ``sums``.
        measure: Where the losses come from.
        rank_batch: The batch size with several ranks: with three, a rank must be without rows in some batch.
    """

    name: str
    options: dict[str, Any] | Callable[[Any], dict[str, Any]] = field(default_factory=dict)
    make: Maker | None = None
    zero: dict[str, Any] | Maker | None = None
    zero_reason: str = ""
    trains_reason: str = ""
    ranks_reason: str = ""
    permutes_reason: str = ""
    sums: Literal["one", "any"] = "one"
    inner_sums: Literal["one", "any"] | None = None
    measure: Literal["pass", "running"] = "pass"
    rank_batch: int = 7

    @property
    def label(self) -> str:
        """The name, and what tells rows of the same name apart."""
        extra = self.options if isinstance(self.options, dict) else {}
        marks = [f"{key}={value}" for key, value in extra.items() if isinstance(value, str | float | int)]
        return "-".join([self.name, *marks, *(["running"] if self.measure == "running" else [])])
