"""Delimited text files: detects encoding, separator and quotes."""

from __future__ import annotations

import codecs
import contextlib
import csv
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

__all__ = ["Layout", "find_layout", "records", "require_file"]

SEPARATORS = ",;\t|"
LINES = 200  # records used to detect the separator
BLOCK = 2**22
END = "\x1eend"  # appended to the file: if it ends up inside a cell, a quote was never closed
LONGEST = 2**27  # characters of a cell; Python's own limit of 131,072 is too small for long texts
OTHERS = {
    b"PK\x03\x04": "a spreadsheet or a zip archive",
    b"\xd0\xcf\x11\xe0": "an Excel file",
    b"\x1f\x8b": "compressed",
}
JSON = re.compile(rb'\s*\[?\s*\{\s*"')  # an array of objects, or one in each line
BOMS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # begins as that of UTF-16
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class Layout(NamedTuple):
    """The format of a file: its encoding (Python's name), its separator, and whether cells may be quoted."""

    encoding: str
    separator: str
    quotes: bool = True


def find_layout(path: Path, separator: str | None = None, encoding: str | None = None) -> Layout:
    """Detects the format of a delimited text file.

    Args:
        path: The file.
        separator: One character, if known.
        encoding: If known; a byte order mark overrules it.

    Raises:
        ValueError: If the file is empty or binary, has one column only, or cannot be read in ``encoding``.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "x.csv"
        >>> _ = path.write_bytes("größe;label\\n1,5;a\\n".encode("latin-1"))
        >>> find_layout(path)
        Layout(encoding='cp1252', separator=';', quotes=True)
    """
    require_file(path)
    separator = "\t" if separator == "\\t" else separator  # as it is typed in a shell
    if separator is not None and len(separator) != 1:
        raise ValueError(f"--sep (separator) must be one character, got {separator!r}")
    encoding = (_marked(path) or _known(encoding)) if encoding else _encoding(path)
    if not _decodes(path, encoding):
        raise ValueError(f"{path} is not text in {encoding}; omit --encoding, or give the right one")
    sep = separator or _separator(path, encoding)
    return Layout(encoding, sep, _quotes(path, encoding, sep))


def require_file(path: Path) -> None:
    """Raises an error if there is no file to read a table from."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; give a CSV, TSV or Parquet file, or a folder")
    if not path.is_file():
        what = "a folder" if path.is_dir() else "not a regular file"
        raise ValueError(f"{path} is {what}, and a table is one file; give a CSV, TSV or Parquet file")


def records(path: Path, layout: Layout) -> Iterator[tuple[int, list[str]]]:
    """(number of its last line, its cells) of each record, the header first; skips blank lines."""
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if layout.quotes else csv.QUOTE_NONE
    with open(path, encoding=layout.encoding, newline="") as file:
        reader = csv.reader(itertools.chain(file, [END]), delimiter=layout.separator, quoting=quoting)
        last, limit = 0, csv.field_size_limit(LONGEST)
        try:
            for cells in reader:
                if cells and cells != [END] and cells[-1].endswith(END):
                    raise ValueError(f"{path} is damaged: a quote that opens after line {last} is never closed")
                if cells and cells != [END]:
                    yield reader.line_num, cells
                last = reader.line_num
        except csv.Error as error:
            raise ValueError(f"{path} is damaged: line {reader.line_num}: {error}") from None
        finally:
            csv.field_size_limit(limit)


def _known(encoding: str) -> str:
    try:
        return codecs.lookup(encoding).name
    except LookupError:
        raise ValueError(f"unknown encoding {encoding!r}; common ones: utf-8, cp1252, utf-16") from None


def _marked(path: Path) -> str | None:
    """The encoding that a byte order mark tells."""
    with open(path, "rb") as file:
        head = file.read(4)
    return next((name for mark, name in BOMS.items() if head.startswith(mark)), None)


def _encoding(path: Path) -> str:
    with open(path, "rb") as file:
        head = file.read(4096)
    if not head.strip():
        raise ValueError(f"{path} is damaged: it is empty")
    for mark, what in OTHERS.items():
        if head.startswith(mark):
            raise ValueError(f"{path} is {what}, not text; save it as CSV")
    if JSON.match(head):
        raise ValueError(f"{path} is JSON, not a table; save it as CSV or Parquet")
    if marked := _marked(path):
        return marked
    if b"\0" in head:  # UTF-16 without a byte order mark: every other byte is 0 in Latin text
        even, odd = head[::2].count(0), head[1::2].count(0)
        if max(even, odd) > 0.3 * len(head) and min(even, odd) < 0.05 * len(head):
            return "utf-16-be" if even > odd else "utf-16-le"
        raise ValueError(f"{path} is not text: it holds NUL bytes; give a CSV, TSV or Parquet file")
    return next((name for name in ("utf-8", "cp1252") if _decodes(path, name)), "latin-1")


def _decodes(path: Path, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    with open(path, "rb") as file:
        try:
            while block := file.read(BLOCK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeError:
            return False
    return True


def _separator(path: Path, encoding: str) -> str:
    """The separator for which most of the first records have as many cells as the header; in a tie, more cells win."""
    found = []
    for separator in SEPARATORS:
        widths: list[int] = []
        with contextlib.suppress(ValueError):  # damage further down is reported when the whole file is read
            for _, cells in itertools.islice(records(path, Layout(encoding, separator)), LINES):
                widths.append(len(cells))
        if widths and widths[0] > 1:
            usual = Counter(widths[1:] or widths).most_common(1)[0][0]
            found.append((sum(width == widths[0] for width in widths) / len(widths), usual, separator))
    if not found:
        raise ValueError(
            f"{path} has one column: its first line holds no separator , ; tab |; give another with --sep, or delete "
            "the line if it does not name the columns"
        )
    return max(found)[2]


def _quotes(path: Path, encoding: str, separator: str) -> bool:
    """Whether quotes enclose cells. In tab-separated text they are often literal."""
    if separator != "\t":
        return True
    try:
        widths = Counter(len(cells) for _, cells in records(path, Layout(encoding, separator)))
        plain = Counter(len(cells) for _, cells in records(path, Layout(encoding, separator, quotes=False)))
    except ValueError:
        return False
    if len(plain) == 1:  # each line is a record, so quotes must not join two
        return sum(widths.values()) == sum(plain.values())
    return len(widths) <= len(plain)
