"""MW-Net."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch

from torchcurriculum import Batch, Step
from torchcurriculum.methods import MWNet
from torchcurriculum.methods._base.side_net import Perceptron

from .naive_meta import TASK, meta_loss_after, problem


def shaken(method: MWNet) -> MWNet:
    """V with a last layer that is not zero, so that every part of it has a gradient."""
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for p in method.net.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return method


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("batch_norm", [False, True])
def test_the_meta_gradient_is_that_of_the_explicit_virtual_step(batch_norm: bool, normalise: bool) -> None:
    net, step, meta = problem(batch_norm)
    method = shaken(MWNet(12, meta=meta, virtual_lr=0.5, weight_decay=0.0, normalise=normalise))
    naive = copy.deepcopy(method)

    def sizes(losses: torch.Tensor) -> torch.Tensor:
        values = naive.weight_of(losses)
        return 0.5 * values / (values.sum() if normalise else 12)

    expected = torch.autograd.grad(meta_loss_after(net, step, meta, sizes), list(naive.net.parameters()))
    assert all(g.abs().max() > 0 for g in expected)
    weights = method.weigh(step)
    # Adam's first mean after one step is a tenth of the gradient.
    found = 10 * method.net.first
    torch.testing.assert_close(found, torch.cat([g.flatten() for g in expected]), rtol=1e-9, atol=1e-15)
    # The weights are those of the new V, divided by their sum or by B.
    value = method.weight_of(step.losses.detach())
    expected_weights = (value / (value.sum() if normalise else 12)).detach()
    torch.testing.assert_close(weights, expected_weights, rtol=1e-12, atol=0)
    assert not torch.equal(value, naive.weight_of(step.losses.detach()))


# Printed by the classes VNet and MetaLinear of xjtushujun/meta-weight-net (3f1800f) in float64, with the lines of
# train_WRN-28-10_Meta_PGC.py (normalised in both steps) and of MW-Net.py (divided by B in both): the gradient of the
# meta loss for V in the order linear1.weight, linear1.bias, linear2.weight, linear2.bias, then the weights of the
# batch after one step of Adam (1e-3, weight decay 1e-4).
AUTHORS = {
    True: (
        [0.025365020137, -0.125983273507, 0.09467803982, -0.147197580136, 0.030248131198, 0.088003882485, 0.105197822],
        [0.122900360368, 0.127282554524, 0.145618514485, 0.229220965324, 0.22741839327, 0.14755921203],
    ),
    False: (
        [-0.0937519965, -0.0054309813, -0.0241251746, -0.0104202276, -0.0755987945, 0.0074980319, -0.0268057495],
        [0.080800072886, 0.083680733206, 0.095726543085, 0.150418966926, 0.149244464334, 0.097000702456],
    ),
}


@pytest.mark.parametrize("normalise", [True, False])
def test_the_authors_code_moves_v_and_weighs_the_same(normalise: bool) -> None:
    net = torch.nn.Linear(2, 3).double()
    meta_x = torch.tensor([[1.0, -1.0], [0.0, 2.0], [1.5, 0.5]], dtype=torch.float64)
    x = torch.tensor([[1, 0], [0, 1], [1, 1], [-1, 2], [2, -1], [0.5, 0.5]], dtype=torch.float64)
    batch = Batch(x, torch.tensor([0, 1, 2, 0, 1, 2]), torch.arange(6), task=TASK)
    method = MWNet(6, meta=(meta_x, torch.tensor([1, 0, 2])), virtual_lr=0.5, normalise=normalise)
    method.net.net = Perceptron(1, 2, torch.relu)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[0.5, -0.3], [-0.2, 0.8], [0.1, 0.4]], dtype=torch.float64))
        net.bias.copy_(torch.tensor([0.1, -0.1, 0.0], dtype=torch.float64))
        for p, values in zip(method.net.parameters(), [[[0.7], [-0.4]], [0.1, 1.0], [0.9, -1.1], [0.2]], strict=True):
            p.copy_(torch.tensor(values, dtype=torch.float64))
    start = torch.cat([p.detach().flatten() for p in method.net.parameters()])
    weights = method.weigh(Step(net, batch, *TASK.losses(net, batch)))
    gradient, expected = AUTHORS[normalise]
    found = 10 * method.net.first - 1e-4 * start
    torch.testing.assert_close(found, torch.tensor(gradient, dtype=torch.float64), rtol=0, atol=1e-10)
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-10)


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


class Around(torch.nn.Module):
    """A module of the user's own around a network; PyTorch does not compile its containers in place."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> Any:
        return self.net(x)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_model_gives_the_same_weights(in_place: bool) -> None:
    net, step, meta = problem()
    expected = shaken(MWNet(12, meta=meta)).weigh(step)
    compiled: Any = Around(net)
    if in_place:
        compiled.compile(backend="aot_eager")
    else:
        compiled = torch.compile(compiled, backend="aot_eager")
    TASK.losses(compiled, step.batch)[1].sum().backward()  # compiles a backward pass that frees its buffers
    found = Step(compiled, step.batch, *TASK.losses(compiled, step.batch))
    loss = shaken(MWNet(12, meta=meta)).loss(found)
    torch.testing.assert_close(found.used[0], expected)
    loss.backward()


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


def test_the_virtual_rate_follows_the_optimizer() -> None:
    # The same steps as with the number that the optimizer has at each of them.
    net, step, meta = problem()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    follows = shaken(MWNet(12, meta=meta, virtual_lr=lambda: optimizer.param_groups[0]["lr"]))
    for rate in (0.5, 0.05):
        optimizer.param_groups[0]["lr"] = rate
        fixed = copy.deepcopy(follows)
        fixed.virtual_lr = rate
        torch.testing.assert_close(follows.weigh(step), fixed.weigh(step), rtol=0, atol=0)
    optimizer.param_groups[0]["lr"] = 0.0
    with pytest.raises(ValueError, match=r"virtual_lr must be a number in \(0, inf\), got 0"):
        follows.weigh(step)


def test_features_beside_the_loss_have_the_meta_gradient_of_the_explicit_virtual_step() -> None:
    net, step, meta = problem()
    classes = torch.nn.functional.one_hot(step.batch.y, 3)
    method = MWNet(12, meta=meta, virtual_lr=0.5, weight_decay=0.0, features=lambda step: classes)
    method.weight_of(step.losses.detach(), classes.double())  # V learns its width
    naive = copy.deepcopy(shaken(method))

    def sizes(losses: torch.Tensor) -> torch.Tensor:
        values = naive.weight_of(losses, classes.double())
        return 0.5 * values / values.sum()

    expected = torch.autograd.grad(meta_loss_after(net, step, meta, sizes), list(naive.net.parameters()))
    assert expected[0].shape == (100, 4)
    method.weigh(step)
    torch.testing.assert_close(10 * method.net.first, torch.cat([g.flatten() for g in expected]), rtol=1e-9, atol=1e-15)
    assert method.report() == {}


@pytest.mark.parametrize("made", [torch.zeros(12), torch.zeros(3, 2), [0.0]], ids=["flat", "rows", "list"])
def test_features_of_another_shape_are_refused(made: Any) -> None:
    _, step, meta = problem()
    with pytest.raises(ValueError, match=r"features must be a tensor of shape \(12, F\) for this batch, got"):
        MWNet(12, meta=meta, features=lambda step: made).weigh(step)
