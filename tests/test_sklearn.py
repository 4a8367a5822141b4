"""The scikit-learn estimators: scikit-learn's own checks, its tools around them, and what APW does inside."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from torchcurriculum import APW, Record, quantile
from torchcurriculum.audit import audit
from torchcurriculum.integrations.sklearn import APWReweighter, CurriculumClassifier
from torchcurriculum.losses import per_sample


def digits(n: int = 400, wrong: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, labels of which a share is wrong, and the true ones."""
    X, clean = load_digits(return_X_y=True)
    X, clean = X[:n] / 16, clean[:n]
    draws = np.random.default_rng(0)
    bad = draws.random(n) < wrong
    return X, np.where(bad, (clean + draws.integers(1, 10, n)) % 10, clean), clean


# scikit-learn skips its array API check unless SCIPY_ARRAY_API is set; every other check applies and passes.
@parametrize_with_checks(
    [
        CurriculumClassifier(epochs=20, lr=0.01),
        APWReweighter(rounds=2),
        APWReweighter(SGDClassifier(loss="log_loss", random_state=0), rounds=5, fitting="partial"),
        APWReweighter(HistGradientBoostingClassifier(max_iter=6, min_samples_leaf=5), rounds=2),  # the sets are small
    ]
)
def test_scikit_learns_own_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


# ---------------------------------------------------------------------- CurriculumClassifier


def test_pipeline_and_grid_search() -> None:
    X, y, _ = digits(300)
    pipeline = make_pipeline(StandardScaler(), CurriculumClassifier(epochs=4, lr=0.01))
    grid = {"curriculumclassifier__method": ["apw-e", "superloss"], "curriculumclassifier__batch_size": [16, 64]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, y)
    assert search.best_params_["curriculumclassifier__batch_size"] == 16
    assert search.score(X, y) > 0.9
    thresholds = {"threshold": [0.5, "auto", quantile(0.5)]}
    assert GridSearchCV(CurriculumClassifier(epochs=2), thresholds, cv=2).fit(X, y).best_score_ > 0


def test_a_clone_is_unfitted_and_fits_alike() -> None:
    X, y, _ = digits(200)
    prototype = nn.Sequential(nn.Linear(64, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 10))
    start = {name: value.clone() for name, value in prototype.state_dict().items()}
    first = CurriculumClassifier(prototype, "m-apw-e", epochs=3, optimizer=partial(torch.optim.SGD, momentum=0.9)).fit(
        X, y
    )
    generator = torch.get_rng_state()
    second = clone(first)
    assert not hasattr(second, "module_")
    assert np.array_equal(second.fit(X, y).predict_proba(X), first.predict_proba(X))
    assert not np.array_equal(
        clone(first).set_params(random_state=1).fit(X, y).predict_proba(X), first.predict_proba(X)
    )
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(torch.equal(value, start[name]) for name, value in prototype.state_dict().items())


def test_it_refits_on_a_set_of_another_length_and_other_labels() -> None:
    X, y, _ = digits(200)
    classifier = CurriculumClassifier(epochs=2).fit(X, y)
    words = np.array(["even", "odd"], dtype=object)[y[:150] % 2]
    classifier.fit(X[:150], words)
    assert classifier.record_.n == len(classifier.method_.weights) == 150
    assert set(classifier.predict(X)) <= {"even", "odd"}
    assert classifier.predict_proba(X).shape == (200, 2)


def test_pickled_and_unpickled() -> None:
    X, y, _ = digits(100)
    classifier = CurriculumClassifier(epochs=2, threshold=quantile(0.5)).fit(X, y)
    again = pickle.loads(pickle.dumps(classifier))
    assert np.array_equal(again.predict_proba(X), classifier.predict_proba(X))
    assert again.record_.epochs == classifier.record_.epochs
    assert again.threshold == quantile(0.5)
    assert repr(again).endswith("threshold=quantile(0.5))")


def test_images_a_factory_of_modules_and_of_methods_and_a_loss(tmp_path: Path) -> None:
    X, y, _ = digits(200)

    def network(features: int, classes: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(features, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, classes))

    classifier = CurriculumClassifier(
        network,
        lambda n, epochs: APW(n, q=2 * epochs, weighting="I"),
        epochs=10,
        lr=0.01,
        loss_fn=per_sample(nn.CrossEntropyLoss(label_smoothing=0.05)),
        record=tmp_path,
    )
    images = X.reshape(-1, 1, 8, 8)
    assert classifier.fit(images, y).score(images, y) > 0.9
    assert classifier.method_.q == 20
    assert Record.load(tmp_path).epochs == classifier.record_.epochs


