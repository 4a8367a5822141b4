"""Shared by the adapters to transformers and trl: one loss per sequence, and batches with their row numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from ..core import checks
from ..data.loaders import InOrder

__all__ = ["ROWS", "NumberedRows", "RowCollator", "mean_of_tokens", "sample_losses"]

ROWS = "curriculum_rows"  # the key of the row numbers in a batch
IGNORED = -100  # the label of tokens that do not count


class NumberedRows(Dataset[Any]):
    """A data set whose items come with their row numbers.

    Args:
        data: Any map-style data set, such as ``datasets.Dataset``.

    Example:
        >>> NumberedRows(["a", "b", "c"]).__getitems__([2, 0])
        [(2, 'c'), (0, 'a')]
    """

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitems__(self, rows: list[int]) -> list[tuple[int, Any]]:
        """The items of some rows, each with its number."""
        at_once = getattr(self.data, "__getitems__", None)
        return list(zip(rows, at_once(rows) if at_once else [self.data[row] for row in rows], strict=True))

    @cached_property
    def labels(self) -> np.ndarray[Any, Any] | None:
        """All labels in one array, which identify the data of a resumed run; None if there is no such column."""
        columns = getattr(self.data, "column_names", None) or ()
        name = next((name for name in ("labels", "label") if name in columns), None)
        if name is None:
            return getattr(self.data, "labels", None)
        return np.concatenate([np.atleast_1d(np.asarray(label)) for label in self.data[name]])


class RowCollator:
    """A collate function that keeps the row numbers, even if the inner one drops columns.

    Args:
        collate: ``collate(items) -> dict``, for example trl's ``DataCollatorForLanguageModeling``.

    Example:
        >>> collate = RowCollator(lambda items: {"length": [len(item) for item in items]})
        >>> collate([(7, "ab"), (3, "c")])
        {'length': [2, 1], 'curriculum_rows': tensor([7, 3])}
    """

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = InOrder(collate)

    def __call__(self, numbered: list[tuple[int, Any]]) -> Any:
        """The batch of the items, with their row numbers."""
        batch = self.collate([item for _, item in numbered])
        batch[ROWS] = torch.tensor([row for row, _ in numbered])
        return batch


def mean_of_tokens(losses: Tensor, labels: Tensor) -> Tensor:
    """(B,) the mean loss over each sequence's tokens, without those labelled -100.

    Example:
        >>> labels = torch.tensor([[4, 4, -100], [4, -100, -100]])
        >>> mean_of_tokens(torch.tensor([[1.0, 3.0, 0.0], [5.0, 0.0, 0.0]]), labels)
        tensor([2., 5.])
    """
    counted = behind_prompt(labels, losses.shape[1]) != IGNORED
    return (losses * counted).sum(1) / counted.sum(1).clamp_min(1)


def behind_prompt(labels: Tensor, length: int) -> Tensor:
    """Labels of ``length`` positions: those of a tuned prompt, which PEFT puts in front, are ignored.

    Example:
        >>> behind_prompt(torch.tensor([[4, 5]]), 3)
        tensor([[-100,    4,    5]])
    """
    return F.pad(labels, (length - labels.shape[1], 0), value=IGNORED)


def sample_losses(model: nn.Module, smoothing: float = 0.0) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss function of a transformers model with one loss per sequence: ``(logits, labels) -> (B,)``.

    Sequence classification (and that of images, sounds and videos) uses the loss of its ``problem_type``; token
    classification and language models use the mean over the sequence's tokens, so that a long sequence counts as much
    as a short one.

    Args:
        model: A transformers model, which has a ``loss_type``.
        smoothing: Of the labels, where they are classes.
    """
    base = getattr(model, "get_base_model", lambda: model)()
    kind, config = getattr(base, "loss_type", None), getattr(base, "config", None)

    def of_sequences(logits: Tensor, labels: Tensor) -> Tensor:
        logits = checks.at_least_float32(logits)
        one_label = not labels.is_floating_point()
        guess = "single_label_classification" if one_label else "multi_label_classification"
        problem = config.problem_type or ("regression" if config.num_labels == 1 else guess)  # type: ignore[union-attr]
        if problem == "single_label_classification":
            return F.cross_entropy(logits, labels.flatten(), reduction="none", label_smoothing=smoothing)
        loss = F.mse_loss if problem == "regression" else F.binary_cross_entropy_with_logits
        return loss(logits, labels.reshape(logits.shape).to(logits), reduction="none").mean(1)

    def of_tokens(logits: Tensor, labels: Tensor) -> Tensor:
        labels = behind_prompt(labels, logits.shape[1])
        logits = checks.at_least_float32(logits).transpose(1, 2)
        return mean_of_tokens(F.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing), labels)

    def of_next_tokens(logits: Tensor, labels: Tensor) -> Tensor:
        return of_tokens(logits[:, :-1], behind_prompt(labels, logits.shape[1])[:, 1:])

    known = {f"For{what}Classification": of_sequences for what in ("Sequence", "Image", "Audio", "Video")}
    known |= {"ForTokenClassification": of_tokens, "ForMaskedLM": of_tokens, "ForCausalLM": of_next_tokens}
    if kind not in known and getattr(base, "get_output_embeddings", lambda: None)() is not None:
        # A language model of another name, such as GPT2LMHeadModel: transformers uses the causal loss. A decoder behind
        # an encoder gets shifted inputs, so its outputs need no shift.
        return of_tokens if getattr(config, "is_encoder_decoder", False) else of_next_tokens
    if kind not in known:
        raise ValueError(
            f"the per-sample loss of {type(base).__name__} is not known; pass "
            "loss_fn=lambda outputs, labels: ..., which returns one loss per sequence, and if the model's outputs "
            "are not logits, forward=lambda model, inputs: ..."
        )
    return known[kind]
