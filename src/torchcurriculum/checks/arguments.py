"""Arguments of constructors, and the parent that checks them."""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import math
import numbers
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor, nn

from .knobs import whole

__all__ = ["REMOVED", "Guarded", "OtherKnobs", "check_types", "fits", "forwards", "plain"]

MANY = 100  # numbers of a list that are told apart by a checksum
Verb = TypeVar("Verb", bound=Callable[..., Any])
REMOVED = {  # hooks of version 0.1, and what to do instead
    "views": "nothing: overriding view is enough",
    "view_exchanges": "nothing: view is always called, even with an empty batch",
    "weighs_by_loss": "nothing: step.losses are computed when weigh reads them",
    "plan_whole": "epoch.whole in plan: True where every row's weight must be current afterwards",
    "sync": "add_rows(name, values): per-row state that the base class keeps equal on all ranks",
    "fused": "nothing: fast paths are in torchcurriculum.fast, by the exact class",
    "graph_key": "nothing: fast paths are in torchcurriculum.fast, by the exact class",
}


def forwards(verb: Verb) -> Verb:
    """Marks a verb that only forwards its call."""
    verb.forwards = True  # type: ignore[attr-defined]
    return verb


def check_types(made: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a constructor to check its arguments against its type hints, and to refuse NaN, by name.

    Example:
        >>> class Knob:
        ...     @check_types
        ...     def __init__(self, size: int = 1) -> None: ...
        >>> Knob(size="large")
        Traceback (most recent call last):
        TypeError: size of Knob must be int, got 'large'
    """
    signature = inspect.signature(made)
    named = {name for name, p in signature.parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}

    @functools.wraps(made)
    def checked(owner: Any, *args: Any, **options: Any) -> Any:
        cls = owner if isinstance(owner, type) else type(owner)
        try:
            given = signature.bind(owner, *args, **options).arguments
        except TypeError as error:
            raise TypeError(f"{cls.__name__}: {error}") from None
        hints = _hints_of(made)
        for name in named & given.keys():
            if name in hints and not fits(given[name], hints[name]):
                kind = signature.parameters[name].annotation
                raise TypeError(f"{name} of {cls.__name__} must be {kind}, got {given[name]!r:.60}")
            if isinstance(given[name], float) and math.isnan(given[name]):
                raise ValueError(f"{name} of {cls.__name__} is NaN; pass a number")
        if not isinstance(owner, type) and "_arguments" not in vars(owner):  # the outermost constructor's
            bound = signature.bind(owner, *args, **options)
            bound.apply_defaults()
            object.__setattr__(owner, "_arguments", dict(list(bound.arguments.items())[1:]))
        return made(owner, *args, **options)

    return checked


def plain(value: Any) -> Any:
    """A knob for JSON: numbers and strings as they are, tensors as a checksum, methods as their knobs.

    Example:
        >>> plain((1, 0.5, None)), plain(torch.zeros(2)), plain(abs)
        ([1, 0.5, None], 'float32 (2,) b81ef4', 'abs')
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, numbers.Real):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    if isinstance(value, Guarded):
        return {"class": type(value).__name__, **value.arguments}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        many = len(value) > MANY and all(isinstance(part, int | float) for part in value)
        return plain(np.asarray(value, dtype=float)) if many else [plain(part) for part in value]
    if isinstance(value, Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1)
        return _checksum(str(value.dtype)[6:], tuple(value.shape), flat.view(torch.uint8).numpy().tobytes())
    if hasattr(value, "__array__"):  # of NumPy or pandas
        array = np.asarray(value)
        as_it_is = not array.ndim or array.dtype.kind not in "biuf"
        return plain(array.tolist()) if as_it_is else _checksum(str(array.dtype), array.shape, array.tobytes())
    return getattr(value, "__qualname__", type(value).__name__)


def _checksum(kind: str, shape: tuple[int, ...], held: bytes) -> str:
    return f"{kind} {shape} {hashlib.blake2b(held, digest_size=3).hexdigest()}"


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the kind that a type hint names; numbers of NumPy count as numbers."""
    kind = get_origin(hint) or hint
    if kind is Any:
        return True
    if kind in (Union, UnionType):
        return any(fits(value, part) for part in get_args(hint))
    if kind is Literal:
        return isinstance(value, str)  # the method itself checks the allowed words
    if kind in (int, float):
        number = numbers.Integral if kind is int else numbers.Real
        return isinstance(value, number) and not isinstance(value, bool)
    try:
        return isinstance(value, kind) if isinstance(kind, type) else True
    except TypeError:  # a Protocol or TypedDict
        return True


def _hints_of(made: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(made)
    except NameError:  # names imported under TYPE_CHECKING only
        return {}


def _check_run(made: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps ``for_run`` to check its arguments, including n and epochs."""

    @functools.wraps(made)
    def checked(cls: type, n: int, epochs: int, *args: Any, **options: Any) -> Any:
        return check_types(made)(cls, whole("n", n), whole("epochs", epochs), *args, **options)

    return checked


class OtherKnobs(ValueError):
    """A state was made with other knobs: what differs, and what to do."""

    def __str__(self) -> str:
        return "; ".join(self.args)


class Guarded(nn.Module):
    """A module whose arguments are checked by their type hints, and whose state is loaded completely or not at all."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = check_types(cls.__init__)  # type: ignore[method-assign]
        if "for_run" in vars(cls):
            cls.for_run = classmethod(_check_run(vars(cls)["for_run"].__func__))  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        for name in REMOVED:
            if hasattr(type(self), name):
                self._refuse_hook(name)

    @classmethod
    def for_run(cls, n: int, epochs: int, **options: Any) -> Self:
        """The method for a run of ``epochs`` epochs over ``n`` rows; passes the constructor the arguments it takes."""
        known = {"n": whole("n", n), "epochs": whole("epochs", epochs)}
        asked = inspect.signature(cls).parameters
        return cls(**{**{name: value for name, value in known.items() if name in asked}, **options})

    @property
    def arguments(self) -> dict[str, Any]:
        """The constructor's arguments, in a form for JSON."""
        return {name: plain(value) for name, value in vars(self).get("_arguments", {}).items()}

    @property
    def changes_batches(self) -> bool:
        """Whether this method, or one inside it, overrides ``view`` with more than a forward."""
        views = [getattr(type(part), "view", forwards) for part in self.modules() if isinstance(part, Guarded)]
        return not all(getattr(view, "forwards", False) for view in views)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in REMOVED:
            self._refuse_hook(name)
        super().__setattr__(name, value)

    def _refuse_hook(self, name: str) -> None:
        raise TypeError(f"{type(self).__name__}.{name} is a hook of version 0.1. Instead: {REMOVED[name]}.")

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """As in PyTorch, but a state that does not fit raises an error and changes nothing."""
        before = copy.deepcopy(self.state_dict())
        try:
            for name in [name for name in before if name.endswith("_extra_state") and name in state_dict]:
                value, known = state_dict[name], before[name]  # PyTorch does not check these
                if not isinstance(value, Tensor) or (value.dtype, value.ndim) != (known.dtype, known.ndim):
                    raise TypeError(f"{name} must be a {known.dtype} tensor of {known.ndim} dimensions")
            return super().load_state_dict(state_dict, strict, assign)
        except Exception as error:
            super().load_state_dict(before)
            if isinstance(error, RuntimeError):  # PyTorch's own message
                raise
            raise ValueError(f"the state does not fit this {type(self).__name__}: {error!r}") from error
