"""Edits single cells of CSV and TSV files; every other byte of a kept row stays the same.

The file is decoded, the records are found as Python's ``csv`` finds them (a quote opens a cell only at its beginning,
``""`` is a quote, an empty line is not a record), and only the characters of changed cells are replaced. Files that do
not round-trip through decoding are refused.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

__all__ = ["Delimited"]

BOMS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
QUOTED = re.compile(r'"[^"]*(?:""[^"]*)*"')
LINE_END = re.compile(r"\r\n|\r|\n")
Span = tuple[int, int]


@dataclass(frozen=True)
class Record:
    """A record: where it begins, where its text ends, and where the next line begins."""

    start: int
    stop: int
    end: int


class Delimited:
    r"""A CSV or TSV file as text with replaceable cells.

    Args:
        raw: The bytes of the file.
        encoding: Python's name of it.
        separator: One character.
        quotes: Whether cells may be quoted; in tab-separated text, quotes are often literal.

    Example:
        >>> file = Delimited(b'id;label\r\n1;"a;b"\r\n\r\n2; cat \r\n', "latin-1", ";")
        >>> file.header, file.labels("label")
        (['id', 'label'], {0: 'a;b', 1: 'cat'})
        >>> file.relabelled("label", {0: "dog", 1: "x;y"})
        b'id;label\r\n1;"dog"\r\n\r\n2;"x;y" \r\n'
        >>> file.relabelled("label", {0: None})
        b'id;label\r\n\r\n2; cat \r\n'
    """

    def __init__(self, raw: bytes, encoding: str, separator: str, quotes: bool = True) -> None:
        self.encoding = next((name for bom, name in BOMS.items() if raw.startswith(bom)), encoding)
        try:
            self.text = raw.decode(self.encoding, "surrogateescape")
            same = self.text.encode(self.encoding, "surrogateescape") == raw
        except (UnicodeError, LookupError) as error:
            raise ValueError(f"the file cannot be read as {encoding}: {error}") from None
        if not same:
            raise ValueError(f"the file cannot be edited: in {encoding}, its unchanged bytes would not stay the same")
        self.separator, self.quotes = separator, quotes
        plain = rf"[^{re.escape(separator)}\r\n]*"
        self._cell = re.compile((QUOTED.pattern + plain + "|" if quotes else "") + plain)
        self._blank = " \t".replace(separator, "")
        records = self._records(1 if self.text.startswith("\ufeff") else 0)
        head = next(records, None)
        if head is None:
            raise ValueError("the file holds no header")
        self._head = head
        self.header = self.values(head)

    def records(self) -> Iterator[Record]:
        """The records after the header, in order; blank lines are skipped."""
        return self._records(self._head.end)

    def _records(self, start: int) -> Iterator[Record]:
        text, length = self.text, len(self.text)
        while start < length:
            found = LINE_END.search(text, start)
            stop, end = found.span() if found else (length, length)
            if self.quotes and text.find('"', start, stop) >= 0:
                stop, end = self._quoted_end(start)
            if stop > start:
                yield Record(start, stop, end)
            start = end

    def _quoted_end(self, start: int) -> Span:
        """Where a quoted record ends, possibly in another line."""
        for cell in self._cells(start):
            stop = cell[1]
        found = LINE_END.match(self.text, stop)
        return found.span() if found else (stop, stop)

    def _cells(self, start: int) -> Iterator[Span]:
        while True:
            found = self._cell.match(self.text, start)
            assert found is not None  # it can match the empty string
            yield found.span()
            start = found.end()
            if self.text[start : start + 1] != self.separator:
                return
            start += 1

    def values(self, record: Record) -> list[str]:
        """The texts of a record's cells, without quotes and blanks around them."""
        return [self._text(cell) for cell in self._cells(record.start)]

    def _text(self, cell: Span) -> str:
        text = self.text[slice(*cell)]
        closed = QUOTED.match(text) if self.quotes else None
        if closed is not None:
            text = closed[0][1:-1].replace('""', '"') + text[closed.end() :]
        return text.strip()

    def _core(self, cell: Span) -> Span:
        """A cell without blanks around it."""
        start, stop = cell
        text = self.text[start:stop]
        start += len(text) - len(text.lstrip(self._blank))
        return start, max(start, stop - (len(text) - len(text.rstrip(self._blank))))

    def column(self, name: str) -> int:
        """The position of a column."""
        places = [place for place, head in enumerate(self.header) if head == name.strip()]
        if len(places) != 1:
            raise ValueError(f"{len(places)} columns are named {name!r}; the header is {self.header}")
        return places[0]

    def labels(self, name: str, rows: Container[int] | None = None) -> dict[int, str]:
        """The texts of a column by row, of all rows or of some; empty if a record is too short."""
        place, found = self.column(name), {}
        for row, record in enumerate(self.records()):
            if rows is None or row in rows:
                cell = next(itertools.islice(self._cells(record.start), place, None), (0, 0))
                found[row] = self._text(cell)
        return found

    def _place(self, record: Record, place: int) -> Span:
        cell = next(itertools.islice(self._cells(record.start), place, None), None)
        if cell is None:
            raise ValueError(f"the record at character {record.start:,} is too short to have a label")
        return cell

    def relabelled(self, name: str, labels: Mapping[int, str | None]) -> bytes:
        """The file with new labels in some rows; None drops the row."""
        place = self.column(name)
        pieces, done = list[str](), 0
        for row, record in enumerate(self.records()):
            if row not in labels:
                continue
            label = labels[row]
            if label is None:
                pieces.append(self.text[done : record.start])
                done = record.end
                continue
            cell = self._place(record, place)
            start, stop = self._core(cell)
            quoted = self.quotes and QUOTED.match(self.text, *cell) is not None
            new = self._written(label, quoted)
            pieces += [self.text[done : cell[0] if new != label else start], new]
            done = stop
        return self._encoded([*pieces, self.text[done:]])

    def weighted(self, name: str, weights: Mapping[int, str]) -> bytes:
        """The file with one more column, the last; rows get 1 by default, and damaged ones are unchanged."""
        if name in self.header:
            raise ValueError(f"the file already has a column {name!r}")
        head = self._head
        pieces = [self.text[: head.stop], self.separator, self._written(name, False)]
        done = head.stop
        for row, record in enumerate(self.records()):
            cells = list(self._cells(record.start))
            ended = len(cells) == len(self.header) + 1 and not self._text(cells[-1])  # with a separator
            if len(cells) == len(self.header) or ended:
                mark = "" if ended else self.separator
                pieces += [self.text[done : record.stop], mark, weights.get(row, "1")]
                done = record.stop
        return self._encoded([*pieces, self.text[done:]])

    def _written(self, label: str, quoted: bool) -> str:
        marks = ("\r", "\n", self.separator)
        if not self.quotes and any(mark in label for mark in marks):
            raise ValueError(f"the label {label!r} cannot be written to a file without quotes")
        needed = any(mark in label for mark in ('"', *marks)) or label != label.strip(self._blank)
        return '"' + label.replace('"', '""') + '"' if quoted or (needed and self.quotes) else label

    def _encoded(self, pieces: list[str]) -> bytes:
        try:
            return "".join(pieces).encode(self.encoding, "surrogateescape")
        except UnicodeEncodeError as error:
            letters = error.object[error.start : error.end]
            raise ValueError(f"a label contains {letters!r}, which {self.encoding} cannot encode") from None
