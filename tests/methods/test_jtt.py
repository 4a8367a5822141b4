"""Just Train Twice: the error set is what the model gets wrong after T epochs, and it counts lambda times."""

from __future__ import annotations

import pytest
import torch

from torchcurriculum import Arrays, Batch, Curriculum, Step, methods
from torchcurriculum.methods import JTT

from ..contract.problem import N, data, model


def test_the_weights_of_the_papers_objective() -> None:
    # lambda = 4, two of five rows in E: (4 L_0 + L_1 + L_2 + 4 L_3 + L_4) / (4 + 1 + 1 + 4 + 1).
    method = JTT(5, first=0, weight=4.0, errors=[True, False, False, True, False])
    losses = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], dtype=torch.float64)
    step = Step(None, Batch(None, None, torch.arange(5)), None, losses)
    assert method.loss(step).item() == pytest.approx((4 + 2 + 3 + 16 + 5) / 11)
    assert method.weights.tolist() == pytest.approx([4 / 11, 1 / 11, 1 / 11, 4 / 11, 1 / 11])


def test_the_error_set_is_found_once_after_the_first_stage() -> None:
    net, method = model(), methods.build("jtt", N, 10)
    assert method.first == 2
    curriculum = Curriculum(method, data(), batch_size=8)
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    found = []
    for _ in range(4):
        wrong = net(data().x).argmax(1) != data().y
        for batch in curriculum.epoch(net):
            optimizer.zero_grad()
            curriculum.loss(net, batch).backward()
            optimizer.step()
        found.append((wrong, method.errors.clone()))
    assert not found[0][1].any()
    assert not found[1][1].any()
    assert torch.equal(*found[2])
    assert 0 < int(found[2][1].sum()) < N
    assert torch.equal(found[3][1], found[2][1]), "the set stays"
    assert [row["errors"] for row in curriculum.record.epochs] == [0, 0, *[int(found[2][1].sum())] * 2]


def test_a_second_run_takes_the_errors_of_the_first() -> None:
    errors = torch.arange(6) < 2
    method = methods.build("jtt", 6, 10, errors=errors)
    assert method.first == 0
    assert torch.equal(method.errors, errors)


def test_what_does_not_go_together_is_named() -> None:
    for options, words in (
        ({"first": 0}, "first=0 of JTT with no errors=: pass first=1 or more"),
        ({"first": 2, "errors": [0, 1, 0, 0]}, "first=2 of JTT with errors=: .*or errors= and first=0"),
        ({"first": 0, "errors": [0, 2, 0, 0]}, r"errors must be 0 or 1 for each of the 4 rows, got \[0, 2\]"),
        ({"first": 1, "weight": 0.5}, r"weight must be a number in \[1, inf\), got 0\.5; 1 is plain training"),
    ):
        with pytest.raises(ValueError, match=words):
            JTT(4, **options)


def test_errors_need_classes() -> None:
    targets = Arrays(data().x, data().x.flatten(1)[:, 0])
    net = model()
    curriculum = Curriculum(JTT(N, first=1), targets, lambda z, y: (z[:, 0] - y) ** 2, batch_size=8, unpack=tuple)
    for batch in curriculum.epoch(net):
        curriculum.loss(net, batch)
    with pytest.raises(TypeError, match="JTT needs classes"):
        next(iter(curriculum.epoch(net)))
