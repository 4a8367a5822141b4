"""scikit-learn: `APWReweighter`, APW for any estimator that takes ``sample_weight``, in rounds of fitting."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from ..methods import APW
from ..record import Record

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict
    from sklearn.utils import assert_all_finite
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, column_or_1d, has_fit_parameter
except ImportError as error:
    raise ImportError("this needs scikit-learn 1.4 or newer: pip install 'torchcurriculum[sklearn]'") from error

try:
    from sklearn.utils import get_tags
    from sklearn.utils.validation import validate_data
except ImportError:  # scikit-learn 1.4 and 1.5
    from sklearn.utils._tags import _safe_tags

    def validate_data(estimator: Any, *arrays: Any, **options: Any) -> Any:
        """As in scikit-learn 1.6."""
        return estimator._validate_data(*arrays, **options)


__all__ = ["APWReweighter"]

LOG_2 = math.log(2)
Fitting = Literal["auto", "refit", "warm", "partial"]


class APWReweighter(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """APW around any classifier with ``sample_weight`` and ``predict_proba``.

    A round fits the estimator with the weights, takes each training sample's log-loss from ``predict_proba``, and
    passes them to ``APW.advance``, which computes the weights of the next round (times n, so that their mean is one).

    Args:
        estimator: The classifier; it is cloned. By default logistic regression.
        rounds: Rounds of fitting.
        q: Strength of APW, at least 2; larger is gentler.
        threshold: The error threshold e: a number, ``"auto"`` or a rule such as ``quantile(0.5)``.
        tau: Phase threshold of APW: easy samples gain until the hard ones hold this share of the weight. The paper's
            1/2 suits a network that starts with everything hard. A fitted estimator is past it, so hard samples would
            gain from the first round on, which is bad if labels are wrong.
        fitting: How a round continues the one before. ``"refit"`` fits a new clone. ``"warm"`` sets ``warm_start``:
            boosting and forests grow by their share of ``n_estimators`` (or ``max_iter``) in each round, so that all
            rounds cost as much as one fit; others continue from their coefficients. ``"partial"`` calls ``partial_fit``
            once, an epoch for those that learn by gradient descent. ``"auto"`` is ``"warm"`` where the estimator has
            ``warm_start``, else ``"refit"``.
        cv: Folds whose held-out rows give the losses, or None for those of the training rows themselves. An estimator
            that memorises every label (deep trees, a forest) has uninformative training losses.
        samples: Keep every sample's loss of every round in ``record_``, for ``audit.audit``.

    Attributes:
        estimator_: The estimator of the last round.
        sample_weight_: (n,) the weights of the last round, one on average.
        method_: The APW after the last round.
        record_: One row per round; ``audit.audit(record_)`` ranks the labels that look wrong.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.ensemble import GradientBoostingClassifier
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> model = APWReweighter(GradientBoostingClassifier(n_estimators=8), rounds=4).fit(X, y)
        >>> len(model.estimator_.estimators_), model.score(X, y) > 0.9, model.sample_weight_.shape
        (8, True, (569,))
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        rounds: int = 5,
        q: float = 2,
        threshold: Any = LOG_2,
        tau: float = 0.05,
        fitting: Fitting = "auto",
        cv: Any = None,
        samples: bool = True,
    ) -> None:
        self.estimator, self.rounds, self.q, self.threshold, self.tau = estimator, rounds, q, threshold, tau
        self.fitting, self.cv, self.samples = fitting, cv, samples

    def fit(self, X: Any, y: Any) -> APWReweighter:
        """Runs all rounds.

        Args:
            X: Whatever the estimator takes.
            y: (n,) labels.
        """
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        estimator = clone(self._estimator())
        fitting = self._how(estimator)
        self.method_ = APW(len(y), self.q, self.threshold, self.tau)
        self.record_ = Record(len(y), {"method": "APWReweighter", "estimator": type(estimator).__name__})
        for number in range(1, self.rounds + 1):
            self.sample_weight_ = self.method_.weights.numpy() * len(y)
            estimator = self._round(estimator, fitting, number, X, y)
            losses = self._losses(estimator, X, y)
            self.method_.advance(torch.from_numpy(losses))
            self._append_row(number, losses)
        self.estimator_, self.classes_ = estimator, estimator.classes_
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(estimator, name):
                setattr(self, name, getattr(estimator, name))
        self.record_.set_array("labels", y if y.dtype.kind in "biufSU" else np.searchsorted(self.classes_, y))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """(n,) labels predicted by the last round's estimator."""
        check_is_fitted(self)
        return self.estimator_.predict(X)

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, classes) probabilities from the last round's estimator."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    @available_if(lambda self: hasattr(self._estimator(), "decision_function"))
    def decision_function(self, X: Any) -> np.ndarray:
        """Scores from the last round's estimator, if it has them."""
        check_is_fitted(self)
        return self.estimator_.decision_function(X)

    def _estimator(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    def _round(self, estimator: Any, fitting: str, number: int, X: Any, y: np.ndarray) -> Any:
        if fitting == "partial":
            return estimator.partial_fit(X, y, classes=np.unique(y), sample_weight=self.sample_weight_)
        if fitting == "refit":
            return clone(estimator).fit(X, y, sample_weight=self.sample_weight_)
        estimator.set_params(warm_start=True)
        stages = _stages(estimator)
        if stages is not None:
            total = getattr(self._estimator(), stages)
            estimator.set_params(**{stages: -(-total * number // self.rounds)})
        return estimator.fit(X, y, sample_weight=self.sample_weight_)

    def _losses(self, estimator: Any, X: Any, y: np.ndarray) -> np.ndarray:
        """(n,) log-losses of the training rows."""
        if self.cv is None:
            chances = estimator.predict_proba(X)
        else:
            held_out, params = clone(self._estimator()), {"sample_weight": self.sample_weight_}
            chances = cross_val_predict(held_out, X, y, cv=self.cv, method="predict_proba", params=params)
        chances = np.asarray(chances, dtype=np.float64)
        given = chances[np.arange(len(y)), np.searchsorted(estimator.classes_, y)]
        return -np.log(np.clip(given, np.finfo(np.float64).tiny, 1.0))

    def _append_row(self, number: int, losses: np.ndarray) -> None:
        report = self.method_.report()
        values = {name: value.item() if isinstance(value, Tensor) else value for name, value in report.items()}
        histories = {"losses": losses, "easy": losses <= values["threshold"]} if self.samples else {}
        row = {"epoch": number, **values, "measure": "pass" if self.cv is None else "held-out"}
        self.record_.append({**row, "loss_mean": float(losses.mean())}, **histories)

    def _how(self, estimator: Any) -> str:
        """The resolved ``fitting``; raises an error if the settings cannot work."""
        name, params = type(estimator).__name__, estimator.get_params()
        if not isinstance(self.rounds, int) or self.rounds < 1:
            raise ValueError(f"rounds must be a whole number of at least 1, got {self.rounds!r}")
        if self.fitting not in get_args(Fitting):
            raise ValueError(f"fitting must be 'auto', 'refit', 'warm' or 'partial', got {self.fitting!r}")
        if not hasattr(estimator, "predict_proba"):
            raise TypeError(
                f"{name} has no predict_proba, and APW needs the log-loss of each sample; choose loss='log_loss' if it "
                "has losses to choose from, or CalibratedClassifierCV around it"
            )
        if not has_fit_parameter(estimator, "sample_weight"):
            raise TypeError(
                f"{name} takes no sample_weight in fit, so it cannot be reweighted; put APWReweighter into the "
                "Pipeline instead of the Pipeline into it"
            )
        fitting = self.fitting
        if fitting == "auto":
            fitting = "warm" if "warm_start" in params else "refit"
        able = {"refit": True, "warm": "warm_start" in params, "partial": hasattr(estimator, "partial_fit")}
        if not able[fitting]:
            raise TypeError(f"{name} cannot be fitted by fitting={fitting!r}; 'refit' always works")
        stages = _stages(estimator)
        if fitting == "warm" and stages is not None and params[stages] < self.rounds:
            raise ValueError(f"{stages}={params[stages]} cannot be divided among {self.rounds} rounds; use fewer")
        return fitting

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self._estimator()).input_tags
        return tags

    def _more_tags(self) -> dict[str, Any]:  # for scikit-learn 1.4 and 1.5
        tags = _safe_tags(self._estimator())
        return {name: tags[name] for name in ("X_types", "allow_nan", "pairwise")}


def _stages(estimator: Any) -> str | None:
    """The parameter for the number of trees, if a warm start adds trees."""
    if "n_estimators" in estimator.get_params():
        return "n_estimators"
    return "max_iter" if hasattr(estimator, "staged_predict_proba") else None
