"""What a record says of its run, on every path by which one is written, and what the theory makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from torchcurriculum import (
    APW,
    Arrays,
    Both,
    Curriculum,
    Method,
    Mixed,
    Record,
    Sampled,
    Then,
    Vanilla,
    methods,
    theory,
)
from torchcurriculum.record import RecordError

N, EPOCHS = 24, 3


def trained(method: Method, epochs: int = EPOCHS, **options: Any) -> Record:
    """A run of the shell's own loop."""
    torch.manual_seed(0)
    x = torch.randn(N, 4)
    data, model = Arrays(x, (x[:, 0] > 0).long()), nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    curriculum = Curriculum(method, data, batch_size=8, samples=True, **options)
    for _ in range(epochs):
        for batch in curriculum.epoch(model):
            loss = curriculum.loss(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return curriculum.record


def test_a_run_in_the_papers_setting_says_so_and_is_taken() -> None:
    record = trained(APW(N, q=30))
    expected = {"q": 30, "tau": 0.5, "weighting": "E", "threshold_kind": "fixed", "measure": "pass"}
    assert all(expected.items() <= row.items() for row in record.epochs)
    assert theory.summary(record)["q"] == 30


def test_a_folder_keeps_the_setting(tmp_path: Any) -> None:
    trained(APW(N, q=30), record=tmp_path / "record")
    assert theory.summary(Record.load(tmp_path / "record"))["q"] == 30


CASES: dict[str, tuple[Method, dict[str, Any], str]] = {
    "tau": (APW(N, q=30, tau=0.3), {}, "tau = 0.3"),
    "I": (APW(N, q=30, weighting="I"), {}, "weighting = 'I'"),
    "EI": (APW(N, q=30, weighting="EI"), {}, "weighting = 'EI'"),
    "moving e": (APW(N, q=30, threshold="auto"), {}, "threshold_kind = 'moving'"),
    "running": (APW(N, q=30), {"measure": "running"}, "measure = 'running'"),
    "S-APW": (Sampled(APW(N, q=30), 0.25), {}, "drew rows by their weights"),
    "M-APW": (Mixed(APW(N, q=30)), {}, "mixed samples"),
    "some rows": (Both(methods.BabyStep(N, 2, 2, scores=np.arange(N)), APW(N, q=30)), {}, "trained on 12 of 24 rows"),
}


@pytest.mark.parametrize("epochs", [1, EPOCHS])
@pytest.mark.parametrize("case", CASES)
def test_a_run_of_another_setting_is_refused_by_name(case: str, epochs: int) -> None:
    method, options, words = CASES[case]
    with pytest.raises(RecordError, match=f"do not apply to this run: epoch 1 .*{words}"):
        theory.summary(trained(method, epochs, **options))


def test_a_run_that_was_apw_for_some_epochs_is_refused() -> None:
    with pytest.raises(RecordError, match="epoch 1 of this record has alpha = nan"):
        theory.summary(trained(Then(Vanilla(), 1, APW(N, q=30))))


def test_losses_given_to_a_hosted_curriculum_are_recorded_with_the_setting() -> None:
    """The path of Lightning, transformers and skorch: a trainer's own losses, through ``reduce``."""
    x = torch.randn(N, 4, generator=torch.Generator().manual_seed(0))
    data, model = Arrays(x, (x[:, 0] > 0).long()), nn.Linear(4, 2)
    curriculum = Curriculum(APW(N, q=30), data, batch_size=8, samples=True, record=Record(N, {"by": "a trainer"}))
    curriculum.start(model)
    for raw in curriculum.read():
        batch = curriculum.batch(raw)
        losses: Tensor = nn.functional.cross_entropy(model(batch.x), batch.y, reduction="none")
        curriculum.reduce(losses).backward()
    curriculum.finish()
    assert theory.summary(curriculum.record)["q"] == 30


def test_the_reweighter_says_its_setting() -> None:
    reweighter = pytest.importorskip("torchcurriculum.integrations.reweighter")
    draw = np.random.default_rng(0)
    x = draw.normal(size=(60, 3))
    y = (x[:, 0] + draw.normal(size=60) > 0).astype(int)
    model = reweighter.APWReweighter(rounds=2, q=4, tau=0.5).fit(x, y)
    assert theory.summary(model.record_)["q"] == 4
    with pytest.raises(RecordError, match=r"tau = 0\.05"):
        theory.summary(reweighter.APWReweighter(rounds=2).fit(x, y).record_)
    with pytest.raises(RecordError, match="measure = 'held-out'"):
        theory.summary(reweighter.APWReweighter(rounds=2, tau=0.5, cv=2).fit(x, y).record_)
