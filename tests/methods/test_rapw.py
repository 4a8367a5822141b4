"""RAPW against numbers worked by hand and in NumPy, and what it promises on made-up memories."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from torchcurriculum import Arrays, Batch, Curriculum, Epoch, Step, methods
from torchcurriculum.functional import rapw
from torchcurriculum.methods import RAPW


def begin(method: RAPW, number: int, losses: torch.Tensor | None = None) -> None:
    losses = torch.zeros(method.n) if losses is None else losses
    method.plan(Epoch(number, method.n, losses, lambda: losses))


def a_step(logits: torch.Tensor, y: torch.Tensor, index: torch.Tensor | None = None) -> Step:
    rows = torch.arange(len(y)) if index is None else index
    losses = torch.nn.functional.cross_entropy(logits, y, reduction="none")
    return Step(None, Batch(None, y, rows), logits, losses)


def remembering(memory: np.ndarray, labels: np.ndarray, **knobs: float) -> RAPW:
    """A method after its plain epochs, which remembers this."""
    method = RAPW(len(labels), 1, **knobs)  # type: ignore[arg-type]
    method.predictions = torch.tensor(memory, dtype=torch.float32)
    method.labels.copy_(torch.tensor(labels))
    begin(method, 2)
    return method


def noisy(
    n: int, classes: int, share: float, kind: str, sharp: float, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Memories of a network trained on noisy labels, the labels, and which are right.

    The network knows the class with some doubt, ``sharp`` saying how little, and predicts noisy labels: its answer
    passes through the noise, as that of a network does which is fitted to them.
    """
    draw = np.random.default_rng(seed)
    truth = draw.integers(classes, size=n)
    logits = draw.normal(size=(n, classes)) + sharp * np.eye(classes)[truth] * draw.uniform(0.5, 2, size=(n, 1))
    clean = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    shifted = np.roll(clean, 1, axis=1)
    spread = (1 - clean) / (classes - 1) if kind == "uniform" else shifted
    step = draw.integers(1, classes, size=n) if kind == "uniform" else 1
    labels = np.where(draw.random(n) < share, (truth + step) % classes, truth)
    return (1 - share) * clean + share * spread, labels, labels == truth


def test_the_targets_of_a_step_by_an_own_computation() -> None:
    memory = [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.1, 0.8], [0.6, 0.3, 0.1], [0.3, 0.3, 0.4], [0.06, 0.04, 0.9]]
    memory, labels = np.array(memory), np.array([0, 1, 2, 1, 2, 0])  # the surest is at odds with its label: full doubt
    method = remembering(memory, labels, caution=2.0)
    # The same in NumPy, row by row, from the equations of the docstring.
    means = np.maximum(memory.mean(0), 0.2 / 3)

    def sharp(power: float) -> np.ndarray:
        raw = memory**power / means
        return raw / raw.sum(1, keepdims=True)

    counts = np.zeros((3, 3))
    for row, label in zip(sharp(1.5), labels, strict=True):
        counts[:, label] += row ** (6 / 4)  # the mean of 0.7, 0.6, 0.8, 0.6, 0.4 and 0.9
    right = np.trace(counts) / counts.sum()
    prior = np.full((3, 3), (1 - right) / 2) + np.eye(3) * (right - (1 - right) / 2)
    table = (counts + 10 * prior) / (counts.sum(1, keepdims=True) + 10)
    powers = (1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4)
    likely = [np.mean([np.log(s @ table[:, y]) for s, y in zip(sharp(p), labels, strict=True)]) for p in powers]
    s = sharp(powers[int(np.argmax(likely))])
    p = np.stack([row * table[:, y] / (row @ table[:, y]) for row, y in zip(s, labels, strict=True)])
    mine, own = p[range(6), labels], memory[range(6), labels]
    learned = (mine * own).sum() / mine.sum()
    trust = min(1.0, (s[range(6), labels].mean() - 1 / 3) / (2 / 3) / 0.2)
    target = trust * learned**2 * p
    target[range(6), labels] = trust * mine + 1 - trust
    assert method.rho.item() == pytest.approx(trust * (1 - mine.mean()), abs=1e-5)
    assert method.power == powers[int(np.argmax(likely))]

    logits = torch.tensor(memory).log()  # the network predicts what is remembered, which so stays as it is
    log = np.log(memory)
    expected = -(target * log).sum() / target.sum()
    assert method.loss(a_step(logits, torch.tensor(labels))).item() == pytest.approx(expected, rel=1e-5)
    weights = method.weigh(a_step(logits, torch.tensor(labels))).numpy()
    np.testing.assert_allclose(weights, target.sum(1) / target.sum(), rtol=1e-5)
    # The memory is an exponential mean of the predictions.
    method.weigh(a_step(torch.zeros(6, 3), torch.tensor(labels)))
    np.testing.assert_allclose(method.predictions.numpy(), 0.85 * memory + 0.15 / 3, rtol=1e-5)


