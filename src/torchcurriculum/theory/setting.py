"""The setting of the paper's theorems, and whether a record has it.

Each epoch's row holds the settings of the run: ``q``, ``tau``, ``weighting``, ``threshold_kind`` (reported by APW) and
``measure`` (written by the code that measures losses). Missing values are looked up in the record's ``meta``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..record import Record, RecordError

__all__ = ["PAPER", "check_setting", "recorded"]

PAPER = {"tau": 0.5, "weighting": "E", "threshold_kind": "fixed", "measure": "pass"}
REASONS = {
    "tau": "alpha is log((1 - rho) / rho) / q only with tau = 1/2",
    "weighting": "weights that change inside epochs do not follow from alpha and the easiness at their starts",
    "threshold_kind": "the easy samples of the theorems are those of one e",
    "measure": "rho and the easiness must come from losses measured at the start of the epoch",
}


def check_setting(record: Record) -> None:
    """Refuses a record whose settings differ from those of the theorems or are missing.

    A loop that calls ``APW.advance`` itself writes no ``measure``: ``advance`` uses losses at the start of the epoch.

    Raises:
        RecordError: With the first epoch that differs, its value, and why the theorems do not apply.

    Example:
        >>> record = Record(2, PAPER | {"tau": 0.3})
        >>> record.append({"alpha": 0.1})
        >>> check_setting(record)   # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        torchcurriculum.record.disk.RecordError: the theorems do not apply to this run: epoch 1 has tau = 0.3, and ...
    """
    for number, row in enumerate(record.epochs, 1):
        unsaid = [name for name in PAPER if name != "measure" and _value(record, row, name) is None]
        if unsaid:
            raise RecordError(
                f"epoch {number} of this record lacks {' and '.join(unsaid)}, as records from before version "
                "0.2 do, so it is unknown whether the theorems apply. If the run was in the paper's setting, add "
                "it: record.meta.update(theory.PAPER, q=...)"
            )
        for difference, reason in _differences(record, row):
            raise RecordError(f"the theorems do not apply to this run: epoch {number} {difference}, and {reason}")
    values = {value for row in record.epochs if isinstance(value := row.get("threshold"), float)}
    if len(values) > 1:
        low, high, why = min(values), max(values), REASONS["threshold_kind"]
        raise RecordError(f"the theorems do not apply to this run: its e goes from {low:g} to {high:g}, and {why}")


def recorded(record: Record, name: str) -> Any:
    """The common value of ``name`` in all epochs; None if there is none.

    Raises:
        RecordError: If it changed during the run.
    """
    values = [_value(record, row, name) for row in record.epochs]
    for number, value in enumerate(values, 1):
        if value != values[0]:
            first, now = f"{name} = {values[0]!r:.40}", f"{value!r:.40}"
            raise RecordError(f"the theorems do not apply to this run: {first} in epoch 1 and {now} in epoch {number}")
    return values[0] if values else None


def _value(record: Record, row: dict[str, Any], name: str) -> Any:
    value = row.get(name)
    return record.meta.get(name) if value is None else value


def _differences(record: Record, row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, expected in PAPER.items():
        value = _value(record, row, name)
        if value is not None and value != expected:
            yield f"has {name} = {value!r:.40}", REASONS[name]
    if row.get("growing"):
        yield "drew rows by their weights (S-APW)", "the network was trained on the average loss of only these rows"
    rows = row.get("rows")
    if isinstance(rows, int) and rows != record.n:
        yield f"trained on {rows} of {record.n} rows", "the loss of the theorems is that of all rows"
    if row.get("reading") is not None:
        yield "mixed samples (M-APW)", "the loss of the theorems is that of the samples themselves"
