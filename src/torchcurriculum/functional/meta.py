"""Inner products of gradients: the effect of a sample's step on a meta set, from one forward-mode pass.

With losses L_i of a batch and a meta loss M, the gradient of M for the weight of a sample in a gradient step is
-lr <grad L_i, grad M>. All B inner products are the derivative of the B losses in the one direction v = grad M, so one
pass in forward mode gives them: no second-order backward, no copy of the model, no finite differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

__all__ = [
    "flatten",
    "forward_products",
    "gradient",
    "losses_at",
    "moved",
    "reverse_products",
    "score_gradient",
    "shares",
    "trainable",
    "undisturbed",
]

Losses = Callable[[nn.Module], Tensor]
Parameters = Mapping[str, Tensor]


def trainable(net: nn.Module) -> dict[str, Tensor]:
    """The trainable parameters by name, as new leaves that share their memory."""
    return {name: p.detach().requires_grad_() for name, p in net.named_parameters() if p.requires_grad}


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """All entries of ``tensors`` as one vector.

    Example:
        >>> flatten([torch.ones(1, 2), torch.zeros(1)])
        tensor([1., 1., 0.])
    """
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def moved(parameters: Parameters, change: Tensor, scale: float = 1.0) -> dict[str, Tensor]:
    """Parameters plus ``scale`` times a (P,) change, as new leaves.

    Example:
        >>> moved({"w": torch.tensor([1.0, 2.0])}, torch.tensor([10.0, 20.0]), -0.1)
        {'w': tensor([0., 0.], requires_grad=True)}
    """
    pieces = change.split([p.numel() for p in parameters.values()])
    return {
        name: (p.detach() + scale * piece.view_as(p).to(p.dtype)).requires_grad_()
        for (name, p), piece in zip(parameters.items(), pieces, strict=True)
    }


@contextmanager
def undisturbed(device: torch.device) -> Iterator[None]:
    """Restores the global random generators after a pass, since a model in training mode may draw dropout masks."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


class _Bound(nn.Module):
    """``losses(net)`` as a module, so that ``functional_call`` can swap the tensors of ``net``."""

    def __init__(self, losses: Losses, net: nn.Module) -> None:
        super().__init__()
        self.net, self.losses = net, losses

    def forward(self) -> Tensor:
        return self.losses(self.net)


def losses_at(losses: Losses, net: nn.Module, parameters: Parameters, buffers: Parameters | None = None) -> Tensor:
    """``losses(net)`` at other parameters, in the mode of ``net``; its buffers (batch statistics) are not written.

    Args:
        losses: ``losses(net) -> (B,)``, for example the user's forward and loss functions on a batch.
        net: The model.
        parameters: Values by name.
        buffers: Buffers by name, which are written; None uses copies of the model's.

    Returns:
        (B,) losses.

    Example:
        >>> net = nn.Linear(1, 1, bias=False)
        >>> losses_at(lambda net: net(torch.ones(2, 1)).sum(1), net, {"weight": torch.tensor([[3.0]])})
        tensor([3., 3.])
    """
    values = {f"net.{name}": value for name, value in parameters.items()}
    own = {name: buffer.clone() for name, buffer in net.named_buffers()} if buffers is None else buffers
    values |= {f"net.{name}": buffer for name, buffer in own.items()}
    device = next(iter(parameters.values())).device
    with undisturbed(device):
        return functional_call(_Bound(losses, net), values, ())


def gradient(value: Tensor, parameters: Sequence[Tensor], retain_graph: bool = False) -> Tensor:
    """(P,) the gradient of a scalar, zero for parameters it does not depend on.

    Example:
        >>> w, unused = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor(0.0, requires_grad=True)
        >>> gradient((w * w).sum(), [w, unused])
        tensor([2., 4., 0.])
    """
    parts = torch.autograd.grad(value, parameters, retain_graph=retain_graph, allow_unused=True)
    return flatten([torch.zeros_like(p) if g is None else g for p, g in zip(parameters, parts, strict=True)])


