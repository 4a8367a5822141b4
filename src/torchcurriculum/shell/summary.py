"""Summaries of an epoch's losses and weights for the record, the same on every rank."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .. import distributed
from ..core import Method
from ..distributed import Sharded, total

__all__ = ["histories", "of_losses", "of_weights", "row"]

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
ENOUGH = 1_000_000  # values for the quantiles of a plot


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
    known = losses[losses.isfinite()]
    thinned, exact = _thinned(known), known.double()
    parts = [exact.new_tensor(len(exact)), exact.new_tensor(len(thinned)), (exact <= math.log(2)).sum(), exact.sum()]
    count, places, easy, loss = total(torch.stack(parts)).tolist()
    if not count:
        return {}
    quantiles = distributed.order_statistics(thinned, _places(int(places))).tolist()
    return {"eprop_log2": easy / count, "loss_mean": loss / count, "loss_quantiles": quantiles}


def of_weights(weights: Tensor) -> dict[str, Any]:
    """The effective sample size as a share of N, and quantiles of N times the weights.

    Args:
        weights: (N,) weights that sum to one.

    Example:
        >>> of_weights(torch.tensor([0.5, 0.5, 0.0, 0.0]))["ess"]
        0.5
    """
    thinned = _thinned(weights).double() * len(weights)
    quantiles = thinned.sort().values[_places(len(thinned)).to(thinned.device)].tolist()
    exact = weights.double()
    ess = float(1 / (torch.dot(exact, exact) * len(weights)))
    return {"ess": ess, "weight_quantiles": quantiles}


def row(number: int, steps: int, rows: int, method: Method, losses: Sharded) -> dict[str, Any]:
    """An epoch's row of the record: what the method reports, and summaries of its losses and weights."""
    reported = method.report().items()
    report = {
        name: value.item() if isinstance(value, Tensor) and value.numel() == 1 else value for name, value in reported
    }
    made = {"epoch": number, "steps": steps, "rows": rows, **report, **of_losses(losses.here())}
    weights = getattr(method, "weights", None)
    return {**made, **of_weights(weights)} if isinstance(weights, Tensor) else made


def histories(losses: Sharded, threshold: float) -> dict[str, Any]:
    """The loss and the easiness of every row, for the record's histories."""
    whole = losses.whole()
    easy = whole <= torch.tensor(threshold).to(whole)
    return {"losses": whole.float().cpu().numpy(), "easy": easy.cpu().numpy()}


def _thinned(values: Tensor) -> Tensor:
    """Every k-th value if there are more than ``ENOUGH``."""
    return values.detach()[:: max(1, len(values) // ENOUGH)]


def _places(count: int) -> Tensor:
    """The positions of the quantiles among ``count`` sorted values."""
    return torch.tensor([round(q * (count - 1)) for q in QUANTILES])
