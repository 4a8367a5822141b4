"""A recipe's data, network, optimizer and schedule, made from their names."""

from __future__ import annotations

import functools
import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..clean.networks import Resized, first_of
from ..clean.pictures import SUFFIXES
from ..clean.tables import TABLE_OPTIONS, read_table
from ..clean.userdata import UserData
from ..data import Arrays, Rows, flip_labels
from .data import (
    ImageFiles,
    Images,
    load_cifar10,
    load_cifar100,
    load_cifar_n,
    load_digits,
    load_glue,
    load_image_folder,
    load_tudataset,
    load_webvision,
    split,
)
from .data.cifar import CLASSES, MEAN_100, STD_100
from .data.cifar_n import ADDRESS as CIFAR_N
from .data.glue import TASKS, Tokens
from .data.tudataset import ADDRESS
from .models import (
    digits_cnn,
    gcn,
    load_weights,
    named,
    perceptron,
    resnet18,
    simple_cnn,
    text_classifier,
    text_tokenizer,
)
from .recipe import Recipe

__all__ = [
    "Problem",
    "digest",
    "load_data",
    "make_model",
    "make_optimizer",
    "make_schedule",
    "own_table",
    "require_data",
]

Sets = dict[str, Rows]
OWN = ("csv", "image-folder")  # the user's own data, named only by its file or folder


@dataclass(frozen=True)
class Problem:
    """The data of a run.

    Attributes:
        sets: ``train`` (with the labels to learn from), ``valid`` and ``test``; if the protocol has no test labels,
            ``test`` is ``valid``.
        clean: (N,) the true training labels; None where they are unknown.
        classes: Number of classes.
        labels: Names of the classes, or None.
    """

    sets: Sets
    clean: Tensor | None
    classes: int
    labels: Sequence[str] | None = None


Loader = Callable[[Recipe, Path, int], Problem]


def load_data(recipe: Recipe, seed: int, folder: Path | None = None) -> Problem:
    """The parts of the data, with the recipe's synthetic noise in the training labels."""
    load = LOADERS[recipe.data]
    require_data(recipe, folder)
    problem = load(recipe, folder or Path(), seed)
    if not recipe.noise_rate or recipe.noise != "synthetic":
        return problem
    train = problem.sets["train"]
    noisy = flip_labels(train.y, recipe.noise_rate, problem.classes, seed)
    return replace(problem, sets={**problem.sets, "train": train.with_labels(noisy)}, clean=train.y)


def require_data(recipe: Recipe, folder: Path | None) -> None:
    """Raises an error if a recipe needs data and ``folder`` is None, or a file where it should be a folder."""
    if folder is None and recipe.data != "digits":
        what = "FILE, the table" if recipe.data == "csv" else f"DIR, the folder of {recipe.data}"
        raise ValueError(f"the recipe {recipe.name!r} needs --data {what}")
    if folder is not None and recipe.data not in ("digits", "csv") and folder.is_file():
        raise ValueError(f"--data {folder} is a file; give the folder that holds the files of {recipe.data}")


def digest(recipe: Recipe, data: Path | None) -> str | None:
    """A hash that identifies the user's own data: the content of a table, or names and content of image files.

    None for the official sets, which are always the same, and for missing files.
    """
    if data is None or recipe.data not in OWN:
        return None
    if data.is_file():
        return hashlib.sha256(data.read_bytes()).hexdigest()
    if not data.is_dir():
        return None
    found = []
    for path in sorted(data.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(data).parts)
        if path.suffix.lower() in SUFFIXES and not hidden and path.is_file():
            held = path.stat()
            found.append((str(path.relative_to(data)), held.st_size, held.st_mtime_ns, held.st_ctime_ns, held.st_ino))
    return _digest_of(data, tuple(found))


