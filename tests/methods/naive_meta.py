"""The meta methods as their papers print them: explicit virtual steps and a backward pass through a backward pass."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from torchcurriculum import Batch, Step
from torchcurriculum.core import Task

TASK = Task(lambda net, x: net(x), lambda z, y: F.cross_entropy(z, y, reduction="none"))


def problem(batch_norm: bool = False, rows: int = 12, meta: int = 5) -> tuple[nn.Module, Step, tuple[Tensor, Tensor]]:
    """A small network, a step on random rows, and a meta set."""
    generator = torch.Generator().manual_seed(11)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        middle = nn.BatchNorm1d(7) if batch_norm else nn.Identity()
        net = nn.Sequential(nn.Linear(4, 7), middle, nn.Tanh(), nn.Linear(7, 3)).double()
    x = torch.randn(rows + meta, 4, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (rows + meta,), generator=generator)
    batch = Batch(x[:rows], y[:rows], torch.arange(rows), task=TASK)
    logits, losses = TASK.losses(net, batch)
    return net, Step(net, batch, logits, losses), (x[rows:], y[rows:])


def meta_loss_after(
    net: nn.Module, step: Step, meta: tuple[Tensor, Tensor], sizes: Tensor | Callable[[Tensor], Tensor]
) -> Tensor:
    """M(theta - sum_i a_i grad L_i), differentiable in a (or in what ``sizes`` computes them from)."""
    # The graph must end in this copy's parameters: nothing of the library's code is used.
    net = copy.deepcopy(net)
    parameters = dict(net.named_parameters())
    losses = F.cross_entropy(net(step.batch.x), step.batch.y, reduction="none")
    a = sizes if isinstance(sizes, Tensor) else sizes(losses.detach())
    gradients = torch.autograd.grad((a * losses).sum(), list(parameters.values()), create_graph=True)
    moved = {name: p - g for (name, p), g in zip(parameters.items(), gradients, strict=True)}
    return F.cross_entropy(functional_call(net, moved, (meta[0],)), meta[1])
