"""Trains one method with one seed as a recipe says, and evaluates it after every epoch."""

from __future__ import annotations

import json
import math
import platform
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import kernels, methods
from ..audit import Predictions, telling_rows
from ..checkpoint import Checkpoint, GracefulStop
from ..core import derive, evaluating, uncompiled
from ..curriculum import Curriculum
from ..data import Images
from ..data.arrays import Arrays, Rows
from ..data.images import ImageFiles
from ..graphs import GraphedStep
from ..record import Previews, Record, RecordError, best_epoch
from ..record.files import overwrite
from ..thresholds import ParameterDissimilarity, error_threshold
from . import digits
from .alone import alone
from .recipe import Recipe, base_name, options_of
from .sources import digest, load_data, make_model, make_optimizer, make_schedule

__all__ = ["Interrupted", "environment", "evaluate", "finished", "needs_vanilla", "train"]

PD = "pd_threshold"  # in a vanilla record's meta: what ``threshold: "pd"`` reads
CHUNKS = {"cpu": 128}  # rows at a time in an evaluation
CHUNK = 2500  # the same elsewhere, and in the measuring pass of images; it divides the parts of CIFAR
SAVE_SECONDS = 5.0
NOTED = 40  # epochs of a run, at least, whose predictions the audit gets
LARGEST = 10**8  # rows times classes, above which predictions would take too much memory
PICTURES: dict[str, Callable[[Tensor], Tensor]] = {
    "digits": digits.pictures,
    **dict.fromkeys(("cifar10", "cifar10n", "cifar100", "cifar100n"), lambda x: x.permute(0, 2, 3, 1)),
}
Watch = Callable[[str, int, dict[str, Any]], None]
Autocast = Callable[[], AbstractContextManager[Any]]


