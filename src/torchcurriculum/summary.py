"""What the record says of an epoch's losses and weights: a few numbers, the same on every rank."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from . import distributed
from .core import total

__all__ = ["of_losses", "of_weights"]

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
ENOUGH = 1_000_000  # values, for quantiles in a plot


def of_losses(losses: Tensor) -> dict[str, Any]:
    """E-Prop at log 2, the mean and quantiles of the losses of all ranks, from this rank's.

    Args:
        losses: Losses that this rank holds; those that are not finite, or of rows never seen, do not count.

    Returns:
        The columns, none if no row has been seen.

    Example:
        >>> of_losses(torch.tensor([0.5, 1.5]))["eprop_log2"]
        0.5
    """
    known = losses[losses.isfinite()].double()
    few = _few(known)
    parts = [known.new_tensor(len(known)), known.new_tensor(len(few)), (known <= math.log(2)).sum(), known.sum()]
    count, thinned, easy, loss = total(torch.stack(parts)).tolist()
    if not count:
        return {}
    quantiles = distributed.order_statistics(few, _places(int(thinned))).tolist()
    return {"eprop_log2": easy / count, "loss_mean": loss / count, "loss_quantiles": quantiles}


def of_weights(weights: Tensor) -> dict[str, Any]:
    """The effective sample size as a share of N, and quantiles of N times the weights.

    Args:
        weights: (N,) weights that sum to one.

    Example:
        >>> of_weights(torch.tensor([0.5, 0.5, 0.0, 0.0]))["ess"]
        0.5
    """
    few = _few(weights) * len(weights)
    quantiles = few.sort().values[_places(len(few)).to(few.device)].tolist()
    exact = weights.double()
    ess = float(1 / (torch.dot(exact, exact) * len(weights)))
    return {"ess": ess, "weight_quantiles": quantiles}


def _few(values: Tensor) -> Tensor:
    """Every k-th value where there are more than enough."""
    return values.detach()[:: max(1, len(values) // ENOUGH)].double()


def _places(count: int) -> Tensor:
    """Where the quantiles stand among ``count`` values in ascending order."""
    return torch.tensor([round(q * (count - 1)) for q in QUANTILES])
