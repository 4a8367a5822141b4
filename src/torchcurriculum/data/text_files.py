"""Text files of others, read with nothing trusted: each fault is a sentence that names the file and the line."""

from __future__ import annotations

from pathlib import Path

import numpy as np

__all__ = ["numbers", "read_bytes", "read_lines"]

LARGEST = 2**31  # bytes; the longest official list, WebVision's, has 0.1e9


def read_bytes(path: Path, address: str) -> bytes:
    """The whole of a file; a missing one is answered with the ``address`` to get it from."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; get it from {address}")
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path} has {path.stat().st_size} bytes, which is too many for a file of this kind")
    return path.read_bytes()


def read_lines(path: Path, address: str) -> list[str]:
    """The lines of a text file in UTF-8, without their ends; at least one."""
    try:
        text = read_bytes(path, address).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is damaged: it is no text in UTF-8 ({error.reason} at byte {error.start})") from None
    lines = text.replace("\r\n", "\n").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise ValueError(f"{path} is empty")
    return lines


def numbers(path: Path, content: bytes, columns: int) -> np.ndarray:
    """(lines, columns) int64 from lines of whole numbers with commas between them."""
    lines = content.split()  # "1, 2" has a blank after its comma; a line of one column has none
    if columns > 1:
        lines = [line for line in content.replace(b"\r", b"").split(b"\n") if line.strip()]
    if not lines:
        raise ValueError(f"{path} is empty")
    try:
        values = np.array([line.split(b",") if columns > 1 else (line,) for line in lines]).astype(np.int64)
        if values.shape == (len(lines), columns):
            return values
    except (ValueError, OverflowError):
        pass
    for number, line in enumerate(lines, 1):
        parts = line.split(b",")
        if len(parts) != columns or not all(_whole(part) for part in parts):
            shown = line[:40].decode("ascii", "replace")
            raise ValueError(f"{path} is damaged: line {number} is {shown!r}, not {columns} whole number(s)")
    raise ValueError(f"{path} is damaged: it holds a number that is too large")


def _whole(part: bytes) -> bool:
    text = part.strip()
    return text.removeprefix(b"-").isdigit() and len(text) < 18
