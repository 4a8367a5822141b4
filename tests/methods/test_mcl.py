"""MCL: hand-worked gains, the exact maximum by brute force, and the peers' bugs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from torchcurriculum import Arrays, Curriculum, Epoch, methods
from torchcurriculum.functional.mcl import (
    cluster,
    facility_location,
    hard_and_diverse,
    hard_and_representative,
    marginal_gains,
    project,
    subset_schedule,
)
from torchcurriculum.methods import MCL

from ..contract.problem import Run
from ..contract.row import Row


def _epoch(number: int, losses: torch.Tensor) -> Epoch:
    return Epoch(number, len(losses), losses, lambda: losses)


def test_gains_by_hand() -> None:
    # mean loss 2.5; group 0 has 3 rows, group 1 one. Row 0: 4 + 2.5 sqrt(3) (1 - 0) = 8.330127; row 1:
    # 3 + 2.5 sqrt(3) (sqrt(2) - 1) = 4.793597; row 2: 2 + 2.5 sqrt(3) (sqrt(3) - sqrt(2)) = 3.376276; row 3: 1 + 2.5.
    gains = marginal_gains(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([0, 0, 0, 1]), 1.0)
    third = 2.5 * math.sqrt(3)
    by_hand = [4 + third, 3 + third * (math.sqrt(2) - 1), 2 + third * (math.sqrt(3) - math.sqrt(2)), 3.5]
    assert gains.tolist() == pytest.approx(by_hand, abs=1e-12)
    assert by_hand[:3] == pytest.approx([8.330127, 4.793597, 3.376276], abs=1e-6)


def test_schedule_by_hand() -> None:
    # k: 20, 30, 45, 67.5 -> 68, ..., at most 100; lambda: 1, 0.9, 0.81, 0.729.
    made = [subset_schedule(t, 100, 0.2, 0.5, 1.0, 0.1) for t in range(6)]
    assert made[:4] == [(20, 1.0), (30, 0.9), (45, 0.81), (68, 0.729)]
    assert made[5][0] == 100


@given(st.lists(st.tuples(st.floats(0, 9), st.integers(0, 2)), min_size=2, max_size=7), st.floats(0, 3), st.data())
@settings(deadline=None, max_examples=40)
def test_no_subset_is_better(rows: list[tuple[float, int]], strength: float, data: st.DataObject) -> None:
    losses, groups = torch.tensor([row[0] for row in rows]).double(), torch.tensor([row[1] for row in rows])
    size = data.draw(st.integers(1, len(rows)))
    sizes = torch.bincount(groups, minlength=3)

    def worth(subset: list[int]) -> float:
        counts = torch.bincount(groups[subset], minlength=3)
        return float(losses[subset].sum() + strength * losses.mean() * (sizes * counts).double().sqrt().sum())

    chosen = hard_and_diverse(losses, groups, size, strength).tolist()
    assert len(set(chosen)) == size
    best = max(worth(list(subset)) for subset in itertools.combinations(range(len(rows)), size))
    assert worth(chosen) == pytest.approx(best, abs=1e-9)


@given(st.integers(2, 500), st.integers(1, 20), st.integers(0, 99))
@settings(deadline=None, max_examples=40)
def test_diversity_is_as_large_as_the_losses_whatever_n(n: int, count: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    losses = torch.rand(n, generator=generator, dtype=torch.float64)
    groups = torch.randint(count, (n,), generator=generator)
    diversity = marginal_gains(losses, groups, 1.0) - losses
    assert float(diversity.sum()) == pytest.approx(float(losses.sum()), rel=1e-9)


@given(st.permutations(range(12)))
@settings(deadline=None, max_examples=20)
def test_rows_are_found_by_number_not_by_position(order: list[int]) -> None:
    losses, groups = torch.linspace(1, 5, 12), torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
    straight = set(hard_and_diverse(losses, groups, 5, 1.0).tolist())
    moved = hard_and_diverse(losses[order], groups[order], 5, 1.0)
    assert {order[row] for row in moved.tolist()} == straight


def test_a_large_set_needs_no_square_matrix() -> None:
    n = 200_000
    generator = torch.Generator().manual_seed(0)
    groups = cluster(torch.randn(n, 8, generator=generator), 16, generator, rounds=3)
    rows = hard_and_diverse(torch.rand(n, generator=generator), groups, n // 10, 1.0)
    assert len(rows) == n // 10
    assert len(groups.unique()) == 16


def test_clusters_part_what_is_apart_and_projection_keeps_it_so() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = 10 * torch.randn(4, 200, generator=generator)
    which = torch.arange(80) % 4
    x = project(centres[which] + 0.1 * torch.randn(80, 200, generator=generator), 32, generator)
    assert x.shape == (80, 32)
    groups = cluster(x, 8, generator)
    for group in groups.unique():
        assert len(which[groups == group].unique()) == 1


def test_warmup_is_shuffled_and_over_everything() -> None:
    data = Arrays(torch.randn(64, 2, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 2)
    curriculum = Curriculum(methods.build("mcl", 64, 100), data, batch_size=64)
    (batch,) = curriculum.epoch(nn.Linear(2, 2))
    assert sorted(batch.index.tolist()) == list(range(64))
    assert batch.index.tolist() != list(range(64))


@pytest.mark.parametrize("epochs", [1, 2, 3, 7, 200])
def test_short_and_long_runs_have_a_schedule_that_ends_with_everything(epochs: int) -> None:
    method = methods.build("mcl", 50, epochs, groups=torch.arange(50) % 5)
    losses = torch.linspace(0, 1, 50)
    sizes = [50 if (rows := method.plan(_epoch(k, losses))) is None else len(rows) for k in range(1, epochs + 1)]
    assert sizes[0] == 50
    assert sizes[method.warmup :] == sorted(sizes[method.warmup :])
    assert epochs < 3 or (sizes[-1] == 50 and min(sizes) == 10)


def test_rows_never_seen_count_as_hard_and_others_groups_are_taken() -> None:
    method = MCL(4, warmup=0, interval=1, factor=1.2, start=0.5, strength=0.0, groups=torch.tensor([7, 7, 9, 9]))
    losses = torch.tensor([0.1, math.inf, 0.2, 0.3])
    rows = method.plan(_epoch(1, losses))
    assert rows is not None
    assert rows.tolist() == [1, 3]
    assert method.groups.tolist() == [0, 0, 1, 1]
    every = MCL(4, warmup=0, interval=1, factor=1.2, start=0.5, groups=torch.zeros(4, dtype=torch.int64))
    assert len(every.plan(_epoch(1, torch.full((4,), math.inf)))) == 2  # type: ignore[arg-type]


def test_clusters_are_measured_once_an_episode() -> None:
    run = Run(methods.build("mcl", 37, 4, warmup=1, interval=2, clusters=3), Row("mcl"))
    groups = []
    for _ in range(4):
        for batch in run.curriculum.epoch(run.net):
            loss = run.curriculum.loss(run.net, batch)
            run.optimizer.zero_grad()
            loss.backward()
            run.optimizer.step()
        groups.append(run.curriculum.method.groups.tolist())
    assert groups[0] == [0] * 37
    assert len(set(groups[1])) > 1
    assert groups[1] == groups[2] != groups[0]
    assert [row["rows"] for row in run.curriculum.record.epochs][:2] == [37, 8]


def test_outputs_that_are_no_tensors_are_refused() -> None:
    data = Arrays(torch.randn(8, 2, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2)
    method = MCL(8, warmup=0, interval=1, factor=1.2, start=0.5)
    curriculum = Curriculum(
        method,
        data,
        loss_fn=lambda outputs, y: nn.functional.cross_entropy(outputs["logits"], y, reduction="none"),
        forward=lambda model, x: {"logits": model(x)},
    )
    with pytest.raises(TypeError, match="groups="):
        next(curriculum.epoch(nn.Linear(2, 2)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n must be .*got 0"),
        ({"warmup": -1}, "warmup must .*got -1"),
        ({"interval": 0}, "interval must .*got 0"),
        ({"start": 0.0}, r"start must .*got 0\.0"),
        ({"start": 1.1}, r"start must .*got 1\.1"),
        ({"factor": 0.9}, r"factor must .*got 0\.9"),
        ({"strength": -1.0}, r"strength must .*got -1\.0"),
        ({"decay": 1.5}, r"decay must .*got 1\.5"),
        ({"decay": -0.5}, r"decay must .*got -0\.5"),
        ({"clusters": 11}, "clusters must .*got 11"),
        ({"groups": torch.zeros(3, dtype=torch.int64)}, r"groups must .*got \(3,\)"),
        ({"groups": torch.zeros(10)}, "groups must .*got torch.float32"),
    ],
)
def test_bad_knobs(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MCL(**{"n": 10, "warmup": 1, "interval": 1, "factor": 1.2, **options})  # type: ignore[arg-type]


def test_facility_location_is_the_greedy_algorithm_of_the_paper() -> None:
    # Each step takes the largest sum_{i in A} g_i + lambda sum_j d_j max_{i in A} omega_ij, worked out anew by loops.
    draw = np.random.default_rng(3)
    for _ in range(20):
        count, strength = int(draw.integers(2, 9)), draw.uniform(0, 3)
        omega, gains, demand = draw.uniform(size=(count, count)), draw.uniform(size=count), draw.uniform(size=count)
        omega = (omega + omega.T) / 2
        taken: list[int] = []
        while len(taken) < count:
            values = {}
            for i in set(range(count)) - set(taken):
                chosen = [*taken, i]
                cover = sum(demand[j] * max(omega[k, j] for k in chosen) for j in range(count))
                values[i] = sum(gains[k] for k in chosen) + strength * cover
            taken.append(max(values, key=lambda i: values[i]))
        found = facility_location(*(torch.tensor(v) for v in (gains, omega, demand)), strength)
        assert found.tolist() == taken


def test_groups_are_taken_whole_and_the_last_by_its_hardest_rows() -> None:
    # Worth 6, 5, 3; groups 0 and 1 are alike. Mean loss 2, demand 2 * rows = 4, 4, 6. lambda = 1: first group 0 (6 + 4
    # + 4), then group 2 (3 + 6) before group 1 (5 + 0): rows 0, 1 and, of rows 4-6, the two hardest.
    losses = torch.tensor([4.0, 2.0, 3.0, 2.0, 0.5, 1.5, 1.0])
    groups = torch.tensor([0, 0, 1, 1, 2, 2, 2])
    omega = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert hard_and_representative(losses, groups, omega, 4, 1.0).tolist() == [0, 1, 5, 6]
    assert hard_and_representative(losses, groups, omega, 4, 0.0).tolist() == [0, 1, 2, 3]


def test_facility_location_takes_no_groups() -> None:
    with pytest.raises(ValueError, match="compares outputs, which groups= do not have"):
        MCL(4, 1, 1, 1.2, groups=[0, 0, 1, 1], diversity="facility")
