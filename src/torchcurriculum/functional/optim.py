"""Optimizer steps as pure tensor functions, for the parameters that a method learns along with the model."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["adam_step", "momentum_step"]


def adam_step(
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    steps: Tensor,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Adam: :math:`m \leftarrow \beta_1 m + (1-\beta_1) g`, :math:`v \leftarrow \beta_2 v + (1-\beta_2) g^2`.

    The change is :math:`-\eta\, \hat m / (\sqrt{\hat v} + \epsilon)` with both means bias-corrected.

    Args:
        gradient: (P,) gradient g, weight decay included.
        first: (P,) mean m before the step.
        second: (P,) mean v before the step.
        steps: Steps including this one, a scalar tensor of floating point.
        lr: The learning rate eta.
        betas: Decay of the two means.
        eps: epsilon.

    Returns:
        The change of the parameters, the new m and the new v, (P,) each.

    Example:
        >>> zero = torch.zeros(2)
        >>> adam_step(torch.tensor([3.0, -0.5]), zero, zero, torch.tensor(1.0), lr=0.1)[0]   # at first -lr sign(g)
        tensor([-0.1000,  0.1000])

    Reference:
        Kingma and Ba, Adam: A Method for Stochastic Optimization, ICLR 2015.
    """
    first = betas[0] * first + (1 - betas[0]) * gradient
    second = betas[1] * second + (1 - betas[1]) * gradient * gradient
    mean = first / (1 - betas[0] ** steps)
    scale = torch.sqrt(second / (1 - betas[1] ** steps)) + eps
    return -lr * mean / scale, first, second


def momentum_step(gradient: Tensor, velocity: Tensor, lr: float, momentum: float) -> tuple[Tensor, Tensor]:
    r"""SGD with momentum: :math:`v \leftarrow \mu v + g`, and the change :math:`-\eta v`.

    Args:
        gradient: Gradient g, weight decay included; for a sparse step, of the touched entries only.
        velocity: v before the step, of the same entries.
        lr: The learning rate eta.
        momentum: mu.

    Returns:
        The change of the parameters and the new v.

    Example:
        >>> momentum_step(torch.tensor(2.0), torch.tensor(1.0), lr=0.1, momentum=0.5)   # v = 2.5
        (tensor(-0.2500), tensor(2.5000))
    """
    velocity = momentum * velocity + gradient
    return -lr * velocity, velocity
