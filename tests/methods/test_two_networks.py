"""Co-teaching, JoCoR, SOP and EMA: numbers from the authors' code, the second network's state, and the average."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcurriculum import Arrays, Batch, Curriculum, Mixup, Step, SuperLoss, Then, Vanilla
from torchcurriculum.core import Epoch, Task
from torchcurriculum.functional.coteaching import joint_losses
from torchcurriculum.methods import EMA, SOP, CoTeaching, JoCoR
from torchcurriculum.methods._base.weights import Weights

ONE = [[1.0, 0.2, -0.5], [0.3, 0.1, 0.0], [-1.0, 2.0, 0.7], [0.5, 0.4, 1.5], [0.0, -0.3, 0.9]]
TWO = [[0.1, 0.9, 0.3], [1.2, -0.4, 0.2], [0.6, 0.5, -0.1], [-0.2, 0.3, 0.8], [2.0, 0.0, -1.0]]
LABELS = torch.tensor([0, 1, 1, 2, 0])
TASK = Task(lambda net, x: net(x), lambda out, y: F.cross_entropy(out, y, reduction="none"))


def doubles(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


class Table(nn.Module):
    """Logits that are the parameters: the gradients for the logits can be read off."""

    def __init__(self, values: Any) -> None:
        super().__init__()
        self.values = nn.Parameter(doubles(values))

    def forward(self, x: Tensor) -> Tensor:
        return self.values[x]


def taught(method: CoTeaching | JoCoR) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of one step of the two networks above, its gradient for network 1, and that of network 2."""
    model, rows = Table(ONE), torch.arange(5)
    method.plan(Epoch(1, 5, torch.zeros(5), lambda: torch.zeros(5), model=model))
    batch = Batch(rows, LABELS, rows, task=TASK)
    loss = method.loss(Step(model, batch, *TASK.losses(model, batch)))
    loss.backward()
    assert model.values.grad is not None
    return loss.detach(), model.values.grad, method.peer.first.view(5, 3) / 0.1  # Adam's first mean is a tenth of it


def test_co_teaching_is_the_authors() -> None:
    # loss_coteaching in loss.py of github.com/bhanML/Co-teaching with forget_rate 0.4, so 3 of 5 rows, in float64. Its
    # mean is divided by 3 once more, so its numbers are multiplied by 3 here.
    loss, grad, peer = taught(CoTeaching(gradual=1, forget=0.4, net=Table(TWO)))
    assert loss.item() == pytest.approx(3 * 0.24951570942017642, rel=1e-12)
    expected = [
        [0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0],
        [0.004183481493603964, -0.027083639103856385, 0.02290015761025243],
        [0.024033797353453394, 0.021746679142898247, -0.04578047649635164],
        [-0.0846587382815326, 0.019596399772417766, 0.06506233850911484],
    ]
    torch.testing.assert_close(grad, 3 * doubles(expected), rtol=1e-12, atol=1e-15)
    expected = [
        [-0.08612516144761354, 0.055607253613366436, 0.030517907834247095],
        [0.0, 0.0, 0.0],
        [0.04626886807607151, -0.06924530798571213, 0.022976439909640618],
        [0.02070263591398306, 0.03413287619094426, -0.05483551210492733],
        [0.0, 0.0, 0.0],
    ]
    torch.testing.assert_close(peer, 3 * doubles(expected), rtol=1e-12, atol=1e-15)


def test_jocor_is_the_authors() -> None:
    # loss_jocor in algorithm/loss.py of github.com/hongxin001/JoCoR with forget_rate 0.4 and co_lambda 0.3, in float64.
    loss, grad, peer = taught(JoCoR(gradual=1, forget=0.4, lam=0.3, net=Table(TWO)))
    assert loss.item() == pytest.approx(1.2290249732055587, rel=1e-12)
    expected = [
        [-0.017249854389062055, 0.014164074127407764, 0.0030857802616542883],
        [0.0, 0.0, 0.0],
        [-0.03978078752656674, 0.0008071663781386226, 0.038973621148428124],
        [0.05600912439678202, 0.025075623860876493, -0.08108474825765852],
        [0.0, 0.0, 0.0],
    ]
    torch.testing.assert_close(grad, doubles(expected), rtol=1e-12, atol=1e-15)
    expected = [
        [-0.24667418798591254, 0.15658743707099232, 0.09008675091492022],
        [0.0, 0.0, 0.0],
        [0.20434817786725373, -0.23745493768420037, 0.03310675981694662],
        [0.03704321725263717, 0.0955962117551919, -0.1326394290078291],
        [0.0, 0.0, 0.0],
    ]
    torch.testing.assert_close(peer, doubles(expected), rtol=1e-12, atol=1e-15)


