"""skorch: `CurriculumNet`, a `NeuralNetClassifier` that trains under a curriculum."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.utils.data import DataLoader

from ..curriculum import Curriculum
from ..losses import fold, reduction_of
from ..named import make_method

try:
    from skorch import NeuralNetClassifier
except ImportError as error:
    raise ImportError("this needs skorch: pip install 'torchcurriculum[skorch]'") from error

__all__ = ["CurriculumNet"]

SHOWN = ("rho", "alpha", "eprop", "phase", "rows")
LOADER = {"collate_fn": "collate_fn", "num_workers": "workers", "pin_memory": "pin_memory", "drop_last": "drop_last"}


class CurriculumNet(NeuralNetClassifier):
    """skorch's classifier, its training batches drawn and weighed by a method.

    Module, criterion, optimizer, callbacks, validation split and data sets are skorch's own. ``partial_fit``, warm
    starts and unpickled nets go on with the curriculum where it was, and refuse another training set. In the history of
    each epoch stand rho, alpha, eprop and the phase, where the method has them.

    Args:
        module: As in skorch.
        method: A name, a class, a function ``(n, epochs) -> method`` or a method, as in ``Curriculum``; its options are
            ``method__q=5``, ``method__threshold="auto"``, ... A method that is made already is copied at each fit.
        measure: ``"pass"`` or ``"running"``, as in ``Curriculum``.
        samples: Keep every sample's loss of every epoch in ``record_``, for ``audit.audit``.
        record: A folder to write the record to, or None to keep it in memory.
        seed: The order of the rows and the draws of the method are a function of it.

    Attributes:
        curriculum_: The ``Curriculum`` of the last training.
        record_: What happened, one row per epoch; ``audit.audit(record_)`` ranks the labels that look wrong.

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
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(module, *args, **kwargs)
        self.method, self.measure, self.samples, self.record, self.seed = method, measure, samples, record, seed

    def initialize(self) -> CurriculumNet:
        """Begins anew, also with the curriculum."""
        self.curriculum_: Any = None
        self.record_: Any = None
        self.saved_: Any = None
        self.forward_params_: dict[str, Any] = {}
        return super().initialize()

    def set_params(self, **kwargs: Any) -> CurriculumNet:
        """skorch's own; another method, or options of it, count from the next ``fit`` on."""
        for name in [name for name in kwargs if name.split("__")[0] == "method"]:
            setattr(self, name, kwargs.pop(name))
        return super().set_params(**kwargs)

    def get_iterator(self, dataset: Any, training: bool = False) -> Any:
        """For training, batches of the curriculum; else skorch's own."""
        if not training:
            return super().get_iterator(dataset, training)
        self.curriculum_ = self._make_curriculum(dataset)
        self.record_ = self.curriculum_.record
        return _Epochs(self)

    def run_single_epoch(self, iterator: Any, training: bool, prefix: str, step_fn: Any, **fit_params: Any) -> None:
        """skorch's own; remembers what ``forward`` gets, for the measuring pass."""
        self.forward_params_ = fit_params
        super().run_single_epoch(iterator, training, prefix, step_fn, **fit_params)

    def train_step_single(self, batch: Any, **fit_params: Any) -> dict[str, Any]:
        """The weighted loss of the batch, and its gradients."""
        self._set_training(True)
        loss = self.curriculum_.loss(self.module_, self.batch_)
        loss.backward()
        return {"loss": loss, "y_pred": self.outputs_}

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        curriculum = state.get("curriculum_")
        if curriculum is not None:  # its state instead of itself, which holds the training set
            state |= {"curriculum_": None, "saved_": curriculum.state_dict()}
        return {name: value for name, value in state.items() if name not in ("batch_", "inputs_", "outputs_")}

    def _make_curriculum(self, dataset: Any) -> Curriculum:
        saved = self.saved_ if self.curriculum_ is None else self.curriculum_.state_dict()
        method, options = copy.deepcopy(self.method), self.get_params_for("method")
        curriculum = Curriculum(
            make_method(method, len(dataset), max(1, self.max_epochs), options),
            dataset,
            self._losses,
            forward=self._forward,
            seed=self.seed,
            measure=self.measure,
            samples=self.samples,
            record=self.record if self.record_ is None else self.record_,
            overwrite=self.record_ is None,  # fit starts anew, partial_fit goes on
            **self._loader_options(len(dataset)),
        )
        if saved is not None:
            try:
                curriculum.load_state_dict(saved, knobs="state")
            except ValueError as error:
                raise ValueError(f"this net cannot go on with its curriculum: {error}; fit begins anew") from error
        return curriculum

    def _loader_options(self, n: int) -> dict[str, Any]:
        """What the user said about the training loader, as ``Curriculum`` calls it; what it cannot do is refused."""
        options = {"batch_size": self.batch_size, **self.get_params_for("iterator_train")}
        size, shuffle = options.pop("batch_size"), options.pop("shuffle", True)
        foreign = [f"iterator_train__{name}" for name in options if name not in LOADER]
        foreign += [] if self.iterator_train is DataLoader else ["iterator_train"]
        foreign += [] if shuffle else ["iterator_train__shuffle=False"]
        if foreign:
            raise ValueError(
                f"{', '.join(foreign)}: the curriculum decides which rows make a batch and in which order, so it makes "
                f"the training loader itself; of that loader you may set batch_size, {', '.join(LOADER)}"
            )
        return {"batch_size": n if size == -1 else size, **{LOADER[name]: value for name, value in options.items()}}

    def _forward(self, model: nn.Module, x: Any) -> Any:
        own, self.__dict__["module_"] = self.module_, model  # a method may ask for the outputs of a copy
        try:
            self.inputs_, self.outputs_ = x, self.infer(x, **self.forward_params_)
        finally:
            self.__dict__["module_"] = own
        return self.outputs_

    def _losses(self, outputs: Any, y: Any) -> Tensor:
        """(B,) losses through ``get_loss``, which may be the user's own, with a criterion that does not reduce."""
        reduction = reduction_of(self.criterion_)
        self.criterion_.reduction = "none"
        try:
            losses = self.get_loss(outputs, y, X=self.inputs_, training=True)
        finally:
            self.criterion_.reduction = reduction
        return fold(losses, y, self.criterion_, reduction)[0] if losses.ndim > 1 else losses


class _Epochs:
    """A training loader for skorch: each loop over it is the curriculum's next epoch."""

    def __init__(self, net: CurriculumNet) -> None:
        self.net = net

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        net = self.net
        for batch in net.curriculum_.epoch(net.module_):
            net.batch_ = batch  # the rows' numbers stay here: callbacks see batches as skorch makes them
            yield batch.x, batch.y
        row = net.record_.epochs[-1]
        for name in SHOWN:
            if name in row:
                net.history.record(name, row[name])