@pytest.mark.parametrize(
    ("classes", "share", "kind"),
    [
        *((classes, share, "uniform") for classes in (2, 10, 100) for share in (0.0, 0.2)),
        *((classes, 0.4, "uniform") for classes in (10, 100)),
        *((classes, 0.2, "next class") for classes in (10, 100)),
    ],
)
def test_rho_is_near_the_share_of_wrong_labels(classes: int, share: float, kind: str) -> None:
    memory, labels, right = noisy(12_000, classes, share, kind, sharp=5.0)
    method = remembering(memory, labels)
    assert abs(method.rho.item() - (~right).mean()) < 0.07
    assert method.trust == (share > 0)


@pytest.mark.parametrize("classes", [10, 100])
def test_a_weak_network_is_not_believed_too_much(classes: int) -> None:
    """Simple-CNN on CIFAR-100 with 40 % noise: counted over all rows, the share of wrong labels was .60 and more."""
    memory, labels, right = noisy(12_000, classes, 0.4, "uniform", sharp=1.0 + math.log10(classes))
    assert 0.4 < (memory.argmax(1) == labels).mean() / 0.6 < 0.9, "the network errs often"
    method = remembering(memory, labels)
    assert 0.3 < method.rho.item() < 0.5
    belief = method.weights.numpy()
    order = np.argsort(belief)
    ranks = np.empty(len(order))
    ranks[order] = np.arange(len(order))
    good, bad = right.sum(), (~right).sum()
    area = (ranks[right].sum() - good * (good - 1) / 2) / (good * bad)
    assert area > 0.85


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_right_labels_of_hard_rows_are_not_doubted(classes: int) -> None:
    """On clean CIFAR-100 labels were replaced where the network erred; accuracy fell by 1.7 points."""
    memory = noisy(12_000, classes, 0.0, "uniform", sharp=0.5 + math.log10(classes))[0]
    draw = np.random.default_rng(1)
    known = memory**2 / (memory**2).sum(1, keepdims=True)  # what is remembered lags behind what a network has learned
    labels = np.array([draw.choice(classes, p=row) for row in known])
    assert (memory.argmax(1) == labels).mean() < 0.9, "the network errs often"
    method = remembering(memory, labels)
    assert method.doubt == 0
    assert method.rho == 0
    assert len(method.weights.unique()) == 1
    own = method._targets(torch.arange(12_000), torch.tensor(labels))
    torch.testing.assert_close(own, torch.nn.functional.one_hot(torch.tensor(labels), classes).float())


def test_doubt_is_what_sure_rows_contradict_beyond_their_own_uncertainty() -> None:
    """200 of 2,000 rows: expected 0.05, standard error sqrt(p (1 - p) / 200)."""
    sure = torch.full((2000,), 0.6)
    sure[::10] = 0.95
    for wrong, expected in ((10, 0.0), (14, 0.135), (20, 1.0)):  # 0.05; 0.07 - 0.05 - 0.01804 = 0.00196; 0.1 - ...
        contradicted = torch.ones(2000, dtype=torch.bool)
        contradicted[::10] = torch.arange(200) < wrong
        found = rapw.doubt(sure, contradicted, 0.1).item()
        exact = (wrong / 200 - 0.05 - math.sqrt(wrong / 200 * (1 - wrong / 200) / 200)) / 0.01
        assert found == pytest.approx(min(1.0, max(0.0, exact)), abs=1e-4)
        assert found == pytest.approx(expected, abs=0.07)