def test_joint_losses_by_hand() -> None:
    # p = (1/2, 1/2), q = (3/4, 1/4): KL(p||q) = log(4/3)/2, KL(q||p) = 3/4 log(3/2) + 1/4 log(1/2).
    p, q = doubles([[0.0, 0.0]]), doubles([[math.log(3), 0.0]])
    apart = 0.5 * math.log(4 / 3) + 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    found = joint_losses(doubles([1.0]), doubles([3.0]), p, q, 0.25)
    assert found.item() == pytest.approx(0.75 * 4 + 0.25 * apart, rel=1e-14)


class Normed(nn.Module):
    """A network with batch statistics, a counter and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.norm, self.last = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.frozen.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.frozen(x)))


def data() -> Arrays:
    x = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
    return Arrays(x, x[:, :3].argmax(1))


def trained(method: Any, epochs: int = 2, steps: int = 99, state: Any = None) -> tuple[nn.Module, Curriculum]:
    """Trains for ``epochs`` epochs, or ``steps`` steps, from the start or from a state of model and curriculum."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Normed()
    curriculum = Curriculum(method, data(), batch_size=8)
    if state is not None:
        model.load_state_dict(state[0])
        curriculum.load_state_dict(state[1])
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
    while curriculum.number < epochs or curriculum.is_open:
        for batch in curriculum.epoch(model):
            optimizer.zero_grad()
            curriculum.loss(model, batch).backward()
            optimizer.step()
            steps -= 1
            if not steps:
                return model, curriculum
    return model, curriculum


@pytest.mark.parametrize(
    "make", [lambda: CoTeaching(2), lambda: JoCoR(2), lambda: EMA(Vanilla()), lambda: Then(Vanilla(), 1, JoCoR(1))]
)
def test_resuming_with_batch_statistics_is_bit_equal(make: Any) -> None:
    whole, expected = trained(make())
    model, stopped = trained(make(), steps=4)
    resumed, found = trained(make(), state=copy.deepcopy((model.state_dict(), stopped.state_dict())))
    assert all(torch.equal(value, resumed.state_dict()[name]) for name, value in whole.state_dict().items())
    for name, value in expected.method.state_dict().items():
        assert torch.equal(value, found.method.state_dict()[name]), name


@pytest.mark.parametrize("make", [CoTeaching, JoCoR])
def test_the_second_network_is_another_one_that_learns(make: Any) -> None:
    method = make(gradual=1, lr=0.05)
    model, _ = trained(method, epochs=8)
    other = method.second_model(model)
    assert not torch.equal(other.last.weight, model.last.weight)
    assert torch.equal(other.frozen.weight, model.frozen.weight)  # frozen parameters are shared
    assert other.norm.num_batches_tracked == model.norm.num_batches_tracked == 24
    assert not torch.equal(other.norm.running_mean, torch.zeros(4))
    assert (other.eval()(data().x).argmax(1) == data().y).double().mean() > 0.6
    assert all(p.grad is None for p in other.parameters())


def test_a_network_without_a_way_to_draw_weights_is_refused() -> None:
    rows = torch.arange(5)
    with pytest.raises(TypeError, match="no layer of Table has a reset_parameters.* pass net="):
        CoTeaching(gradual=1).plan(Epoch(1, 5, rows.double(), lambda: rows.double(), model=Table(ONE)))
    with pytest.raises(TypeError, match="a second network needs the model"):
        CoTeaching(gradual=1).plan(Epoch(1, 5, rows.double(), lambda: rows.double()))
    with pytest.raises(RuntimeError, match="there are no weights yet; train a step first"):
        CoTeaching(gradual=1).second_model(Table(ONE))


def test_a_second_look_at_the_same_batch_changes_nothing() -> None:
    """A closure of LBFGS or SAM asks twice."""
    for method in (CoTeaching(gradual=1), JoCoR(gradual=1), SOP(24), EMA(Vanilla())):
        model, curriculum = trained(method, epochs=1)
        for batch in curriculum.epoch(model):
            first = curriculum.loss(model.eval(), batch)
            before = {name: value.clone() for name, value in method.state_dict().items()}
            assert curriculum.loss(model, batch).item() == first.item(), type(method).__name__
            after = method.state_dict()
            assert all(torch.equal(value, after[name]) for name, value in before.items()), type(method).__name__


def test_weights_of_another_model_are_refused() -> None:
    weights = Weights()
    weights.take(nn.Linear(2, 3))
    with pytest.raises(ValueError, match="the weights hold 9 numbers but the model 6; it is a different model"):
        weights.model_like(nn.Linear(2, 2))