class Interrupted(Exception):
    """A run that was told to stop and left in order, with the exit status that says so."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__(words)
        self.status = status


def finished(recipe: Recipe, folder: Path) -> Record | None:
    """The record of a run that came to its end in ``folder``, or None."""
    try:
        record = Record.load(folder)
    except RecordError:
        return None
    if not record.meta.get("finished") or len(record.epochs) != recipe.epochs:
        return None
    shutil.rmtree(folder / "states", ignore_errors=True)  # a kill in a run's last moment may have left them
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
    """One run, with its record in ``folder``, on an accelerator where there is one.

    A state is saved at the end of an epoch when the last one is old enough; a run that was killed goes on from its
    newest whole one, and its record is that of an undisturbed run, except for ``seconds``.

    Args:
        recipe: What to do.
        name: Which method.
        seed: Which seed.
        folder: Where the record goes.
        watch: Called after every epoch with the method's name, the seed and the epoch's row.
        data: Folder of the data set, for recipes that need one.
        stop: Looked at before every step; when it is requested, a state is saved and ``Interrupted`` is raised.
        save_seconds: How old a state may get; 0 saves after every epoch.

    Returns:
        The record, whose rows also hold valid_acc, test_acc, test_eprop and test_ece.
    """
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices), ExitStack() as held:
        run = _Run(recipe, name, seed, folder, data, held)
        if run.done is not None:
            return run.done
        run.save_seconds = save_seconds
        run.resume()
        while len(run.record.epochs) < recipe.epochs:
            run.epoch(stop or GracefulStop())
            watch(name, seed, run.record.epochs[-1])
        return run.finish()


class _Run:
    """Everything that one run holds, and how it goes on after a stop."""

    def __init__(self, recipe: Recipe, name: str, seed: int, folder: Path, data: Path | None, held: ExitStack) -> None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        problem = load_data(recipe, seed, data)
        self.name, self.seed, self.recipe = f"{name}, seed {seed}", seed, recipe
        self.save_seconds = SAVE_SECONDS
        self.sets = {part: held.to(device) for part, held in problem.sets.items()}
        self.train_set = self.sets["train"]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(seed, "initial weights"))
            self.model = _fitting(recipe.model, make_model, recipe, problem).to(device)
        _fitting(recipe.model, _first_outputs, self.model, self.train_set)
        if device.type == "cuda":
            # The same shapes come again in every step; but with depthwise convolutions the trials take minutes.
            torch.backends.cudnn.benchmark = not any(map(_depthwise, self.model.modules()))
            self.model = self.model.to(memory_format=torch.channels_last)
        half = recipe.precision == "bfloat16"
        if half:
            kernels.narrow_(self.model)
        knobs = _options(recipe, name, folder)
        method = methods.build(base_name(name), len(self.train_set), recipe.epochs, **knobs)
        given = knobs.get("threshold")
        self.threshold = given if isinstance(given, float) else _paper_threshold(recipe)
        meta = {"method": name, "seed": seed, "q": getattr(getattr(method, "method", method), "q", None)}
        if (told := digest(recipe, data)) is not None:
            meta["data"] = told
        if problem.labels is not None:
            meta["classes"] = list(problem.labels)
        self.states = folder / "states"
        held.enter_context(alone(folder))
        self.done = finished(recipe, folder)  # by another process, until now
        if self.done is not None:
            return
        self.record = _open_record(len(self.train_set), {**meta, "recipe": recipe.as_dict()}, folder, self.states)
        self.record.set_array("labels", problem.sets["train"].y.numpy())
        if problem.clean is not None:
            self.record.set_array("clean", problem.clean.numpy())
        if self.train_set.names is not None:
            self.record.name_samples(self.train_set.names)
        options: dict[str, Any] = {"batch_size": recipe.batch_size, "seed": seed, "measure": recipe.measure}
        if device.type == "cuda" and isinstance(self.train_set, Images):
            options["measure_batch_size"] = CHUNK
        self.autocast: Autocast = partial(torch.autocast, device.type, torch.bfloat16) if half else nullcontext
        self.net = _compiled(self.model) if recipe.compile else self.model
        if self.net is not self.model or half:
            options["forward"] = partial(_forward, self.model, self.net, self.autocast)
        self.curriculum = Curriculum(method, self.train_set, record=self.record, samples=True, **options)
        self.optimizer = make_optimizer(recipe, self.model)
        self.schedule = make_schedule(recipe, self.optimizer)
        self.pd = ParameterDissimilarity() if name == "vanilla" and _asks_for_pd(recipe) else None
        self.draws = any(isinstance(part, nn.Dropout) for part in self.model.modules())
        self.seen: dict[str, Any] = {"steps": 0}
        fits = len(self.train_set) * problem.classes <= LARGEST
        self.predictions = Predictions(self.train_set.y, problem.classes) if fits else None
        self.checkpoint, self._saved = Checkpoint(self.states), time.monotonic()
        # Dropout is seeded before every step, which a captured one would not see.
        self.step = GraphedStep(self.curriculum, self.net, self.optimizer, self.autocast, capture=not self.draws)

    def _parts(self) -> dict[str, Any]:
        optional = [name for name in ("pd", "predictions") if getattr(self, name) is not None]
        names = ("model", "optimizer", "schedule", "curriculum", "seen", *optional)
        return {name: getattr(self, name) for name in names}

    def resume(self) -> None:
        """Goes on from the newest whole state; without one the run begins anew."""
        if self.checkpoint.load(**self._parts()) is None:
            self.record.rewind(0)

    def save(self) -> bool:
        self._saved = time.monotonic()
        return self.checkpoint.save(self.seen["steps"], **self._parts())

    def epoch(self, stop: GracefulStop) -> None:
        """The rest of an epoch: trains, evaluates, notes the predictions for all training rows, saves."""
        self.model.train()
        for batch in self.curriculum.epoch(self.model):
            if stop.requested:
                self._leave(stop)
            if self.draws:  # so that dropout, too, is a function of the seed and the step
                _seed_generator(self.train_set.y.device, derive(self.seed, "dropout", self.seen["steps"]))
            self.step(batch)
            self.seen["steps"] += 1
        self.schedule.step()
        self.record.annotate(**self._scores())
        if self.pd is not None:
            with self.autocast():
                losses = _losses(self.net, self.train_set)
            self.pd.observe(self.model, float(losses.double().mean()))
        self._note_predictions()
        if time.monotonic() - self._saved >= self.save_seconds:
            self.save()

    def _note_predictions(self) -> None:
        """At the best epoch so far, and often enough for the audit: it costs a pass over the training set."""
        number = len(self.record.epochs)
        best = best_epoch(self.record) == number - 1
        if self.predictions is not None and (best or number % max(1, self.recipe.epochs // NOTED) == 0):
            with self.autocast():
                logits = _logits(self.net, self.train_set)
            self.predictions.note(logits, best)

    def _scores(self) -> dict[str, float]:
        """Every metric on the validation and the test part."""
        threshold = self.record.epochs[-1].get("threshold", self.threshold)
        with self.autocast():
            scores = {"valid": evaluate(self.net, self.sets["valid"], threshold)}
            same = self.recipe.one_set
            scores["test"] = scores["valid"] if same else evaluate(self.net, self.sets["test"], threshold)
        return {f"{part}_{key}": value for part in scores for key, value in scores[part]}

    def _leave(self, stop: GracefulStop) -> None:
        where = f"in epoch {self.curriculum.number} of {self.name}"
        saved = "its state is saved" if self.save() else "its state could not be saved, the one before it stands"
        raise Interrupted(f"stopped {where}; {saved}", stop.status)

    def finish(self) -> Record:
        self.record.flush()
        for name, values in (self.predictions.arrays() if self.predictions else {}).items():
            self.record.set_array(name, values)
        self._keep_previews()
        known = self.pd is not None and len(self.pd.dissimilarity)
        estimate = {PD: self.pd.threshold, "pd_epoch": self.pd.transition} if self.pd and known else {}
        self.record.describe({**self.record.meta, **estimate, "finished": True})
        shutil.rmtree(self.states, ignore_errors=True)  # nothing is left to go on with
        return self.record

    def _keep_previews(self) -> None:
        """Pictures of the samples that a report of this run shows."""
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


def _open_record(n: int, meta: dict[str, Any], folder: Path, states: Path) -> Record:
    """The record to go on with; states whose record is lost go, for they could not make it whole again."""
    meta = {**meta, "environment": environment()}
    try:
        held = Record.load(folder).meta
    except RecordError:
        shutil.rmtree(states, ignore_errors=True)
        return Record(n, meta, folder)
    began = held.get("began", held.get("environment"))
    return Record.open(n, meta if began == meta["environment"] else {**meta, "began": began}, folder)


def evaluate(model: nn.Module, data: Rows, threshold: float = math.log(2)) -> list[tuple[str, float]]:
    """Accuracy, E-Prop at log 2 and at ``threshold``, and expected calibration error (15 equal bins) on a set."""
    logits, y = _logits(model, data), data.y
    losses = F.cross_entropy(logits, y, reduction="none")
    confidence, guess = logits.softmax(1).max(1)
    right = (guess == y).double()
    bins = (confidence * 15).long().clamp(max=14)
    gaps = torch.zeros(15, dtype=torch.float64, device=y.device).scatter_add_(0, bins, right - confidence.double())
    log_2 = torch.tensor(2.0, device=y.device).log()
    return [
        ("acc", right.mean().item()),
        ("eprop", (losses <= log_2).double().mean().item()),
        ("eprop_e", (losses <= threshold).double().mean().item()),
        ("ece", (gaps.abs().sum() / len(y)).item()),
    ]


def environment() -> dict[str, Any]:
    """Versions, hardware and commit: what a reader needs to judge a figure."""
    ours = _git("ls-files", "--error-unmatch", Path(__file__).name)  # not of a repository that only holds us
    commit = _git("rev-parse", "HEAD") if ours else None
    accelerator = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    return {**versions, "machine": platform.machine(), "accelerator": accelerator, "commit": commit}


def _git(*words: str) -> str | None:
    """What git says here, None where there is none or it has nothing to say."""
    try:
        asked = subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip() if asked.returncode == 0 else None


def write_json(path: Path, value: Any) -> None:
    """JSON for people: indented, and null for what is not a number."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file")
    with overwrite(path) as file:
        file.write(json.dumps(_without_nan(value), indent=1, allow_nan=False) + "\n")


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _options(recipe: Recipe, name: str, folder: Path) -> dict[str, Any]:
    options = options_of(recipe.options, name)
    if "q_epochs" in options:
        options["q"] = max(2, options.pop("q_epochs") * recipe.epochs)
    if not name.startswith(("apw-", "s-apw-", "m-apw-")):
        return options
    rule = options.get("threshold", recipe.threshold)
    if rule == "pd":
        rule = _estimated(folder.parent.parent / "vanilla" / folder.name, name)
    return {**options, "threshold": _paper_threshold(recipe) if rule == "paper" else rule}


