"""Every method by its name in its paper."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..core import Method

__all__ = ["Entry", "build", "names", "register", "summary"]

Factory = Callable[..., Method]


@dataclass(frozen=True)
class Entry:
    """A method's name, what it does in one line, and how to make it."""

    name: str
    summary: str
    factory: Factory


_ENTRIES: dict[str, Entry] = {}


def register(name: str, summary: str) -> Callable[[Factory], Factory]:
    """Enters ``factory(n, epochs, **options)`` under ``name``."""

    def enter(factory: Factory) -> Factory:
        if name in _ENTRIES:
            raise ValueError(f"there are two methods called {name!r}")
        _ENTRIES[name] = Entry(name, summary, factory)
        return factory

    return enter


def names() -> Iterable[str]:
    """All names, in the order in which the library lists them."""
    return tuple(_ENTRIES)


def summary(name: str) -> str:
    """What the method does, in one line."""
    return _find(name).summary


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
    return _find(name).factory(n, epochs, **options)


def _find(name: str) -> Entry:
    if name not in _ENTRIES:
        close = difflib.get_close_matches(name, _ENTRIES, n=3)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"known: {', '.join(_ENTRIES)}"
        raise ValueError(f"there is no method called {name!r}; {hint}")
    return _ENTRIES[name]
