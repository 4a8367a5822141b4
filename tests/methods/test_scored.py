"""Scores of samples: the numbers of their authors' code, notes that are taken once, rankings, pruning and pacing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcurriculum import APW, Batch, Curriculum, Mixup, Record, Step, Then, Vanilla, fast, flip_labels, methods
from torchcurriculum.audit import audit, difficulty, prune
from torchcurriculum.data import Arrays
from torchcurriculum.functional.scores import by_class, gradient_norms, variance_of_gradients
from torchcurriculum.methods import LambdaStep, Scored
from torchcurriculum.record import RecordError

from ..contract.problem import N, data, model
from .pacing import unmeasured


def note(scored: Scored, epoch: int, logits: list[list[float]], labels: list[int]) -> None:
    z = torch.tensor(logits, dtype=torch.float64)
    batch = Batch(None, torch.tensor(labels), torch.arange(len(labels)), epoch=epoch)
    scored.loss(Step(None, batch, z, torch.zeros(len(z))))


def test_margins_and_error_norms_are_the_authors() -> None:
    # AUMCalculator of asappresearch/aum; the L2 error of mansheej/data_diet (scores.py), worked with NumPy.
    scored, labels = Scored(Vanilla(), 3, early=1), [0, 2, 0]
    note(scored, 1, [[1.0, 2.0, -1.0], [0.5, 0.1, 0.4], [3.0, -2.0, 0.0]], labels)
    note(scored, 2, [[2.0, 0.5, 1.0], [1.5, -0.1, 0.4], [3.5, -2.0, 4.0]], labels)
    found = scored.arrays()
    assert found["aum"].tolist() == pytest.approx([0.0, -0.6, 1.25], abs=1e-6)
    assert found["el2n"].tolist() == pytest.approx([1.0233015924, 0.7995455012, 0.0715795521], abs=1e-6)
    later = Scored(Vanilla(), 3, early=2)
    note(later, 2, [[2.0, 0.5, 1.0], [1.5, -0.1, 0.4], [3.5, -2.0, 4.0]], labels)
    assert later.arrays()["el2n"].tolist() == pytest.approx([0.4594797726, 1.0271841543, 0.8800256536], abs=1e-6)


def test_forgetting_events_are_the_authors() -> None:
    # compute_forgetting_statistics and sort_examples_by_forgetting of mtoneva/example_forgetting: 2, never learnt (6
    # presentations), 0, 1 and 1 events.
    right = [[0, 1, 1, 0, 1, 0], [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1], [0, 1, 0, 1, 1, 1], [1, 0, 0, 0, 0, 0]]
    scored = Scored(Vanilla(), 6)
    for epoch in range(6):
        note(scored, epoch + 1, [[1.0, 0.0] if row[epoch] else [0.0, 1.0] for row in right], [0] * 5)
    assert scored.arrays()["forgetting"][:5].tolist() == [2.0, 6.0, 0.0, 1.0, 1.0]
    assert all(np.isnan(values[5]) for values in scored.arrays().values()), "never seen"
    assert scored.difficulty("forgetting").tolist() == [2.0, 6.0, 0.0, 1.0, 1.0, math.inf]


def test_a_loss_that_is_asked_for_again_is_noted_once() -> None:
    net, scored = model(), Scored(APW(N, q=3), N)
    curriculum = Curriculum(scored, data(), batch_size=8)
    optimizer = torch.optim.LBFGS(net.parameters(), 0.1, max_iter=3)
    for batch in curriculum.epoch(net):

        def closure(batch: Batch = batch) -> Any:
            optimizer.zero_grad()
            loss = curriculum.loss(net, batch)
            loss.backward()
            return loss

        optimizer.step(closure)
    assert scored.notes[:, 0].tolist() == [1.0] * N


def test_mixtures_are_not_noted() -> None:
    net, scored = model(), Scored(Mixup(), N)
    curriculum = Curriculum(scored, data(), batch_size=8)
    for batch in curriculum.epoch(net):
        curriculum.loss(net, batch)
    assert not scored.notes.any()


def test_no_kernel_passes_it_by() -> None:
    apw = APW(4, q=3)
    assert fast.active(apw, 1)[1] is not None
    for method in (Scored(apw, 4), Then(Scored(apw, 4), 2, APW(4, q=3)), Scored(Then(apw, 2, APW(4, q=3)), 4)):
        assert fast.active(method, 1) == (apw, None)
        assert fast.graph_key(method, 1) is None
    then = Then(apw, 2, Vanilla())
    assert fast.active(then, 1)[1] is not None


def test_gradient_norms_are_those_of_a_loop() -> None:
    net, x, y = model(), data().x[:7], data().y[:7]
    expected = []
    for row in range(7):
        net.zero_grad()
        F.cross_entropy(net(x[row : row + 1]), y[row : row + 1]).backward()
        expected.append(math.sqrt(sum(p.grad.square().sum().item() for p in net.parameters())))
    for chunk in (None, 3):
        assert gradient_norms(net, x, y, chunk=chunk).tolist() == pytest.approx(expected, rel=1e-9)

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.frozen = net, nn.Parameter(torch.ones(1), requires_grad=False)

        def forward(self, image: Tensor) -> Tensor:
            return self.net(image)

    found = gradient_norms(Named(), {"image": x}, y, forward=lambda made, inputs: made(**inputs))
    assert found.tolist() == pytest.approx(expected, rel=1e-9)


def test_grand_is_measured_when_it_was_asked_for() -> None:
    net, scored = model(), Scored(Vanilla(), N, grand=2)
    curriculum = Curriculum(scored, data(), batch_size=8)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for epoch in (1, 2):
        expected = gradient_norms(net, data().x, data().y).detach()
        for batch in curriculum.epoch(net):
            optimizer.zero_grad()
            curriculum.loss(net, batch).backward()
            optimizer.step()
        if epoch == 1:
            assert np.isnan(scored.arrays()["grand"]).all()
    assert scored.arrays()["grand"].tolist() == pytest.approx(expected.tolist(), rel=1e-5)


def test_variance_of_gradients_is_the_authors() -> None:
    # The formula of chirag126/VOG (imagenet/train_visualize_grad.py) on three gradients of two rows of four pixels. A
    # linear model whose row y is the gradient has it as the gradient of its logit y.
    gradients = torch.tensor(
        [
            [[0.1, -0.2, 0.3, 0.0], [1.0, 2.0, -1.0, 0.5]],
            [[0.0, 0.4, 0.1, 0.2], [1.5, 2.5, -0.5, 0.0]],
            [[-0.3, 0.1, 0.2, 0.6], [0.2, 2.2, -0.7, 0.9]],
        ]
    )
    models = []
    for rows in gradients:
        models.append(nn.Linear(4, 2).train())
        models[-1].weight.data.copy_(rows)
    found = variance_of_gradients(models, torch.randn(2, 4), torch.tensor([0, 1]))
    assert found.tolist() == pytest.approx([0.18650244381894482, 0.3286380618944519], rel=1e-5)
    assert all(one.training and one.weight.grad is None for one in models)
    assert by_class(torch.tensor([1.0, 2.0, 6.0, 5.0]), torch.tensor([0, 0, 0, 1])).tolist() == pytest.approx(
        [-2 / math.sqrt(14 / 3), -1 / math.sqrt(14 / 3), 3 / math.sqrt(14 / 3), 0.0]
    )
    with pytest.raises(ValueError, match="two or more snapshots of a run, got 1"):
        variance_of_gradients(models[:1], torch.randn(2, 4), torch.tensor([0, 1]))
    with pytest.raises(TypeError, match="must be floating-point numbers, not torch.int64"):
        variance_of_gradients(models, torch.zeros(2, 4, dtype=torch.int64), torch.tensor([0, 1]))


def noisy_run(epochs: int = 8) -> tuple[Record, Scored, Tensor]:
    """Three clouds of points, a fifth of the labels wrong; the record of a run, its scores and the clean labels."""
    generator = torch.Generator().manual_seed(1)
    clean = torch.arange(300) % 3
    x = 2.5 * torch.eye(3)[clean] + torch.randn(300, 3, generator=generator)
    labels = flip_labels(clean, 0.2, 3, seed=0)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 3))
    scored = Scored(Vanilla(), 300, grand=4)
    curriculum = Curriculum(scored, Arrays(x, labels), batch_size=20, samples=True)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(epochs):
        for batch in curriculum.epoch(net):
            optimizer.zero_grad()
            curriculum.loss(net, batch).backward()
            optimizer.step()
    record = curriculum.record
    for name, values in {"labels": labels.numpy(), "clean": clean.numpy(), **scored.arrays()}.items():
        record.set_array(name, values)
    return record, scored, clean != labels


def test_wrong_labels_rank_high_and_are_pruned() -> None:
    record, scored, wrong = noisy_run()
    plain = audit(record)
    for score, least in {"aum": 0.9, "el2n": 0.9, "forgetting": 0.75, "grand": 0.8}.items():
        found = audit(record, score=score)
        assert (found.auroc() or 0) > least, score
        assert np.array_equal(found.score, difficulty(record, score))
        assert np.array_equal(found.issue, plain.issue), "the verdict stays"
    assert audit(record, score="aum").precision(30) > 0.9
    kept = prune(difficulty(record, "aum"), 0.2, drop="hard")
    assert len(kept) == 240
    assert wrong[torch.from_numpy(kept)].double().mean() < 0.08
    easiest = LambdaStep(300, grow=4, start=0.5, scores=scored.difficulty("aum"))
    assert wrong[easiest.plan(unmeasured(1, 300))].double().mean() < 0.05


def test_pruning_keeps_what_it_says() -> None:
    values = [3.0, 0.0, 0.0, 0.0, 0.0, 1.0, math.nan]
    assert prune(values, 0.0).tolist() == list(range(7))
    kept = {tuple(prune(values, 0.3, seed=seed).tolist()) for seed in range(20)}
    assert len(kept) > 1, "equal samples at random"
    assert all({0, 5, 6} <= set(rows) and len(rows) == 5 for rows in kept)
    assert prune(torch.tensor(values), 0.3, drop="hard").tolist() == [1, 2, 3, 4, 6]
    for options, words in (
        ({"fraction": 1.0}, r"must lie in \[0, 1\), got 1\.0"),
        ({"drop": "odd"}, "drop must be 'easy' or 'hard', got 'odd'"),
        ({"values": [[1.0]]}, r"values must be of shape \(N,\), got \(1, 1\)"),
    ):
        with pytest.raises(ValueError, match=words):
            prune(**{"values": values, "fraction": 0.3, **options})


def test_what_is_missing_or_wrong_is_named() -> None:
    record = Record(2)
    record.append({}, losses=np.array([0.1, 2.0]))
    with pytest.raises(RecordError, match=r"holds no 'aum'; train with Scored\(method, n\)"):
        audit(record, score="aum")
    with pytest.raises(ValueError, match="score must be one of aum, el2n, forgetting, grand, vog, got 'margin'"):
        audit(record, score="margin")
    record.set_array("vog", np.zeros((2, 3)))
    with pytest.raises(RecordError, match="'vog' must hold one number for each of 2 samples"):
        difficulty(record, "vog")
    with pytest.raises(ValueError, match="n of Scored is 5, but the method inside was made for 4 rows; pass n=4"):
        Scored(APW(4, q=2), 5)
    with pytest.raises(ValueError, match="score must be 'aum', 'el2n' or 'forgetting', got 'grand'"):
        Scored(Vanilla(), 4).difficulty("grand")
    with pytest.raises(TypeError, match="method of Scored must be Method, got 'apw'"):
        Scored("apw", 4)  # type: ignore[arg-type]
    targets, net = Arrays(data().x, data().x[:, 0, 0, 0]), model()
    curriculum = Curriculum(Scored(Vanilla(), N), targets, lambda z, y: z[:, 0] - y, unpack=tuple)
    with pytest.raises(TypeError, match="Scored needs classes"):
        curriculum.loss(net, next(iter(curriculum.epoch(net))))
    assert "scored" not in methods.names()