def test_the_record_finds_wrong_labels() -> None:
    X, y, clean = digits(600, wrong=0.3)
    classifier = CurriculumClassifier(epochs=15, lr=0.01, method_options={"q": 30}).fit(X, y)
    suspects = audit(classifier.record_).order[:50]
    assert (y != clean)[suspects].mean() > 0.9
    assert np.array_equal(classifier.record_.labels("labels"), y)


def test_rows_that_are_not_finite_can_be_left_out() -> None:
    """Some losses are NaN: an error that advises nan_strategy, which the classifier takes."""
    X, y, _ = digits(100)

    def loss_fn(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        losses = nn.functional.cross_entropy(outputs, labels, reduction="none")
        return losses + torch.where(labels == 0, float("nan"), 0.0)

    with pytest.raises(ValueError, match="pass nan_strategy='warn' or 'ignore'"):
        CurriculumClassifier(epochs=2, loss_fn=loss_fn).fit(X, y)
    fitted = CurriculumClassifier(epochs=2, loss_fn=loss_fn, nan_strategy="ignore").fit(X, y)
    assert all(bool(parameter.isfinite().all()) for parameter in fitted.module_.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "apw_e"}, "unknown method 'apw_e'; did you mean 'apw-e'"),
        ({"method": APW(3, 3)}, "the method was made for 3 rows"),
        ({"method": 3}, "method must be a name such as 'rapw', a class"),
        (
            {"module": nn.Linear(64, 7)},
            r"outputs of shape \(64, 7\) for inputs of shape \(64, 64\), but there are 10 classes",
        ),
        ({"module": "mlp"}, "module must be a torch module or a function that makes one, got 'mlp'"),
        ({"module": lambda features, classes: None}, "module must be a torch module"),
        ({"threshold": -1.0}, "threshold must be"),
        ({"epochs": 0}, "epochs must be .*got 0"),
        ({"measure": "never"}, "measure must be 'pass' or 'running'"),
        ({"lr": 1e30}, "NaN or infinite"),
    ],
)
def test_what_the_classifier_refuses(options: dict[str, Any], message: str) -> None:
    X, y, _ = digits(100)
    with pytest.raises((TypeError, ValueError), match=message):
        CurriculumClassifier(**{"epochs": 3, **options}).fit(X, y)


# ---------------------------------------------------------------------- APWReweighter


def cancer() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def test_rounds_are_fits_with_the_weights_of_apw() -> None:
    X, y = cancer()
    y = np.array(["benign", "malignant"])[y]
    reweighter = APWReweighter(LogisticRegression(), rounds=3, q=4, tau=0.3, fitting="refit").fit(X, y)
    method, model = APW(len(y), q=4, tau=0.3), LogisticRegression()
    for _ in range(3):
        weights = method.weights.numpy() * len(y)
        model.fit(X, y, sample_weight=weights)
        given = model.predict_proba(X)[np.arange(len(y)), (y == "malignant").astype(int)]
        method.advance(torch.from_numpy(-np.log(given)))
    np.testing.assert_allclose(reweighter.sample_weight_, weights)
    np.testing.assert_allclose(reweighter.predict_proba(X), model.predict_proba(X))
    assert reweighter.sample_weight_.mean() == pytest.approx(1)
    assert reweighter.record_.column("loss_mean")[-1] == pytest.approx(log_loss(y, model.predict_proba(X)))
    assert [row["epoch"] for row in reweighter.record_.epochs] == [1, 2, 3]


def test_one_round_is_the_estimator_itself() -> None:
    X, y = cancer()
    alone = GradientBoostingClassifier(n_estimators=5, random_state=0).fit(X, y)
    reweighter = APWReweighter(alone, rounds=1).fit(X, y)
    np.testing.assert_allclose(reweighter.predict_proba(X), alone.predict_proba(X))


