"""Adaptively point-weighting: Eqs. 1-4 of the paper and the phase threshold of its Appendix C, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

__all__ = [
    "RHO_CLIP",
    "difficulty",
    "easiness",
    "joined",
    "log_reweight",
    "masses",
    "reweight",
    "shift_",
    "weight_change",
]

RHO_CLIP = 1e-4


# By device type: faster versions of ``masses`` and ``shift_``, registered by ``fast``; they may return None.
KERNELS: dict[str, dict[str, Callable[..., Tensor | None]]] = {}


def easiness(losses: Tensor, threshold: Tensor | float) -> Tensor:
    """beta_k, Eq. 1: +1 where the loss is at most the error threshold e, -1 elsewhere.

    The comparison is made in the precision of the losses, so that a predicted probability of exactly one half is easy
    at ``e = log 2`` in every precision.

    Args:
        losses: Losses of any shape.
        threshold: The error threshold e > 0.

    Returns:
        A tensor of +1 and -1, of the shape and type of ``losses``.

    Example:
        >>> easiness(torch.tensor([0.2, 0.7, 3.0]), 0.7)
        tensor([ 1.,  1., -1.])
    """
    easy = losses <= torch.as_tensor(threshold).to(losses)
    return torch.where(easy, 1.0, -1.0).to(losses.dtype)


def difficulty(weights: Tensor, easiness: Tensor) -> Tensor:
    """rho_k, Eq. 2: the weight that lies on hard samples, sum_n w_n (1 - beta_n) / 2, clipped to [1e-4, 1 - 1e-4].

    Args:
        weights: (N,) weights w_{k-1} that sum to one.
        easiness: (N,) beta_k.

    Returns:
        A scalar in the type of ``weights``.

    Example:
        >>> difficulty(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([1.0, -1.0, -1.0]))
        tensor(0.5000)
    """
    return (weights * ((1 - easiness) / 2).to(weights.dtype)).sum().clamp(RHO_CLIP, 1 - RHO_CLIP)


def weight_change(rho: Tensor | float, q: float, tau: float = 0.5) -> Tensor:
    """alpha_k, Eq. 3: log((1 - rho) tau / (rho (1 - tau))) / q; negative while rho > tau, positive after.

    Args:
        rho: Training difficulty rho_k in (0, 1).
        q: Strength, at least 2; larger is gentler. ``math.inf`` never changes a weight.
        tau: Phase threshold (APW with a double dagger); 1/2 is the paper's method.

    Returns:
        A scalar, float64 unless ``rho`` is a tensor of another type.

    Example:
        >>> round(weight_change(0.2, q=2).item(), 6)   # log(4) / 2
        0.693147
    """
    rho = rho if isinstance(rho, Tensor) else torch.tensor(rho, dtype=torch.float64)
    return (torch.log((1 - rho) / rho) + math.log(tau / (1 - tau))) / q


def log_reweight(log_weights: Tensor, alpha: Tensor | float, easiness: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. 4 on logarithms: log w_k = log w_{k-1} - alpha beta - log Z_k, and log Z_k itself.

    Logarithms cannot overflow, however long the run.

    Args:
        log_weights: (N,) logarithms of weights that sum to one.
        alpha: The weight-change value alpha_k.
        easiness: (N,) beta_k.

    Returns:
        The new log-weights (N,) and log Z_k (a scalar).
    """
    raw = log_weights - alpha * easiness.to(log_weights.dtype)
    log_z = torch.logsumexp(raw, 0)
    return raw - log_z, log_z


def reweight(weights: Tensor, alpha: Tensor | float, easiness: Tensor) -> Tensor:
    """Eq. 4: w_k = w_{k-1} exp(-alpha beta) / Z_k; the result sums to one for any scale of ``weights``.

    Args:
        weights: (N,) positive weights w_{k-1}.
        alpha: The weight-change value alpha_k.
        easiness: (N,) beta_k.

    Returns:
        (N,) weights w_k, in the type of ``weights``.

    Example:
        >>> reweight(torch.tensor([0.5, 0.5]), math.log(2), torch.tensor([1.0, -1.0]))   # 1/4 : 1 -> 1/5, 4/5
        tensor([0.2000, 0.8000])
    """
    return log_reweight(weights.double().log(), alpha, easiness)[0].exp().to(weights.dtype)


def masses(log_weights: Tensor, easy: Tensor) -> Tensor:
    """The weight on all easy and on all hard rows, and the number of easy rows, which Eqs. 2-4 need.

    Reads every row once, a chunk at a time, without temporary tensors of size N.

    Args:
        log_weights: (N,) log-weights, of any normalisation.
        easy: (N,) bool, whether beta_k is +1.

    Returns:
        (4,) in the type of ``log_weights``: the largest log-weight, the two weights as multiples of that row's, and
        the count.

    Example:
        >>> masses(torch.tensor([0.5, 0.25, 0.25]).log(), torch.tensor([True, False, False]))[1:]
        tensor([1., 1., 1.])
    """
    fused = _kernel("masses", log_weights, easy)
    if fused is not None:
        return fused
    parts = []
    for weights, flags in _chunks(log_weights, easy):
        top = weights.max().clamp_min(torch.finfo(weights.dtype).min)
        raw, mask = (weights - top).exp_(), flags.to(weights.dtype)
        light = torch.dot(raw, mask)
        count = mask.sum()
        heavy = torch.dot(raw, mask.neg_().add_(1))
        parts.append(torch.stack([top, light, heavy, count]))
    return joined(torch.stack(parts))


def joined(parts: Tensor) -> Tensor:
    """Combines the ``masses`` of chunks: (C, 4) with each chunk's largest log-weight, its two sums and its count."""
    top = parts[:, 0].max()
    sums = (parts[:, 1:3] * (parts[:, :1] - top).exp()).sum(0)
    return torch.cat([top[None], sums, parts[:, 3:].sum(0)])


def shift_(log_weights: Tensor, easy: Tensor, for_easy: Tensor, for_hard: Tensor) -> Tensor:
    """Adds one number to the log-weights of easy rows and another to those of hard rows, in place (Eq. 4).

    Example:
        >>> shift_(torch.zeros(2), torch.tensor([True, False]), torch.tensor(1.0), torch.tensor(-1.0))
        tensor([ 1., -1.])
    """
    fused = _kernel("shift_", log_weights, easy, for_easy, for_hard)
    if fused is not None:
        return fused
    for weights, flags in _chunks(log_weights, easy):
        weights.add_(torch.where(flags, for_easy, for_hard))
    return log_weights


def _kernel(name: str, log_weights: Tensor, *arguments: Tensor) -> Tensor | None:
    """The same from a kernel for this device, if there is a working one."""
    kernels = KERNELS.get(log_weights.device.type)
    return None if kernels is None else kernels[name](log_weights, *arguments)


def _chunks(log_weights: Tensor, easy: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    size = 1 << 16 if log_weights.device.type == "cpu" else 1 << 24
    return zip(log_weights.split(size), easy.split(size), strict=True)
