"""The skorch net: the same training as a Curriculum by hand, in skorch's own surroundings."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from skorch.callbacks import Callback, EarlyStopping, EpochScoring
from skorch.helper import predefined_split
from torch import Tensor, nn
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset

from torchcurriculum import APW, Arrays, Curriculum, Record
from torchcurriculum.audit import audit
from torchcurriculum.integrations.skorch import CurriculumNet


class Net(nn.Module):
    """Scores of ten digits, or their probabilities, which skorch's default criterion wants."""

    def __init__(self, width: int = 16, probabilities: bool = False) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
        self.probabilities = probabilities

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        scores = self.layers(x) * scale
        return scores.softmax(1) if self.probabilities else scores


def digits(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    return (X[:n] / 16).astype(np.float32), y[:n]


def make(cls: type[CurriculumNet] = CurriculumNet, **options: Any) -> CurriculumNet:
    torch.manual_seed(0)
    usual = {"criterion": nn.CrossEntropyLoss, "max_epochs": 3, "lr": 0.1, "batch_size": 50, "verbose": 0}
    return cls(Net, **{**usual, **options})


def same(a: CurriculumNet, b: CurriculumNet | nn.Module) -> bool:
    other = b.module_ if isinstance(b, CurriculumNet) else b
    return all(map(torch.equal, a.module_.parameters(), other.parameters()))


@pytest.mark.parametrize("probabilities", [False, True])
def test_it_trains_as_a_curriculum_by_hand(probabilities: bool) -> None:
    X, y = digits()
    criterion = nn.NLLLoss if probabilities else nn.CrossEntropyLoss
    net = make(train_split=None, criterion=criterion, module__probabilities=probabilities).fit(X, y)

    def losses(outputs: Tensor, labels: Tensor) -> Tensor:
        if probabilities:
            return F.nll_loss(torch.log(outputs + torch.finfo(outputs.dtype).eps), labels, reduction="none")
        return F.cross_entropy(outputs, labels, reduction="none")

    torch.manual_seed(0)
    model = Net(probabilities=probabilities)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    curriculum = Curriculum(APW(300, q=3), Arrays(torch.from_numpy(X), torch.from_numpy(y)), losses, batch_size=50)
    for _ in range(3):
        for batch in curriculum.epoch(model):
            optimizer.zero_grad()
            curriculum.loss(model, batch).backward()
            optimizer.step()
    assert same(net, model)
    assert net.history[:, "rho"] == [row["rho"] for row in curriculum.record.epochs]


def test_validation_and_prediction_are_skorchs_own() -> None:
    X, y = digits()
    weights = torch.arange(1.0, 11.0)
    inputs, labels = torch.from_numpy(X[240:]), torch.from_numpy(y[240:])
    split = predefined_split(TensorDataset(inputs, labels))
    net = make(criterion__weight=weights, train_split=split).fit(X[:240], y[:240])
    with torch.no_grad():
        parts = zip(net.module_(inputs).split(50), labels.split(50), strict=True)
        losses = [(F.cross_entropy(*part, weight=weights).item(), len(part[1])) for part in parts]
    expected = sum(loss * size for loss, size in losses) / len(labels)
    assert net.history[-1, "valid_loss"] == pytest.approx(expected)
    assert net.criterion_.reduction == "mean"
    assert net.predict(X).shape == (300,)


def test_grid_search_pipeline_and_clone() -> None:
    X, y = digits(200)
    net = make(train_split=None, max_epochs=10)
    grid = {"method": ["apw-e", "apw-i"], "method__q": [5, 50], "lr": [0.001, 0.5]}
    search = GridSearchCV(net, grid, cv=2, scoring="accuracy").fit(X, y)
    assert search.best_params_["lr"] == 0.5
    assert search.best_estimator_.curriculum_.method.q == search.best_params_["method__q"]
    pipeline = make_pipeline(FunctionTransformer(np.sqrt), clone(net)).fit(X, y)
    assert pipeline.score(X, y) > 0.3
    assert clone(net).get_params()["method"] == "apw-e"
    net.fit(X, y).set_params(method="apw-i", method__q=7)
    again = clone(net).fit(X, y)
    assert (again.curriculum_.method.q, again.curriculum_.method.weighting) == (7, "I")


@pytest.mark.parametrize("method", ["vanilla", "s-apw-e", "m-apw-e", "mixup", "superloss", "mw-net"])
def test_any_method(method: str) -> None:
    X, y = digits(200)
    net = make(method=method, train_split=None, max_epochs=3).fit(X, y)
    assert len(net.record_.epochs) == 3
    assert np.isfinite(net.history[:, "train_loss"]).all()


def test_it_goes_on_after_a_pickle_bit_equal() -> None:
    X, y = digits()
    whole = make(method="apw-ei", method__q=6).fit(X, y).partial_fit(X, y)
    data = pickle.dumps(make(method="apw-ei", method__q=6).fit(X, y))
    assert len(data) < X.nbytes, "the training set is not pickled"
    again = pickle.loads(data).partial_fit(X, y)
    assert same(whole, again)
    assert torch.equal(whole.curriculum_.method.weights, again.curriculum_.method.weights)
    assert [row["epoch"] for row in again.record_.epochs] == [1, 2, 3, 4, 5, 6]
    assert again.record_.history("losses").shape == (6, 240)
    assert len(again.fit(X, y).record_.epochs) == 3, "fit begins anew"


class Interrupt(Callback):
    """Stops in the middle of the second epoch."""

    def on_batch_end(self, net: Any, **_: Any) -> None:
        if len(net.history) == 2 and len(net.history[-1, "batches"]) == 2:
            raise KeyboardInterrupt


def test_it_goes_on_inside_an_epoch() -> None:
    X, y = digits()
    whole = make(train_split=None, max_epochs=3).fit(X, y)
    cut = make(train_split=None, max_epochs=3, callbacks=[Interrupt()]).fit(X, y)
    assert (len(cut.record_.epochs), len(cut.history)) == (1, 2)
    cut.set_params(callbacks=[])
    cut.callbacks_ = whole.callbacks_
    cut.set_params(max_epochs=2).partial_fit(X, y)
    assert len(cut.record_.epochs) == 3
    assert same(whole, cut)


def test_callbacks_dict_inputs_forward_arguments_and_a_loss_of_ones_own() -> None:
    X, y = digits()

    class Decayed(CurriculumNet):
        def get_loss(self, y_pred: Tensor, y_true: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            assert len(kwargs["X"]["x"]) == len(y_true)
            return super().get_loss(y_pred, y_true, *args, **kwargs) + self.module_.layers[0].weight.square().sum()

    scores = EpochScoring("accuracy", name="train_acc", on_train=True, lower_is_better=False)
    callbacks = [scores, EarlyStopping(patience=2, monitor="train_loss")]
    small = make(Decayed, callbacks=callbacks, train_split=None, max_epochs=5).fit({"x": X}, y, scale=2.0)
    large = make(train_split=None, max_epochs=5).fit(X, y)
    assert small.module_.layers[0].weight.norm() < 0.2 * large.module_.layers[0].weight.norm()
    assert 0 <= small.history[-1, "train_acc"] <= 1


def test_data_sets_records_and_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, y = digits()
    flipped = y.copy()
    flipped[:30] = (y[:30] + 5) % 10
    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(flipped))
    net = make(train_split=None, max_epochs=30, verbose=1, record=tmp_path, lr=0.5, measure="running").fit(data, None)
    assert Record.load(tmp_path).epochs == net.record_.epochs
    assert (audit(net.record_).order[:20] < 30).mean() > 0.8
    assert "early" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "apw_e"}, "unknown method 'apw_e'; did you mean 'apw-e'"),
        ({"method": APW(299, 3)}, "the method was made for 299 rows"),
        ({"method_q": 3}, "Got an unexpected argument method_q, did you mean method__q"),
        ({"iterator_train__sampler": SequentialSampler(range(299))}, "has the sampler SequentialSampler, but the"),
        ({"iterator_train": lambda data, **_: list(data)}, "needs one torch DataLoader for training, got list"),
        ({"lr": 1e30}, "NaN or infinite"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    X, y = digits()
    with pytest.raises((TypeError, ValueError), match=message):
        make(train_split=None, **options).fit(X, y)


def test_loader_options_are_respected() -> None:
    X, y = digits(60)
    net = make(train_split=None, max_epochs=1, iterator_train__drop_last=True, iterator_train__shuffle=True).fit(X, y)
    assert net.record_.epochs[0]["steps"] == 1
    assert make(train_split=None, max_epochs=1, batch_size=-1).fit(X, y).record_.epochs[0]["steps"] == 1


def test_another_training_set_is_refused() -> None:
    X, y = digits()
    net = make(train_split=None).fit(X, y)
    with pytest.raises(ValueError, match="of a training set of 300 rows, and this one has 200; call fit to start over"):
        net.partial_fit(X[:200], y[:200])
    with pytest.raises(ValueError, match="of a training set with other labels; call fit to start over"):
        net.partial_fit(X, (y + 1) % 10)


# ---------------------------------------------------------------------- what skorch's own tests found


def test_forward_in_training_mode_keeps_the_order_and_the_curriculum() -> None:
    """Monte-Carlo dropout: rows come as they are given, and no epoch is begun."""
    X, y = digits()
    net = make(train_split=None, max_epochs=1, lr=0.0).fit(X, y)
    outputs = net.forward(X, training=True)
    assert torch.allclose(outputs, net.forward(X, training=False), atol=1e-5)
    assert (net.curriculum_.number, len(net.record_.epochs)) == (1, 1)


@pytest.mark.parametrize("way", ["fit", "partial_fit"])
def test_no_epochs_are_no_error(way: str) -> None:
    X, y = digits()
    net = getattr(make(train_split=None, max_epochs=0), way)(X, y)
    assert net.predict(X).shape == y.shape
    assert net.set_params(max_epochs=1).partial_fit(X, y).curriculum_.number == 1


def test_rows_that_are_not_finite_can_be_left_out() -> None:
    X, y = digits()
    X = X.copy()
    X[3] = np.nan
    with pytest.raises(ValueError, match="pass nan_strategy='warn' or 'ignore'"):
        make(train_split=None).fit(X, y)
    net = make(train_split=None, nan_strategy="ignore").fit(X, y)
    assert all(bool(parameter.isfinite().all()) for parameter in net.module_.parameters())


@pytest.mark.parametrize(("items", "message"), [(1, "returns 1 value"), (3, "returns 3 values")])
def test_data_sets_of_other_items_get_skorchs_own_sentence(items: int, message: str) -> None:
    X, y = (torch.from_numpy(part) for part in digits())
    with pytest.raises(ValueError, match=message):
        make(train_split=None).fit(TensorDataset(*[X, y, y][:items]), None)


class Renamed(CurriculumNet):
    """Its criterion has another name."""

    def initialize_criterion(self) -> Any:
        self.measure_of_loss_ = nn.CrossEntropyLoss(label_smoothing=0.1)
        return self

    def get_loss(self, y_pred: Any, y_true: Any, *args: Any, **kwargs: Any) -> Any:
        return self.measure_of_loss_(y_pred, y_true)


def test_a_criterion_of_another_name_or_without_a_reduction() -> None:
    class NoReduction(nn.Module):
        def forward(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(outputs, y, label_smoothing=0.1)

    X, y = digits()
    options = {"train_split": None, "max_epochs": 2}
    usual = make(criterion=nn.CrossEntropyLoss, criterion__label_smoothing=0.1, **options).fit(X, y)
    renamed = make(Renamed, **options).fit(X, y)
    without = make(criterion=NoReduction, **options).fit(X, y)
    assert usual.history[:, "train_loss"] == renamed.history[:, "train_loss"]
    assert np.allclose(usual.history[:, "train_loss"], without.history[:, "train_loss"], rtol=1e-4)


def test_a_criterion_that_compares_rows_is_refused() -> None:
    class Compares(nn.Module):
        def forward(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (outputs - outputs.mean(0)).square().mean() + outputs.square().mean()

    with pytest.raises(ValueError, match=r"is not the mean over its rows .*one loss per sample, shape \(50,\)"):
        make(criterion=Compares, train_split=None).fit(*digits())


def test_another_training_loader_is_taken_if_it_is_a_loader() -> None:
    class Mine(DataLoader[Any]):
        pass

    X, y = digits()
    net = make(train_split=None, iterator_train=Mine, iterator_train__num_workers=0, iterator_train__timeout=0).fit(
        X, y
    )
    assert len(net.record_.epochs) == net.max_epochs


def test_a_training_step_of_the_users_own_is_skorchs() -> None:
    X, y = digits()
    net = make(train_split=None, max_epochs=1).fit(X, y)
    batch = torch.from_numpy(X[:8]), torch.from_numpy(y[:8])
    expected = net.validation_step(batch)["loss"]
    assert torch.allclose(net.train_step(batch)["loss"], expected, rtol=0.5)
    assert net.curriculum_.number == 1