def needs_vanilla(recipe: Recipe, name: str) -> bool:
    """Whether this method's threshold comes from the vanilla run of the same seed."""
    return bool(options_of(recipe.options, name).get("threshold", recipe.threshold) == "pd")


def _paper_threshold(recipe: Recipe) -> float:
    return error_threshold(recipe.noise_rate, recipe.noise) if recipe.noise_rate else error_threshold()


def _asks_for_pd(recipe: Recipe) -> bool:
    return any(options.get("threshold") == "pd" for options in recipe.options.values())


def _estimated(folder: Path, name: str) -> float:
    """The PD estimate of the vanilla run in ``folder``."""
    try:
        return float(Record.load(folder).meta[PD])
    except (RecordError, KeyError):
        words = (
            f"{name} takes its threshold from the vanilla run with the same seed, and {folder} holds no finished one"
        )
        raise ValueError(f"{words}; run --method vanilla into the same folder first") from None


def _fitting(network: str, do: Callable[..., Any], *arguments: Any) -> Any:
    """What a network of this name does with data; if it cannot, a sentence and no traceback."""
    try:
        return do(*arguments)
    except (RuntimeError, AttributeError, IndexError) as error:
        if isinstance(error, torch.OutOfMemoryError) or str(error).startswith(("CUDA", "cuDNN")):
            raise  # that is the device's fault
        raise ValueError(f"the network {network!r} cannot take these data: {error}") from error


