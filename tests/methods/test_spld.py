from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from torchcurriculum import Arrays, Curriculum
from torchcurriculum.functional.spl import diversity_bonus, spread
from torchcurriculum.methods import SPL, SPLD

from .pacing import epoch


def test_golden_bonus() -> None:
    # gamma / (sqrt i + sqrt(i - 1)): 2 / 1 = 2; 2 / (1.414214 + 1) = 0.828427; 2 / (1.732051 + 1.414214) = 0.635674.
    losses, groups = torch.tensor([0.3, 0.1, 0.2, 0.9]).double(), torch.tensor([5, 5, 5, 1])
    assert diversity_bonus(losses, groups, 2.0).tolist() == pytest.approx([0.635674, 2, 0.828427, 2], abs=1e-6)


def test_golden_selection() -> None:
    # Losses 0.1 0.2 0.5 | 0.9: mean 0.425, deviations squared 0.105625 + 0.050625 + 0.005625 + 0.225625 = 0.3875,
    # spread sqrt(0.096875) = 0.311248; diversity 2 makes gamma = 0.622495. Keys: 0.1 - 0.622 = -0.522,
    # 0.2 - 0.258 = -0.058, 0.5 - 0.198 = 0.302, 0.9 - 0.622 = 0.278. Three rows: 0, 1 and the lone row 3.
    method = SPLD(4, grow=4, groups=[0, 0, 0, 1], diversity=2.0, start=0.75, warmup=0)
    assert method.plan(epoch(1, [0.1, 0.2, 0.5, 0.9])).tolist() == [0, 1, 3]  # type: ignore[union-attr]


@given(
    st.lists(st.tuples(st.floats(0, 10), st.integers(0, 3)), min_size=2, max_size=24),
    st.floats(0, 5),
    st.floats(0.05, 0.95),
)
def test_the_selection_is_that_of_algorithm_1(rows: list[tuple[float, int]], diversity: float, share: float) -> None:
    """Row i of a group is in if and only if L < lambda + gamma / (sqrt i + sqrt(i - 1)), by a loop over groups."""
    losses = torch.tensor([loss for loss, _ in rows], dtype=torch.float64)
    groups = torch.tensor([group for _, group in rows])
    method = SPLD(len(rows), grow=10, groups=groups, diversity=diversity, start=share, warmup=0)
    planned = method.plan(epoch(1, losses))
    assert planned is not None
    bonus = diversity_bonus(losses, groups, diversity * spread(losses))
    keys = losses - bonus
    age = method.age + keys.min().clamp_max(0)  # undo the shift of negative keys
    for group in groups.unique().tolist():
        members = sorted((losses[i].item(), i) for i in range(len(rows)) if groups[i] == group)
        for place, (loss, row) in enumerate(members, 1):
            limit = age + diversity * spread(losses) / (place**0.5 + (place - 1) ** 0.5)
            if abs(loss - limit) > 1e-9:
                assert (row in planned.tolist()) == (loss < limit)


def test_without_diversity_it_is_self_paced_learning() -> None:
    losses = torch.rand(20, generator=torch.Generator().manual_seed(0))
    a = SPLD(20, grow=4, start=0.4, diversity=0.0, groups=torch.arange(20) % 3, warmup=0)
    b = SPL(20, grow=4, start=0.4, warmup=0)
    assert torch.equal(a.plan(epoch(1, losses)), b.plan(epoch(1, losses)))  # type: ignore[arg-type]


def test_every_group_is_there_from_the_start() -> None:
    losses = torch.cat([torch.linspace(0, 1, 50), torch.linspace(5, 6, 50)])
    groups = (torch.arange(100) >= 50).long()
    plain = SPL(100, grow=4, start=0.1, warmup=0).plan(epoch(1, losses))
    diverse = SPLD(100, grow=4, start=0.1, warmup=0, groups=groups, diversity=5.0).plan(epoch(1, losses))
    assert groups[plain].unique().tolist() == [0]
    assert groups[diverse].unique().tolist() == [0, 1]


def _one_epoch(y: torch.Tensor, loss_fn: object) -> SPLD:
    method, model = SPLD(len(y), grow=2, warmup=0, start=0.5), nn.Linear(1, 2)
    curriculum = Curriculum(method, Arrays(torch.randn(len(y), 1), y), loss_fn=loss_fn, batch_size=2)  # type: ignore[arg-type]
    for batch in curriculum.epoch(model):
        curriculum.loss(model, batch).backward()
    return method


def test_groups_are_the_labels_unless_given() -> None:
    y = torch.tensor([1, 0, 1, 1, 0])
    method = _one_epoch(y, nn.CrossEntropyLoss(reduction="none"))
    assert torch.equal(method.groups, y)


def test_targets_that_are_no_classes_ask_for_groups() -> None:
    with pytest.raises(TypeError, match=r"torch.float32 of shape \(\d, 2\); pass groups="):
        _one_epoch(torch.rand(5, 2), lambda out, y: (out - y).square().mean(1))


def test_bad_knobs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"diversity must .*\[0, inf\), got -1"):
        SPLD(4, grow=2, diversity=-1)
    with pytest.raises(ValueError, match="groups must have one value for each of the 4 rows"):
        SPLD(4, grow=2, groups=[1, 2])
