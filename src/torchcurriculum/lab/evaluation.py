"""Passes over a whole set without gradients: the scores of an epoch, and the losses that a curriculum measures."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data import Rows
from ..distributed import evaluating, uncompiled

__all__ = ["Autocast", "all_logits", "evaluate", "measuring_forward"]

CHUNKS = {"cpu": 128}  # batch size of an evaluation
CHUNK = 2500  # on other devices, and in the measuring pass of images; divides the splits of CIFAR
BINS = 15  # bins of the calibration error
Autocast = Callable[[], AbstractContextManager[Any]]


def evaluate(model: nn.Module, data: Rows, threshold: float = math.log(2)) -> list[tuple[str, float]]:
    """Accuracy, E-Prop at log 2 and at ``threshold``, and expected calibration error (15 equal bins) on a set."""
    logits, y = all_logits(model, data), data.y
    losses = F.cross_entropy(logits, y, reduction="none")
    confidence, guess = logits.softmax(1).max(1)
    right = (guess == y).double()
    bins = (confidence * BINS).long().clamp(max=BINS - 1)
    gaps = torch.zeros(BINS, dtype=torch.float64, device=y.device).scatter_add_(0, bins, right - confidence.double())
    log_2 = torch.tensor(2.0, device=y.device).log()
    return [
        ("acc", right.mean().item()),
        ("eprop", (losses <= log_2).double().mean().item()),
        ("eprop_e", (losses <= threshold).double().mean().item()),
        ("ece", (gaps.abs().sum() / len(y)).item()),
    ]


def all_logits(model: nn.Module, data: Rows) -> Tensor:
    """(N, C) logits of all rows, in evaluation mode."""
    chunk = CHUNKS.get(data.y.device.type, CHUNK)
    with evaluating(model), torch.no_grad():
        inputs = (data.batch(rows)[0] for rows in torch.arange(len(data)).split(chunk))
        return torch.cat([_network_for(model, x)(x).float() for x in inputs])


def measuring_forward(model: nn.Module, net: nn.Module, autocast: Autocast, asked: nn.Module, x: Any) -> Tensor:
    """A curriculum's ``forward``; runs the measuring pass of ``model`` as in training steps, in the same precision.

    Args:
        model: The network.
        net: The network or its compiled form, as called in training steps.
        autocast: The precision of training steps.
        asked: The network that the curriculum wants to run.
        x: Inputs.
    """
    if torch.is_grad_enabled() or asked.training:
        return asked(x)
    with autocast():
        return _network_for(net if asked is model else asked, x)(x).float()


def _network_for(net: nn.Module, x: Any) -> nn.Module:
    """``net``, or its uncompiled original for inputs of an unusual size, which avoids another compilation."""
    usual = isinstance(x, Tensor) and len(x) in (CHUNK, *CHUNKS.values())
    return net if usual else uncompiled(net)
