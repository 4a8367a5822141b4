"""GLUE RTE: pairs of sentences and whether the first entails the second, from its official files or `datasets`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...data import Rows
from .text_files import read_lines

__all__ = ["Tokens", "load_rte"]

ADDRESS = "https://dl.fbaipublicfiles.com/glue/data/RTE.zip"
LABELS = ("entailment", "not_entailment")
COLUMNS = ("sentence1", "sentence2", "label")
Pairs = tuple[list[str], list[str], Tensor]


def load_rte(source: str | Path | Mapping[str, Any]) -> dict[str, Pairs]:
    """RTE's training and validation parts; its test part has no public labels.

    Args:
        source: The folder where ``train.tsv`` and ``dev.tsv`` lie, or ``RTE/`` or ``glue/RTE/`` with them; or a folder
            that ``datasets`` saved with ``save_to_disk``; or what ``datasets.load_dataset("nyu-mll/glue", "rte")``
            returned, so that a download happens only where you ask for it.

    Returns:
        ``{"train": (first, second, y), "valid": ...}`` with two lists of sentences and y (n,) int64: 2,490 and 277
        pairs, 0 for entailment and 1 for the rest.

    Raises:
        FileNotFoundError: With the address to get the files from.
        ValueError: With the file and line that are damaged, and why.
    """
    if isinstance(source, Mapping):
        return {"train": _from_columns(source, "train"), "valid": _from_columns(source, "validation")}
    folder = Path(source)
    if (folder / "dataset_dict.json").exists():
        return load_rte(_saved(folder))
    places = [folder / "glue" / "RTE", folder / "RTE", folder]
    place = next((place for place in places if (place / "train.tsv").exists()), folder)
    return {"train": _read(place / "train.tsv"), "valid": _read(place / "dev.tsv")}


def _read(path: Path) -> Pairs:
    head, *lines = read_lines(path, ADDRESS)
    names = head.split("\t")
    if any(name not in names for name in COLUMNS):
        raise ValueError(f"{path} is damaged: its first line must name the columns {', '.join(COLUMNS)}")
    if not lines:
        raise ValueError(f"{path} is damaged: it has no rows after its first line")
    places = [names.index(name) for name in COLUMNS]
    rows = []
    for number, line in enumerate(lines, 2):
        cells = line.split("\t")
        if len(cells) != len(names):
            raise ValueError(f"{path} is damaged: line {number} has {len(cells)} columns, not {len(names)}")
        first, second, label = (cells[place] for place in places)
        if label not in LABELS:
            raise ValueError(
                f"{path} is damaged: line {number} has the label {label[:40]!r}, not {' or '.join(LABELS)}"
            )
        rows.append((first, second, LABELS.index(label)))
    return [row[0] for row in rows], [row[1] for row in rows], torch.tensor([row[2] for row in rows])


def _from_columns(source: Mapping[str, Any], part: str) -> Pairs:
    if part not in source:
        raise ValueError(f"RTE needs a part called {part!r}; there is {', '.join(map(str, source))}")
    held = source[part]
    missing = [name for name in COLUMNS if name not in held.column_names]
    if missing:
        raise ValueError(f"the part {part!r} of RTE has no column {', '.join(missing)}")
    y = torch.as_tensor(list(held["label"]), dtype=torch.int64)
    if not len(y) or not torch.isin(y, torch.tensor([0, 1])).all():
        raise ValueError(f"the part {part!r} of RTE must have labels 0 ({LABELS[0]}) and 1 ({LABELS[1]})")
    return list(held["sentence1"]), list(held["sentence2"]), y


def _saved(folder: Path) -> Mapping[str, Any]:
    try:
        from datasets import load_from_disk
    except ImportError as error:
        raise ImportError(f"{folder} was saved by `datasets`: pip install 'torchcurriculum[text]'") from error
    try:
        held: Mapping[str, Any] = load_from_disk(str(folder))
    except Exception as error:  # what damage raises inside `datasets` is of every kind
        words = f"{type(error).__name__}: {error}"
        raise ValueError(f"what `datasets` saved in {folder} is damaged ({words}); get RTE from {ADDRESS}") from error
    return held


class Tokens(Rows):
    """Tokenised texts held in memory; a batch is as long as its longest text.

    Args:
        columns: (N, L) tensors by their name for the network; ``attention_mask`` says which places are padding.
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
            raise ValueError("there must be an attention_mask, and as many texts as targets in every column")
        self.columns, self.y, self.names = dict(columns), y, names
        self._length = columns["attention_mask"].sum(1).cpu()

    @classmethod
    def of_pairs(cls, tokenizer: Callable[..., Any], pairs: Pairs, longest: int = 128) -> Tokens:
        """Pairs of sentences through a tokenizer of `transformers`, cut to ``longest`` tokens."""
        first, second, y = pairs
        made = tokenizer(first, second, truncation=True, max_length=longest, padding="longest", return_tensors="pt")
        return cls(dict(made), y, [f"{one} / {other}" for one, other in zip(first, second, strict=True)])

    def __getitem__(self, row: int) -> tuple[dict[str, Tensor], Tensor]:
        return {name: column[row] for name, column in self.columns.items()}, self.y[row]

    def batch(self, index: Tensor, generator: torch.Generator | None = None) -> tuple[dict[str, Tensor], Tensor]:
        """The texts of ``index`` without the padding that all of them have; nothing is drawn from the generator."""
        longest = int(self._length[index.cpu()].max()) if len(index) else 0
        rows = index.to(self.y.device)
        return {name: column[rows, :longest] for name, column in self.columns.items()}, self.y[rows]

    def to(self, device: torch.device | str) -> Tokens:
        """A copy on ``device``."""
        columns = {name: column.to(device) for name, column in self.columns.items()}
        return Tokens(columns, self.y.to(device), self.names)
