"""Reads a user's data of any kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .folders import holds
from .pictures import SUFFIXES as PICTURES
from .pictures import read_pictures
from .tables import TABLE_OPTIONS, read_table
from .text import SUFFIXES as TEXTS
from .text import read_texts
from .userdata import UserData, Watch

__all__ = ["read"]


def read(data: Path, watch: Watch = lambda what, done, total: None, **options: Any) -> UserData:
    """Reads a table, a folder of pictures or a folder of texts.

    Args:
        data: A CSV, TSV or Parquet file, or a folder with one folder for each class.
        watch: Called as ``watch(what, done, total)``.
        options: Of ``read_table``, ``read_pictures`` or ``read_texts``; None keeps the default; options for another
            kind of data are refused.
    """
    given = {name: value for name, value in options.items() if value not in (None, (), [], False)}
    if not data.is_dir():
        return read_table(data, watch=watch, **given)
    wrong = [name for name in TABLE_OPTIONS if name in given]
    if wrong:
        raise ValueError(f"--{wrong[0]} is for tables, but {data} is a folder with one folder per class")
    counts = {reader: holds(data, suffixes) for reader, suffixes in ((read_pictures, PICTURES), (read_texts, TEXTS))}
    if not any(counts.values()):
        raise ValueError(f"{data} holds no pictures ({', '.join(PICTURES)}) and no texts ({', '.join(TEXTS)})")
    return max(counts, key=counts.__getitem__)(data, watch=watch, **given)
