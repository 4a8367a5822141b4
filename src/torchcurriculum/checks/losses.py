"""Losses, targets, weights and row numbers of a batch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .knobs import FLOATS, describe

__all__ = [
    "HALVES",
    "NAN_LOSS",
    "REGRESSION",
    "SEVERAL",
    "NanStrategy",
    "all_finite",
    "at_least_float32",
    "check_class_targets",
    "check_index",
    "check_losses",
    "check_sample_losses",
    "check_task",
    "check_weights",
    "losses_of",
]

NanStrategy = Literal["error", "warn", "ignore"]
HALVES = frozenset((torch.float16, torch.bfloat16))
REGRESSION = (nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.PoissonNLLLoss, nn.GaussianNLLLoss)
SEVERAL = (nn.BCELoss, nn.BCEWithLogitsLoss, nn.MultiLabelMarginLoss, nn.MultiLabelSoftMarginLoss)
NAN_LOSS = 1e4  # replaces a non-finite loss if the user chose to continue: a very hard sample
_OTHER_LOSSES = (
    "pass loss_fn=per_sample(nn.MSELoss()) for regression, per_sample(nn.BCEWithLogitsLoss()) for single logits and "
    "several labels"
)


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
        pick = "['logits']" if isinstance(outputs, Mapping) else "[0]"
        hint = f"pass forward=lambda model, x: model(x){pick}, or what picks the logits"
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
    column = "if they are class numbers, pass y.flatten().long(); otherwise "
    one = isinstance(y, Tensor) and found.startswith("are") and y.numel() == len(y)
    raise TypeError(f"{words}; {column if one else ''}use another method{hint}")


def check_weights(loss: Tensor, weights: Tensor, index: Tensor) -> None:
    """Refuses negative and non-finite weights; only on a CPU, since elsewhere this would synchronise the step."""
    if loss.device.type != "cpu" or torch.compiler.is_compiling():
        return
    if not math.isfinite(loss.item()) and not all_finite(weights):
        rows = index[(~weights.isfinite()).to(index.device)]
        raise ValueError(f"the method's weights of rows {rows[:8].tolist()} are NaN or infinite")
    if bool((weights < 0).any()):
        rows = index[(weights < 0).to(index.device)]
        raise ValueError(f"the method's weights of rows {rows[:8].tolist()} are negative; a weight must be at least 0")


def check_index(index: Tensor, n: int, size: int) -> None:
    """Refuses an index that is not a (B,) int64 tensor of different rows below ``n``.

    Values are checked only in host memory, where a loader puts the index; elsewhere this would synchronise every step.
    """
    if not isinstance(index, Tensor):
        raise TypeError(f"index must be an int64 tensor of shape ({size},), got {type(index).__name__}")
    if index.dtype != torch.int64 or index.shape != (size,):
        raise ValueError(
            f"index must be int64 of shape ({size},), got {index.dtype} of shape {tuple(index.shape)}; it holds one "
            "row number for each loss, and a collate function must not drop rows"
        )
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
