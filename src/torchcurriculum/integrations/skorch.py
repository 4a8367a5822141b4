"""skorch: `CurriculumNet`, a `NeuralNetClassifier` that trains under a curriculum."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..core import checks
from ..curriculum import Curriculum
from ..losses import reduce_positions, reduction_of
from ..named import make_method
from .hosted import SHOWN, loader_settings, row_by_row

try:
    from skorch import NeuralNetClassifier
    from skorch.dataset import unpack_data
except ImportError as error:
    raise ImportError("this needs skorch: pip install 'torchcurriculum[skorch]'") from error

__all__ = ["CurriculumNet"]


class CurriculumNet(NeuralNetClassifier):
    """skorch's classifier, with training batches drawn and weighted by a method.

    Module, criterion, optimizer, callbacks, validation split and data sets are skorch's own. ``partial_fit``, warm
    starts and unpickled nets continue the curriculum, and refuse another training set. The history of each epoch has
    rho, alpha, eprop and the phase, if the method reports them.

    Args:
        module: As in skorch.
        method: A name, a class, a function ``(n, epochs) -> method`` or a method, as in ``Curriculum``; its options are
            ``method__q=5``, ``method__threshold="auto"``, ... An instance is copied at each fit.
        measure: ``"pass"`` or ``"running"``, as in ``Curriculum``.
        samples: Keep every sample's loss of every epoch in ``record_``, for ``audit.audit``.
        record: A folder to write the record to, or None to keep it in memory.
        nan_strategy: What to do about losses that are not finite: ``"error"``, ``"warn"`` or ``"ignore"``.
        seed: Determines the order of the rows and the draws of the method.

    Attributes:
        curriculum_: The ``Curriculum`` of the last training.
        record_: The record, one row per epoch; ``audit.audit(record_)`` ranks the labels that look wrong.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> net = CurriculumNet(nn.Linear, module__in_features=4, module__out_features=3, criterion=nn.CrossEntropyLoss,
        ...                     method="apw-e", max_epochs=3, verbose=0)
        >>> net = net.fit(X.astype("float32"), y)
        >>> len(net.record_.epochs), net.history[-1, "phase"] in ("early", "later")
        (3, True)
    """

    prefixes_ = [*NeuralNetClassifier.prefixes_, "method"]  # noqa: RUF012  as skorch has it

    def __init__(
        self,
        module: Any,
        *args: Any,
        method: Any = "apw-e",
        measure: Any = "pass",
        samples: bool = True,
        record: str | Path | None = None,
        nan_strategy: checks.NanStrategy = "error",
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(module, *args, **kwargs)
        self.method, self.measure, self.samples, self.record, self.seed = method, measure, samples, record, seed
        self.nan_strategy = nan_strategy

    def initialize(self) -> CurriculumNet:
        """Starts over, with a new curriculum."""
        self.curriculum_: Any = None
        self.record_: Any = None
        self.saved_: Any = None
        self.loader_: Any = None
        self.forward_params_: dict[str, Any] = {}
        return super().initialize()

    def set_params(self, **kwargs: Any) -> CurriculumNet:
        """As in skorch; another method or other options take effect with the next ``fit``."""
        for name in [name for name in kwargs if name.split("__")[0] == "method"]:
            setattr(self, name, kwargs.pop(name))
        return super().set_params(**kwargs)

    def run_single_epoch(self, iterator: Any, training: bool, prefix: str, step_fn: Any, **fit_params: Any) -> None:
        """As in skorch, over the curriculum's batches in training; stores the inputs of ``forward`` for measuring."""
        self.forward_params_ = fit_params
        if training:
            if iterator is not self.loader_:  # skorch makes one for each call of fit
                self.curriculum_, self.loader_ = self._make_curriculum(iterator), iterator
                self.record_ = self.curriculum_.record
            iterator = self._epoch()
        super().run_single_epoch(iterator, training, prefix, step_fn, **fit_params)

    def train_step_single(self, batch: Any, **fit_params: Any) -> dict[str, Any]:
        """The weighted loss of the batch and its gradients; skorch's own step for other batches."""
        if batch is not self.batch_[0]:
            return super().train_step_single(batch, **fit_params)
        self._set_training(True)
        loss = self.curriculum_.loss(self.module_, self.batch_[1])
        loss.backward()
        return {"loss": loss, "y_pred": self.outputs_}

    batch_: tuple[Any, Any] = (None, None)  # the current batch, for skorch and for the curriculum

    def _epoch(self) -> Iterator[tuple[Any, Any]]:
        """The curriculum's next epoch."""
        for batch in self.curriculum_.epoch(self.module_):
            self.batch_ = (batch.x, batch.y), batch  # row numbers stay here: callbacks see batches of skorch's form
            yield self.batch_[0]
        row = self.record_.epochs[-1]
        for name in SHOWN:
            if name in row:
                self.history.record(name, row[name])

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        curriculum = state.get("curriculum_")
        if curriculum is not None:  # pickle its state: the curriculum holds the training set
            state |= {"curriculum_": None, "loader_": None, "saved_": curriculum.state_dict()}
        return {name: value for name, value in state.items() if name not in ("batch_", "inputs_", "outputs_")}

    def _make_curriculum(self, loader: Any) -> Curriculum:
        saved = self.saved_ if self.curriculum_ is None else self.curriculum_.state_dict()
        method, given = copy.deepcopy(self.method), self.get_params_for("iterator_train")
        settings = loader_settings(loader)
        settings["shuffle"] |= not {"shuffle", "sampler"} & set(given)  # skorch does not shuffle by default
        curriculum = Curriculum(
            make_method(method, len(loader.dataset), None, self.get_params_for("method"), max(1, self.max_epochs)),
            loader.dataset,
            self._losses,
            forward=self._forward,
            unpack=unpack_data,
            seed=self.seed,
            measure=self.measure,
            samples=self.samples,
            nan_strategy=self.nan_strategy,
            record=self.record if self.record_ is None else self.record_,
            overwrite=self.record_ is None,  # fit starts over, partial_fit continues
            **settings,
        )
        if self.samples:
            curriculum.keep_outputs()
        if saved is not None:
            try:
                curriculum.load_state_dict(saved, knobs="state")
            except ValueError as error:
                raise ValueError(f"this net cannot continue its curriculum: {error}; call fit to start over") from error
        return curriculum

    def _forward(self, model: nn.Module, x: Any) -> Any:
        own, self.__dict__["module_"] = self.module_, model  # a method may need the outputs of a copy
        try:
            self.inputs_, self.outputs_ = x, self.infer(x, **self.forward_params_)
        finally:
            self.__dict__["module_"] = own
        return self.outputs_

    def _losses(self, outputs: Any, y: Any) -> Tensor:
        """(B,) losses from ``get_loss``, which the user may override, with unreduced criteria."""

        def loss(outputs: Any, y: Any, x: Any) -> Tensor:
            return self.get_loss(outputs, y, X=x, training=True)

        criteria = [getattr(self, f"{name}_") for name in self._criteria]
        able = {one: reduction_of(one) for one in criteria if getattr(one, "reduction", None) is not None}
        for criterion in able:
            criterion.reduction = "none"
        try:
            losses = loss(outputs, y, self.inputs_)
            if losses.ndim == 0:
                return row_by_row(loss, outputs, y, self.inputs_)
        finally:
            for criterion, reduction in able.items():
                criterion.reduction = reduction
        if losses.ndim > 1 and able:
            return reduce_positions(losses, y, *next(iter(able.items())))[0]
        return losses
