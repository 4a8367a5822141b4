"""C2F: clusters and coarse losses by hand, and the peers' bugs."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import TensorDataset

from torchcurriculum import Arrays, Curriculum, Epoch, methods
from torchcurriculum.functional.classes import affinity_levels, coarse_losses, confusion, similarity
from torchcurriculum.methods import C2F

from ..contract.problem import EPOCHS, N, Run, data
from ..contract.row import Row


def test_coarse_loss_by_hand() -> None:
    # p = 0.1, 0.2, 0.7 with clusters {0, 1} and {2}: label 0 and 1: -log 0.3 = 1.203973; label 2: -log 0.7 = 0.356675.
    logits = torch.tensor([[0.1, 0.2, 0.7]] * 3, dtype=torch.float64).log()
    losses = coarse_losses(logits, torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1]))
    assert losses.tolist() == pytest.approx([1.203973, 1.203973, 0.356675], abs=1e-6)


@given(st.integers(2, 6), st.integers(0, 5), st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_coarse_losses_lie_between_zero_and_the_cross_entropy(classes: int, size: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 20 * torch.randn(size, classes, generator=generator, dtype=torch.float64)
    y = torch.randint(classes, (size,), generator=generator)
    fine = nn.functional.cross_entropy(logits, y, reduction="none")
    coarse = coarse_losses(logits, y, torch.randint(2, (classes,), generator=generator))
    assert (coarse >= -1e-12).all()
    assert (coarse <= fine + 1e-12).all()
    torch.testing.assert_close(coarse_losses(logits, y, torch.arange(classes)), fine)
    assert coarse_losses(logits, y, torch.zeros(classes, dtype=torch.int64)).abs().sum() == 0


def test_gradients_of_sure_predictions_are_finite() -> None:
    logits = torch.tensor([[0.0, 900.0, -900.0]], requires_grad=True)
    coarse_losses(logits, torch.tensor([2]), torch.tensor([0, 1, 0])).sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    # d/dz of lse(all) - lse(0, 2): softmax over all minus softmax over the cluster.
    assert logits.grad.tolist() == [[-1.0, 1.0, 0.0]]


def test_confusion_and_similarity_by_hand() -> None:
    # Class 0: 1 of 2 rows taken for class 1. Class 1: 1 of 4 taken for class 0. Similarity (1/2 + 1/4) / 2 = 0.375.
    counted = confusion(torch.tensor([0, 0, 1, 1, 1, 1]), torch.tensor([0, 1, 0, 1, 1, 1]), 3)
    assert counted.tolist() == [[0.5, 0.5, 0], [0.25, 0.75, 0], [0, 0, 0]]
    assert similarity(counted).tolist() == [[0, 0.375, 0], [0.375, 0, 0], [0, 0, 0]]


def test_affinity_by_hand() -> None:
    # Six classes. Each one's best: 0-1 (0.9), 2-3 (0.8), 4-5 (0.7): three clusters. By single linkage A-B is 0.4 and
    # B-C 0.2: C joins B and A joins B, which leaves one cluster and ends the hierarchy.
    s = torch.zeros(6, 6, dtype=torch.float64)
    for i, j, value in [(0, 1, 0.9), (2, 3, 0.8), (4, 5, 0.7), (1, 2, 0.4), (3, 4, 0.2)]:
        s[i, j] = s[j, i] = value
    assert affinity_levels(s).tolist() == [[0, 0, 1, 1, 2, 2]]
    # A first round that would join everything (0-1, 1-2, 2-3 in a chain) leaves its weakest link out.
    s = torch.zeros(4, 4, dtype=torch.float64)
    for i, j, value in [(0, 1, 0.9), (1, 2, 0.95), (2, 3, 0.5)]:
        s[i, j] = s[j, i] = value
    assert affinity_levels(s).tolist() == [[0, 0, 0, 1]]


def test_single_linkage_and_not_the_average() -> None:
    # {0, 1}, {2, 3} and {4, 5} and {6, 7} by 0.9. Between the pairs, 0 and 2 are confused by 0.5, and 0-4, 0-5, 1-4 and
    # 1-5 by 0.3 each: the largest says that {0, 1} joins {2, 3}, the averages 0.125 and 0.3 say {4, 5}.
    s = torch.zeros(8, 8, dtype=torch.float64)
    links = [(0, 1, 0.9), (2, 3, 0.9), (4, 5, 0.9), (6, 7, 0.9), (0, 2, 0.5), (4, 6, 0.4)]
    for i, j, value in links + [(i, j, 0.3) for i in (0, 1) for j in (4, 5)]:
        s[i, j] = s[j, i] = value
    assert affinity_levels(s).tolist() == [[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 2, 2, 3, 3]]


def _confusion(classes: int, seed: int) -> torch.Tensor:
    """Shares without ties, the same on every machine."""
    rows = [
        [abs(math.sin(12.9898 * (i + 1) + 78.233 * (j + 1) + seed) * 43758.5453) % 1 for j in range(classes)]
        for i in range(classes)
    ]
    shares = torch.tensor(rows, dtype=torch.float64)
    return shares / shares.sum(1, keepdim=True)


# Printed by compute_hierarchy and affinity_clustering of otiliastr/coarse-to-fine-curriculum (00fe0ad) with eps = 0 for
# 1 - _confusion(classes, seed), without its last level of single classes. Ours agreed in 180 of 180 such cases with 4
# to 100 classes; with average linkage in none of those with 100.
AUTHORS = {
    (8, 0): [[0, 0, 0, 1, 1, 1, 0, 1]],
    (12, 19): [[0, 1, 0, 1, 0, 1, 1, 0, 0, 1, 0, 1], [0, 1, 0, 1, 2, 3, 1, 0, 2, 3, 0, 1]],
    (20, 3): [[0, 0, 0, 1, 2, 1, 1, 3, 1, 4, 0, 2, 1, 3, 1, 3, 1, 1, 4, 3]],
    (24, 1): [
        [0, 1, 0, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 0, 1, 1, 1, 0, 1, 0],
        [0, 1, 0, 2, 3, 1, 4, 2, 3, 2, 2, 4, 0, 1, 4, 5, 0, 3, 5, 1, 5, 0, 1, 0],
    ],
}


@pytest.mark.parametrize(("classes", "seed"), AUTHORS)
def test_hierarchies_of_the_authors_code(classes: int, seed: int) -> None:
    def partition(level: list[int]) -> list[int]:
        numbers: dict[int, int] = {}
        return [numbers.setdefault(cluster, len(numbers)) for cluster in level]

    found = affinity_levels(similarity(_confusion(classes, seed))).tolist()
    assert [partition(level) for level in found] == AUTHORS[classes, seed]


def test_a_class_that_is_never_confused_stays_alone_and_makes_no_nan() -> None:
    s = torch.zeros(4, 4)
    s[0, 1] = s[1, 0] = 0.5
    assert affinity_levels(s).tolist() == [[0, 0, 1, 2]]
    assert affinity_levels(torch.zeros(5, 5)).shape == (0, 5)
    counted = confusion(torch.tensor([0, 1]), torch.tensor([0, 1]), 4)
    assert counted.isfinite().all()
    assert affinity_levels(similarity(counted)).shape == (0, 4)


@given(st.integers(2, 12), st.integers(0, 999), st.floats(0, 1))
@settings(deadline=None, max_examples=50)
def test_levels_are_nested_and_tell_something_apart(classes: int, seed: int, zeros: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    s = torch.rand(classes, classes, generator=generator, dtype=torch.float64)
    s = torch.where(torch.rand(classes, classes, generator=generator) < zeros, 0.0, s)
    levels = affinity_levels(similarity(s))
    counts = [len(level.unique()) for level in levels]
    assert counts == sorted(set(counts))
    assert all(2 <= count < classes for count in counts)
    for coarse, fine in itertools.pairwise(levels):
        for cluster in fine.unique():
            assert len(coarse[fine == cluster].unique()) == 1
    for level, count in zip(levels, counts, strict=True):
        assert level.max() + 1 == count


def test_each_level_lasts_its_interval_and_the_labels_come_last() -> None:
    run = Run(C2F(warmup=1, interval=2), Row("c2f"))
    method, levels = run.curriculum.method, []
    for _ in range(6):
        coarse = set()
        for batch in run.curriculum.epoch(run.net):
            loss = run.curriculum.loss(run.net, batch)
            with torch.no_grad():
                logits = run.net(batch.x)
            fine = nn.functional.cross_entropy(logits, batch.y)
            coarse.add(loss.item() != pytest.approx(fine.item(), rel=1e-9))
            if True in coarse:
                expected = coarse_losses(logits, batch.y, method.hierarchy[0]).mean()
                assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
            loss.backward()
        assert len(coarse) == 1, "an epoch has one level"
        levels.append(-1 + coarse.pop())
    assert method.hierarchy.shape == (1, 3)
    assert levels == [-1, 0, 0, -1, -1, -1]
    assert [row.get("clusters") for row in run.curriculum.record.epochs] == [None, 2, 2, None, None, None]


def test_no_layer_is_initialised_anew() -> None:
    run = Run(methods.build("c2f", N, EPOCHS), Row("c2f"))
    before = [value.clone() for value in run.net.state_dict().values()]
    for _ in range(EPOCHS):
        for batch in run.curriculum.epoch(run.net):
            run.curriculum.loss(run.net, batch)
    assert all(torch.equal(a, b) for a, b in zip(before, run.net.state_dict().values(), strict=True))


def test_a_teacher_decides_and_is_left_as_it_was() -> None:
    class Confused(nn.Module):
        """Takes class 2 for class 1 half of the time, and is always right about class 0."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert not self.training
            y = data().y
            guess = torch.where((y == 2) & (torch.arange(N) % 2 == 0), 1, y)
            rows = torch.cat([(data().x == row).flatten(1).all(1).nonzero().flatten() for row in x])
            return nn.functional.one_hot(guess[rows], 3).double()

    teacher = Confused()
    run = Run(methods.build("c2f", N, EPOCHS, teacher=teacher), Row("c2f")).train(epochs=1)
    assert run.curriculum.method.hierarchy.tolist() == [[0, 1, 1]]
    assert run.curriculum.record.epochs[0]["clusters"] == 2, "the first epoch is coarse"
    assert teacher.training
    assert not any("teacher" in name for name in run.curriculum.method.state_dict())


