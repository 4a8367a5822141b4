"""MW-Net."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch

from torchcurriculum import Step
from torchcurriculum.methods import MWNet

from .naive_meta import meta_loss_after, problem


def shaken(method: MWNet) -> MWNet:
    """V with a last layer that is not zero, so that every part of it has a gradient."""
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for p in method.net.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return method


@pytest.mark.parametrize("batch_norm", [False, True])
def test_the_meta_gradient_is_that_of_the_explicit_virtual_step(batch_norm: bool) -> None:
    net, step, meta = problem(batch_norm)
    method = shaken(MWNet(12, meta=meta, virtual_lr=0.5, weight_decay=0.0))
    naive = copy.deepcopy(method)
    loss = meta_loss_after(net, step, meta, lambda losses: 0.5 / 12 * naive.weight_of(losses))
    expected = torch.autograd.grad(loss, list(naive.net.parameters()))
    assert all(g.abs().max() > 0 for g in expected)
    weights = method.weigh(step)
    # Adam's first mean after one step is a tenth of the gradient.
    found = 10 * method.net.first
    torch.testing.assert_close(found, torch.cat([g.flatten() for g in expected]), rtol=1e-9, atol=1e-15)
    # The weights are those of the new V, divided by their sum.
    value = method.weight_of(step.losses.detach())
    torch.testing.assert_close(weights, (value / value.sum()).detach(), rtol=1e-12, atol=0)
    assert not torch.equal(value, naive.weight_of(step.losses.detach()))


def test_golden_first_weights_are_equal() -> None:
    # The last layer starts at zero: V = 1/2 for every loss, and w = (1/2) / (B / 2) = 1/B; with lr 0 they stay so.
    _, step, meta = problem()
    weights = MWNet(12, meta=meta, lr=0.0).weigh(step)
    assert weights.tolist() == [1 / 12] * 12


def test_v_learns_to_give_little_to_large_losses_that_hurt() -> None:
    # The meta set is the batch with its right labels; half of the batch is mislabelled and has the larger losses.
    net, step, _ = problem()
    x = step.batch.x
    with torch.no_grad():
        net[3].weight.mul_(8)  # a network that is sure, so that wrong labels have large losses
        right = net(x).argmax(1)
    y = right.clone()
    y[6:] = (y[6:] + 1) % 3
    batch = step.batch.with_(y=y)
    method = MWNet(12, meta=(x, right), lr=0.05)
    for _ in range(30):
        logits, losses = batch.task.losses(net, batch)  # type: ignore[union-attr]
        weights = method.weigh(Step(net, batch, logits, losses))
    assert weights[6:].sum() < 0.3
    report = method.report()
    assert report["weight_at_loss_5"] < report["weight_at_loss_0.1"]


def test_no_graph_grows_from_step_to_step() -> None:
    # Peer bug: the parameters of V became results of the last step, whose graphs were kept for ever.
    _, step, meta = problem()
    method = MWNet(12, meta=meta)
    for _ in range(3):
        weights = method.weigh(step)
        assert not weights.requires_grad
        assert all(p.is_leaf and p.grad_fn is None for p in method.parameters())
        assert all(b.grad_fn is None and not b.requires_grad for b in method.buffers())


def test_the_model_and_the_graph_of_the_step_are_left_alone() -> None:
    net, step, meta = problem(batch_norm=True)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    loss = MWNet(12, meta=meta).loss(step)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    loss.backward()
    assert all(p.grad is not None for p in net.parameters())


def test_a_step_without_a_graph_gives_the_same_weights() -> None:
    net, step, meta = problem()
    bare = Step(net, step.batch, step.logits, step.losses.detach())
    torch.testing.assert_close(shaken(MWNet(12, meta=meta)).weigh(bare), shaken(MWNet(12, meta=meta)).weigh(step))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"virtual_lr": 0.0}, r"virtual_lr must .*got 0\.0"),
        ({"virtual_lr": math.nan}, "virtual_lr .*NaN"),
        ({"lr": -1.0}, r"^lr must .*got -1\.0"),
        ({"weight_decay": -1.0}, r"weight_decay must .*got -1\.0"),
        ({"meta_fraction": 2.0}, r"meta_fraction must .*got 2\.0"),
    ],
)
def test_bad_knobs(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MWNet(10, **options)