def test_sop_is_the_authors() -> None:
    # overparametrization_loss in model/loss.py of github.com/shengliu66/SOP, in float64, without consistency and
    # balance; u and v after one step of SGD without momentum with rates 1 and 10.
    method = SOP(4, lr_u=1.0, lr_v=10.0)
    method.u = doubles([[0.1], [0.5], [-0.3], [1.2]])
    method.v = doubles([[0.2, -0.1, 0.4], [0.6, 0.05, -0.7], [0.3, 0.2, 0.1], [1.1, -0.2, 0.9]])
    logits = doubles([[2.0, -1.0, 0.5], [0.0, 1.0, -2.0], [0.4, 0.3, -6.0]]).requires_grad_()
    batch = Batch(None, torch.tensor([0, 2, 1]), torch.tensor([3, 1, 0]))
    loss = method.loss(Step(None, batch, logits, F.cross_entropy(logits, batch.y, reduction="none")))
    loss.backward()
    assert loss.item() == pytest.approx(2.4027538319309136, rel=1e-12)
    expected = [
        [-3.5214685226086093e-06, 6.424057398044714e-07, 2.879062782804138e-06],
        [-0.054169519222091476, 0.0907110214383492, -0.03654150221625773],
        [0.17138988266043995, -0.17137492600361534, -1.4956656824596545e-05],
    ]
    torch.testing.assert_close(logits.grad, doubles(expected), rtol=1e-9, atol=1e-15)
    expected = [[0.3007853370759057], [1.8317558178181947], [-0.3], [1.2]]
    torch.testing.assert_close(method.u, doubles(expected), rtol=1e-9, atol=1e-15)
    expected = [
        [2.7599999999999993, -0.1, -0.4533333333333336],
        [-2.28, 0.7150000000000001, -0.7],
        [0.3, 0.2, 0.1],
        [1.1, -0.09333333333333331, -8.82],
    ]
    torch.testing.assert_close(method.v, doubles(expected), rtol=1e-9, atol=1e-15)


def test_sop_starts_near_zero_and_refuses_other_outputs() -> None:
    method = SOP(1000)
    batch = Batch(None, torch.tensor([0]), torch.tensor([0]))
    method.weigh(Step(None, batch, torch.zeros(1, 3), torch.ones(1)))
    assert method.v.shape == (1000, 3)
    assert method.v[1:].std().item() == pytest.approx(1e-8, rel=0.1)  # row 0 has moved
    with pytest.raises(ValueError, match="the model had 3 outputs and has 2 now; make a new SOP"):
        method.weigh(Step(None, batch, torch.zeros(1, 2), torch.ones(1)))


def test_the_average_by_hand() -> None:
    # Weights 1, 2, 4 and d = 1/2: d_0 = min(1/2, 1/10), d_1 = min(1/2, 2/11), d_2 = min(1/2, 3/12).
    # 1; then 1 2/11 + 2 9/11 = 20/11; then 20/11 1/4 + 4 3/4 = 38/11. The running mean of batch norm likewise.
    method, net = EMA(Vanilla(), decay=0.5), nn.BatchNorm1d(1)
    batch = Batch(torch.zeros(1, 1), torch.zeros(1), torch.tensor([0]))
    for value in (1.0, 2.0, 4.0):
        with torch.no_grad():
            net.weight.fill_(value)
            net.running_mean.fill_(-value)
            net.num_batches_tracked.fill_(int(value))
        assert method.view(net, batch) is batch
    made = method.averaged_model(net)
    assert made.weight.item() == pytest.approx(38 / 11, rel=1e-6)
    assert made.running_mean.item() == pytest.approx(-38 / 11, rel=1e-6)
    assert made.num_batches_tracked.item() == 4
    assert net.weight.item() == 4
    for _ in range(40):  # d_t grows to d
        method.view(net, batch)
    with torch.no_grad():
        net.weight.fill_(0.0)
    method.view(net, batch)
    assert method.averaged_model(net).weight.item() == pytest.approx(2, rel=1e-6)


@pytest.mark.parametrize("inner", [SuperLoss, Mixup])
def test_the_average_changes_no_training(inner: Any) -> None:
    plain, _ = trained(inner())
    method = EMA(inner(), decay=0.5)
    averaged, _ = trained(method)
    assert all(torch.equal(value, averaged.state_dict()[name]) for name, value in plain.state_dict().items())
    made = method.averaged_model(averaged)
    assert not torch.equal(made.last.weight, averaged.last.weight)
    assert torch.equal(made.frozen.weight, averaged.frozen.weight)
    assert made.last.weight.requires_grad


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: CoTeaching(1, lr=-1.0),
            r"lr must be a number in \[0, inf\), got -1.0; it is the learning rate",
        ),
        (lambda: CoTeaching(1, forget=1.0), r"forget must be a number in \[0, 1\)"),
        (lambda: JoCoR(1, lam=1.5), r"lam must be a number in \[0, 1\], got 1.5"),
        (lambda: SOP(4, lr_u=-1.0), r"lr_u must be a number in \[0, inf\)"),
        (lambda: EMA(Vanilla(), decay=1.0), r"decay must be a number in \[0, 1\), got 1.0; 0 follows the weights"),
    ],
)
def test_bad_knobs(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
