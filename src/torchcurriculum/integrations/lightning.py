"""Lightning: `CurriculumCallback`, which lets a method choose and weight the training batches of any module."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ..core import Method
from ..curriculum import Curriculum
from ..named import MethodLike, find_maker, make_method
from ..record import Record
from .hosted import SHOWN, CriterionPatch, Epochs, knobs_given_by, loader_settings

if TYPE_CHECKING:
    Callback: Any = object
else:
    try:  # both packages have the same hooks; prefer the one that is already imported
        if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
            from pytorch_lightning import Callback
        else:
            from lightning.pytorch import Callback
    except ImportError:
        try:
            from pytorch_lightning import Callback
        except ImportError as error:
            raise ImportError("this needs Lightning: pip install 'torchcurriculum[lightning]'") from error

__all__ = ["CurriculumCallback"]

OWN = ("method", "method_options", "epochs", "loss_fn")
TOLD = (*OWN, "train_set", "batch_size", "collate_fn", "workers", "pin_memory", "drop_last", "shuffle")
SETTINGS = [name for name in inspect.signature(Curriculum).parameters if name not in TOLD]


class CurriculumCallback(Callback):
    """Trains under a curriculum: the module's model, data set and collate function stay unchanged.

    If the module has a ``criterion`` such as ``nn.CrossEntropyLoss()``, nothing else is needed: it is weighted inside
    ``training_step``. Otherwise end ``training_step`` with ``return self.curriculum(losses, batch)`` and one loss per
    sample, or with ``self.curriculum.loss(batch)`` for methods that change the batch. Elsewhere (validation) the
    criterion is not changed.

    The training loader must be a ``DataLoader`` without a sampler, since the curriculum chooses the rows of a batch;
    with ``shuffle=False`` rows keep their order. Its batch size is per process. rho, alpha, eprop and the phase (0
    early, 1 later) go to the trainer's logger, and the state into Lightning's own checkpoints.

    Args:
        method: A name, a class, a method, or a function ``(n, epochs, **options) -> method``, as in ``Curriculum``.
        method_options: Options of the method, such as ``{"q": 20}``.
        epochs: Length of the run for the method's schedule; the trainer's ``max_epochs`` by default.
        criterion: The name of the module's criterion.
        loss_fn: ``(outputs, y) -> (B,)`` for the measuring pass, where the module has no criterion.
        settings: More for ``Curriculum``: ``seed``, ``measure``, ``measure_set``, ``forward``, ``unpack``, ...

    Attributes:
        curriculum: The ``Curriculum`` of the training, None before.

    Example:
        >>> CurriculumCallback("apw-e", {"threshold": "auto"}, seed=0, measure="running").curriculum is None
        True
    """

    def __init__(
        self,
        method: MethodLike,
        method_options: Mapping[str, Any] | None = None,
        *,
        epochs: int | None = None,
        criterion: str = "criterion",
        loss_fn: Callable[[Any, Any], Tensor] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        if isinstance(method, Method):  # fail here, not when the training begins
            make_method(method, 1, epochs, method_options)
        else:
            find_maker(method)
        if foreign := [name for name in settings if name not in SETTINGS]:
            named, known = ", ".join(foreign), ", ".join(SETTINGS)
            raise TypeError(f"{named} come from the training loader and the module; the settings are {known}")
        self.method, self.method_options, self.epochs, self.settings = method, method_options, epochs, settings
        self.criterion, self.loss_fn = criterion, loss_fn
        self.curriculum: Curriculum | None = None
        self._state: Mapping[str, Any] = {}
        self._patch: CriterionPatch | None = None
        self._started, self._epoch_batches = False, 0

    @property
    def record(self) -> Record:
        """The record of the run, one row per epoch."""
        return self._now.record

    @property
    def _now(self) -> Curriculum:
        if self.curriculum is None:
            raise RuntimeError("the curriculum does not exist before trainer.fit")
        return self.curriculum

    # ------------------------------------------------------------------ Lightning's hooks

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Makes the curriculum, replaces the loader with its batches and patches the module's criterion."""
        source = trainer.fit_loop._data_source
        loader = source.dataloader()
        if source.is_module() and trainer.reload_dataloaders_every_n_epochs:
            raise ValueError("reload_dataloaders_every_n_epochs must be 0: weights are those of one training set")
        if trainer.overfit_batches:
            raise ValueError("overfit_batches repeats the same batches, but a curriculum makes new ones in every epoch")
        settings = loader_settings(loader, trainer.world_size)
        if not self._state and trainer.current_epoch and self.curriculum is not None:
            self._state = self.curriculum.state_dict()  # the same trainer continues
        forward = self.settings.get("forward") or _forward(trainer)
        self._patch = CriterionPatch(pl_module, self.criterion, self.loss_fn)
        self._patch.curriculum = self.curriculum = Curriculum(
            self._make_method(len(loader.dataset), trainer),
            loader.dataset,
            _within(trainer, self._patch.losses),
            **{**self.settings, **settings, "forward": _within(trainer, forward)},
        )
        self.curriculum.change_measured(_transfer(trainer))
        if self.curriculum.samples:
            self.curriculum.keep_outputs()
        self._started, self._epoch_batches = False, -(-self.curriculum.n // self.curriculum.batch_size)
        source.instance = Epochs(self.curriculum, lambda: self._epoch_batches)
        trainer.fit_loop._combined_loader = None  # it exists if a scheduler asked for the number of steps

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins the first epoch, or resumes the one that a checkpoint was saved in."""
        if self._state:
            with knobs_given_by("CurriculumCallback", "epochs=, the max_epochs of its run"):
                self._now.load_state_dict(self._state)
            self._state = {}
        self._begin(trainer, pl_module)
        progress = trainer.fit_loop.epoch_loop.batch_progress
        if progress.is_last_batch and progress.current.completed < progress.current.processed:
            # Saved after an epoch's last batch, which Lightning detects by its number; the next epoch may have more.
            progress.current.completed = max(progress.current.completed, self._epoch_batches - 1)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Measures and plans."""
        self._begin(trainer, pl_module)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Turns weighting on."""
        assert self._patch is not None
        self._patch.begin()

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        """Notes that a closure may run ``training_step`` again."""
        if self._patch is not None and pl_module.automatic_optimization:
            self._patch.evaluated()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Ends the epoch after its last batch, before validation and checkpoints."""
        assert self._patch is not None
        skipped = pl_module.automatic_optimization and isinstance(outputs, Mapping) and outputs.get("loss") is None
        self._patch.end(skipped)
        if self._now.steps_done == len(self._now.batches()):
            self._finish()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Ends an epoch that was stopped early, and logs."""
        if self._started and self._now.steps_done:
            self._finish()
        row = self.record.epochs[-1] if self.record.epochs else {}
        shown = {name: row[name] for name in SHOWN if name in row}
        numbers = {name: float(value == "later") if name == "phase" else float(value) for name, value in shown.items()}
        pl_module.log_dict({f"curriculum/{name}": value for name, value in numbers.items()}, sync_dist=True)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Removes the patch, and drops a state that was loaded only to test or predict."""
        self._state = {}
        if self._patch is not None:
            self._patch.detach()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Gives the module back as it was."""
        self.teardown(trainer, pl_module, "fit")

    def state_dict(self) -> dict[str, Any]:
        """The curriculum's state: tensors, numbers and strings. Lightning calls it on all ranks."""
        return {} if self.curriculum is None else self.curriculum.state_dict()

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Marks a checkpoint that is saved before the training begins, as a ``Tuner`` does to restore it."""
        checkpoint.setdefault("callbacks", {}).setdefault(self.state_key, {})

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Refuses to resume a training whose checkpoint has no curriculum, which would silently begin anew."""
        state = checkpoint.get("callbacks", {}).get(self.state_key)
        if trainer.state.fn == "fit" and not state and (state is None or checkpoint.get("global_step")):
            raise ValueError(
                "the checkpoint has no state of CurriculumCallback; resume from one that was saved with it, or load "
                "only the weights, module.load_state_dict(checkpoint['state_dict']), and train without ckpt_path"
            )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keeps a checkpoint's state until the curriculum exists."""
        self._state = state_dict

    # ------------------------------------------------------------------ an epoch

    def _begin(self, trainer: Any, pl_module: nn.Module) -> None:
        if self._started:
            return
        self._now.start(pl_module)
        self._started = True
        if (count := len(self._now.batches())) != self._epoch_batches:  # the method decides the length of an epoch
            self._epoch_batches = count
            trainer.fit_loop._combined_loader = None
            trainer.fit_loop.setup_data()

    def _finish(self) -> None:
        self._now.finish()
        self._started = False

    def _make_method(self, n: int, trainer: Any) -> Method:
        known = trainer.max_epochs if (trainer.max_epochs or -1) > 0 else None  # not with max_steps alone
        return make_method(self.method, n, self.epochs, self.method_options, known)


def _forward(trainer: Any) -> Callable[[nn.Module, Any], Any]:
    def forward(module: nn.Module, x: Any) -> Any:
        try:
            return module(trainer.precision_plugin.convert_input(x))
        except NotImplementedError as error:
            if "missing the required" not in str(error):  # raised by the module itself
                raise
            words = "define it, pass forward=(module, x) -> outputs, or measure='running' if it is for a measuring pass"
            raise NotImplementedError(f"{type(module).__name__} has no forward(x); {words}") from error

    return forward


def _transfer(trainer: Any) -> Callable[[Any], Any]:
    """Sends a raw batch through the trainer's precision and the transfer hooks, as it does with a training batch."""

    def transferred(batch: Any) -> Any:
        batch = trainer.precision_plugin.convert_input(batch)
        batch = trainer.lightning_module._on_before_batch_transfer(batch, dataloader_idx=0)
        return trainer.strategy.batch_to_device(batch, dataloader_idx=0)

    return transferred


def _within(trainer: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Runs the function in the trainer's precision, as ``training_step`` does."""

    def called(*given: Any) -> Any:
        with trainer.precision_plugin.forward_context():
            return function(*given)

    return called