def test_doubt_may_go_while_the_labels_are_learnt_as_they_are_and_stays_afterwards() -> None:
    method = RAPW(1000, plain=4)
    y = torch.arange(1000) % 3
    for number, wrong, doubted in ((1, 0, 0), (2, 3, 0), (3, 0, 1), (4, 3, 0), (5, 0, 1), (6, 0, 1)):
        begin(method, number)
        assert method.doubt == doubted, number
        said = torch.where(torch.arange(1000) % 4 < wrong, (y + 1) % 3, y)
        method.weigh(a_step(30.0 * torch.nn.functional.one_hot(said, 3), y))
        method.predictions.copy_(torch.nn.functional.one_hot(said, 3))


def test_a_network_that_has_learned_nothing_is_no_teacher() -> None:
    """The less it has learned the labels that it believes, the less a replaced label counts."""
    shares = []
    for sharp in (3.0, 8.0):
        memory, labels, right = noisy(4000, 10, 0.4, "uniform", sharp)
        target = remembering(memory, labels)._targets(torch.arange(4000), torch.tensor(labels)).numpy()
        own = target[np.arange(4000), labels]
        shares.append((target.sum(1) - own)[~right].mean())
    assert shares[0] < 0.6 * shares[1]


def test_a_memory_no_better_than_guessing_is_not_believed() -> None:
    draw = np.random.default_rng(0)
    method = remembering(draw.dirichlet(np.ones(4), size=2000), draw.integers(4, size=2000))
    assert method.trust < 0.1
    assert method.weights.max() / method.weights.min() < 1.2


@pytest.mark.parametrize("memorised", [0.1, 0.5])
def test_the_memory_settles_once_much_fewer_labels_are_doubted_than_before(memorised: float) -> None:
    """The network comes to answer with some of the wrong labels; a few of them are no reason to stop."""
    memory, labels, right = noisy(4000, 5, 0.3, "uniform", 6.0)
    method, y = remembering(memory, labels), torch.tensor(labels)
    first, power = float(method.rho), float(method.power)
    answers = torch.tensor(memory, dtype=torch.float32)
    lost = torch.tensor(~right) & (torch.rand(4000, generator=torch.Generator().manual_seed(0)) < memorised)
    answers[lost] = torch.nn.functional.one_hot(y, 5)[lost].float()
    for number in range(3, 20):
        method.weigh(a_step((answers + 1e-6).log(), y))
        begin(method, number)
    if memorised < 0.5:
        assert method.settled == 0
        assert method.rho < first
        return
    assert method.settled == 1
    assert method.power == power
    before = method.predictions.clone()
    assert float(method.predictions[lost].argmax(1).ne(y[lost]).float().mean()) > 0.9  # none is lost yet
    method.weigh(a_step((answers + 1e-6).log(), y))
    assert torch.equal(method.predictions, before)
    method.predictions[7] = 0.0  # a row that comes later still gets a memory
    method.weigh(a_step((answers + 1e-6).log(), y))
    torch.testing.assert_close(method.predictions[7] / method.predictions[7].sum(), answers[7], rtol=0, atol=1e-5)


def test_held_rows_count_nothing_until_the_plain_epochs_are_over() -> None:
    n = 1000
    method = RAPW(n, plain=3)
    logits, y = torch.randn(n, 3, generator=torch.Generator().manual_seed(0)), torch.arange(n) % 3
    begin(method, 1)
    weights = method.weigh(a_step(logits, y))
    held = weights < 1e-6
    assert 150 < int(held.sum()) < 250
    torch.testing.assert_close(weights[~held], torch.full((n - int(held.sum()),), 1 / (n - int(held.sum()))).double())
    for number in (2, 3, 4):
        begin(method, number)
    assert method.late == 1
    assert (method.weigh(a_step(logits, y)) > 1e-6).all()


