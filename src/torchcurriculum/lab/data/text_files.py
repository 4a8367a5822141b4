"""Untrusted text files: every error names the file and the line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

__all__ = ["numbers", "official", "read_bytes", "read_lines"]

LARGEST = 2**31  # bytes; the longest official list, WebVision's, has 0.1e9


@contextmanager
def official(address: str) -> Iterator[None]:
    """Adds the download ``address`` to errors about a damaged file."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{error}; get it again from {address}") from error


def read_bytes(path: Path, address: str) -> bytes:
    """The contents of a file; the error for a missing one has the download ``address``."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; get it from {address}")
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path} has {path.stat().st_size} bytes, too many for a file of this kind")
    return path.read_bytes()


def read_lines(path: Path, address: str) -> list[str]:
    """The lines of a text file in UTF-8, without their ends; at least one."""
    try:
        text = read_bytes(path, address).decode("utf-8-sig")  # spreadsheets write a byte-order mark
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is damaged: it is not UTF-8 text ({error.reason} at byte {error.start})") from None
    lines = text.replace("\r\n", "\n").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise ValueError(f"{path} is damaged: it is empty")
    return lines


def numbers(path: Path, content: bytes, columns: int) -> np.ndarray:
    """(lines, columns) int64 from lines of comma-separated whole numbers."""
    line = rb"[ \t]*,[ \t]*".join([rb"-?\d{1,17}"] * columns) + rb"[ \t]*"
    text = content.replace(b"\r\n", b"\n").rstrip(b"\n")
    if not text:
        raise ValueError(f"{path} is damaged: it is empty")
    if re.fullmatch(rb"(?:%s\n)*+%s" % (line, line), text):
        return np.fromstring(text.replace(b",", b" ").decode("ascii"), np.int64, sep=" ").reshape(-1, columns)
    bad = next((number, found) for number, found in enumerate(text.split(b"\n"), 1) if not re.fullmatch(line, found))
    shown = bad[1][:40].decode("ascii", "replace")
    raise ValueError(f"{path} is damaged: line {bad[0]} is {shown!r}, not {columns} whole number(s)")
