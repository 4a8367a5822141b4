"""`Weights`: a second set of a model's parameters and buffers. `Peer`: a second network that learns."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from ...core import Batch, Step, checks, distributed
from ...functional.meta import flatten, gradient, losses_at
from .sized import Adam, Resizing

__all__ = ["Peer", "Weights", "bare"]


def bare(model: nn.Module, what: str = "a second set of weights") -> nn.Module:
    """The user's module, without data-parallel and ``torch.compile`` wrappers."""
    net = distributed.uncompiled(distributed.unwrapped(model))
    if any(hasattr(parameter, "full_tensor") for parameter in net.parameters()):
        raise TypeError(
            f"{what} needs whole parameters, but fully_shard (FSDP2) shards them; use DistributedDataParallel"
        )
    return net


class Weights(Resizing):
    """Values for the parameters and buffers of a model, flat, in float32 or more; empty before the first ``take``.

    The structure is the model's, so only numbers are copied, and the state needs no pickle.
    """

    values: Tensor
    statistics: Tensor
    counters: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("values", torch.zeros(0))
        self.register_buffer("statistics", torch.zeros(0))  # buffers of floating point
        self.register_buffer("counters", torch.zeros(0, dtype=torch.int64))  # other buffers

    @property
    def known(self) -> bool:
        """Whether there are values."""
        return bool(self.values.numel())

    def take(self, net: nn.Module) -> None:
        """Copies the current values of ``net``."""
        self.values, self.statistics, self.counters = _flat(net)

    def move(self, net: nn.Module, share: Tensor) -> None:
        """Moves towards the values of ``net`` by a share; copies counters."""
        parameters, statistics, self.counters = _flat(net)
        self.values += share * (parameters - self.values)
        self.statistics += share * (statistics - self.statistics)

    def named(self, net: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Copies of the values by the names of parameters and of buffers in ``net``."""
        floats = [b for b in net.buffers() if b.is_floating_point()]
        others = [b for b in net.buffers() if not b.is_floating_point()]
        pieces = iter(_pieces(self.statistics, floats)), iter(_pieces(self.counters, others))
        buffers = {name: next(pieces[not b.is_floating_point()]) for name, b in net.named_buffers()}
        leaves = dict(zip(dict(net.named_parameters()), _pieces(self.values, list(net.parameters())), strict=True))
        return leaves, buffers

    def model_like(self, model: nn.Module) -> nn.Module:
        """A copy of ``model`` with these values."""
        made = copy.deepcopy(bare(model))
        if not self.known:
            raise RuntimeError("there are no weights yet; train a step first")
        parameters, buffers = self.named(made)
        with torch.no_grad():
            for name, p in made.named_parameters():
                p.copy_(parameters[name])
            for name, b in made.named_buffers():
                b.copy_(buffers[name])
        return made


class Peer(Weights, Adam):
    """A second network of the model's structure, with its own initial weights and Adam.

    It runs in the mode of the model. Gradients are summed over the ranks; batch statistics differ between ranks until
    the next epoch averages them.

    Args:
        lr: Adam's learning rate.
        net: The second network before training, built like the model. None draws new initial weights.
    """

    def __init__(self, lr: float, net: nn.Module | None = None) -> None:
        super().__init__()
        checks.real("lr", lr, "[0, inf)", "it is the learning rate of the second network")
        self.lr, self._given = lr, None if net is None else (net,)  # in a tuple, so that it is not part of the state
        self._leaves: list[Tensor] = []
        self._learning: list[bool] = []  # which of them are trainable in the model

    def begin(self, model: nn.Module | None, seed: int) -> None:
        """Draws the initial weights before the first epoch; averages batch statistics over ranks."""
        if model is None:
            raise TypeError("a second network needs the model to copy; use Curriculum")
        if not self.known:
            self.take(_drawn(bare(model), seed) if self._given is None else _like(bare(model), self._given[0]))
        self.statistics = distributed.total(self.statistics) / distributed.world_size()

    def measure(self, step: Step) -> tuple[Tensor, Tensor]:
        """The second network's outputs and (B,) losses of the batch, with gradients for it only."""
        net, batch = bare(step.model), step.batch
        if batch.task is None or not self.known:
            raise TypeError("a second network needs the forward function and a planned epoch; use Curriculum")
        seen: list[Tensor] = []

        def losses(net: nn.Module) -> Tensor:
            logits, values = _pass(net, batch)
            seen.append(logits)
            return values

        with torch.enable_grad():
            parameters, buffers = self.named(net)
            self._leaves = [parameter.requires_grad_() for parameter in parameters.values()]
            values = losses_at(losses, net, parameters, buffers)
        self._learning = [parameter.requires_grad for parameter in net.parameters()]
        self.statistics = _join([b for b in buffers.values() if b.is_floating_point()], self.statistics)
        self.counters = _join([b for b in buffers.values() if not b.is_floating_point()], self.counters)
        return seen[0], values

    def descend(self, objective: Tensor) -> None:
        """One step of Adam on the sum over ranks of ``objective``, a scalar from the last ``measure``."""
        slopes = gradient(objective, self._leaves).split([leaf.numel() for leaf in self._leaves])
        slope = flatten([slope * learns for slope, learns in zip(slopes, self._learning, strict=True)])
        slope = distributed.total(slope).to(self.values.dtype)
        self.values = self.values + self.change(slope, self.lr)
        self._leaves = []  # frees the graph of the pass, too


def _flat(net: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
    parameters = checks.at_least_float32(flatten([p.detach() for p in net.parameters()]))
    floats = [b for b in net.buffers() if b.is_floating_point()]
    others = [b for b in net.buffers() if not b.is_floating_point()]
    return parameters, _join(floats, parameters.new_zeros(0)), _join(others, parameters.new_zeros(0, dtype=torch.int64))


def _join(tensors: list[Tensor], like: Tensor) -> Tensor:
    return flatten([t.detach() for t in tensors]).to(like.dtype) if tensors else like


def _pieces(flat: Tensor, like: list[Tensor]) -> list[Tensor]:
    """Fresh tensors of the shapes and types of ``like``."""
    sizes = [tensor.numel() for tensor in like]
    if sum(sizes) != flat.numel():
        raise ValueError(f"the weights hold {flat.numel()} numbers but the model {sum(sizes)}; it is a different model")
    return [piece.view_as(t).to(t.dtype, copy=True) for piece, t in zip(flat.split(sizes), like, strict=True)]


def _pass(net: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Outputs and losses; empty on a rank without rows, after a pass over padding."""
    task = batch.task
    assert task is not None
    logits = task.forward(net, batch.x)
    if len(batch.index):
        return logits, task.losses_of(logits, batch)
    return logits[:0], task.loss_fn(logits, batch.y)[:0]


def _like(net: nn.Module, given: nn.Module) -> nn.Module:
    """A copy of ``net`` with the values of ``given``."""
    made = copy.deepcopy(net)
    made.load_state_dict(bare(given).state_dict())
    return made


def _drawn(net: nn.Module, seed: int) -> nn.Module:
    """A copy with other initial weights: drawn by ``reset_parameters`` of its layers; frozen ones stay."""
    made, device = copy.deepcopy(net).cpu(), next(net.parameters()).device
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(seed)
        for part in made.modules():
            if callable(reset := getattr(part, "reset_parameters", None)):
                reset()
        for parameter, known in zip(made.parameters(), net.parameters(), strict=True):
            if not known.requires_grad:
                parameter.copy_(known)
    if all(torch.equal(p.cpu(), q) for p, q in zip(net.parameters(), made.parameters(), strict=True)):
        raise TypeError(
            f"no layer of {type(net).__name__} has a reset_parameters(), so a second network would start equal; "
            "pass net=, the same architecture with other initial weights"
        )
    return made.to(device)
