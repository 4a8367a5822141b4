"""A method from what an estimator was given: a name, or a function that makes one for any training set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..core import Method
from ..methods import build

__all__ = ["make_method"]


def make_method(method: str | Callable[..., Method], n: int, epochs: int, options: Mapping[str, Any]) -> Method:
    """The method for a training set of ``n`` rows.

    Args:
        method: A method's name in ``curriculum list``, or a function ``(n, epochs, **options) -> method``.
        n: Rows of the training set.
        epochs: Epochs of the run.
        options: The method's own.

    Example:
        >>> make_method("apw-e", 100, 20, {"tau": 0.4}).tau
        0.4
    """
    if isinstance(method, str):
        return build(method, n, epochs, **options)
    if isinstance(method, Method) or not callable(method):
        raise TypeError(
            f"method must be a name or a function (n, epochs) -> method, got {type(method).__name__}; one that is made "
            "already knows one training set only, and an estimator is fitted to many"
        )
    return method(n, epochs, **options)
