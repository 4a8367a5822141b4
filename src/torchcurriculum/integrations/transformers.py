"""transformers: `CurriculumTrainer`, a `Trainer` in which a method decides rows and weights.

`CurriculumMixin` does the same for any other subclass of `Trainer`: ``class Mine(CurriculumMixin, MyTrainer)``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from ..checkpoint import Checkpoint
from ..core import Forward, LossFunction, checks
from ..curriculum import Curriculum
from ..named import MethodLike, make_method
from ..record import Record
from .hosted import knobs_given_by
from .sequences import ROWS, NumberedRows, RowCollator, sample_losses

NEEDS = "transformers 4.57, or 5.4 and newer"
try:
    from transformers import Trainer
    from transformers import __version__ as version
    from transformers.trainer_utils import has_length
except ImportError as error:
    raise ImportError(f"this needs {NEEDS}: pip install 'torchcurriculum[transformers]'") from error
ONE_LOOP = version.startswith("4.57.")  # has no separate method for an epoch
if not (ONE_LOOP or hasattr(Trainer, "_run_epoch")):
    raise ImportError(f"this needs {NEEDS}, but {version} is installed: pip install -U 'torchcurriculum[transformers]'")

if TYPE_CHECKING:
    from transformers import Trainer as Base
else:
    Base = object

__all__ = ["CurriculumMixin", "CurriculumTrainer"]

FOLDER = "curriculum"  # in each checkpoint folder


class CurriculumMixin(Base):
    """Lets a method decide rows and weights in any subclass of ``transformers.Trainer``; list it first.

    Evaluation, prediction and logging are the trainer's own. The curriculum's state is in the folder ``curriculum`` of
    each checkpoint; a run resumes from any of them, bit-equal on a CPU.

    Args:
        args: Passed to the trainer.
        method: A name, a class, a function ``(n, epochs) -> method`` or a method, as in ``Curriculum``. An instance
            must have as many rows as ``train_dataset`` after the trainer's preparation.
        method_options: Options of a method given by name or class.
        loss_fn: ``loss_fn(outputs, labels) -> (B,)``; by default the model's own, one per sequence.
        forward: ``forward(model, inputs) -> outputs``; by default the logits of a call without labels.
        measure: As in ``Curriculum``, and so are ``record``, ``samples`` and ``nan_strategy``.
        record: See ``Curriculum``.
        samples: See ``Curriculum``.
        nan_strategy: See ``Curriculum``.
        kwargs: Passed to the trainer.
    """

    _train_batch_size: int
    replaced_loss: Any = Trainer.compute_loss  # by the method's loss in training

    def __init__(
        self,
        *args: Any,
        method: MethodLike,
        method_options: Mapping[str, Any] | None = None,
        loss_fn: LossFunction | None = None,
        forward: Forward | None = None,
        measure: Literal["pass", "running"] = "pass",
        record: Record | str | Path | None = None,
        samples: bool = False,
        nan_strategy: checks.NanStrategy = "error",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        for words, refused in self.refusals(loss_fn).items():
            if refused:
                raise ValueError(f"{type(self).__name__}: {words}")
        self._stepping = self._started = False
        self._method, self._method_options = method, method_options
        self._settings: dict[str, Any] = {"loss_fn": loss_fn, "forward": forward, "measure": measure, "record": record}
        self._settings |= {"samples": samples, "nan_strategy": nan_strategy}
        self.curriculum: Any = None  # None without a training set, to evaluate and predict
        if self.train_dataset is not None:
            self._begin_anew()

    def _begin_anew(self, **changes: Any) -> None:
        """Makes the curriculum at construction, and when training starts over."""
        args, data, collate = self.args, self.train_dataset, self.training_collator()
        if hasattr(data, "column_names"):
            data = self._remove_unused_columns(data, "training")
        else:
            collate = self._get_collator_with_removed_columns(collate, "training")
        method, self._method = self._method, copy.deepcopy(self._method)  # keep an unused copy for a later run
        given = {**self._settings, **changes}
        processes = getattr(args, "dataloader_multiprocessing_context", None) if args.dataloader_num_workers else None
        told: dict[str, Any] = {
            "forward": given["forward"] or self.default_forward,
            "loss_fn": given["loss_fn"] or self.default_loss(),
            "batch_size": self._train_batch_size * args.world_size,
            "seed": args.seed if args.data_seed is None else args.data_seed,
            "unpack": self.unpack,
            "collate_fn": RowCollator(collate),
            "workers": args.dataloader_num_workers,
            "pin_memory": args.dataloader_pin_memory and args.device.type == "cuda",
            "persistent_workers": args.dataloader_persistent_workers,
            "loader_options": {
                "prefetch_factor": args.dataloader_prefetch_factor,
                "multiprocessing_context": processes,
            },
            "drop_last": args.dataloader_drop_last,
            "shuffle": type(self._get_train_sampler()) is not SequentialSampler,
        }
        method = make_method(method, len(data), None, self._method_options, self._epochs(len(data)))
        self.curriculum = Curriculum(method, NumberedRows(data), **{**given, **told})
        if given["samples"]:
            self.curriculum.keep_outputs()

    def _epochs(self, n: int) -> int:
        """Epochs of the run, for the method's schedule."""
        args, batch = self.args, self._train_batch_size * self.args.world_size
        steps_as_epochs = args.max_steps * args.gradient_accumulation_steps * batch / n
        return max(1, math.ceil(steps_as_epochs if args.max_steps > 0 else args.num_train_epochs))

    def training_collator(self) -> Any:
        """The collate function of training batches."""
        return self.data_collator

    def default_loss(self) -> LossFunction:
        """The model's own loss, one per sequence."""
        model: Any = self.model
        return sample_losses(model, getattr(self.label_smoother, "epsilon", 0.0))

    def default_forward(self, model: nn.Module, inputs: dict[str, Any]) -> Any:
        """The logits of a call without labels."""
        outputs = model(**inputs)
        return outputs["logits"] if isinstance(outputs, Mapping) else outputs

    def unpack(self, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        """The model's inputs, and the labels: a tensor, or a dict if there are several ``label_names``."""
        labels = {name: inputs[name] for name in self.label_names if name in inputs}
        if not labels:
            raise ValueError(f"a batch has {', '.join(inputs)}, but no labels under {', '.join(self.label_names)}")
        decoder = getattr(getattr(self.model, "config", None), "is_encoder_decoder", False)
        kept = () if decoder else labels  # a decoder derives its inputs from them
        left = {name: value for name, value in inputs.items() if name not in kept and name != ROWS}
        return left, labels if len(labels) > 1 else next(iter(labels.values()))

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The planned batches; before the first epoch, those of an epoch over all rows."""
        if self.curriculum is None:
            return super().get_train_dataloader()
        loader: Any = self.curriculum.loader()
        loader.total_batch_size = self.curriculum.batch_size  # as in Accelerate's loaders
        if ONE_LOOP:
            loader.set_epoch = self._begin_epoch  # called before the loop counts the steps of an epoch
        return loader

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> tuple[list[Any], None]:
        """The batches of one optimizer step; checks that they are the next ones of the plan."""
        samples, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        done = self.curriculum.steps_done
        for batch, rows in zip(samples, self.curriculum.batches()[done : done + len(samples)], strict=True):
            held = batch.pop(ROWS, None)
            if held is None or (len(rows) and not torch.equal(held.cpu(), rows)):
                raise RuntimeError("a batch is not the one the method planned; do not override get_train_dataloader")
        self.curriculum.accumulate(len(samples))
        return samples, None

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """The trainer's own step, with the method's ``compute_loss``."""
        self._stepping = True
        try:
            return super().training_step(*args, **kwargs)
        finally:
            self._stepping = False

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The method's loss of a batch in training; the trainer's own in evaluation."""
        if not self._stepping:
            return super().compute_loss(model, inputs, *args, **kwargs)
        loss = self.curriculum.loss(model, self.curriculum.batch(inputs))
        return loss * self.current_gradient_accumulation_steps  # the trainer divides by it

    def _inner_training_loop(self, batch_size: int, *args: Any, **kwargs: Any) -> Any:
        """As in the trainer; a second ``train()``, or one with a smaller batch, starts with a new curriculum."""
        rows = batch_size * self.args.world_size
        if self.curriculum is not None and (self.curriculum.number or rows != self.curriculum.batch_size):
            self._train_batch_size = batch_size
            self._begin_anew(overwrite=True)
        self._started, self._resumed_from = False, kwargs.get("resume_from_checkpoint")
        trained = super()._inner_training_loop(batch_size, *args, **kwargs)
        if self._started:
            self._end_epoch()
        return trained

    def _begin_epoch(self, epoch: int) -> None:
        """An epoch of transformers 4, which computes the epochs of a checkpoint from the steps of full ones."""
        if self._started:
            self._end_epoch()
        elif epoch != self.curriculum.progress()[0]:
            raise ValueError(f"transformers {version} resumes only full epochs; resume with transformers 5.4 or newer")
        self._started = True
        self._start_epoch(self.model_wrapped)

    def _load_callback_state(self) -> None:
        super()._load_callback_state()
        if ONE_LOOP:
            self._load_curriculum(self._resumed_from)

    def _run_epoch(self, *args: Any, **parts: Any) -> None:
        steps = self._start_epoch(parts["model"])
        updates = math.ceil(steps / self.args.gradient_accumulation_steps)
        super()._run_epoch(*args, **{**parts, "steps_in_epoch": steps, "num_update_steps_per_epoch": updates})
        self._end_epoch()

    def _start_epoch(self, model: nn.Module) -> int:
        data: Any = self.train_dataset
        if len(data) != self.curriculum.n:
            before, now = self.curriculum.n, len(data)
            raise ValueError(f"the training set had {before} rows and now has {now}; make a new trainer for new data")
        self.curriculum.start(model)
        return len(self.curriculum.loader())

    def _end_epoch(self) -> None:
        self.curriculum.finish()
        if self.args.logging_strategy != "no":
            row = {name: x for name, x in self.curriculum.record.epochs[-1].items() if name != "seconds"}
            numbers = {name: x for name, x in row.items() if isinstance(x, float) and math.isfinite(x)}
            self.log({f"curriculum_{name}": x for name, x in numbers.items()})

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
        checkpoint = Checkpoint(folder / FOLDER, keep=1)
        checkpoint.load()  # allows overwriting the states of an earlier run, as the trainer does
        checkpoint.save(self.state.global_step, curriculum=self.curriculum)
        super()._save_checkpoint(model, trial)

    def _init_training_state(
        self, max_steps: int, num_update_steps_per_epoch: int, num_train_epochs: int, resume: Any, trial: Any
    ) -> tuple[int, int]:
        found = super()._init_training_state(max_steps, num_update_steps_per_epoch, num_train_epochs, resume, trial)
        if resume is None:
            return found
        self._load_curriculum(resume)
        return self.curriculum.progress()

    def _load_curriculum(self, folder: Any) -> None:
        with knobs_given_by(type(self).__name__, "method_options={'q': ...} of a schedule that follows the epochs"):
            step = Checkpoint(Path(folder) / FOLDER).load(curriculum=self.curriculum)
        if step != self.state.global_step:
            raise ValueError(f"{folder} holds no curriculum state for step {self.state.global_step}")

    def refusals(self, loss_fn: LossFunction | None) -> dict[str, bool]:
        """Settings that cannot be honoured, each with whether it is set; they raise an error."""
        args: Any = self.args
        data: Any = self.train_dataset
        sampler: Any = self._get_train_sampler()
        loader = getattr(super().get_train_dataloader, "__func__", None)
        loss = getattr(super().compute_loss, "__func__", None)
        known = sampler is None or (type(sampler) in (RandomSampler, SequentialSampler) and len(sampler) == len(data))
        split = self.is_fsdp_enabled or self.is_deepspeed_enabled
        split = split or getattr(self.accelerator, "parallelism_config", None) is not None
        return {
            "train_dataset needs a length and row numbers": (data is not None and not has_length(data)),
            "the method decides the order of rows, so your own sampler (_get_train_sampler, a strategy other than "
            "'random' and 'sequential') or get_train_dataloader cannot be used": (
                not known or loader is not Trainer.get_train_dataloader
            ),
            f"{super().compute_loss.__qualname__} would not be called in training, because it returns one loss for the "
            "whole batch; pass loss_fn=(outputs, labels) -> (B,), which returns one per sample": (
                loss_fn is None and loss is not type(self).replaced_loss
            ),
            "compute_loss_func returns one loss for the whole batch; pass loss_fn, which returns one per sample": (
                self.compute_loss_func is not None
            ),
            "label_smoothing_factor changes the model's own loss, not loss_fn; smooth labels in loss_fn": (
                loss_fn is not None and self.label_smoother is not None
            ),
            "ignore_data_skip would train twice on the rows of a resumed epoch": args.ignore_data_skip,
            "dataloader_in_order=False: batches must come in order to be matched with their rows": (
                args.dataloader_num_workers > 0 and not getattr(args, "dataloader_in_order", True)
            ),
            "the curriculum distributes batches; leave split_batches and dispatch_batches unset": bool(
                args.accelerator_config.split_batches or args.accelerator_config.dispatch_batches
            ),
            "several GPUs need several processes: start it with torchrun": args.n_gpu > 1,
            "models sharded over processes (FSDP, DeepSpeed, tensor parallelism) are not supported": split,
        }


class CurriculumTrainer(CurriculumMixin, Trainer):
    """``transformers.Trainer`` with a method: the only required new argument is ``method=``.

    Example:
        >>> import tempfile
        >>> from datasets import Dataset
        >>> from transformers import BertConfig, BertForSequenceClassification, TrainingArguments
        >>> from torchcurriculum import APW
        >>> rows = {"input_ids": [[1, 2], [3, 4], [5, 6], [7, 8]], "labels": [0, 0, 1, 1]}
        >>> sizes = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 4}
        >>> model = BertForSequenceClassification(BertConfig(vocab_size=9, **sizes))
        >>> args = TrainingArguments(tempfile.mkdtemp(), num_train_epochs=2, report_to="none", use_cpu=True)
        >>> trainer = CurriculumTrainer(model, args, train_dataset=Dataset.from_dict(rows), method=APW(4, q=2))
        >>> trainer.train()  # doctest: +SKIP
        >>> trainer.curriculum.method.weights
        tensor([0.2500, 0.2500, 0.2500, 0.2500], dtype=torch.float64)
    """
