"""Knobs, and values of any kind."""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["FLOATS", "class_counts", "describe", "map_leaves", "one_of", "real", "row_values", "suggest", "whole"]

FLOATS = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))


def whole(name: str, value: Any, least: int | None = 1, what: str = "a whole number") -> int:
    """``value`` as an int of at least ``least``; None sets no limit.

    Example:
        >>> whole("epochs", 0)
        Traceback (most recent call last):
        ValueError: epochs must be a whole number, at least 1, got 0
    """
    number = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not number or (least is not None and value < least):
        limit = "" if least is None else f", at least {least}"
        raise ValueError(f"{name} must be {what}{limit}, got {value!r:.60}")
    return int(value)


def real(name: str, value: Any, interval: str, hint: str = "") -> None:
    """Refuses anything but a number in ``interval``, in mathematical notation such as ``"(0, 1]"``.

    Example:
        >>> real("tau", 1.5, "(0, 1)", "the paper takes 0.5")
        Traceback (most recent call last):
        ValueError: tau must be a number in (0, 1), got 1.5; the paper takes 0.5
    """
    low, high = (float(end) for end in interval[1:-1].split(","))
    inside = isinstance(value, numbers.Real) and not isinstance(value, bool)
    inside = inside and (low <= value if interval[0] == "[" else low < value)
    if not inside or not (value <= high if interval[-1] == "]" else value < high):
        raise ValueError(f"{name} must be a number in {interval}, got {value!r:.60}" + (f"; {hint}" if hint else ""))


def one_of(name: str, value: Any, words: Sequence[Any]) -> None:
    """Refuses anything but one of ``words``.

    Example:
        >>> one_of("order", "eazy", ["easy", "hard"])
        Traceback (most recent call last):
        ValueError: order must be 'easy' or 'hard', got 'eazy'
    """
    if not isinstance(value, str) or value not in words:
        *others, last = map(repr, words)
        raise ValueError(f"{name} must be {', '.join(others)}{' or ' if others else ''}{last}, got {value!r:.60}")


def suggest(name: str, known: Iterable[str]) -> str:
    """The names that an unknown one may stand for, or all of them, for an error message.

    Example:
        >>> suggest("eazy", ["easy", "hard"]), suggest("x", ["easy", "hard"])
        ("did you mean 'easy'?", 'known: easy, hard')
    """
    known = list(known)
    close = difflib.get_close_matches(name, known, n=3)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else f"known: {', '.join(known)}"


def row_values(name: str, values: Any, n: int, integers: bool = False) -> Tensor:
    """``values`` as a checked tensor (n,) of numbers."""
    try:
        values = torch.as_tensor(values).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} must hold {n} numbers, got {type(values).__name__}: {error}") from error
    if values.shape != (n,):
        raise ValueError(
            f"{name} must have one value for each of the {n} rows, shape ({n},), got {tuple(values.shape)}"
        )
    if integers and (values.is_floating_point() or values.is_complex()):
        raise ValueError(f"{name} must be {n} whole numbers, got {values.dtype}")
    if bool(values.isnan().any()):
        raise ValueError(f"{name} are NaN at rows {values.isnan().nonzero().flatten()[:8].tolist()}")
    return values


def describe(value: Any) -> str:
    """What a user passed, for an error message: the type and shape of a tensor, or the type of anything else.

    Example:
        >>> describe(torch.zeros(2, 3)), describe([1])
        ('torch.float32 of shape (2, 3)', 'list')
    """
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def map_leaves(change: Callable[[Any], Any], value: Any) -> Any:
    """``value`` with ``change`` applied to everything inside its dicts, tuples, named tuples and lists.

    Example:
        >>> map_leaves(lambda leaf: 2 * leaf, {"x": [1, 2], "y": (3,)})
        {'x': [2, 4], 'y': (6,)}
    """
    if isinstance(value, Mapping):
        return {key: map_leaves(change, part) for key, part in value.items()}
    if isinstance(value, tuple | list) and not isinstance(value, nn.utils.rnn.PackedSequence):
        parts = [map_leaves(change, part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return change(value)


def class_counts(counts: Any) -> Tensor:
    """(C,) the rows of each class, as a tensor."""
    try:
        known = torch.as_tensor(counts)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"counts must hold the rows of each class, got {type(counts).__name__}: {error}") from error
    if known.ndim != 1 or len(known) < 2 or not bool((known > 0).all()):
        raise ValueError(
            f"counts must hold the rows of each class, at least 1 for each of 2 or more classes, got {counts!r:.80}; "
            "use torch.bincount(labels)"
        )
    return known
