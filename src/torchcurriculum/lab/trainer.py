"""Trains one method of a recipe with one seed, and evaluates it after every epoch."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import methods
from ..audit import Predictions, telling_rows
from ..checkpoint import Checkpoint, GracefulStop
from ..curriculum import Curriculum
from ..data import Arrays, Rows
from ..distributed import derive, evaluating
from ..fast.graphs import GraphedStep
from ..record import LaterRecord, Previews, Record, RecordError, best_epoch
from ..thresholds import ParameterDissimilarity
from .data import ImageFiles, Images
from .data.digits import grey_values
from .evaluation import CHUNK, Autocast, all_logits, evaluate, measuring_forward
from .given import loss_named, rows_given
from .lock import lock_folder
from .method_options import PD, asks_for_pd, paper_threshold, resolved_options
from .provenance import environment
from .recipe import Recipe, base_name
from .sources import OWN, digest, load_data, make_model, make_optimizer, make_schedule

__all__ = ["SAVE_SECONDS", "Interrupted", "Watch", "finished", "train"]

SAVE_SECONDS = 5.0
NOTED = 40  # least number of epochs whose predictions the audit gets
LARGEST = 10**8  # most rows times classes for predictions, to limit memory
PICTURES: dict[str, Callable[[Tensor], Tensor]] = {
    "digits": grey_values,
    **dict.fromkeys(("cifar10", "cifar10n", "cifar100", "cifar100n"), lambda x: x.permute(0, 2, 3, 1)),
}
Watch = Callable[[str, int, dict[str, Any]], None]


class Interrupted(Exception):
    """A run that was stopped cleanly by a signal, with its exit status."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__(words)
        self.status = status


def finished(recipe: Recipe, folder: Path) -> Record | None:
    """The record of a finished run in ``folder``, or None; raises an error if a later version wrote it."""
    try:
        record = Record.load(folder)
    except LaterRecord:
        raise
    except RecordError:
        return None
    if not record.meta.get("finished") or len(record.epochs) != recipe.epochs:
        return None
    shutil.rmtree(folder / "states", ignore_errors=True)  # left over from a kill at the very end
    return record


def train(
    recipe: Recipe,
    name: str,
    seed: int,
    folder: Path,
    watch: Watch,
    data: Path | None = None,
    stop: GracefulStop | None = None,
    save_seconds: float = SAVE_SECONDS,
) -> Record:
    """Trains one run, with its record in ``folder``, on an accelerator if there is one.

    A state is saved at the end of an epoch when the last one is old enough. A killed run resumes from its newest intact
    state, and its record equals that of an uninterrupted run, except for ``seconds``.

    Args:
        recipe: The recipe.
        name: The method or variant.
        seed: The seed.
        folder: Where to write the record.
        watch: Called after every epoch with the method's name, the seed and the epoch's row.
        data: Folder of the data set, for recipes that need one.
        stop: Checked before every step; when it is requested, a state is saved and ``Interrupted`` is raised.
        save_seconds: Seconds between saved states; 0 saves after every epoch.

    Returns:
        The record, whose rows also hold valid_acc, test_acc, test_eprop and test_ece.
    """
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        run = _Run(recipe, name, seed, folder, data)
        with lock_folder(folder):
            done = finished(recipe, folder)  # possibly by another process
            if done is not None:
                return done
            run.begin(save_seconds)
            try:
                while len(run.record.epochs) < recipe.epochs:
                    run.epoch(stop or GracefulStop())
                    watch(name, seed, run.record.epochs[-1])
            except ValueError as error:  # such as losses that are not finite; a resumed run overwrites it
                run.record.describe({**run.record.meta, "failed": str(error)})
                raise
            except RuntimeError as error:
                if not type(error).__module__.startswith("torch._"):  # not torch.compile's own
                    raise
                words = str(error).partition("\n")[0]
                raise ValueError(
                    f"torch.compile cannot compile the network {recipe.model!r} ({words}); install what it needs, such "
                    "as a C++ compiler, or omit --compile (compile=True)"
                ) from error
            return run.finish()