def test_at_most_so_many_levels_the_finest() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(4000) % 40
    x = torch.randn(4000, 40, generator=generator) + 1.5 * nn.functional.one_hot(y, 40)
    made = {}
    for levels in (1, 3):
        method = C2F(0, 1, levels, teacher=nn.Identity())
        next(Curriculum(method, Arrays(x, y), batch_size=10).epoch(nn.Linear(40, 40)))
        made[levels] = method.hierarchy
    assert len(made[1]) == 1
    assert len(made[3]) > 1
    assert torch.equal(made[1][0], made[3][-1])


def test_outputs_that_are_no_logits_are_refused() -> None:
    curriculum = Curriculum(
        C2F(1, 1), Arrays(torch.zeros(8, 2), torch.zeros(8, dtype=torch.int64)), lambda out, y: (out - y).square()
    )
    model = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
    for _ in curriculum.epoch(model):
        pass
    with pytest.raises(TypeError, match=r"C2F needs classes.*logits of shape"):
        next(curriculum.epoch(model))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"interval": 0}, "interval must .*got 0"),
        ({"levels": -1}, "levels must .*got -1"),
        ({"warmup": 0}, "warmup must .*teacher.*got 0"),
    ],
)
def test_bad_knobs(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        C2F(**{"warmup": 1, "interval": 1, **options})


def test_a_perfect_teacher_makes_it_plain_training_and_is_named() -> None:
    y = torch.arange(12) % 3
    x = nn.functional.one_hot(y, 3).float()
    method = C2F(0, 5, teacher=nn.Identity())
    curriculum = Curriculum(method, Arrays(x, y), batch_size=12)
    model = nn.Linear(3, 3)
    with pytest.warns(UserWarning, match=r"C2F is plain training: the teacher confuses no classes on the 12 rows"):
        (batch,) = curriculum.epoch(model)
    plain = nn.functional.cross_entropy(model(batch.x), batch.y)
    assert curriculum.loss(model, batch).item() == pytest.approx(plain.item(), abs=1e-6)
    assert math.isfinite(plain.item())


def _memorised(n: int = 60) -> tuple[Arrays, nn.Module, torch.Tensor]:
    """Rows, a teacher that is right on them and takes class 2 for class 1 on others, and inputs of such others."""

    class Memory(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen, label = x[:, 0] < 0.5, x[:, 1].long()
            return nn.functional.one_hot(torch.where(~seen & (label == 2), 1, label), 3).float()

    y = torch.arange(n) % 3
    return Arrays(torch.stack([torch.zeros(n), y.float()], 1), y), Memory(), torch.stack([torch.ones(n), y.float()], 1)


@pytest.mark.parametrize("kind", ["pair", "dataset"])
def test_a_teacher_that_memorised_the_training_rows_is_asked_on_others(kind: str) -> None:
    data, teacher, others = _memorised()
    valid = (others, data.y) if kind == "pair" else TensorDataset(others, data.y)
    method = C2F(0, 1, teacher=teacher, valid=valid)
    curriculum = Curriculum(method, data, batch_size=20)
    next(curriculum.epoch(nn.Linear(2, 3)))
    assert method.hierarchy.tolist() == [[0, 1, 1]]


def test_the_warmup_holds_out_the_rows_on_which_the_student_is_asked() -> None:
    data, student, others = _memorised()
    method = C2F(1, 1, held_out=0.25)
    curriculum = Curriculum(method, data, batch_size=60, seed=3)
    (batch,) = curriculum.epoch(student)
    seen = set(batch.index.tolist())
    held_out = sorted(set(range(60)) - seen)
    assert len(held_out) == 15
    data.x[held_out] = others[held_out]  # the student would be wrong on them, and only on them
    (batch,) = curriculum.epoch(student)
    assert sorted(batch.index.tolist()) == list(range(60)), "they are trained on afterwards"
    assert method.hierarchy.tolist() == [[0, 1, 1]]
    assert C2F(1, 1, held_out=0.0).plan(Epoch(1, 60, torch.zeros(60), lambda: torch.zeros(60))) is None


def test_a_given_hierarchy_is_followed() -> None:
    levels = [[0, 0, 0, 1], [5, 5, 2, 9]]
    method = methods.build("c2f", 8, 20, hierarchy=levels)
    assert (method.warmup, method.interval) == (0, 2)
    assert method.hierarchy.tolist() == [[0, 0, 0, 1], [1, 1, 0, 2]]
    assert C2F(0, 1, levels=1, hierarchy=torch.tensor(levels)).hierarchy.tolist() == [[1, 1, 0, 2]]
    curriculum = Curriculum(method, Arrays(torch.randn(8, 2), torch.arange(8) % 4), batch_size=8)
    model, clusters = nn.Linear(2, 4), []
    for _ in range(5):
        (batch,) = curriculum.epoch(model)
        curriculum.loss(model, batch)
        clusters.append(int(method.clusters))
    assert clusters == [2, 2, 3, 3, 0]
    for options in ({"teacher": nn.Identity()}, {"valid": (torch.zeros(2), torch.zeros(2))}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} would be ignored, because hierarchy= is given"):
            C2F(0, 1, hierarchy=levels, **options)  # type: ignore[arg-type]
    for bad in ([0, 1], [[0.5, 1.0]], [[-1, 0]], []):
        with pytest.raises(ValueError, match="hierarchy must be whole numbers of shape"):
            C2F(0, 1, hierarchy=bad)


@pytest.mark.parametrize("other", ["teacher", "valid", "hierarchy"])
def test_a_held_out_share_that_would_be_ignored_is_refused(other: str) -> None:
    given = {"teacher": nn.Linear(2, 3), "valid": (torch.zeros(2, 2), torch.zeros(2)), "hierarchy": [[0, 0, 1]]}
    with pytest.raises(ValueError, match=rf"held_out=0\.2 would be ignored: .* with {other}="):
        C2F(1, 1, held_out=0.2, **{other: given[other]})  # type: ignore[arg-type]
