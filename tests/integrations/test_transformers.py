"""The transformers Trainer with a method: the run of the own loop, under accumulation, resumed, refused, with ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from torchcurriculum import Curriculum, methods

transformers = pytest.importorskip("transformers")

from torchcurriculum.integrations.sequences import sample_losses  # noqa: E402

from .hf_problem import EPOCHS, N, bert, rows, settings, tensors, trainer  # noqa: E402

TOLERANCE = 1e-12
QUIET = pytest.fixture(autouse=True)


@pytest.fixture(autouse=True)
def _quiet(capsys: pytest.CaptureFixture[str]) -> None:
    """The trainer prints its log."""


def own_loop(name: str, measure: Any, batch_size: int = 8) -> dict[str, torch.Tensor]:
    """The same run without the trainer."""
    net, data = bert(), rows()
    ids, y = torch.tensor(data["input_ids"][:]), torch.tensor(data["labels"][:])
    method = methods.build(name, N, EPOCHS)
    curriculum = Curriculum(
        method,
        [{"input_ids": ids[row], "labels": y[row]} for row in range(N)],
        forward=lambda model, x: model(**x).logits,
        batch_size=batch_size,
        seed=5,
        measure=measure,
    )
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(EPOCHS):
        for batch in curriculum.epoch(net):
            loss = curriculum.loss(net, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    state = {f"net.{key}": value for key, value in net.state_dict().items()}
    return state | {f"method.{key}": value for key, value in method.state_dict().items()}


def apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max((one[key].double() - other[key].double()).abs().max().item() for key in one if one[key].numel())


@pytest.mark.parametrize("measure", ["pass", "running"])
@pytest.mark.parametrize("name", ["vanilla", "apw-e", "apw-ei", "s-apw-e", "superloss", "spl", "screenernet"])
def test_the_run_is_that_of_the_own_loop(name: str, measure: str, tmp_path: Path) -> None:
    made = trainer(name, tmp_path, measure=measure)
    made.train()
    assert apart(tensors(made), own_loop(name, measure)) == 0
    assert len(made.curriculum.record.epochs) == EPOCHS


def norms(made: Any) -> list[float]:
    made.train()
    return [entry["grad_norm"] for entry in made.state.log_history if "grad_norm" in entry]


@pytest.mark.parametrize("name", ["vanilla", "apw-e", "s-apw-e", "infobatch", "spl"])
def test_one_large_batch_and_four_small_ones_are_the_same_step(name: str, tmp_path: Path) -> None:
    large = trainer(name, tmp_path)
    small = trainer(name, tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=4)
    expected, found = norms(large), norms(small)
    assert len(found) == len(expected) > EPOCHS
    assert found == pytest.approx(expected, rel=1e-10)
    assert apart(tensors(small), tensors(large)) < TOLERANCE
