"""A method's own small network, trained along with the model, with its optimizer's state."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ...core import Step, checks, distributed
from ...functional.meta import flatten, gradient, undisturbed
from .sized import Adam, Resizing

__all__ = ["Perceptron", "SideNet", "scorer_like"]

ROUNDING = 1e-14  # relative to the largest entry of a gradient in float64
LARGEST_RATE = 1e6  # the step size of the parameters, whose scores must stay finite


class Perceptron(Resizing):
    """Features -> hidden units -> one score, in float64. The last layer starts at zero, so all scores are equal.

    Args:
        inputs: Width of the features; 0 takes it from the first batch.
        hidden: Hidden units.
        activation: Of the hidden units. Under a softmax of the scores, a ReLU unit that is active for the whole batch
            has a zero gradient up to rounding, which Adam would follow; tanh has not.
        bias: Whether the last layer has a bias; a softmax of the scores needs none.

    Example:
        >>> Perceptron(1, 100)(torch.tensor([[0.1], [2.0]])).tolist()
        [0.0, 0.0]
    """

    def __init__(
        self,
        inputs: int = 0,
        hidden: int = 32,
        activation: Callable[[Tensor], Tensor] = torch.tanh,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.hidden, self.activation = hidden, activation
        self.first = nn.Parameter(self._draw(inputs, hidden * inputs).view(hidden, inputs))
        self.shift = nn.Parameter(self._draw(inputs, hidden))
        self.last = nn.Parameter(torch.zeros(hidden, dtype=torch.float64))
        self.bias = nn.Parameter(torch.zeros(1, dtype=torch.float64)) if bias else None

    def forward(self, features: Tensor) -> Tensor:
        """(B,) scores of (B, F) features."""
        width = features.shape[1]
        if not self.first.numel():
            self.first.data = self._draw(width, self.hidden * width).view(self.hidden, width).to(self.last)
            self.shift.data = self._draw(width, self.hidden).to(self.last)
        hidden = self.activation(features.double() @ self.first.T + self.shift)
        scores = hidden @ self.last
        return scores if self.bias is None else scores + self.bias

    @staticmethod
    def _draw(inputs: int, size: int) -> Tensor:
        """PyTorch's initialisation of linear layers, from a separate generator: the same on every rank."""
        generator = torch.Generator().manual_seed(distributed.derive("perceptron", size))
        uniform = torch.rand(size, generator=generator, dtype=torch.float64)
        return (2 * uniform - 1) / math.sqrt(max(inputs, 1))


class SideNet(Adam):
    """A network and Adam over its parameters, with gradients summed over the ranks.

    Args:
        net: A module that returns one score per sample when called by the user's forward function with x, the same on
            every rank; or a ``Perceptron``, which reads the model's outputs.
        lr: Adam's learning rate.
        weight_decay: Added to the gradient, as in ``torch.optim.Adam``.
    """

    def __init__(self, net: nn.Module, lr: float, weight_decay: float = 0.0) -> None:
        super().__init__()
        for name, value in {"lr": lr, "weight_decay": weight_decay}.items():
            checks.real(name, value, f"[0, {LARGEST_RATE:g}]")
        self.net, self.lr, self.weight_decay = net, lr, weight_decay

    def scores(self, step: Step) -> Tensor:
        """(B,) float64 scores of the batch, with gradients for this network only."""
        with torch.enable_grad():
            if isinstance(self.net, Perceptron):
                return self.net(_features(step))
            if step.batch.task is None:
                raise ValueError("a network on inputs needs the forward function; pass Batch(..., task=Task(...))")
            with undisturbed(step.losses.device):
                scores = step.batch.task.forward(self.net, step.batch.x)
        scores = getattr(scores, "logits", scores)
        if not isinstance(scores, Tensor) or scores.numel() != len(scores):
            got = checks.describe(scores)
            raise ValueError(f"the network must give one score per sample, shape (B,) or (B, 1), but gave {got}")
        return scores.reshape(-1)[: len(step.losses)].double()  # padding on a rank without rows

    def descend(self, objective: Tensor) -> None:
        """One step of Adam on the sum over ranks of ``objective``, a scalar."""
        parameters = [p for p in self.net.parameters() if p.requires_grad]
        flat = flatten([p.detach() for p in parameters])
        slope = _without_noise(distributed.total(gradient(objective, parameters))) + self.weight_decay * flat
        change = self.change(slope, self.lr)
        with torch.no_grad():
            for p, piece in zip(parameters, change.split([p.numel() for p in parameters]), strict=True):
                p.add_(piece.view_as(p))


def scorer_like(model: nn.Module) -> nn.Module:
    """A copy of a model with one output instead of its classes, for ``net=`` of ``ScreenerNet`` and ``DDS``.

    Its last linear layer is replaced by one that starts at zero, so that all samples start with the same score; the
    other layers start as copies of the model's.

    Args:
        model: A model that ends in an ``nn.Linear``.

    Example:
        >>> scorer_like(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3)))(torch.ones(2, 2)).tolist()
        [[0.0], [0.0]]
    """
    net = copy.deepcopy(distributed.unwrapped(model))
    heads = [name for name, part in net.named_modules() if isinstance(part, nn.Linear)]
    if not heads:
        name = type(model).__name__
        raise ValueError(f"{name} has no nn.Linear to replace by a layer with one output; pass your own network")
    old = net.get_submodule(heads[-1])
    assert isinstance(old, nn.Linear)
    head = nn.Linear(old.in_features, 1, device="meta").to_empty(device=old.weight.device).to(old.weight.dtype)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    if not heads[-1]:  # the model is a linear layer
        return head
    above, _, place = heads[-1].rpartition(".")
    setattr(net.get_submodule(above), place, head)
    return net.requires_grad_()


def _without_noise(gradient: Tensor) -> Tensor:
    """The gradient with entries that are only rounding errors set to zero, since Adam would follow their sign."""
    if gradient.dtype != torch.float64:
        return gradient
    size = gradient.abs()
    return torch.where(size < ROUNDING * size.max(), 0.0, gradient)


def _features(step: Step) -> Tensor:
    """(B, C) input of the default network: the model's detached outputs, with large values compressed."""
    outputs = step.logits
    outputs = getattr(outputs, "logits", outputs)
    if isinstance(outputs, Tensor) and outputs.ndim == 1:
        outputs = outputs.unsqueeze(1)
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or not outputs.is_floating_point():
        kind = checks.describe(outputs)
        raise TypeError(f"the default network reads (B, C) outputs of the model, but they are {kind}; pass net=")
    outputs = outputs.detach()[: len(step.losses)].double()
    return torch.sign(outputs) * torch.log1p(outputs.abs())
