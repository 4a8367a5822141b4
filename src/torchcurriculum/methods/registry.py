"""Every method by its name in its paper."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

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
    """
    return entry(name).factory(n, epochs, **options)
