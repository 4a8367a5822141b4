"""GLUE's RTE (does a sentence entail another?) and SST-2 (is it positive?), from their official files or `datasets`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...data import Rows
from .text_files import official, read_lines

__all__ = ["TASKS", "Tokens", "load_glue"]


class Task(NamedTuple):
    """The columns of a task's files, the names of its classes, and how its files write them."""

    columns: tuple[str, ...]
    classes: tuple[str, ...]
    written: tuple[str, ...]


PAIRS = ("entailment", "not_entailment")
TASKS = {
    "RTE": Task(("sentence1", "sentence2", "label"), PAIRS, PAIRS),
    "SST-2": Task(("sentence", "label"), ("negative", "positive"), ("0", "1")),
}
ADDRESS = "https://dl.fbaipublicfiles.com/glue/data/{}.zip"
Texts = tuple[Any, ...]  # a list of sentences for each column, and y


def load_glue(source: str | Path | Mapping[str, Any], task: str = "RTE") -> dict[str, Texts]:
    """A task's training and validation parts; its test part has no public labels.

    Args:
        source: The folder of ``train.tsv`` and ``dev.tsv``, or ``TASK/`` or ``glue/TASK/`` with them; or a
            folder that ``datasets`` saved with ``save_to_disk``; or what ``datasets.load_dataset("nyu-mll/glue",
            "rte")`` returned, so that downloads are your choice.
        task: ``"RTE"``: 2,490 and 277 pairs; or ``"SST-2"``: 67,349 and 872 sentences.

    Returns:
        ``{"train": (first, second, y), "valid": ...}``, for SST-2 ``(sentences, y)``: lists of sentences, and y (n,)
        int64 in the order of ``TASKS[task].classes``.

    Raises:
        FileNotFoundError: With the address to get the files from.
        ValueError: With the damaged file and line, the reason and the address.
    """
    if isinstance(source, Mapping):
        return {"train": _from_columns(source, "train", task), "valid": _from_columns(source, "validation", task)}
    folder = Path(source)
    if (folder / "dataset_dict.json").exists():
        return load_glue(_saved(folder, task), task)
    places = [folder / "glue" / task, folder / task, folder]
    place = next((place for place in places if (place / "train.tsv").exists()), folder)
    with official(ADDRESS.format(task)):
        return {"train": _read(place / "train.tsv", task), "valid": _read(place / "dev.tsv", task)}


def _read(path: Path, task: str) -> Texts:
    columns, _, written = TASKS[task]
    head, *lines = read_lines(path, ADDRESS.format(task))
    names = head.split("\t")
    if any(name not in names for name in columns):
        raise ValueError(f"{path} is damaged: its first line must name the columns {', '.join(columns)}")
    if not lines:
        raise ValueError(f"{path} is damaged: it has no rows after its first line")
    places = [names.index(name) for name in columns]
    rows = []
    for number, line in enumerate(lines, 2):
        cells = line.split("\t")
        if len(cells) != len(names):
            raise ValueError(f"{path} is damaged: line {number} has {len(cells)} columns, not {len(names)}")
        *texts, label = (cells[place] for place in places)
        if label not in written:
            known = " or ".join(written)
            raise ValueError(f"{path} is damaged: line {number} has the label {label[:40]!r}, not {known}")
        rows.append((*texts, written.index(label)))
    *held, y = zip(*rows, strict=True)
    return *map(list, held), torch.tensor(y)


def _from_columns(source: Mapping[str, Any], part: str, task: str) -> Texts:
    (*columns, _), classes, _ = TASKS[task]
    if part not in source:
        raise ValueError(f"{task} needs a split named {part!r}; there is {', '.join(map(str, source))}")
    held = source[part]
    missing = [name for name in (*columns, "label") if name not in held.column_names]
    if missing:
        raise ValueError(f"the part {part!r} of {task} has no column {', '.join(missing)}")
    y = torch.as_tensor(list(held["label"]), dtype=torch.int64)
    if not len(y) or not torch.isin(y, torch.tensor([0, 1])).all():
        raise ValueError(f"the part {part!r} of {task} must have labels 0 ({classes[0]}) and 1 ({classes[1]})")
    return *(list(held[name]) for name in columns), y


def _saved(folder: Path, task: str) -> Mapping[str, Any]:
    try:
        from datasets import load_from_disk
    except ImportError as error:
        raise ImportError(f"{folder} was saved by `datasets`: pip install 'torchcurriculum[text]'") from error
    try:
        held: Mapping[str, Any] = load_from_disk(str(folder))
    except Exception as error:  # `datasets` raises many kinds of errors on damaged files
        raise ValueError(
            f"what `datasets` saved in {folder} is damaged ({type(error).__name__}: {error}); "
            f"get {task} from {ADDRESS.format(task)}"
        ) from error
    return held


class Tokens(Rows):
    """Tokenised texts held in memory; a batch is as long as its longest text.

    Args:
        columns: (N, L) tensors by their name for the network; ``attention_mask`` marks the padding.
        y: (N,) targets.
        names: N texts in readable form, or None.

    Example:
        >>> ids = torch.tensor([[5, 6, 0, 0], [5, 6, 7, 0]])
        >>> data = Tokens({"input_ids": ids, "attention_mask": (ids > 0).long()}, torch.tensor([0, 1]))
        >>> x, y = data.batch(torch.tensor([0]))
        >>> x["input_ids"], y
        (tensor([[5, 6]]), tensor([0]))
    """

    def __init__(self, columns: Mapping[str, Tensor], y: Tensor, names: Sequence[str] | None = None) -> None:
        lengths = {len(column) for column in columns.values()} | {len(y)}
        if "attention_mask" not in columns or len(lengths) != 1:
            raise ValueError("columns need an attention_mask, and as many rows as there are targets")
        self.columns, self.y, self.names = dict(columns), y, names
        self._length = columns["attention_mask"].sum(1).cpu()

    @classmethod
    def of_texts(cls, tokenizer: Callable[..., Any], texts: Texts, longest: int = 128) -> Tokens:
        """Sentences, or pairs of them, through a tokenizer of `transformers`, cut to ``longest`` tokens."""
        *columns, y = texts
        made = tokenizer(*columns, truncation=True, max_length=longest, padding="longest", return_tensors="pt")
        return cls(dict(made), y, [" / ".join(row) for row in zip(*columns, strict=True)])

    def __getitem__(self, row: int) -> tuple[dict[str, Tensor], Tensor]:
        return {name: column[row] for name, column in self.columns.items()}, self.y[row]

    def batch(self, index: Tensor, generator: torch.Generator | None = None) -> tuple[dict[str, Tensor], Tensor]:
        """The texts of ``index`` without common padding; the generator is not used."""
        longest = int(self._length[index.cpu()].max()) if len(index) else 0
        rows = index.to(self.y.device)
        return {name: column[rows, :longest] for name, column in self.columns.items()}, self.y[rows]

    def to(self, device: torch.device | str) -> Tokens:
        """A copy on ``device``."""
        columns = {name: column.to(device) for name, column in self.columns.items()}
        return Tokens(columns, self.y.to(device), self.names)