@pytest.mark.parametrize("worse", [False, True])
def test_the_plain_epochs_end_once_held_rows_get_worse_than_before_and_than_others(worse: bool) -> None:
    method = RAPW(1000, plain=12)
    truth = torch.arange(1000) % 3
    y = torch.where(torch.arange(1000) % 4 == 0, (truth + 1) % 3, truth)
    said = torch.where(method._held(torch.arange(1000)) & worse, (truth + 2) % 3, truth)
    found, losses = [], torch.full((1000,), torch.inf)
    for number, size in enumerate((4.0, 4.0, 4.0, 3.9, 4.0, 0.0), 1):  # a quarter of the plain epochs first
        begin(method, number, losses)
        found.append(bool(method.late))
        step = a_step(size * torch.nn.functional.one_hot(said, 3), y)
        method.loss(step)
        losses = step.losses
    assert found == [False, False, False, False, False, worse]


def test_rows_that_are_worse_than_others_of_their_label_count_less_in_the_plain_epochs() -> None:
    """1 / (1 + x) for a loss that is x above the mean of its label's rows; a class that is hard as a whole counts.

    That is so if labels are in doubt: the network contradicts a fifth of them.
    """
    n = 2000
    method = RAPW(n, plain=5)
    y = torch.arange(n) % 2
    losses = torch.where(y == 0, 1.0, 8.0).repeat(1) + torch.tensor([1.0, 1.0, -1.0, -1.0]).repeat(n // 4)
    said = torch.where(torch.arange(n) % 5 == 0, 1 - y, y)
    step = Step(None, Batch(None, y, torch.arange(n)), 9.0 * torch.nn.functional.one_hot(said, 2), losses)
    begin(method, 1, torch.full((n,), torch.inf))
    assert len(method.weigh(step).unique()) == 2, "at first nothing is known: held rows and others"
    begin(method, 2, losses)
    weights, held = method.weigh(step), method._held(torch.arange(n))
    least = weights[~held].min()
    expected = torch.tensor([1.0, 1.0, 2.0, 2.0]).repeat(n // 4).double()[~held]  # 1 / (1 + 1) and 1
    torch.testing.assert_close(weights[~held] / least, expected, rtol=1e-5, atol=1e-6)
    for number in range(3, 7):
        begin(method, number, losses)
    assert method.late, "then the memory decides"


@pytest.mark.parametrize("loss_fn", [None, "smooth"])
def test_in_the_plain_epochs_it_is_the_user_s_loss(loss_fn: str | None) -> None:
    data = Arrays(torch.randn(60, 2), torch.arange(60) % 3)
    smooth = torch.nn.CrossEntropyLoss(reduction="none", label_smoothing=0.3 if loss_fn else 0.0)
    curriculum = Curriculum(RAPW(60, plain=5), data, loss_fn=smooth, batch_size=60)
    model = torch.nn.Linear(2, 3)
    for batch in curriculum.epoch(model):
        counts = ~curriculum.method._held(batch.index)
        expected = smooth(model(batch.x), batch.y)[counts].mean()
        torch.testing.assert_close(curriculum.loss(model, batch), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("other", ["a tenth", "bounded", "ignored"])
def test_another_loss_than_cross_entropy_has_a_least_value(other: str) -> None:
    """The probability of a doubted label is not driven to 0 where the user's loss is too weak to stop it."""
    memory, labels, _ = noisy(400, 4, 0.3, "uniform", 5.0)
    given, found = torch.tensor(labels), []
    for low in (0.0, -10.0, -100.0):  # the given label's logit
        method = remembering(memory, labels)
        assert method.trust > 0.9, "labels are doubted"
        logits = torch.zeros(400, 4).scatter(1, given[:, None], low)
        losses = torch.nn.functional.cross_entropy(logits, given, reduction="none")
        losses = {"a tenth": 0.1 * losses, "bounded": losses.clamp_max(1.0), "ignored": 0 * losses}[other]
        found.append(method.loss(Step(None, Batch(None, given, torch.arange(400)), logits, losses)).item())
    assert min(found) >= 0
    assert other != "ignored" or max(found) < 1e-4, "a class that the loss ignores teaches nothing"


def test_with_cross_entropy_the_loss_is_that_of_the_targets() -> None:
    memory, labels, _ = noisy(400, 4, 0.3, "uniform", 5.0)
    method, given = remembering(memory, labels), torch.tensor(labels)
    logits = torch.randn(400, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    target = method._targets(torch.arange(400), given).double()
    expected = -(target * logits.log_softmax(1)).sum() / target.sum()
    torch.testing.assert_close(method.loss(a_step(logits, given)), expected, rtol=1e-6, atol=1e-8)


def test_rows_without_a_label_have_no_loss() -> None:
    method = RAPW(4, plain=1)
    logits, y = torch.randn(4, 3), torch.tensor([0, -100, 2, 1])
    for number in (1, 2, 3):
        begin(method, number)
        assert method.loss(a_step(logits, y)).isfinite()
    assert method.labels[1] < 0, "and do not count as a class"


def test_an_ignored_label_beyond_the_classes_is_no_class() -> None:
    method, ignoring = RAPW(4, plain=1), torch.nn.CrossEntropyLoss(reduction="none", ignore_index=255)
    logits, y = torch.randn(4, 3), torch.tensor([0, 255, 2, 1])
    for number in (1, 2, 3):
        begin(method, number)
        step = Step(None, Batch(None, y, torch.arange(4)), logits, ignoring(logits, y))
        assert method.loss(step).isfinite()
    assert method.labels.tolist() == [0, -1, 2, 1]


def test_another_number_of_outputs_is_refused() -> None:
    method = RAPW(4, plain=1)
    begin(method, 1)
    method.loss(a_step(torch.randn(4, 3), torch.tensor([0, 1, 2, 1])))
    with pytest.raises(ValueError, match="had 3 outputs and has 4 now"):
        method.loss(a_step(torch.randn(4, 4), torch.tensor([0, 1, 2, 3])))


def test_a_state_is_loaded_before_the_classes_are_known() -> None:
    memory, labels, _ = noisy(50, 5, 0.2, "uniform", 5.0)
    method, other = remembering(memory, labels), RAPW(50, 1)
    other.load_state_dict(method.state_dict())
    for name, value in method.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value)
    step = a_step(torch.randn(50, 5), torch.tensor(labels))
    torch.testing.assert_close(other.weigh(step), method.weigh(step))


def test_told_the_classes_it_takes_any_outputs() -> None:
    method = RAPW(3, plain=1, classes=10)
    losses = torch.tensor([10.0, 2.0, 1.0]).log()  # p = 1/10 (guessing), 1/2, 1
    for number in (1, 2):
        begin(method, number)
        weights = method.weigh(Step(None, Batch(None, None, torch.arange(3)), None, losses))
    # 1/2, 9/10 and 1 of 2.4
    torch.testing.assert_close(weights, torch.tensor([0.5, 0.9, 1.0]).double() / 2.4, rtol=1e-5, atol=1e-6)


def test_a_run_s_plain_epochs() -> None:
    assert methods.build("rapw", 10, 50).plain == 20
    assert methods.build("rapw", 10, 50, plain=3).plain == 3
    assert methods.build("rapw", 10, 2).plain == 1
    assert methods.build("rapw", 10, 1).plain == 0, "nothing comes after it that held rows could help"


def test_of_few_rows_none_is_held_back() -> None:
    assert not RAPW(99, plain=5)._held(torch.arange(99)).any()
    assert RAPW(100, plain=5)._held(torch.arange(100)).any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 0}, "n must .*at least 1, got 0"),
        ({"plain": -1}, "plain must .*at least 0, got -1"),
        ({"decay": 1.0}, r"decay must .*\[0, 1\), got 1\.0"),
        ({"decay": "x"}, "decay of RAPW must .*got 'x'"),
        ({"caution": -1.0}, r"caution must .*got -1\.0"),
        ({"caution": math.nan}, "caution of RAPW is NaN"),
        ({"classes": 1}, "classes must .*at least 2, got 1"),
    ],
)
def test_bad_knobs_are_refused(options: dict[str, object], words: str) -> None:
    kind = TypeError if "x" in options.values() else ValueError
    with pytest.raises(kind, match=words):
        RAPW(**{"n": 3, "plain": 1, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("y", [torch.tensor([0.1, 0.2]), torch.tensor([[0, 1], [1, 0]]), None])
def test_labels_that_are_no_classes_are_refused(y: torch.Tensor | None) -> None:
    batch = Batch(None, y, torch.arange(2))
    with pytest.raises(TypeError, match="RAPW needs classes.*pass classes="):
        RAPW(2, 1).weigh(Step(None, batch, torch.zeros(2, 2), torch.ones(2)))