@pytest.mark.parametrize(
    ("estimator", "trees"),
    [
        (GradientBoostingClassifier(n_estimators=10, random_state=0), lambda model: len(model.estimators_)),
        (HistGradientBoostingClassifier(max_iter=10, early_stopping=False), lambda model: model.n_iter_),
        (RandomForestClassifier(10, max_depth=3, random_state=0), lambda model: len(model.estimators_)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_boosting_and_forests_grow_by_stages(estimator: Any, trees: Callable[[Any], int]) -> None:
    X, y = cancer()
    X = X[:, :6]  # HistGradientBoosting takes a second to bin weighted columns, whatever their length
    reweighter = APWReweighter(estimator, rounds=4).fit(X, y)
    assert trees(reweighter.estimator_) == 10
    assert reweighter.score(X, y) > 0.9
    assert reweighter.sample_weight_.std() > 0
    assert estimator.warm_start is False
    with pytest.raises(ValueError, match="=10 cannot be divided among 11 rounds"):
        clone(reweighter).set_params(rounds=11).fit(X, y)


@pytest.mark.filterwarnings("ignore:The SAMME.R algorithm:FutureWarning")  # scikit-learn 1.4 and 1.5
def test_partial_fits_and_warm_starts_go_on() -> None:
    X, y = cancer()
    partly = APWReweighter(SGDClassifier(loss="log_loss", random_state=0), rounds=20, fitting="partial").fit(X, y)
    assert partly.estimator_.t_ == 1 + 20 * len(y)
    warm = APWReweighter(LogisticRegression(), rounds=5).fit(X, y)
    anew = APWReweighter(LogisticRegression(), rounds=5, fitting="refit").fit(X, y)
    assert warm.estimator_.n_iter_[0] < anew.estimator_.n_iter_[0]
    for model in (partly, warm, anew, APWReweighter(AdaBoostClassifier(n_estimators=5), rounds=2).fit(X, y)):
        assert model.score(X, y) > 0.9
    assert cross_val_score(warm, X, y, cv=3).mean() > 0.93


def test_held_out_folds_see_wrong_labels_that_trees_learn_by_heart() -> None:
    X, y, clean = digits(400, wrong=0.3)
    forest = RandomForestClassifier(30, random_state=0)
    found = []
    for cv in (None, 3):
        reweighter = APWReweighter(forest, rounds=2, fitting="refit", cv=cv).fit(X, y)
        found.append((y != clean)[audit(reweighter.record_).order[:100]].mean())
        np.testing.assert_allclose(reweighter.sample_weight_.sum(), 400)
    assert found[1] > 0.7  # of 0.3 by chance; 0.77 with the forests of scikit-learn 1.4
    wrong = y != clean
    assert reweighter.sample_weight_[wrong].mean() < reweighter.sample_weight_[~wrong].mean()


def test_in_a_pipeline_with_a_grid_and_pickled() -> None:
    X, y = cancer()
    pipeline = make_pipeline(StandardScaler(), APWReweighter(LogisticRegression(max_iter=500), rounds=2, samples=False))
    grid = {"apwreweighter__estimator__C": [0.1, 1.0], "apwreweighter__threshold": ["auto", quantile(0.5)]}
    search = GridSearchCV(pipeline, grid, cv=2, scoring="roc_auc").fit(X, y)
    assert search.best_score_ > 0.98
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    assert np.array_equal(again.predict(X), search.predict(X))
    assert not again[-1].record_.has("losses")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": KNeighborsClassifier()}, "KNeighborsClassifier takes no sample_weight in fit"),
        (
            {"estimator": make_pipeline(LogisticRegression())},
            "Pipeline takes no sample_weight in fit.*into the Pipeline",
        ),
        ({"estimator": RidgeClassifier()}, "RidgeClassifier has no predict_proba"),
        ({"estimator": SGDClassifier()}, "SGDClassifier has no predict_proba.*loss='log_loss'"),
        ({"fitting": "staged"}, "fitting must be 'auto', 'refit', 'warm' or 'partial', got 'staged'"),
        ({"fitting": "partial"}, "LogisticRegression cannot be fitted by fitting='partial'"),
        (
            {"estimator": AdaBoostClassifier(), "fitting": "warm"},
            "AdaBoostClassifier cannot be fitted by fitting='warm'",
        ),
        ({"rounds": 0}, "rounds must be a whole number of at least 1, got 0"),
        ({"q": 1}, "q must be .*got 1"),
        ({"tau": 2}, "tau must be .*got 2"),
    ],
)
def test_what_the_reweighter_refuses(options: dict[str, Any], message: str) -> None:
    X, y = cancer()
    with pytest.raises((TypeError, ValueError), match=message):
        APWReweighter(**options).fit(X, y)


def test_a_missing_package_is_named_with_its_extra() -> None:
    code = """
import importlib, sys
for name in ("sklearn", "skorch", "tensorboard", "wandb", "mlflow"):
    sys.modules[name] = None
from torchcurriculum.record import sinks
attempts = {
    "sklearn": lambda: importlib.import_module("torchcurriculum.integrations.sklearn"),
    "skorch": lambda: importlib.import_module("torchcurriculum.integrations.skorch"),
    "tensorboard": lambda: sinks.TensorBoard("runs"),
    "wandb": lambda: sinks.WandB("p"),
    "mlflow": lambda: sinks.MLflow("mlruns"),
}
for extra, attempt in attempts.items():
    try:
        attempt()
    except ImportError as error:
        assert f"pip install 'torchcurriculum[{extra}]'" in str(error), error
        print(extra)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["sklearn", "skorch", "tensorboard", "wandb", "mlflow"]
