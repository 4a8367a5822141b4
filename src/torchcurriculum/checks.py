"""Checks of what users pass in: losses, indices and knobs. Errors say what was passed and what to do."""

from __future__ import annotations

import copy
import difflib
import functools
import hashlib
import inspect
import math
import numbers
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import UnionType
from typing import Any, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

__all__ = [
    "FLOATS",
    "NAN_LOSS",
    "Guarded",
    "NanStrategy",
    "all_finite",
    "at_least_float32",
    "check_class_targets",
    "check_index",
    "check_losses",
    "check_sample_losses",
    "check_task",
    "check_types",
    "check_weights",
    "describe",
    "forwards",
    "losses_of",
    "map_leaves",
    "one_of",
    "plain",
    "real",
    "row_values",
    "suggest",
    "whole",
]

Verb = TypeVar("Verb", bound=Callable[..., Any])
NanStrategy = Literal["error", "warn", "ignore"]
FLOATS = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
HALVES = frozenset((torch.float16, torch.bfloat16))
REGRESSION = (nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.PoissonNLLLoss, nn.GaussianNLLLoss)
SEVERAL = (nn.BCELoss, nn.BCEWithLogitsLoss, nn.MultiLabelMarginLoss, nn.MultiLabelSoftMarginLoss)
NAN_LOSS = 1e4  # replaces a non-finite loss if the user chose to continue: a very hard sample


REMOVED = {  # hooks of version 0.1, and what to do instead
    "views": "nothing: overriding view is enough",
    "view_exchanges": "nothing: view is always called, even with an empty batch",
    "weighs_by_loss": "nothing: step.losses are computed when weigh reads them",
    "plan_whole": "epoch.whole in plan: True where every row's weight must be current afterwards",
    "sync": "add_rows(name, values): per-row state that the base class keeps equal on all ranks",
    "fused": "nothing: fast paths are in torchcurriculum.fast, by the exact class",
    "graph_key": "nothing: fast paths are in torchcurriculum.fast, by the exact class",
}


_OTHER_LOSSES = (
    "pass loss_fn=per_sample(nn.MSELoss()) for regression, per_sample(nn.BCEWithLogitsLoss()) for single logits and "
    "several labels"
)


# ---------------------------------------------------------------------- losses and indices


def at_least_float32(outputs: Any) -> Any:
    """Half-precision outputs as float32, since their losses would have only two or three digits.

    Under autocast as well, where cross-entropy rounds before it returns float32.
    """
    half = isinstance(outputs, Tensor) and outputs.dtype in HALVES
    return outputs.float() if half else outputs


def all_finite(values: Tensor) -> bool:
    """Whether all values are finite: one sum, and a full check only if it overflows."""
    return math.isfinite(values.detach().sum().item()) or bool(values.isfinite().all())


def check_losses(losses: Tensor, index: Tensor | None, strategy: NanStrategy) -> tuple[Tensor, Tensor | None]:
    """Raises, warns about or ignores losses that are not finite, and names their rows.

    Args:
        losses: (B,) losses.
        index: (B,) their rows; None when losses are those of all rows in order.
        strategy: ``"error"`` raises; ``"warn"`` warns and continues; ``"ignore"`` continues.

    Returns:
        The losses, with those that are not finite replaced by a large number, and a (B,) mask of the finite ones
        (None when all are).
    """
    if losses.dtype not in FLOATS:
        raise TypeError(f"losses must be floating-point numbers of 16 bits or more, got {losses.dtype}")
    if all_finite(losses):
        return losses, None
    finite = losses.isfinite()
    bad = (~finite).nonzero().flatten().cpu()
    rows = bad if index is None else index.cpu()[bad]
    message = f"{len(rows)} of {len(losses)} losses are NaN or infinite, at rows {rows[:8].tolist()}"
    message += ", ..." if len(rows) > 8 else ""
    if strategy == "error":
        words = "Fix the data or the learning rate; or with Curriculum and APW pass nan_strategy='warn' or 'ignore'"
        raise ValueError(f"{message}. {words}.")
    if strategy == "warn":
        warnings.warn(f"{message}; they count as hard and get no weight in a batch", stacklevel=3)
    return torch.where(finite, losses, NAN_LOSS), finite


def check_sample_losses(losses: Any, size: int) -> Tensor:
    """``losses``, after checking that there is one for each of ``size`` rows."""
    if not isinstance(losses, Tensor) or losses.shape != (size,):
        raise ValueError(
            f"loss_fn must return one loss per sample, shape ({size},), but returned {describe(losses)}. If it "
            "reduces, pass reduction='none'; if it keeps positions (tokens, pixels), average them per sample."
        )
    if losses.dtype not in FLOATS:
        raise TypeError(f"losses must be floating-point numbers of 16 bits or more, got {losses.dtype}")
    return losses


