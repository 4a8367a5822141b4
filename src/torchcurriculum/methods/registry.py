"""Every method by its name in its paper."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from ..core import Method, checks

__all__ = ["GROUP", "Entry", "build", "entry", "names", "register"]

GROUP = "torchcurriculum.methods"  # entry-point group: a name and the class of an installed package's method


@dataclass(frozen=True)
class Entry:
    """A method's name, its class, what it does in one line, when to use it and what it costs.

    ``fixed`` are the options that the name implies, such as the weighting of ``apw-e``.
    """

    name: str
    method: type[Method]
    summary: str
    when: str
    cost: str
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def options(self) -> dict[str, inspect.Parameter]:
        """The options of ``build`` for this name: the parameters of ``for_run`` and of the constructor."""
        told = inspect.signature(self.method.for_run).parameters
        open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in told.values())
        behind = inspect.signature(self.method).parameters if open_ended else {}
        known = {"n", "epochs", *self.fixed}
        return {
            name: parameter
            for name, parameter in {**behind, **told}.items()
            if name not in known and parameter.kind is not parameter.VAR_KEYWORD
        }


_ENTRIES: dict[str, Entry] = {}


def register(name: str, method: type[Method], summary: str, *, when: str, cost: str, **fixed: Any) -> None:
    """Registers a method under a name; its card in the docs is made from these arguments.

    Args:
        name: The name for ``build``.
        method: The class, whose docstring and defaults the card shows.
        summary: What it does, one line without a full stop.
        when: When to use it, and when not: a sentence or two.
        cost: Extra forward and backward passes, and memory per sample.
        fixed: Options that the name implies.
    """
    if name in _ENTRIES:
        raise ValueError(f"two methods are named {name!r}")
    _ENTRIES[name] = Entry(name, method, summary, when, cost, fixed)


def names() -> Iterable[str]:
    """All names, in the order in which the library lists them."""
    return tuple(_ENTRIES)


def entry(name: str) -> Entry:
    """The entry of a method; for an unknown name the error suggests similar ones.

    A name outside the library is ``"package.module:Class"``, or an entry point of the group "torchcurriculum.methods".
    """
    return _ENTRIES[name] if name in _ENTRIES else _outside(str(name))


def _outside(name: str) -> Entry:
    points = tuple(entry_points(group=GROUP, name=name))
    if ":" not in name and not points:
        raise ValueError(f"unknown method {name!r}; {checks.suggest(name, _ENTRIES)}")
    module, _, inside = (points[0].value if points else name).partition(":")
    try:
        found = getattr(import_module(module), inside)
    except Exception as error:  # a module can raise anything
        raise ValueError(f"the method {name!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise TypeError(f"{name!r} is not a subclass of torchcurriculum.Method, but {found!r:.60}")
    summary = (inspect.getdoc(found) or name).splitlines()[0].rstrip(".")
    return Entry(name, found, summary, when="", cost="")


def build(name: str, n: int, epochs: int, **options: Any) -> Method:
    """A method by its name in its paper.

    Args:
        name: For example ``"apw-e"``; ``names()`` lists them all.
        n: Rows of the training set.
        epochs: Epochs of the run; methods take their default pace from it (APW: q = epochs).
        options: Options of the method; its card lists them.

    Returns:
        The method, ready for a loop or a ``Curriculum``.

    Example:
        >>> build("apw-e", n=100, epochs=20).q
        20

    Raises:
        ValueError: If the method is unknown, or a knob has an invalid value.
        TypeError: If a knob is unknown or has the wrong type.
    """
    known = entry(name)
    n, epochs = checks.whole("n", n), checks.whole("epochs", epochs)
    taken = known.options()
    if foreign := [option for option in options if option not in taken]:
        have = ", ".join(taken) or "none"
        raise TypeError(f"{name!r} has no option {', '.join(map(repr, foreign))}; its options are {have}")
    if missing := [word for word, one in taken.items() if one.default is one.empty and word not in options]:
        raise TypeError(f"{name!r} needs {', '.join(missing)}; pass {missing[0]}=, see its card")
    return known.method.for_run(n, epochs, **known.fixed, **options)
