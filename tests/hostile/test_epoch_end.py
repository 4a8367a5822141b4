"""An accelerator is not asked for its losses at every step: the end of the epoch looks, and names the right rows."""

from __future__ import annotations

import math

import pytest
import torch

from torchcurriculum import Arrays, Curriculum, Step, Vanilla, methods
from torchcurriculum.fast.graphs import _can_be_captured

N = 12


def made(name: str) -> tuple[Curriculum, torch.nn.Module]:
    x = torch.rand(N, 2, generator=torch.Generator().manual_seed(0))
    method = Vanilla() if name == "vanilla" else methods.build(name, N, 3)
    return Curriculum(method, Arrays(x, torch.arange(N) % 2), batch_size=3), torch.nn.Linear(2, 2)


def test_the_first_bad_batch_is_named_and_not_what_it_spoilt() -> None:
    curriculum, net = made("vanilla")
    bad = -1
    with pytest.raises(ValueError) as caught:
        for number, batch in enumerate(curriculum.epoch(net)):
            curriculum.loss(net, batch)
            if number == 1:  # one row spoils the parameters, and so all batches after it
                bad = int(batch.index[1])
                curriculum.last[bad] = math.nan
            elif number > 1:
                curriculum.last[batch.index] = math.nan
    assert f"1 of 3 losses are NaN or infinite, at rows [{bad}]." in str(caught.value)


@pytest.mark.parametrize("name", ["mixup", "m-apw-e"])
def test_a_mixture_that_is_not_finite_is_noted(name: str) -> None:
    curriculum, net = made(name)
    bad = -1
    with pytest.raises(ValueError) as caught:
        for batch in curriculum.epoch(net):
            viewed = curriculum.view(net, batch)
            losses = torch.ones(3)
            if bad < 0:
                losses[2], bad = math.nan, int(batch.index[2])
            curriculum._steps._note(Step(net, viewed, torch.zeros(3, 2), losses))
            curriculum.done(batch.step)
    assert f"1 of 3 losses are NaN or infinite, at rows [{bad}]." in str(caught.value)


def test_losses_of_mixtures_that_are_finite_leave_no_mark() -> None:
    curriculum, net = made("mixup")
    for batch in curriculum.epoch(net):
        curriculum.loss(net, batch)
    assert curriculum.last.isinf().all()


@pytest.mark.parametrize(
    ("optimizer", "options", "expected"),
    [
        ("SGD", {"fused": True}, True),
        ("Adam", {"capturable": True}, True),
        ("Adam", {"capturable": True, "fused": True}, True),
        ("Adam", {"fused": True}, False),  # torch refuses to capture it
        ("AdamW", {"fused": True}, False),
        ("SGD", {}, False),
    ],
)
def test_which_optimizers_can_be_captured(optimizer: str, options: dict[str, bool], expected: bool) -> None:
    rate = torch.tensor(0.1)
    made = getattr(torch.optim, optimizer)(torch.nn.Linear(2, 2).parameters(), rate, **options)
    if expected:
        assert _can_be_captured(made)
        return
    with pytest.warns(UserWarning, match="steps run one kernel at a time"):
        assert not _can_be_captured(made)
