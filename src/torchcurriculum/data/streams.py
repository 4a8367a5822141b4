"""``streamed(loader, id)``: row numbers for data without any, from an id of each sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["streamed"]


class streamed:
    """Iterates over ``loader`` and yields ``(index, batch)``: the (B,) int64 row of each id, and the batch.

    An id gets the next row number when it is first seen, and keeps it: in later epochs, after a resume, and in any
    order. Each process has its own table. With several processes a sample must always come to the same one, as with
    shards assigned by rank.

    Args:
        loader: Any iterable of batches: a ``DataLoader`` over an iterable dataset, a loader of another library.
        id: Where the ids of a batch are: a key of a dict, a position in a tuple, or a function of the batch. An id is a
            whole number or a string that identifies the sample: a file name, a key, a hash.

    Example:
        >>> stream = streamed([{"key": ["b", "a"]}, {"key": ["a", "c"]}], id="key")
        >>> [index.tolist() for index, batch in stream]
        [[0, 1], [1, 2]]
        >>> len(stream), stream.state_dict()
        (3, {'ids': ['b', 'a', 'c']})
    """

    def __init__(self, loader: Iterable[Any], id: str | int | Callable[[Any], Any]) -> None:
        if not hasattr(loader, "__iter__"):
            raise TypeError(f"streamed needs an iterable of batches, got {type(loader).__name__}")
        if not callable(id) and (not isinstance(id, str | int) or isinstance(id, bool)):
            raise TypeError(f"id must be a key, a position or a function of a batch, got {id!r:.60}")
        self.loader, self.id = loader, id
        self._rows: dict[int | str, int] = {}

    def __iter__(self) -> Iterator[tuple[Tensor, Any]]:
        for batch in self.loader:
            yield self.rows(self._ids(batch)), batch

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, ids: Any) -> Tensor:
        """(B,) int64 rows of these ids; new ids get the next numbers."""
        found = ids.tolist() if hasattr(ids, "tolist") else [one.item() if hasattr(one, "item") else one for one in ids]
        for value in found:
            if not isinstance(value, str | int) or isinstance(value, bool):
                raise TypeError(f"an id must be a whole number or a string that names its sample, got {value!r:.60}")
        table = self._rows
        return torch.tensor([table.setdefault(value, len(table)) for value in found], dtype=torch.int64)

    def _ids(self, batch: Any) -> Any:
        if callable(self.id):
            return self.id(batch)
        try:
            return batch[self.id]
        except (KeyError, IndexError, TypeError) as error:
            names = f"a dict of {', '.join(map(str, batch))}" if isinstance(batch, Mapping) else type(batch).__name__
            raise KeyError(f"no id found under {self.id!r} in {names}; pass id=, a key or a function") from error

    def state_dict(self) -> dict[str, Any]:
        """The ids in the order of their rows."""
        return {"ids": list(self._rows)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a ``state_dict``."""
        before, self._rows = self._rows, {}
        try:
            if len(self.rows(state["ids"]).unique()) != len(state["ids"]):
                raise ValueError("the state has an id more than once")
        except Exception:
            self._rows = before
            raise
