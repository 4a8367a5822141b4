"""Balanced: class shares worked by hand, beside methods with weights, rows and losses of their own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from torchcurriculum import APW, Arrays, Batch, Curriculum, Step, SuperLoss, Vanilla, methods
from torchcurriculum.methods import Balanced

LABELS = [7, 7, 7, 7, 3, 3, 9, 9]  # four of class 7, two of 3 and of 9


def weights(method: Balanced, rows: list[int], losses: list[float]) -> list[float]:
    batch = Batch(None, None, torch.tensor(rows))
    return method.weigh(Step(None, batch, None, torch.tensor(losses, dtype=torch.float64))).tolist()


def test_shares_by_hand() -> None:
    # factors 1/2, 1/2, 1, 1 times 1/4 each, over their sum of 3/4
    assert weights(Balanced(Vanilla(), LABELS), [0, 1, 4, 6], [1.0] * 4) == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 3])
    assert weights(Balanced(Vanilla(), np.array(LABELS)), [3, 7], [1.0] * 2) == pytest.approx([1 / 3, 2 / 3])
    half = 0.5**0.5  # strength 1/2: the square root of the counts
    expected = [half / (half + 1), 1 / (half + 1)]
    assert weights(Balanced(Vanilla(), LABELS, strength=0.5), [2, 5], [1.0, 1.0]) == pytest.approx(expected)


def test_the_sum_of_the_batch_and_the_order_within_a_class_stay() -> None:
    losses, inside = [0.1, 5.0, 2.0], SuperLoss(tau=1.0)
    plain = inside.weigh(Step(None, Batch(None, None, torch.tensor([0, 1, 4])), None, torch.tensor(losses))).tolist()
    ours = weights(Balanced(inside, LABELS), [0, 1, 4], losses)
    assert sum(ours) == pytest.approx(sum(plain))
    assert ours[0] / ours[1] == pytest.approx(plain[0] / plain[1])
    assert ours[2] / ours[0] == pytest.approx(2 * plain[2] / plain[0])


def test_the_method_inside_sees_plain_losses() -> None:
    data, model = Arrays(torch.randn(8, 2), torch.tensor([0, 0, 0, 0, 1, 1, 2, 2])), nn.Linear(2, 3)
    curriculum = Curriculum(Balanced(APW(8, q=2), LABELS), data, batch_size=8)
    for batch in curriculum.epoch(model):
        curriculum.loss(model, batch)
        losses = nn.functional.cross_entropy(model(batch.x), batch.y, reduction="none").detach()
        torch.testing.assert_close(curriculum.last[batch.index], losses)


@pytest.mark.parametrize(("strength", "sizes"), [(1.0, [2, 2, 2]), (0.5, [2, 3, 2]), (0.0, [2, 4, 2])])
def test_rows(strength: float, sizes: list[int]) -> None:  # 2 * (4 / 2) ** 0.5 is 2.8
    data, model = Arrays(torch.randn(8, 2), torch.zeros(8, dtype=torch.int64)), nn.Linear(2, 2)
    curriculum = Curriculum(Balanced(Vanilla(), LABELS, "rows", strength), data)
    seen = []
    for _ in range(12):
        rows = torch.cat([batch.index for batch in curriculum.epoch(model)])
        assert torch.tensor(LABELS)[rows].unique(return_counts=True)[1].tolist() == sizes
        seen.append(rows)
    assert len(torch.cat(seen).unique()) == 8, "drawn anew in every epoch"


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"labels must have one value for each of the 4 rows, shape \(4,\), got \(8,\)"
    ):
        Balanced(APW(4, q=2), LABELS)
    with pytest.raises(ValueError, match="labels must be 2 whole numbers, got torch.float32"):
        Balanced(Vanilla(), torch.zeros(2))
    with pytest.raises(TypeError, match="ELR has its own loss, .* pass by='rows'"):
        Balanced(methods.build("elr", 8, 2), LABELS)
    with pytest.raises(ValueError, match="SPL already chooses the rows of an epoch; pass by='weights'"):
        data = Arrays(torch.randn(8, 2), torch.zeros(8, dtype=torch.int64))
        next(Curriculum(Balanced(methods.SPL(8, grow=2, warmup=0), LABELS, "rows"), data).epoch(nn.Linear(2, 2)))
    Balanced(methods.build("elr", 8, 2), LABELS, "rows")