class _Run:
    """The state of one run, and how it resumes."""

    def __init__(self, recipe: Recipe, name: str, seed: int, folder: Path, data: Path | None) -> None:
        """Makes data, network and method. Writes nothing, so that a wrong command leaves no folder behind."""
        self.recipe, self.name, self.seed, self.folder = recipe, name, seed, folder
        self.data_name = data.resolve().name if data is not None and recipe.data in OWN else None
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.problem, self.digest = load_data(recipe, seed, data), digest(recipe, data)
        self.sets = {part: held.to(self.device) for part, held in self.problem.sets.items()}
        self.train_set = self.sets["train"]
        self.model = self._network()
        half = recipe.precision == "bfloat16"
        self.autocast: Autocast = partial(torch.autocast, self.device.type, torch.bfloat16) if half else nullcontext
        knobs = resolved_options(recipe, name, folder)
        loss = knobs.pop("loss", None)
        self.loss = loss and loss_named(loss, recipe, self.train_set.y, self.problem.classes)
        knobs = rows_given(knobs, recipe, self.sets, seed, self._network, self.autocast)
        self.method = methods.build(base_name(name), len(self.train_set), recipe.epochs, **knobs)
        given = knobs.get("threshold")
        self.threshold = given if isinstance(given, float) else paper_threshold(recipe)

    def _network(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(self.seed, "initial weights"))
            model = _fitting(self.recipe.model, make_model, self.recipe, self.problem).to(self.device)
        _fitting(self.recipe.model, _first_outputs, model, self.train_set)
        if self.device.type == "cuda":
            # Shapes repeat in every step; but for depthwise convolutions the benchmark takes minutes.
            torch.backends.cudnn.benchmark = not any(map(_depthwise, model.modules()))
            model = model.to(memory_format=torch.channels_last)
        return model

    def begin(self, save_seconds: float) -> None:
        """Opens the record, prepares training, and resumes from the newest intact state if there is one."""
        recipe = self.recipe
        self.save_seconds, self._saved = save_seconds, time.monotonic()
        self.record = self._open_record()
        self.net = _compiled(self.model) if recipe.compile else self.model
        options: dict[str, Any] = {"batch_size": recipe.batch_size, "seed": self.seed, "measure": recipe.measure}
        if self.device.type == "cuda" and isinstance(self.train_set, Images):
            options["measure_batch_size"] = CHUNK
        if self.loss is not None:
            options["loss_fn"] = self.loss
        if recipe.compile or recipe.precision == "bfloat16":
            options["forward"] = partial(measuring_forward, self.model, self.net, self.autocast)
        self.curriculum = Curriculum(
            self.method, self.train_set, record=self.record, overwrite=True, samples=True, **options
        )
        self.optimizer = make_optimizer(recipe, self.model)
        self.schedule = make_schedule(recipe, self.optimizer)
        self.pd = ParameterDissimilarity() if self.name == "vanilla" and asks_for_pd(recipe) else None
        fits = recipe.audit and len(self.train_set) * self.problem.classes <= LARGEST
        self.predictions = Predictions(self.train_set.y, self.problem.classes) if fits else None
        self.draws = any(isinstance(part, nn.Dropout) for part in self.model.modules())
        # Dropout is seeded before every step, which a captured step would ignore.
        self.step = GraphedStep(self.curriculum, self.net, self.optimizer, self.autocast, capture=not self.draws)
        self.seen: dict[str, Any] = {"steps": 0}
        self.checkpoint = Checkpoint(self.folder / "states")
        if self.checkpoint.load(**self._parts()) is None:
            self.record.rewind(0)

    def _open_record(self) -> Record:
        """The record to append to. States without their record are deleted, since they cannot restore it."""
        q = getattr(getattr(self.method, "method", self.method), "q", None)
        q = None if isinstance(q, Tensor) else q  # GroupDRO's q are weights
        meta: dict[str, Any] = {"method": self.name, "seed": self.seed, "q": q}
        meta |= {} if self.digest is None else {"data": self.digest}
        meta |= {} if self.problem.labels is None else {"classes": list(self.problem.labels)}
        meta |= {} if self.data_name is None else {"data_name": self.data_name}
        meta |= {"recipe": self.recipe.as_dict(), "environment": environment()}
        n, train_set = len(self.train_set), self.problem.sets["train"]
        try:
            held = Record.load(self.folder).meta
        except RecordError:
            shutil.rmtree(self.folder / "states", ignore_errors=True)
            record = Record(n, meta, self.folder)
        else:
            began = held.get("began", held.get("environment"))
            meta |= {} if began == meta["environment"] else {"began": began}
            record = Record.open(n, meta, self.folder)
        record.set_array("labels", train_set.y.numpy())
        if self.problem.clean is not None:
            record.set_array("clean", self.problem.clean.numpy())
        if train_set.names is not None:
            record.name_samples(train_set.names)
        return record

    def _parts(self) -> dict[str, Any]:
        optional = [name for name in ("pd", "predictions") if getattr(self, name) is not None]
        names = ("model", "optimizer", "schedule", "curriculum", "seen", *optional)
        return {name: getattr(self, name) for name in names}

    def save(self) -> bool:
        self._saved = time.monotonic()
        return self.checkpoint.save(self.seen["steps"], **self._parts())

    def epoch(self, stop: GracefulStop) -> None:
        """The rest of an epoch: trains, evaluates, collects predictions for all training rows, saves."""
        self.model.train()
        for batch in self.curriculum.epoch(self.model):
            if stop.requested:
                self._leave(stop)
            if self.draws:  # makes dropout depend only on the seed and the step
                _seed_generator(self.train_set.y.device, derive(self.seed, "dropout", self.seen["steps"]))
            self.step(batch)
            self.seen["steps"] += 1
        self.schedule.step()
        self.record.annotate(**self._scores())
        if self.pd is not None:
            with self.autocast():
                losses = F.cross_entropy(all_logits(self.net, self.train_set), self.train_set.y, reduction="none")
            self.pd.observe(self.model, float(losses.double().mean()))
        self._note_predictions()
        if time.monotonic() - self._saved >= self.save_seconds:
            self.save()

    def _note_predictions(self) -> None:
        """Collects predictions at the best epoch so far, and often enough for the audit; costs a pass each time."""
        number = len(self.record.epochs)
        best = best_epoch(self.record) == number - 1
        if self.predictions is not None and (best or number % max(1, self.recipe.epochs // NOTED) == 0):
            with self.autocast():
                logits = all_logits(self.net, self.train_set)
            self.predictions.note(logits, best)

    def _scores(self) -> dict[str, float]:
        """Every metric on the validation and the test part."""
        threshold = self.record.epochs[-1].get("threshold", self.threshold)
        method = self.method  # EMA's users evaluate the average
        net = method.averaged_model(self.model) if isinstance(method, methods.EMA) else self.net
        with self.autocast():
            scores = {"valid": evaluate(net, self.sets["valid"], threshold)}
            same = self.recipe.one_set
            scores["test"] = scores["valid"] if same else evaluate(net, self.sets["test"], threshold)
        return {f"{part}_{key}": value for part in scores for key, value in scores[part]}

    def _leave(self, stop: GracefulStop) -> None:
        where = f"in epoch {self.curriculum.number} of {self.name}, seed {self.seed}"
        saved = "its state is saved" if self.save() else "its state could not be saved, the previous one is kept"
        raise Interrupted(f"stopped {where}; {saved}", stop.status)

    def finish(self) -> Record:
        self.record.flush()
        for name, values in (self.predictions.arrays() if self.predictions else {}).items():
            self.record.set_array(name, values)
        self._keep_previews()
        known = self.pd is not None and len(self.pd.dissimilarity)
        estimate = {PD: self.pd.threshold, "pd_epoch": self.pd.transition} if self.pd and known else {}
        self.record.describe({**self.record.meta, **estimate, "finished": True})
        shutil.rmtree(self.folder / "states", ignore_errors=True)  # nothing to resume
        return self.record

    def _keep_previews(self) -> None:
        """Keeps previews of the samples in this run's report."""
        rows, data = telling_rows(self.record), self.train_set
        if not len(rows) or self.record.folder is None:
            return
        pictures = None
        if isinstance(data, ImageFiles):
            pictures = data.pictures(torch.from_numpy(rows))
        elif self.recipe.data in PICTURES and isinstance(data, Arrays):
            pictures = PICTURES[self.recipe.data](data.x[torch.from_numpy(rows).to(data.x.device)])
        if pictures is not None:
            Previews(rows, pictures.cpu().numpy()).save(self.record.folder)


def _fitting(network: str, do: Callable[..., Any], *arguments: Any) -> Any:
    """The result of ``do``; raises a one-sentence error if the network cannot take the data."""
    try:
        return do(*arguments)
    except (RuntimeError, AttributeError, IndexError) as error:
        if isinstance(error, torch.OutOfMemoryError) or str(error).startswith(("CUDA", "cuDNN")):
            raise  # an error of the device
        raise ValueError(f"the network {network!r} cannot take these data: {error}") from error


def _first_outputs(model: nn.Module, data: Rows) -> Tensor:
    with evaluating(model), torch.no_grad():
        out: Tensor = model(data.batch(torch.arange(min(2, len(data))))[0])
    return out.cpu()  # CUDA reports errors asynchronously; the copy waits for them


def _depthwise(part: nn.Module) -> bool:
    return isinstance(part, nn.Conv2d) and part.groups == part.in_channels > 1


def _seed_generator(device: torch.device, seed: int) -> None:
    """Seeds one device's generator; ``torch.manual_seed`` would keep a traceback for each unused accelerator."""
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def _compiled(model: nn.Module) -> nn.Module:
    """Compiles from scratch: PyTorch stops compiling after a few networks unless the earlier ones are dropped."""
    torch.compiler.reset()
    return torch.compile(model, dynamic=False)  # type: ignore[return-value]
