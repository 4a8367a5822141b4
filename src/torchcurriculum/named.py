"""`make_method`: makes a method for a training set from a name or a class."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from .core import Method

__all__ = ["MethodLike", "find_maker", "make_method"]

MethodLike = str | type[Method] | Method | Callable[..., Method]


def make_method(
    method: MethodLike,
    n: int,
    epochs: int | None = None,
    options: Mapping[str, Any] | None = None,
    run_epochs: int | None = None,
) -> Method:
    """The method for a training set of ``n`` rows.

    Args:
        method: A name in ``curriculum list``, ``"package.module:Class"``, a class, a function
            ``(n, epochs, **options) -> method``, or a method, which is returned as it is.
        n: Rows of the training set.
        epochs: Epochs of the run, as the user gives them.
        options: Options of the method.
        run_epochs: Epochs of the run, as the trainer knows them.

    Example:
        >>> make_method("apw-e", 100, 20, {"tau": 0.4}).tau
        0.4
        >>> make_method("apw-e", 100)
        Traceback (most recent call last):
        ValueError: 'apw-e' takes its schedule from the length of the run; pass epochs= or a method instance
    """
    if isinstance(method, Method):
        given = [*(options or ()), *(() if epochs is None else ("epochs",))]
        if given:
            name, ignored = type(method).__name__, ", ".join(given)
            raise TypeError(f"{name} is an instance, so it cannot take {ignored}; pass its name or its class instead")
        return method
    cls, make = find_maker(method)
    epochs = run_epochs if epochs is None else epochs
    if epochs is None:
        if cls is None or "epochs" in inspect.signature(cls).parameters or "for_run" in _inherited(cls):
            name = _describe(method)
            raise ValueError(f"{name} takes its schedule from the length of the run; pass epochs= or a method instance")
        epochs = 1  # not used
    made = make(n, epochs, **(options or {}))
    if not isinstance(made, Method):
        raise TypeError(f"{_describe(method)} returned {type(made).__name__}, which is not a method such as APW(n, q)")
    return made


def find_maker(method: Any) -> tuple[type[Method] | None, Callable[..., Any]]:
    """The class, where it is known, and ``(n, epochs, **options) -> method``."""
    if isinstance(method, str):
        from .methods import registry  # imported here, so that Curriculum does not load all methods

        return registry.entry(method).method, lambda n, epochs, **options: registry.build(method, n, epochs, **options)
    if isinstance(method, type) and issubclass(method, Method):
        return method, method.for_run
    if isinstance(method, type | nn.Module) or not callable(method):
        got = _describe(method)
        raise TypeError(
            f"method must be a name such as 'rapw', a class, a method, or a function (n, epochs), got {got}"
        )
    return None, method


def _inherited(cls: type[Method]) -> set[str]:
    """The names that the class and its parents below ``Method`` define."""
    return {name for parent in cls.__mro__[: cls.__mro__.index(Method)] for name in vars(parent)}


def _describe(method: Any) -> str:
    named = isinstance(method, type) or inspect.isroutine(method)
    return method.__name__ if named else repr(method)[:60]
