"""Data parameters (Saxena et al., 2019): a temperature for each sample and each class, learnt with the model."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["scaled_losses", "temperature", "temperature_gradient"]

Losses = Callable[[Tensor], Tensor]


def temperature(sample: Tensor | None, label: Tensor | None) -> Tensor:
    r"""sigma: :math:`e^{s_i} + e^{c_y}` for both, one of the two where the other is None.

    Args:
        sample: (B,) log-temperatures s_i of the samples, or None.
        label: (B,) log-temperatures c_y of their labels, or None.

    Returns:
        (B,) temperatures.

    Example:
        >>> temperature(torch.zeros(2), torch.tensor([0.0, 2.0]))   # 1 + 1 and 1 + e^2
        tensor([2.0000, 8.3891])
    """
    parts = [part.exp() for part in (sample, label) if part is not None]
    if not parts:
        raise ValueError("there must be a temperature for samples, for labels, or both")
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


def scaled_losses(losses: Losses, logits: Tensor, sigma: Tensor) -> Tensor:
    r"""The losses at the logits :math:`z_i / \sigma_i`.

    Args:
        losses: ``losses(logits) -> (B,)``.
        logits: (B, C) logits z.
        sigma: (B,) temperatures.

    Returns:
        (B,) losses.

    Example:
        >>> cross_entropy = lambda z: -z.log_softmax(1)[:, 0]
        >>> scaled_losses(cross_entropy, torch.tensor([[2.0, 0.0]]), torch.tensor([2.0]))   # log(1 + e^-1)
        tensor([0.3133])
    """
    return losses(logits / sigma.to(logits.dtype).unsqueeze(1))


def temperature_gradient(losses: Losses, logits: Tensor, sigma: Tensor) -> Tensor:
    r"""The gradient of each loss for its temperature, :math:`\partial L(z_i / \sigma_i) / \partial \sigma_i`.

    For cross-entropy it is :math:`(z_y - \sum_j p_j z_j) / \sigma^2`; computed from the loss function itself, so it
    holds for every loss of logits. The model gets no gradient from it.

    Args:
        losses: ``losses(logits) -> (B,)``.
        logits: (B, C) logits z.
        sigma: (B,) temperatures.

    Returns:
        (B,) gradients in float64.

    Example:
        >>> cross_entropy = lambda z: -z.log_softmax(1)[:, 0]
        >>> temperature_gradient(cross_entropy, torch.tensor([[2.0, 0.0]]), torch.tensor([1.0]))   # 2 - 2 / (1 + e^-2)
        tensor([0.2384], dtype=torch.float64)
    """
    with torch.enable_grad():
        leaf = sigma.detach().double().requires_grad_()
        value = scaled_losses(losses, logits.detach(), leaf)
        return torch.autograd.grad(value.sum(), leaf)[0]