def _first_outputs(model: nn.Module, data: Rows) -> Tensor:
    with evaluating(model), torch.no_grad():
        out: Tensor = model(data.batch(torch.arange(min(2, len(data))))[0])
    return out.cpu()  # a device tells its errors when it is waited for


def _depthwise(part: nn.Module) -> bool:
    return isinstance(part, nn.Conv2d) and part.groups == part.in_channels > 1


def _seed_generator(device: torch.device, seed: int) -> None:
    """Seeds one device's generator; ``torch.manual_seed`` would keep a traceback for each accelerator not yet used."""
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def _compiled(model: nn.Module) -> nn.Module:
    """What was compiled for runs before is forgotten: after a few networks PyTorch would give up compiling."""
    torch.compiler.reset()
    return torch.compile(model, dynamic=False)  # type: ignore[return-value]


def _forward(model: nn.Module, net: nn.Module, autocast: Autocast, asked: nn.Module, x: Any) -> Tensor:
    """What a step asks for as it is; the measuring pass of ``model`` in the precision and by the ``net`` of steps."""
    if torch.is_grad_enabled() or asked.training:
        return asked(x)
    with autocast():
        return _for(net if asked is model else asked, x)(x).float()


def _for(net: nn.Module, x: Any) -> nn.Module:
    """``net``, or what it was compiled from if it would be compiled once more for inputs of this form."""
    usual = isinstance(x, Tensor) and len(x) in (CHUNK, *CHUNKS.values())
    return net if usual else uncompiled(net)


def _logits(model: nn.Module, data: Rows) -> Tensor:
    chunk = CHUNKS.get(data.y.device.type, CHUNK)
    with evaluating(model), torch.no_grad():
        inputs = (data.batch(rows)[0] for rows in torch.arange(len(data)).split(chunk))
        return torch.cat([_for(model, x)(x).float() for x in inputs])


def _losses(model: nn.Module, data: Rows) -> Tensor:
    return F.cross_entropy(_logits(model, data), data.y, reduction="none")
