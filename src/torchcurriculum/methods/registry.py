"""Every method by its name in its paper."""

from __future__ import annotations

import difflib
import inspect
import numbers
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..core import Method

__all__ = ["Entry", "build", "entry", "names", "register"]

Factory = Callable[..., Method]


@dataclass(frozen=True)
class Entry:
    """A method's name, its class, what it does in one line, when to use it, what it costs, and how to make it."""

    name: str
    method: type[Method]
    summary: str
    when: str
    cost: str
    factory: Factory


_ENTRIES: dict[str, Entry] = {}


def register(name: str, method: type[Method], summary: str, *, when: str, cost: str) -> Callable[[Factory], Factory]:
    """Enters ``factory(n, epochs, **options)`` under ``name``; its card in the docs is made from what is said here.

    Args:
        name: The name for ``build``.
        method: The class, whose docstring and defaults the card shows.
        summary: What it does, one line without a full stop.
        when: When to use it, and when not: a sentence or two.
        cost: Extra forward and backward passes, and memory for each sample.

    Returns:
        A decorator for the factory.
    """

    def enter(factory: Factory) -> Factory:
        if name in _ENTRIES:
            raise ValueError(f"there are two methods called {name!r}")
        _ENTRIES[name] = Entry(name, method, summary, when, cost, factory)
        return factory

    return enter


def names() -> Iterable[str]:
    """All names, in the order in which the library lists them."""
    return tuple(_ENTRIES)


def entry(name: str) -> Entry:
    """What is known of a method; an unknown name is answered with the nearest ones."""
    if name not in _ENTRIES:
        close = difflib.get_close_matches(name, _ENTRIES, n=3)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"known: {', '.join(_ENTRIES)}"
        raise ValueError(f"there is no method called {name!r}; {hint}")
    return _ENTRIES[name]


def build(name: str, n: int, epochs: int, **options: Any) -> Method:
    """A method by its name in its paper.

    Args:
        name: For example ``"apw-e"``; ``names()`` lists them all.
        n: Rows of the training set.
        epochs: Epochs of the run; methods take their default pace from it (APW: q = epochs).
        options: Passed on to the method's own class.

    Returns:
        The method, ready for a loop or a ``Curriculum``.

    Example:
        >>> build("apw-e", n=100, epochs=20).q
        20

    Raises:
        ValueError: If there is no such method, or a knob has a value that it cannot have.
        TypeError: If a knob is of another type than the method's class says.
    """
    for word, value in {"n": n, "epochs": epochs}.items():
        if not isinstance(value, numbers.Integral) or value < 1:
            raise ValueError(f"{word} must be a whole number of at least 1, got {value!r:.60}")
    known = entry(name)
    _refuse_wrong_types(known, options)
    return known.factory(int(n), int(epochs), **options)


def _refuse_wrong_types(known: Entry, options: Mapping[str, Any]) -> None:
    """Here for all methods, so that each checks only what its own knobs mean."""
    hints = get_type_hints(known.method.__init__)
    words = inspect.signature(known.method).parameters
    for knob, value in options.items():
        if knob in hints and not _fits(value, hints[knob]):
            raise TypeError(f"{knob} of {known.name!r} must be {words[knob].annotation}, got {value!r:.60}")


def _fits(value: Any, hint: Any) -> bool:
    kind = get_origin(hint) or hint
    if kind is Any:
        return True
    if kind in (Union, UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    if kind is Literal:
        return isinstance(value, str)  # which words there are, the method says better
    if kind in (int, float):
        number = numbers.Integral if kind is int else numbers.Real
        return isinstance(value, number) and not isinstance(value, bool)
    return isinstance(value, kind) if isinstance(kind, type) else True
