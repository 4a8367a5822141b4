"""The identity of a data set: its length and, if stored, its labels."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

__all__ = ["fingerprint", "length_of"]


def length_of(data: Any, name: str) -> int:
    """The number of rows of a data set; one without rows or row numbers is refused by ``name``."""
    if isinstance(data, DataLoader):
        raise TypeError(f"{name} is a DataLoader; pass its data set, loader.dataset")
    if isinstance(data, dict):  # such as the splits of a set
        raise TypeError(f"{name} is a {type(data).__name__} with the keys {_few(data)}; pass one of its data sets")
    if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
        raise TypeError(
            f"{name} is {type(data).__name__}, which has no length or no row numbers; a curriculum keeps state for "
            "every row, so give the dataset __len__ and __getitem__, or use data.streamed in your own loop"
        )
    if len(data) < 1:
        raise ValueError(f"{name} is empty")
    return len(data)


def _few(keys: Iterable[Any]) -> str:
    return ", ".join(str(key)[:40] for key in islice(keys, 5))


def fingerprint(data: Any) -> int | None:
    """A checksum of the labels if the data set stores them, else None.

    Example:
        >>> import torch
        >>> one, other = (TensorDataset(torch.zeros(2), torch.tensor(labels)) for labels in ([0, 1], [1, 0]))
        >>> fingerprint(one) == fingerprint(Subset(one, [0, 1])) != fingerprint(other)
        True
    """
    labels = _labels(data)
    return None if labels is None else zlib.crc32(np.ascontiguousarray(labels).tobytes())


def _labels(data: Any) -> np.ndarray | None:
    if isinstance(data, Subset):
        whole = _labels(data.dataset)
        return None if whole is None else whole[np.asarray(data.indices)]
    candidates = [getattr(data, name, None) for name in ("targets", "labels", "y")]
    for labels in [*candidates, data.tensors[-1] if isinstance(data, TensorDataset) else None]:
        if isinstance(labels, Tensor):
            labels = labels.cpu().numpy()
        if isinstance(labels, list | tuple) and labels and isinstance(labels[0], int):
            labels = np.asarray(labels)
        if isinstance(labels, np.ndarray) and labels.dtype != object:
            return labels
    return None
