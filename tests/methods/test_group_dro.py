"""Group DRO: its authors' weights step by step, groups of any number, and the worst group in a run."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torchcurriculum import Arrays, Batch, Curriculum, Method, Step, Vanilla, methods
from torchcurriculum.methods import GroupDRO

# LossComputer of kohpangwei/group_DRO (loss.py) in float64, three groups of 4, 1 and 3 rows, C = 1.5, eta = 0.3: the
# losses of a batch, the groups of its rows; q afterwards and what each row counts.
GROUPS = [7, 7, 7, 7, 40, 8000, 8000, 8000]  # whose order is that of the authors' groups 0, 1 and 2
STEPS = [
    (
        [0.2, 1.0, 2.0, 0.4],
        [0, 5, 4, 1],
        [0.22920757562453978, 0.478008271510712, 0.2927841528647481],
        [0.11460378781226989, 0.2927841528647481, 0.478008271510712, 0.11460378781226989],
    ),
    (
        [0.5, 0.1, 0.3],
        [6, 2, 7],
        [0.2007352179341905, 0.508765252125326, 0.29049952994048356],
        [0.14524976497024178, 0.2007352179341905, 0.14524976497024178],
    ),
]


def test_the_authors_steps() -> None:
    groups = [7, 7, 7, 7, 40, 8000, 8000, 8000]
    method = GroupDRO(8, groups, step_size=0.3, adjustment=1.5)
    for losses, rows, q, weights in STEPS:
        step = Step(None, Batch(None, None, torch.tensor(rows)), None, torch.tensor(losses, dtype=torch.float64))
        assert method.weigh(step).tolist() == pytest.approx(weights, rel=1e-12)
        assert method.q.tolist() == pytest.approx(q, rel=1e-12)
    assert method.report() == {"group": 40, "group_weight": pytest.approx(0.508765252125326)}


def run(method: Method) -> list[float]:
    """Accuracies of a majority and of a minority whose inputs say the opposite, by a model that can fit one of them."""
    sign = torch.ones(220)
    sign[200:] = -1
    y = torch.arange(220) % 2
    x = torch.stack([sign * (2.0 * y - 1), 0.3 * (2.0 * y - 1)], 1)
    torch.manual_seed(0)
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.2, weight_decay=0.05)
    curriculum = Curriculum(method, Arrays(x, y), batch_size=20)
    for _ in range(20):
        for batch in curriculum.epoch(net):
            optimizer.zero_grad()
            curriculum.loss(net, batch).backward()
            optimizer.step()
    right = (net(x).argmax(1) == y).double()
    return [right[:200].mean().item(), right[200:].mean().item()]


def test_the_minority_is_learnt() -> None:
    groups = (torch.arange(220) >= 200).long()
    assert run(Vanilla()) == [1.0, 0.0]
    assert run(GroupDRO(220, groups, step_size=0.1)) == [1.0, 1.0]


def test_what_is_missing_or_wrong_is_named() -> None:
    with pytest.raises(TypeError, match="'group-dro' needs groups; pass groups="):
        methods.build("group-dro", 4, 5)
    for options, words in (
        ({"groups": [0, 1]}, "groups must have one value for each of the 4 rows"),
        ({"groups": [0.0, 1.0, 0.0, 1.0]}, "groups must be 4 whole numbers, got torch.float32"),
        ({"step_size": -1.0}, "step_size must be"),
        ({"adjustment": -1.0}, "adjustment must be"),
    ):
        with pytest.raises(ValueError, match=words):
            GroupDRO(**{"n": 4, "groups": [0, 1, 0, 1], **options})