def check_class_targets(outputs: Any, y: Any) -> None:
    """Refuses outputs and targets that cross-entropy would fail on or misread as classes.

    Values are checked only in host memory; elsewhere this would synchronise every step.
    """
    words = "there is no loss_fn, and cross-entropy"
    if not isinstance(outputs, Tensor):
        hint = "pass forward=lambda model, x: model(x)[0], or what picks the logits"
        raise TypeError(f"{words} needs the model to return logits, got {type(outputs).__name__}; {hint}")
    if outputs.ndim < 2 or outputs.shape[1] < 2:
        shape = f"outputs of shape {tuple(outputs.shape)}"
        raise TypeError(f"{words} needs a logit for each class, got {shape}; {_OTHER_LOSSES}")
    if not isinstance(y, Tensor):
        raise TypeError(f"{words} needs a tensor of class numbers, got {y!r:.60}; number the classes from 0")
    if not y.is_floating_point():
        needed = (*outputs.shape[:1], *outputs.shape[2:])
        if y.shape != needed:
            shapes = f"of shape {needed} for outputs of shape {tuple(outputs.shape)}, got {tuple(y.shape)}"
            raise ValueError(f"{words} needs class numbers {shapes}; reshape the targets, as by y.squeeze(1)")
        if y.dtype not in (torch.int64, torch.uint8):
            raise TypeError(f"{words} needs class numbers in torch.int64, got {y.dtype}; convert them with y.long()")
        return
    if y.shape != outputs.shape:
        raise TypeError(
            f"{words} needs class numbers, got {y.dtype} targets of shape {tuple(y.shape)}; {_OTHER_LOSSES}"
        )
    if y.device.type == "cpu" and not torch.compiler.is_compiling() and bool(((y.sum(1) - 1).abs() > 1e-2).any()):
        raise ValueError(f"{words} needs probabilities that sum to one, but these targets do not; {_OTHER_LOSSES}")


def losses_of(loss_fn: Callable[[Any, Any], Any], outputs: Any, y: Any) -> Any:
    """``loss_fn(outputs, y)``; if it fails because of labels that are no classes of the model, the error names them.

    Labels are read only after a failure, and only in host memory.
    """
    try:
        return loss_fn(outputs, y)
    except (IndexError, RuntimeError) as error:
        on_host = all(isinstance(part, Tensor) and part.device.type == "cpu" for part in (outputs, y))
        if not on_host or outputs.ndim < 2 or y.shape != outputs[:, 0].shape or y.is_floating_point():
            raise
        known = y[y != getattr(loss_fn, "ignore_index", None)]
        if not bool(((known < 0) | (known >= outputs.shape[1])).any()):
            raise
        classes, found = outputs.shape[1], f"{int(known.min())} to {int(known.max())}"
        raise ValueError(
            f"labels must be class numbers from 0 to {classes - 1}, because the model has {classes} outputs, got "
            f"{found}; number the classes from 0, or give the model one output for each"
        ) from error


def check_task(method: nn.Module, criterion: Any, y: Any) -> None:
    """Refuses a method that needs classes where the loss or the targets are known to have none.

    Args:
        method: The method; those inside it count too.
        criterion: The loss, or what ``per_sample`` makes of it.
        y: (N, ...) targets of the training set, where they are known.
    """
    needy = next((one for one in method.modules() if getattr(one, "needs_classes", False)), None)
    if needy is None:
        return
    criterion = getattr(criterion, "criterion", criterion)
    if isinstance(criterion, REGRESSION + SEVERAL):
        found = f"the loss is {type(criterion).__name__}"
    elif isinstance(y, Tensor) and (y.ndim != 1 or y.is_floating_point() or y.is_complex()):
        found = f"are {y.dtype} of shape {tuple(y.shape)}"
    else:
        return
    words = f"{type(needy).__name__} needs classes: targets must be one whole number per row, but {found}"
    told = hasattr(needy, "classes") and not isinstance(criterion, REGRESSION)
    hint = "; or pass classes=, which is 2 for several labels and for single logits" if told else ""
    raise TypeError(f"{words}; use another method{hint}")


def check_weights(loss: Tensor, weights: Tensor, index: Tensor) -> None:
    """Refuses non-finite weights; only on a CPU, since elsewhere this would synchronise the step."""
    if loss.device.type != "cpu" or torch.compiler.is_compiling() or math.isfinite(loss.item()):
        return
    if not all_finite(weights):
        rows = index[(~weights.isfinite()).to(index.device)]
        raise ValueError(f"the method's weights of rows {rows[:8].tolist()} are NaN or infinite")


def check_index(index: Tensor, n: int, size: int) -> None:
    """Refuses an index that is not a (B,) int64 tensor of different rows below ``n``.

    Values are checked only in host memory, where a loader puts the index; elsewhere this would synchronise every step.
    """
    if not isinstance(index, Tensor):
        raise TypeError(f"index must be an int64 tensor of shape ({size},), got {type(index).__name__}")
    if index.dtype != torch.int64 or index.shape != (size,):
        raise ValueError(f"index must be int64 of shape ({size},), got {index.dtype} of shape {tuple(index.shape)}")
    if index.device.type != "cpu" or size == 0 or torch.compiler.is_compiling():
        return
    ordered = index.sort().values
    if ordered[0] < 0 or ordered[-1] >= n:
        wrong = index[(index < 0) | (index >= n)]
        raise IndexError(f"rows {wrong[:8].tolist()} are outside the training set, which has {n} rows")
    if size > 1 and bool((ordered[1:] == ordered[:-1]).any()):
        twice = ordered[1:][ordered[1:] == ordered[:-1]].unique()
        raise ValueError(
            f"rows {twice[:8].tolist()} occur more than once in this batch, and each row has one weight; use a sampler "
            "without replacement (for uneven classes: methods.Balanced)"
        )


# ---------------------------------------------------------------------- knobs


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
        return [plain(part) for part in value]
    if isinstance(value, Tensor):
        digest = hashlib.blake2b(value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes(), digest_size=3)
        return f"{str(value.dtype)[6:]} {tuple(value.shape)} {digest.hexdigest()}"
    return getattr(value, "__qualname__", type(value).__name__)


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
