"""Scores of samples: margins (AUM), error norms (EL2N), gradient norms (GraNd) and the variance of gradients (VoG)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

__all__ = ["by_class", "error_norms", "gradient_norms", "margins", "variance_of_gradients"]


def margins(logits: Tensor, labels: Tensor) -> Tensor:
    """(B,) the label's logit minus the largest other one: averaged over the epochs it is AUM; positive means right.

    Args:
        logits: (B, C) outputs, C of 2 or more.
        labels: (B,) int64.

    Example:
        >>> margins(torch.tensor([[3.0, 1.0, 0.0], [3.0, 1.0, 0.0]]), torch.tensor([0, 1]))
        tensor([ 2., -2.])

    Reference:
        Pleiss et al., Identifying Mislabeled Data using the Area Under the Margin Ranking, NeurIPS 2020.
    """
    given = labels[:, None]
    others = logits.scatter(1, given, -torch.inf)
    return logits.gather(1, given)[:, 0] - others.amax(1)


def error_norms(logits: Tensor, labels: Tensor) -> Tensor:
    r"""(B,) EL2N, :math:`\lVert softmax(z) - y \rVert_2`: the gradient of cross-entropy for the outputs.

    It is also the upper bound of a row's gradient norm used in importance sampling.

    Args:
        logits: (B, C) outputs.
        labels: (B,) int64.

    Example:
        >>> error_norms(torch.tensor([[0.0, 0.0], [9.0, 0.0]]), torch.tensor([0, 0]))
        tensor([7.0711e-01, 1.7450e-04])

    Reference:
        Paul, Ganguli and Dziugaite, Deep Learning on a Data Diet, NeurIPS 2021.
        Katharopoulos and Fleuret, Not All Samples Are Created Equal, ICML 2018 (the bound).
    """
    wrong = logits.softmax(1)
    return wrong.scatter_add(1, labels[:, None], torch.full_like(wrong[:, :1], -1.0)).norm(dim=1)


def gradient_norms(
    model: nn.Module,
    x: Any,
    y: Any,
    loss_fn: Callable[[Any, Any], Tensor] | None = None,
    forward: Callable[[nn.Module, Any], Any] | None = None,
    chunk: int | None = None,
) -> Tensor:
    r"""(B,) GraNd, :math:`\lVert \nabla_\theta L(x_i, y_i) \rVert_2` over all trainable parameters.

    The gradients of ``chunk`` rows are computed at once, which needs ``chunk`` times the memory of one gradient.

    Args:
        model: In the mode to measure in; batch norm must be in evaluation mode.
        x: Inputs whose tensors have B rows: a tensor, or a dict, tuple or list of them.
        y: Targets with B rows.
        loss_fn: ``loss_fn(outputs, y) -> (B,)``; None is cross-entropy.
        forward: ``forward(model, x)``; None is ``model(x)``.
        chunk: Rows at a time; None is all.

    Example:
        >>> model = nn.Linear(2, 2, bias=False)
        >>> _ = nn.init.zeros_(model.weight)                  # the gradient is (p - y) x^T, of norm sqrt(1/2) |x|
        >>> gradient_norms(model, torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([0, 1]))
        tensor([3.5355, 1.4142])

    Reference:
        Paul, Ganguli and Dziugaite, Deep Learning on a Data Diet, NeurIPS 2021.
    """
    loss_fn = loss_fn or partial(F.cross_entropy, reduction="none")
    bound = _Bound(model, forward or (lambda net, inputs: net(inputs)), loss_fn)
    learns = {f"net.{name}": p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def loss(parameters: dict[str, Tensor], row: Any, target: Any) -> Tensor:
        return functional_call(bound, parameters, (_batched(row), _batched(target))).sum()

    found = vmap(grad(loss), in_dims=(None, 0, 0), chunk_size=chunk)(learns, x, y)
    return torch.stack([gradient.flatten(1).norm(dim=1) for gradient in found.values()]).norm(dim=0)


def variance_of_gradients(
    models: Sequence[nn.Module], x: Tensor, labels: Tensor, forward: Callable[[nn.Module, Any], Any] | None = None
) -> Tensor:
    r"""(B,) VoG: how much the gradient of the label's logit for the input changes over K snapshots of a run.

    .. math:: \frac1D \sum_d \sqrt{\tfrac1K \sum_k (S_{kd} - \mu_d)^2}, \quad S_k = \partial z_y^{(k)} / \partial x

    The paper then subtracts the mean of the class and divides by its standard deviation: ``by_class``. Its authors'
    script for ImageNet averages the gradients over colours first; the paper, and this, average at the end.

    Args:
        models: K snapshots, two or more; they are put into evaluation mode meanwhile.
        x: (B, ...) floating-point inputs.
        labels: (B,) int64.
        forward: ``forward(model, x) -> (B, C)``; None is ``model(x)``.

    Example:
        >>> models = [nn.Linear(2, 2, bias=False) for _ in range(2)]
        >>> for model, value in zip(models, (1.0, 3.0)):
        ...     _ = nn.init.constant_(model.weight, value)    # gradients 1 and 3 in both entries
        >>> variance_of_gradients(models, torch.zeros(1, 2), torch.tensor([0]))
        tensor([1.])

    Reference:
        Agarwal, D'souza and Hooker, Estimating Example Difficulty using Variance of Gradients, CVPR 2022.
    """
    if len(models) < 2:
        raise ValueError(f"VoG compares gradients of two or more snapshots of a run, got {len(models)}")
    if not x.is_floating_point():
        raise TypeError(f"VoG needs gradients of the inputs, which must be floating-point numbers, not {x.dtype}")
    gradients = []
    for model in models:
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        with torch.enable_grad():
            inputs = x.detach().clone().requires_grad_()
            logits = model(inputs) if forward is None else forward(model, inputs)
            (found,) = torch.autograd.grad(logits.gather(1, labels[:, None]).sum(), inputs)
        gradients.append(found.flatten(1))
        for module, training in modes:
            module.training = training
    return torch.stack(gradients).var(0, correction=0).sqrt().mean(1)


def by_class(values: Tensor, labels: Tensor) -> Tensor:
    """(N,) values minus the mean of their class, over its standard deviation; 0 if a class has no spread.

    Example:
        >>> by_class(torch.tensor([1.0, 3.0, 7.0]), torch.tensor([0, 0, 1]))
        tensor([-1.,  1.,  0.])
    """
    made = torch.zeros_like(values)
    for label in labels.unique():
        rows = labels == label
        spread = values[rows].std(correction=0)
        made[rows] = torch.where(spread > 0, (values[rows] - values[rows].mean()) / spread, 0.0)
    return made


class _Bound(nn.Module):
    """Losses as a module, so that ``functional_call`` can swap the parameters of ``net``."""

    def __init__(self, net: nn.Module, forward: Callable[..., Any], loss_fn: Callable[..., Tensor]) -> None:
        super().__init__()
        self.net, self._pass, self._loss = net, forward, loss_fn

    def forward(self, x: Any, y: Any) -> Tensor:
        return self._loss(self._pass(self.net, x), y)


def _batched(row: Any) -> Any:
    """A row as a batch of one."""
    if isinstance(row, Mapping):
        return {key: _batched(part) for key, part in row.items()}
    if isinstance(row, tuple | list):
        return type(row)(_batched(part) for part in row)
    return row.unsqueeze(0)