@functools.lru_cache(maxsize=1)  # called by every run of a recipe; the files are read again if any has changed
def _digest_of(folder: Path, files: tuple[tuple[str, int, int, int, int], ...]) -> str:
    found = hashlib.sha256()
    for name, *_ in files:
        with open(folder / name, "rb") as file:
            found.update(name.encode("utf-8", "surrogateescape") + hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()


def _clean(sets: Sets, classes: int, labels: Sequence[str] | None = None) -> Problem:
    return Problem(sets, sets["train"].y, classes, labels)


def _digits(recipe: Recipe, folder: Path, seed: int) -> Problem:
    return _clean({part: Arrays(x, y) for part, (x, y) in load_digits(seed).items()}, 10)


def _cifar10(recipe: Recipe, folder: Path, seed: int) -> Problem:
    return _clean({part: Images(x, y) for part, (x, y) in load_cifar10(folder, seed).items()}, 10, CLASSES)


def _cifar100(recipe: Recipe, folder: Path, seed: int) -> Problem:
    parts = load_cifar100(folder, seed)
    return _clean({part: Images(x, y, mean=MEAN_100, std=STD_100) for part, (x, y) in parts.items()}, 100)


def _human(base: Loader, file: str, labels: str) -> Loader:
    """CIFAR with human labels in its training split; validation and test labels are the true ones."""

    def load(recipe: Recipe, folder: Path, seed: int) -> Problem:
        problem = base(recipe, folder, seed)
        path = next((p for p in (folder / file, folder / "cifar-n" / file) if p.exists()), folder / file)
        given = load_cifar_n(path)
        if labels not in given:
            raise ValueError(f"{path} belongs to the other set: it has no {labels}; get it again from {CIFAR_N}")
        rows = split(len(given[labels]), seed)["train"]
        train = problem.sets["train"]
        if not torch.equal(torch.from_numpy(given["clean_label"])[rows], train.y):
            raise ValueError(f"{path} belongs to other images: its clean_label differs from the labels in {folder}")
        noisy = train.with_labels(torch.from_numpy(given[labels])[rows])
        return replace(problem, sets={**problem.sets, "train": noisy}, clean=train.y)

    return load


def _nci1(recipe: Recipe, folder: Path, seed: int) -> Problem:
    graphs = load_tudataset(folder, "NCI1")
    if len(found := graphs.y.unique()) != 2:
        raise ValueError(
            f"NCI1_graph_labels.txt in {folder} is damaged: NCI1 has 2 classes, and there are {len(found)}; "
            f"get it again from {ADDRESS.format(name='NCI1')}"
        )
    return _clean({part: graphs.part(rows) for part, rows in split(len(graphs), seed, 0.1, 0.1).items()}, 2)


def _glue(task: str) -> Loader:
    """The validation split also reports, because there are no test labels."""

    def load(recipe: Recipe, folder: Path, seed: int) -> Problem:
        texts, tokenizer = load_glue(folder, task), text_tokenizer(recipe.model)
        sets: Sets = {part: Tokens.of_texts(tokenizer, held) for part, held in texts.items()}
        return _clean({**sets, "test": sets["valid"]}, 2, TASKS[task].classes)

    return load


def _webvision(mini: bool) -> Loader:
    """The true training labels are unknown, and the validation split also reports."""

    def load(recipe: Recipe, folder: Path, seed: int) -> Problem:
        parts = load_webvision(folder, mini)
        sets: Sets = {part: ImageFiles(paths, y, recipe.size or 224) for part, (paths, y) in parts.items()}
        return Problem({**sets, "test": sets["valid"]}, None, 50 if mini else 1000)

    return load


def _own_images(recipe: Recipe, folder: Path, seed: int) -> Problem:
    parts, classes = load_image_folder(folder, seed)
    sets: Sets = {part: ImageFiles(paths, y, recipe.size or 224) for part, (paths, y) in parts.items()}
    return Problem(sets, None, len(classes), classes)


def _own_csv(recipe: Recipe, folder: Path, seed: int) -> Problem:
    source = own_table(recipe, folder)
    x, y = torch.from_numpy(source.features), torch.from_numpy(source.labels)
    sets: Sets = {}
    for part, rows in split(len(y), seed, 0.1, 0.1).items():
        held = Arrays(x[rows], y[rows])
        held.names = [source.ids[row] for row in rows.tolist()]
        sets[part] = held
    return Problem(sets, None, len(source.classes), source.classes)


def own_table(recipe: Recipe, path: Path) -> UserData:
    """The user's table, read once for all runs."""
    stamp = (path.stat().st_size, path.stat().st_mtime_ns) if path.is_file() else (0, 0)
    return _table(path, stamp, *(getattr(recipe, name) for name in TABLE_OPTIONS))


@functools.lru_cache(maxsize=1)
def _table(path: Path, stamp: tuple[int, int], *options: Any) -> UserData:
    given = zip(TABLE_OPTIONS, options, strict=True)
    return read_table(path, **{name: value for name, value in given if value is not None})


LOADERS: dict[str, Loader] = {
    "digits": _digits,
    "cifar10": _cifar10,
    "cifar100": _cifar100,
    "cifar10n": _human(_cifar10, "CIFAR-10_human.pt", "worse_label"),
    "cifar100n": _human(_cifar100, "CIFAR-100_human.pt", "noisy_label"),
    "nci1": _nci1,
    "rte": _glue("RTE"),
    "sst2": _glue("SST-2"),
    "mini-webvision": _webvision(mini=True),
    "webvision": _webvision(mini=False),
    "image-folder": _own_images,
    "csv": _own_csv,
}
MODELS: dict[str, Callable[[Problem], nn.Module]] = {
    "digits-cnn": lambda problem: digits_cnn(),
    "simple-cnn": lambda problem: simple_cnn(problem.classes),
    "resnet18-3x3": lambda problem: resnet18(problem.classes),
    "gcn": lambda problem: gcn(_width(problem), problem.classes),
    "perceptron": lambda problem: perceptron(_width(problem), problem.classes),
}


def make_model(recipe: Recipe, problem: Problem) -> nn.Module:
    """The recipe's network, with weights drawn from the global generator or read from the recipe's file."""
    train = problem.sets["train"]
    if recipe.model in MODELS:
        model = MODELS[recipe.model](problem)
    elif isinstance(train, Tokens):
        model = text_classifier(recipe.model, problem.classes)
    else:
        model = named(recipe.model, problem.classes, known=MODELS)
    if recipe.weights is not None:
        left = load_weights(model, recipe.weights, strict=not recipe.partial_weights)
        if left:
            count = len(model.state_dict())
            warnings.warn(
                f"with {recipe.weights}, {len(left)} of the network's {count} tensors keep their random values "
                f"({first_of(left)})",
                stacklevel=2,
            )
    return Resized(model, recipe.size) if recipe.size and isinstance(train, Arrays) else model


def _width(problem: Problem) -> int:
    """Columns of the inputs, or of the nodes' features."""
    x = problem.sets["train"].batch(torch.tensor([0]))[0]
    return int(getattr(x, "x", x).shape[1])


def make_optimizer(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    """The recipe's optimizer; clips gradients inside its step if the recipe sets ``clip``.

    On CUDA it is one kernel for all parameters, with a learning rate that captured steps read.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    cuda = parameters[0].is_cuda
    lr = torch.tensor(recipe.lr, device=parameters[0].device) if cuda else recipe.lr
    options: dict[str, Any] = {"lr": lr, "weight_decay": recipe.weight_decay, **({"fused": True} if cuda else {})}
    optimizer: torch.optim.Optimizer
    if recipe.optimizer == "sgd":
        optimizer = torch.optim.SGD(parameters, momentum=recipe.momentum, **options)
    else:
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[recipe.optimizer]
        optimizer = kind(parameters, capturable=cuda, **options)
    limit = recipe.clip
    if limit is not None:
        optimizer.register_step_pre_hook(lambda *_: (nn.utils.clip_grad_norm_(parameters, limit), None)[1])
    return optimizer


def make_schedule(recipe: Recipe, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    """The recipe's learning rates, epoch by epoch: cosine, constant, or a tenth after half of the epochs."""
    if recipe.schedule == "cosine":
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe.epochs, recipe.lr_min)
    half = max(1, recipe.epochs // 2) if recipe.schedule == "step" else recipe.epochs + 1
    return torch.optim.lr_scheduler.StepLR(optimizer, half, 0.1)