def forward_products(losses: Losses, net: nn.Module, direction: Tensor) -> Tensor | None:
    r"""(B,) :math:`\langle \nabla L_i, v \rangle` for all samples in one forward-mode pass, about three forward passes.

    Args:
        losses: ``losses(net) -> (B,)``.
        net: The model; its trainable parameters are those of v.
        direction: (P,) v.

    Returns:
        (B,) inner products, or None if an operation of the model has no forward mode.

    Example:
        >>> net = nn.Linear(2, 1, bias=False)
        >>> x = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        >>> forward_products(lambda net: net(x).squeeze(1), net, torch.tensor([5.0, 7.0]))    # L_i = <w, x_i>: <x_i, v>
        tensor([ 5., 14.])
    """
    parameters = trainable(net)
    pieces = direction.split([p.numel() for p in parameters.values()])
    try:
        # Fused attention has no forward mode; the plain one does.
        with torch.no_grad(), forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):
            duals = {
                name: forward_ad.make_dual(p.detach(), piece.view_as(p).to(p.dtype))
                for (name, p), piece in zip(parameters.items(), pieces, strict=True)
            }
            return forward_ad.unpack_dual(losses_at(losses, net, duals)).tangent
    except NotImplementedError:
        return None


def reverse_products(losses: Losses, net: nn.Module, direction: Tensor) -> Tensor:
    r"""``forward_products`` by two reverse passes, for models without a forward mode.

    :math:`g(u) = \sum_i u_i \nabla L_i` is linear in u, so the gradient of :math:`\langle g(u), v \rangle` for u is the
    vector of inner products. It costs a backward pass through a backward pass.

    Args:
        losses: ``losses(net) -> (B,)``.
        net: The model.
        direction: (P,) v.

    Returns:
        (B,) inner products.

    Example:
        >>> net = nn.Linear(2, 1, bias=False)
        >>> x = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        >>> reverse_products(lambda net: net(x).squeeze(1), net, torch.tensor([5.0, 7.0]))
        tensor([ 5., 14.])
    """
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        parameters = trainable(net)
        values = losses_at(losses, net, parameters)
        dummy = torch.zeros_like(values, requires_grad=True)
        leaves = list(parameters.values())
        parts = torch.autograd.grad(values, leaves, dummy, create_graph=True, allow_unused=True)
        pieces = direction.split([p.numel() for p in leaves])
        pairs = [(g, piece.view_as(g).to(g.dtype)) for g, piece in zip(parts, pieces, strict=True) if g is not None]
        return torch.autograd.grad([g for g, _ in pairs], dummy, [piece for _, piece in pairs])[0]


def shares(values: Tensor, total: Callable[[Tensor], Tensor] = lambda x: x) -> Tensor:
    r"""w: non-negative values divided by their sum; all zero if they are all zero (Ren et al., the delta rule).

    :math:`w_i = \tilde w_i / (\sum_j \tilde w_j + \delta(\sum_j \tilde w_j))` with delta(0) = 1 and 0 elsewhere.

    Args:
        values: (B,) values >= 0.
        total: The sum of a scalar over the ranks.

    Returns:
        (B,) weights that sum to one, or to zero.

    Example:
        >>> shares(torch.tensor([-1.0, 1.0, 3.0]).clamp_min(0)), shares(torch.zeros(2))
        (tensor([0.0000, 0.2500, 0.7500]), tensor([0., 0.]))
    """
    summed = total(values.sum())
    return values / torch.where(summed == 0, torch.ones_like(summed), summed)


def score_gradient(rewards: Tensor, weights: Tensor, total: Callable[[Tensor], Tensor] = lambda x: x) -> Tensor:
    r"""The gradient of :math:`\sum_i r_i \log p_i` for the scores s of :math:`p = \mathrm{softmax}(s)`.

    It is :math:`r_k - p_k \sum_i r_i`, the score-function update of DDS (Wang et al., 2020).

    Args:
        rewards: (B,) rewards r.
        weights: (B,) probabilities p.
        total: The sum of a scalar over the ranks.

    Returns:
        (B,) gradients.

    Example:
        >>> score_gradient(torch.tensor([1.0, 3.0]), torch.tensor([0.5, 0.5]))
        tensor([-1.,  1.])
    """
    return rewards - weights * total(rewards.sum())
