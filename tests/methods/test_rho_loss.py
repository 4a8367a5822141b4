"""RHO-LOSS: the rows its authors' code takes, at what price, and what it says where something is missing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from torchcurriculum import Batch, Curriculum, Step, methods
from torchcurriculum.methods import RHOLoss

from ..contract.problem import N, data, model
from .pacing import epoch, unmeasured

LOSSES = [2.0, 1.5, 0.3, 0.9, 2.2, 0.1]
IRREDUCIBLE = [1.9, 0.2, 0.1, -0.5, 1.0, 0.0]


def weighed(method: RHOLoss, losses: list[float], rows: list[int] | None = None) -> list[float]:
    index = torch.arange(len(losses)) if rows is None else torch.tensor(rows)
    return method.weigh(Step(None, Batch(None, None, index), None, torch.tensor(losses))).tolist()


def test_it_takes_the_rows_that_the_authors_take() -> None:
    # top_x_indices of OATML/RHO-Loss (src/curricula/utils_selection_methods.py), int(6 * 0.4) = 2 of 6: rows 3 and 1,
    # whose differences are 1.4 and 1.3. They train on the mean of the two.
    method = RHOLoss(6, IRREDUCIBLE, fraction=0.4)
    assert weighed(method, LOSSES) == [0.0, 0.5, 0.0, 0.5, 0.0, 0.0]
    order = [4, 0, 3, 5, 1, 2]
    assert weighed(method, [LOSSES[row] for row in order], order) == [0.0, 0.0, 0.5, 0.0, 0.5, 0.0]
    assert weighed(RHOLoss(6, IRREDUCIBLE, fraction=0.01), LOSSES)[3] == 1.0, "at least one"


def test_rows_as_high_as_the_last_share_its_place() -> None:
    assert weighed(RHOLoss(4, [0.0] * 4, fraction=0.5), [1.0, 2.0, 1.0, 0.0]) == [1 / 3, 1 / 3, 1 / 3, 0.0]


def test_an_epoch_of_the_highest_rows() -> None:
    method = RHOLoss(6, IRREDUCIBLE, fraction=0.4, scope="epoch")
    assert method.plan(epoch(2, LOSSES)).tolist() == [1, 3]
    assert weighed(method, [9.0, 0.0], [1, 3]) == [0.5, 0.5]
    unseen = [math.inf if row == 0 else loss for row, loss in enumerate(LOSSES)]
    assert method.plan(epoch(2, unseen)).tolist() == [0, 1, 3], "and rows never seen"
    assert method.plan(epoch(1, [math.inf] * 6)) is None
    assert RHOLoss(6, IRREDUCIBLE).plan(unmeasured(1, 6)) is None


def test_a_model_is_measured_once() -> None:
    other, net = model(), model()
    with torch.no_grad():
        other[0].weight.neg_()
        expected = torch.nn.functional.cross_entropy(other(data().x), data().y, reduction="none")
    method = methods.build("rho-loss", N, 4, irreducible=other, fraction=0.5)
    curriculum = Curriculum(method, data(), batch_size=8)
    for _ in range(2):
        for batch in curriculum.epoch(net):
            curriculum.loss(net, batch)
        torch.testing.assert_close(method.irreducible, expected)
        nn.init.zeros_(other[0].weight)  # a second pass would show
    assert curriculum.record.epochs[-1]["chosen"] == 18 / 37, "half of 8, 8, 8 and 8, and two of 5"
    assert not any(name.startswith("_model") for name in method.state_dict())


def test_what_is_missing_or_wrong_is_named() -> None:
    with pytest.raises(TypeError, match="'rho-loss' needs irreducible; pass irreducible="):
        methods.build("rho-loss", 6, 5)
    for options, words in (
        ({"irreducible": [1.0]}, r"irreducible must have one value for each of the 6 rows, shape \(6,\), got \(1,\)"),
        ({"irreducible": [math.inf] * 6}, r"irreducible must hold finite losses, .* at rows \[0, 1,"),
        ({"fraction": 0.0}, r"fraction must be a number in \(0, 1\], got 0\.0"),
        ({"scope": "step"}, "scope must be 'batch' or 'epoch', got 'step'"),
    ):
        with pytest.raises(ValueError, match=words):
            RHOLoss(**{"n": 6, "irreducible": IRREDUCIBLE, **options})
