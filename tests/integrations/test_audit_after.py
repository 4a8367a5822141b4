"""After each trainer, an audit of the record knows the given labels and suggests better ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from torchcurriculum import Record
from torchcurriculum.audit import audit

N, CLASSES, EPOCHS = 240, 3, 12


def blobs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three clouds; every tenth label is another one. Inputs, given labels, true labels."""
    draw = np.random.default_rng(0)
    clean = np.arange(N) % CLASSES
    x = (np.eye(CLASSES, 6)[clean] * 4 + draw.normal(size=(N, 6))).astype(np.float32)
    given = clean.copy()
    given[::10] = (clean[::10] + 1) % CLASSES
    return x, given, clean


def after_sklearn() -> Record:
    from torchcurriculum.integrations.sklearn import CurriculumClassifier

    x, y, _ = blobs()
    return CurriculumClassifier(epochs=EPOCHS, lr=0.003).fit(x, np.array(["a", "b", "c"])[y]).record_


def after_skorch() -> Record:
    from torchcurriculum.integrations.skorch import CurriculumNet

    x, y, _ = blobs()
    torch.manual_seed(0)
    sizes = {"module__in_features": 6, "module__out_features": CLASSES}
    net = CurriculumNet(nn.Linear, criterion=nn.CrossEntropyLoss, max_epochs=EPOCHS, lr=0.1, verbose=0, **sizes)
    return net.set_params(train_split=None).fit(x, y).record_


def after_skorch_with_probabilities() -> Record:
    from torchcurriculum.integrations.skorch import CurriculumNet

    class Probabilities(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).softmax(1)

    x, y, _ = blobs()
    torch.manual_seed(0)
    sizes = {"module__in_features": 6, "module__out_features": CLASSES}
    return (
        CurriculumNet(Probabilities, max_epochs=EPOCHS, lr=0.1, verbose=0, train_split=None, **sizes).fit(x, y).record_
    )


def after_lightning() -> Record:
    import lightning.pytorch as pl

    from torchcurriculum.integrations.lightning import CurriculumCallback

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.criterion = nn.Linear(6, CLASSES), nn.CrossEntropyLoss()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

        def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
            return self.criterion(self(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    x, y, _ = blobs()
    torch.manual_seed(0)
    held = CurriculumCallback("apw-e", samples=True)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = pl.Trainer(max_epochs=EPOCHS, callbacks=[held], enable_checkpointing=False, **quiet)
    trainer.fit(Module(), DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), 32, shuffle=True))
    return held.record


def after_transformers(folder: Path) -> Record:
    from transformers import PretrainedConfig, PreTrainedModel

    from .hf_problem import CurriculumTrainer, settings

    class Linear(PreTrainedModel):
        config_class = PretrainedConfig

        def __init__(self, config: PretrainedConfig) -> None:
            super().__init__(config)
            self.net = nn.Linear(6, CLASSES)

        def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
            return {"logits": self.net(x)}

    x, y, _ = blobs()
    torch.manual_seed(0)
    rows = [{"x": one, "labels": int(label)} for one, label in zip(x, y, strict=True)]
    made = CurriculumTrainer(
        Linear(PretrainedConfig()),
        settings(folder, num_train_epochs=EPOCHS, per_device_train_batch_size=32),
        train_dataset=rows,
        method="apw-e",
        loss_fn=nn.CrossEntropyLoss(reduction="none"),
        samples=True,
    )
    made.train()
    return made.curriculum.record


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*", "ignore:.*treespec, LeafSpec.*:FutureWarning")
@pytest.mark.parametrize(
    "run", [after_sklearn, after_skorch, after_skorch_with_probabilities, after_lightning, after_transformers]
)
def test_given_and_suggested_labels_are_known(run: Callable[..., Record], tmp_path: Path) -> None:
    record = run(tmp_path) if run is after_transformers else run()
    _, given, clean = blobs()
    found = audit(record)
    assert np.array_equal(found.given, given)
    wrong = given != clean
    assert found.suggested is not None
    assert (found.suggested[wrong] == clean[wrong]).mean() > 0.8
    assert (found.suggested[~wrong] == clean[~wrong]).mean() > 0.95
    assert wrong[found.order[: wrong.sum()]].mean() > 0.9
    assert np.allclose(record.arrays["mean_probabilities"].sum(1), 1, atol=2e-3)


def test_a_resumed_run_has_the_same_outputs(tmp_path: Path) -> None:
    from torchcurriculum import Curriculum
    from torchcurriculum.data import Arrays

    def made(name: str) -> Curriculum:
        x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
        data = Arrays(x, (x[:, 0] > 0).long())
        curriculum = Curriculum("vanilla", data, batch_size=8, samples=True, record=tmp_path / name)
        curriculum.keep_outputs()
        return curriculum

    def train(curriculum: Curriculum, net: nn.Module, steps: int) -> None:
        for _, batch in zip(range(steps), curriculum.epoch(net), strict=False):
            curriculum.loss(net, batch).backward()
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter.sub_(parameter.grad)

    nets = [nn.Linear(4, 2) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    whole, first, again = made("whole"), made("cut"), None
    for _ in range(3):
        train(whole, nets[0], 6)
    train(first, nets[1], 6)
    train(first, nets[1], 2)
    again = made("cut")
    state = first.state_dict()
    again.load_state_dict(state)
    train(again, nets[1], 6)
    train(again, nets[1], 6)
    assert set(whole.record.arrays) == {"labels", "predicted", "mean_probabilities"}
    for name, values in whole.record.arrays.items():
        assert np.array_equal(again.record.arrays[name], values), name
    with pytest.raises(ValueError, match="'outputs' of the state must be shares, visits, labels of 40 rows"):
        made("other").load_state_dict({**state, "outputs": {"shares": torch.zeros(3, 2)}})
    with pytest.warns(UserWarning, match="the record in memory lacks epochs of the state; per-sample values are lost"):
        Curriculum("vanilla", whole.train_set, batch_size=8, samples=True).load_state_dict(state)


def test_outputs_of_other_forms_are_left_alone() -> None:
    from torchcurriculum import Curriculum
    from torchcurriculum.data import Arrays

    x = torch.randn(12, 4)
    targets = torch.randn(12)
    curriculum = Curriculum("vanilla", Arrays(x, targets), lambda out, y: (out[:, 0] - y).square(), samples=True)
    curriculum.keep_outputs()
    net = nn.Linear(4, 1)
    for batch in curriculum.epoch(net):
        curriculum.loss(net, batch)
    assert not curriculum.record.arrays
