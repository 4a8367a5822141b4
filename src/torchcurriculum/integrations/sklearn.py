"""scikit-learn: `CurriculumClassifier`, a torch network trained under a curriculum, and `APWReweighter`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ..core import Method, checks, distributed
from ..curriculum import Curriculum
from ..data import Arrays
from ..named import MethodLike, make_method
from ..record import Record
from .reweighter import APWReweighter, validate_data

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise ImportError("this needs scikit-learn 1.4 or newer: pip install 'torchcurriculum[sklearn]'") from error

__all__ = ["APWReweighter", "CurriculumClassifier"]

WIDTH = 64  # of the hidden layer where the user gives no module


class CurriculumClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that trains a torch module under a curriculum.

    Labels may be of any kind; inputs are (n, features) or (n, ...) numbers and reach the module as float32. The random
    draws of a fit depend only on ``random_state``, and torch's global generators are not changed.

    Args:
        module: A module to copy (its parameters are the start), or a function ``(features, classes) -> module``. By
            default a network with one hidden layer.
        method: A name, a class, a function ``(n, epochs) -> method`` or a method, as in ``Curriculum``. An instance is
            copied at each fit.
        threshold: The error threshold e of APW: a number, ``"auto"`` or a rule; None leaves it to the method.
        method_options: More options of the method, by name.
        epochs: Epochs.
        batch_size: Rows of a batch.
        lr: Learning rate.
        optimizer: ``optimizer(parameters, lr=lr)``, by default ``torch.optim.Adam``.
        loss_fn: ``loss_fn(outputs, y) -> (B,)``, by default cross-entropy; see ``per_sample``.
        measure: ``"pass"`` or ``"running"``, as in ``Curriculum``.
        samples: Keep every sample's loss of every epoch in ``record_``, for ``audit.audit``.
        record: A folder to write the record to, or None to keep it in memory.
        nan_strategy: What to do about losses that are not finite: ``"error"``, ``"warn"`` or ``"ignore"``.
        random_state: A number, a NumPy ``RandomState``, or None to draw from NumPy's global one.
        device: Where to train and predict.

    Attributes:
        module_: The trained module.
        method_: The method after the last epoch.
        record_: The record, one row per epoch; ``audit.audit(record_)`` ranks the labels that look wrong.
        classes_: The labels, sorted.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> classifier = CurriculumClassifier(method="apw-e", epochs=30, lr=0.01).fit(X, y)
        >>> classifier.score(X, y) > 0.9, len(classifier.record_.epochs)
        (True, 30)
    """

    def __init__(
        self,
        module: nn.Module | Callable[[int, int], nn.Module] | None = None,
        method: MethodLike = "apw-e",
        *,
        threshold: Any = None,
        method_options: Mapping[str, Any] | None = None,
        epochs: int = 50,
        batch_size: int = 64,
        lr: float = 1e-3,
        optimizer: Callable[..., torch.optim.Optimizer] | None = None,
        loss_fn: Callable[[Tensor, Tensor], Tensor] | None = None,
        measure: Literal["pass", "running"] = "pass",
        samples: bool = True,
        record: str | Path | None = None,
        nan_strategy: checks.NanStrategy = "error",
        random_state: Any = 0,
        device: str = "cpu",
    ) -> None:
        self.module, self.method, self.threshold, self.method_options = module, method, threshold, method_options
        self.epochs, self.batch_size, self.lr, self.optimizer, self.loss_fn = epochs, batch_size, lr, optimizer, loss_fn
        self.measure, self.samples, self.record, self.nan_strategy = measure, samples, record, nan_strategy
        self.random_state, self.device = random_state, device

    def fit(self, X: Any, y: Any) -> CurriculumClassifier:
        """Trains from the start.

        Args:
            X: (n, features) or (n, ...) numbers.
            y: (n,) labels.
        """
        X, y = validate_data(self, X, y, dtype=np.float32, allow_nd=True)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y holds one class only, {self.classes_[0]}; a classifier needs two or more")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        data = Arrays(torch.tensor(X, device=self.device), torch.tensor(codes, device=self.device))
        with torch.random.fork_rng(devices=_accelerators(self.device)):
            torch.manual_seed(distributed.derive(seed, "module"))
            self.module_ = self._make_module(X).to(self.device)
            self.method_ = self._make_method(len(X))
            self._train(data, seed)
        self.record_.set_array("labels", codes)
        self.record_.describe({**self.record_.meta, "classes": [str(name) for name in self.classes_]})
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, classes) float32 probabilities, in the order of ``classes_``."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float32, allow_nd=True)
        with torch.no_grad(), distributed.evaluating(self.module_):
            parts = [self._forward(self.module_, part.to(self.device)) for part in torch.tensor(X).split(1024)]
        return torch.cat(parts).float().softmax(1).cpu().numpy()

    def predict(self, X: Any) -> np.ndarray:
        """(n,) labels."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    def _train(self, data: Arrays, seed: int) -> None:
        options: dict[str, Any] = {"seed": seed, "measure": self.measure, "samples": self.samples}
        options["nan_strategy"] = self.nan_strategy
        if self.loss_fn is not None:
            options["loss_fn"] = self.loss_fn
        record = Record(len(data), {"method": str(self.method)}, self.record)
        curriculum = Curriculum(
            self.method_, data, batch_size=self.batch_size, forward=self._forward, record=record, **options
        )
        if self.samples:
            curriculum.keep_outputs()
        optimizer = (self.optimizer or torch.optim.Adam)(self.module_.parameters(), lr=self.lr)
        self.module_.train()
        for _ in range(self.epochs):
            for batch in curriculum.epoch(self.module_):
                loss = curriculum.loss(self.module_, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        self.record_ = curriculum.record

    def _forward(self, module: nn.Module, x: Tensor) -> Tensor:
        outputs = module(x)
        if outputs.ndim != 2 or outputs.shape[1] != len(self.classes_):
            raise ValueError(
                f"the module made outputs of shape {tuple(outputs.shape)} for inputs of shape {tuple(x.shape)}, but "
                f"there are {len(self.classes_)} classes; it must return one score per class"
            )
        return outputs

    def _make_module(self, X: np.ndarray) -> nn.Module:
        features, classes = X.shape[1], len(self.classes_)
        if self.module is None:
            width = int(np.prod(X.shape[1:]))
            return nn.Sequential(nn.Flatten(), nn.Linear(width, WIDTH), nn.ReLU(), nn.Linear(WIDTH, classes))
        if isinstance(self.module, nn.Module):
            return copy.deepcopy(self.module)
        module = self.module(features, classes) if callable(self.module) else self.module
        if not isinstance(module, nn.Module):
            raise TypeError(f"module must be a torch module or a function that makes one, got {self.module!r:.60}")
        return module

    def _make_method(self, n: int) -> Method:
        options = dict(self.method_options or {})
        if self.threshold is not None:
            options["threshold"] = self.threshold
        return make_method(copy.deepcopy(self.method), n, None, options, self.epochs)


def _accelerators(device: str) -> list[torch.device]:
    place = torch.device(device)
    return [place] if place.type == "cuda" else []
