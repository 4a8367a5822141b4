"""From a proposal, or from a person's decisions, to the corrected data: the user's file with new labels."""

from __future__ import annotations

import csv
import io
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..audit.exports import spreadsheet_safe
from ..record.files import overwrite
from .check import FixCheck, check_fix
from .columns import cell_texts
from .decisions import Decisions
from .delimited import Delimited
from .folders import class_files, files_in, has_parts, require_writable
from .pictures import SUFFIXES as PICTURES
from .proposal import Proposal, Source, digest
from .reading import read
from .tables import parquet_frame
from .text import SUFFIXES as TEXTS
from .userdata import Watch

__all__ = ["MODES", "WEIGHT", "Change", "Fix", "label_change", "planned"]

MODES = ("relabel", "drop", "weight")
WEIGHT = "label_weight"  # the column that mode "weight" adds
LOG = ("row", "id", "given", "change", "label", "weight", "by")


@dataclass(frozen=True)
class Change:
    """A change of one row.

    Attributes:
        row: The row.
        id: The user's name for it.
        given: Its label in the data.
        change: ``"relabel"``, ``"drop"`` or ``"weight"``.
        by: ``"review"`` for a person's decision, ``"proposal"`` without one.
        label: The new label, for relabel.
        weight: The new weight, for weight.
    """

    row: int
    id: str | None
    given: str
    change: str
    by: str
    label: str | None = None
    weight: float | None = None


def planned(
    proposal: Proposal | None,
    decisions: Decisions | None = None,
    mode: str = "relabel",
    min_probability: float | None = None,
) -> list[Change]:
    """The changes of a fix.

    Args:
        proposal: Without decisions, its sure rows are changed.
        decisions: If given, only these are applied; undecided rows stay unchanged.
        mode: ``"relabel"`` writes the new labels; ``"drop"`` removes every row that would get one; ``"weight"`` keeps
            all rows and labels, and weights each by the probability that its label is right: 1 where a person kept it,
            0 where a person changed or dropped it, and the proposal's ``quality`` for others called wrong.
        min_probability: Instead of the sure rows, change those whose suggested label has at least this probability,
            called wrong or not; but only those called wrong if the share of wrong labels may be 0.

    Example:
        >>> from torchcurriculum.clean import Suspect
        >>> source = Source("pets.csv", "table", "00", label="kind", encoding="utf-8", separator=",")
        >>> rows = [Suspect(7, "cat", "dog", 0.02, sure=True), Suspect(3, "dog", "cat", 0.3, None, 0.6)]
        >>> proposal = Proposal(source, ["cat", "dog"], 100, rows)
        >>> [(change.row, change.label) for change in planned(proposal)]
        [(7, 'dog')]
        >>> [(change.row, change.weight) for change in planned(proposal, mode="weight")]
        [(3, 0.3), (7, 0.02)]
    """
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}; known: {', '.join(MODES)}")
    if decisions is not None and min_probability is not None:
        raise ValueError("--min-probability selects suggestions of a proposal and cannot be used with decisions")
    if min_probability is not None and mode == "weight":
        raise ValueError("--min-probability selects rows to change, but the mode 'weight' weights all rows")
    if min_probability is not None and not 0 <= min_probability <= 1:
        raise ValueError(f"--min-probability must lie between 0 and 1, got {min_probability}")
    if proposal is None and (decisions is None or mode == "weight"):
        raise ValueError("the mode 'weight' needs the proposal, which has the probability of each label")
    decided = {} if decisions is None else {one.row: one for one in decisions.rows}
    changes = list[Change]()
    for one in decided.values():
        new = one.label if one.decision in ("accept", "other") else None
        if mode == "weight":
            kept = one.decision == "keep" or new == one.given
            changes.append(Change(one.row, one.id, one.given, "weight", "review", weight=1.0 if kept else 0.0))
        elif one.decision == "drop" or (new not in (None, one.given) and mode == "drop"):
            changes.append(Change(one.row, one.id, one.given, "drop", "review"))
        elif new not in (None, one.given):
            changes.append(Change(one.row, one.id, one.given, "relabel", "review", label=new))
    all_may_be_right = proposal is not None and proposal.share.low == 0
    for row in () if proposal is None else proposal.rows:
        if mode == "weight":
            if row.row not in decided and row.called:
                weight = round(float(row.quality), 6)
                changes.append(Change(row.row, row.id, row.given, "weight", "proposal", weight=weight))
            continue
        chosen = row.sure if min_probability is None else (row.suggestion_probability or 0) >= min_probability
        chosen = chosen and (row.called or not all_may_be_right)
        if decisions is None and chosen and row.suggested not in (None, row.given):
            label = row.suggested if mode == "relabel" else None
            changes.append(Change(row.row, row.id, row.given, mode, "proposal", label=label))
    return sorted(changes, key=lambda change: change.row)


def label_change(given: str, new: str | None) -> str:
    """A change of label for a terminal; labels may have line ends in them.

    Example:
        >>> label_change("very\\nbad", "good")
        'very bad -> good'
    """
    return " -> ".join(" ".join(str(label).split()) for label in (given, new))


@dataclass(frozen=True)
class Fix:
    """Changes to a user's data, ready to write.

    Args:
        source: The data, from the proposal.
        changes: From ``planned``.
        mode: The mode of ``planned``.
        data: Where the data is now, if it was moved.
    """

    source: Source
    changes: Sequence[Change]
    mode: str = "relabel"
    data: Path | None = None

    @property
    def path(self) -> Path:
        """The user's file or folder."""
        return Path(self.source.path) if self.data is None else self.data

    def summary(self) -> str:
        """A summary of the changes."""
        if not self.changes:
            return f"Nothing is changed in {self.path}."
        counts = Counter(change.change for change in self.changes)
        words = {"relabel": "rows with another label", "drop": "rows left out", "weight": "rows with a weight"}
        lines = [f"{self.path}, {words[name]}: {counts[name]:,}" for name in words if counts[name]]
        pairs = Counter((change.given, change.label) for change in self.changes if change.change == "relabel")
        lines += [f"{count:>8,}  {label_change(given, label)}" for (given, label), count in pairs.most_common(10)]
        if len(pairs) > 10:
            lines.append(f"{sum(pairs.values()) - sum(dict(pairs.most_common(10)).values()):>8,}  other pairs")
        return "\n".join(lines)

    def check(self) -> None:
        """Raises a ValueError if the data is not that of the proposal."""
        if not self.path.exists():
            raise FileNotFoundError(f"{self.path} is missing; give its new place with --data")
        if digest(self.path) != self.source.digest:
            raise ValueError(f"{self.path} has changed since it was examined. Run `curriculum clean` again")

    def checked(self, watch: Watch = lambda what, done, total: None) -> FixCheck:
        """Trains on the given labels and on the corrected ones, on the same split, and compares them."""
        if self.mode == "weight":
            raise ValueError("--check compares labels, but the mode 'weight' changes none")
        if not self.changes:
            raise ValueError("--check has nothing to compare: no label is changed")
        self.check()
        one = self.source
        options = {"label": one.label, "id": one.id, "sep": one.separator, "encoding": one.encoding}
        data = read(self.path, watch, **options, drop=list(one.drop), features=one.features)
        return check_fix(data, {change.row: change.label for change in self.changes}, watch=watch)

    def write(self, out: str | Path | None = None, *, in_place: bool = False, link: bool = False) -> list[Path]:
        """Writes the corrected data and a log of the changes.

        Args:
            out: A new file of the same form for a table; for a folder a CSV file of all labels, or a new folder.
            in_place: Overwrite the user's file instead; for tables only.
            link: In a new folder, symbolic links to the user's files instead of copies.

        Returns:
            The corrected data and the log.
        """
        out = self.target(out, in_place, link)
        self.check()
        out.parent.mkdir(parents=True, exist_ok=True)
        if self.source.kind != "table":
            self._write_folder(out, link)
        elif self.source.separator is None:
            self._write_parquet(out)
        else:
            self._write_text(out)
        log = _new_log(out)
        with overwrite(log, newline="") as file:
            file.write(_table(LOG, [[getattr(change, name) for name in LOG] for change in self.changes]))
        return [out, log]

    def target(self, out: str | Path | None, in_place: bool = False, link: bool = False) -> Path:
        """Where ``write`` will write; raises a ValueError if it would refuse."""
        if (out is None) != in_place:
            raise ValueError("give either --out FIXED or --in-place for the corrected data")
        folder = self.source.kind != "table"
        if in_place and folder:
            raise ValueError("--in-place is for tables; for a folder of pictures or texts use --out")
        if link and (not folder or Path(str(out)).suffix.lower() == ".csv"):
            raise ValueError("--link needs a folder of pictures or texts, and a folder as --out")
        if out is None:
            return self.path
        out = Path(out)
        if out.exists() and self.path.exists() and out.samefile(self.path):
            raise ValueError(
                f"{out} is the data itself; choose another name, or overwrite it with `curriculum fix --in-place`"
            )
        if out.exists() and not (out.is_dir() and folder and not any(out.iterdir())):
            raise ValueError(f"{out} exists; choose another name, or delete it")
        if folder and self.path.resolve() in [out.resolve(), *out.resolve().parents]:
            raise ValueError(f"{out} is inside the data; choose a place outside {self.path}")
        form = self.path.suffix.lower()
        if not folder and out.suffix.lower() != form:
            raise ValueError(f"{out} must have the same format as the data; its name must end in {form}")
        require_writable(out.parent, "--out")
        return out

    # ------------------------------------------------------------------ tables

    def _write_text(self, out: Path) -> None:
        raw = self.path.read_bytes()
        source = self.source
        file = Delimited(raw, source.encoding or "utf-8", source.separator or ",", source.quotes)
        rows = {change.row for change in self.changes}
        self._compare(file.labels(source.label or "", rows))
        if source.id is not None and file.header.count(source.id) == 1:
            self._compare(file.labels(source.id, rows), "id")
        if self.mode == "weight":
            new = file.weighted(WEIGHT, {change.row: f"{change.weight:g}" for change in self.changes})
        else:
            new = file.relabelled(source.label or "", {change.row: change.label for change in self.changes})
        with overwrite(out, "wb", durable=True) as target:
            target.write(new)

    def _compare(self, held: Mapping[int, str], part: str = "given") -> None:
        """Checks that each row is the one in the proposal."""
        for change in self.changes:
            expected = getattr(change, part)
            if change.row not in held:
                raise ValueError(f"{self.path} has no row {change.row:,}, which a decision names; nothing was written")
            if expected is not None and held[change.row] != expected.strip():
                name = {"given": "label", "id": "id"}[part]
                found = f"row {change.row} of {self.path} has the {name} {held[change.row]!r}"
                raise ValueError(f"{found}, but a decision has {expected!r}; nothing was written")

    def _write_parquet(self, out: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        file = pq.ParquetFile(self.path)
        table = file.read()
        place = table.schema.get_field_index(self.source.label)
        if place < 0:
            raise ValueError(f"{self.path} has no column {self.source.label!r}, or several")
        column = table.column(place)
        held = column.to_pylist()
        kinds = {text: value for value in held if value is not None for text in _spellings(value)}
        texts = [text.strip() for text in cell_texts(parquet_frame(self.path)[self.source.label])]
        kinds |= {text: value for text, value in zip(texts, held, strict=True) if value is not None}
        for change in self.changes:
            if change.row < len(held) and change.given.strip() in _spellings(held[change.row]):
                texts[change.row] = change.given.strip()
        self._compare(dict(enumerate(texts)))
        if self.mode == "weight":
            if WEIGHT in table.column_names:
                raise ValueError(f"{self.path} already has a column {WEIGHT!r}")
            weights = [1.0] * len(held)
            for change in self.changes:
                weights[change.row] = float(change.weight or 0)
            table = table.append_column(WEIGHT, pa.array(weights))
        else:
            gone = set[int]()
            field = table.schema.field(place)
            plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            try:
                for change in self.changes:
                    if change.label is None:
                        gone.add(change.row)
                    elif change.label in kinds:
                        held[change.row] = kinds[change.label]
                    else:  # a label that no row has
                        held[change.row] = pa.scalar(change.label).cast(plain).as_py()
                values = pa.array(held, plain).cast(field.type)
            except pa.ArrowException as error:
                raise ValueError(
                    f"a new label does not fit the column {field.name!r} ({field.type}): {error}"
                ) from None
            table = table.set_column(place, field, pa.chunked_array([values]))
            if gone:
                table = table.filter(pa.array([row not in gone for row in range(len(held))]))
        form = _parquet_form(file)
        with overwrite(out, "wb", durable=True) as target:
            pq.write_table(table, target, **form)

    # ------------------------------------------------------------------ folders

    def _write_folder(self, out: Path, link: bool) -> None:
        changes = {change.id: change for change in self.changes}
        known = dict(class_files(self.path, PICTURES if self.source.kind == "pictures" else TEXTS))
        for change in self.changes:
            if known.get(change.id or "") != change.given:
                raise ValueError(f"{self.path} has no file {change.id!r} with the label {change.given!r}")
            if change.label is not None and not _plain_name(change.label):
                raise ValueError(f"the label {change.label!r} cannot be the name of a folder")
        if out.suffix.lower() == ".csv":
            self._write_labels(out, known, changes)
            return
        if self.mode == "weight":
            raise ValueError("weights of pictures and texts are written to a CSV file; use a --out that ends in .csv")
        _copy(self.path, sorted(files_in(self.path)), changes, out, link, depth=int(has_parts(self.path)))

    def _write_labels(self, out: Path, known: Mapping[str, str], changes: Mapping[str | None, Change]) -> None:
        head = ["file", "given_label", "label", *([WEIGHT] if self.mode == "weight" else [])]
        lines = []
        for name, given in known.items():
            change = changes.get(name)
            if change is not None and change.change == "drop":
                continue
            line: list[Any] = [name, given, given if change is None or change.label is None else change.label]
            lines.append(line + ([1.0 if change is None else change.weight] if self.mode == "weight" else []))
        with overwrite(out, newline="", errors="surrogateescape") as file:
            file.write(_table(head, lines))


def _new_log(out: Path) -> Path:
    """The log beside the corrected data, with a number if a file has that name."""
    stem = f"{out.stem if out.suffix else out.name}.changes"
    log, number = out.with_name(f"{stem}.csv"), 1
    while log.exists():
        number += 1
        log = out.with_name(f"{stem}-{number}.csv")
    return log


def _copy(
    folder: Path, names: list[str], changes: Mapping[str | None, Change], out: Path, link: bool, depth: int
) -> None:
    """A folder of copies or links. It is renamed to its final name when it is complete."""
    part = out.with_name(f".{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    taken = {name for name in names if name not in changes}
    try:
        for name in names:
            change = changes.get(name)
            if change is not None and change.change == "drop":
                continue
            new = name if change is None or change.label is None else _moved(name, change.label, taken, depth)
            taken.add(new)
            target = part / new
            target.parent.mkdir(parents=True, exist_ok=True)
            if link:
                target.symlink_to((folder / name).resolve())
            else:
                shutil.copy2(folder / name, target)
        part.mkdir(parents=True, exist_ok=True)
        if out.is_dir():
            out.rmdir()
        os.replace(part, out)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _moved(name: str, label: str, taken: set[str], depth: int) -> str:
    """The path of a file under another class; the old class is added to a name that exists there."""
    path = PurePosixPath(name)
    above, given, below = path.parts[:depth], path.parts[depth], path.parts[depth + 1 : -1]
    new, number = PurePosixPath(*above, label, *below, path.name), 1
    while str(new) in taken:
        new = new.with_name(f"{path.stem}-from-{given}{'' if number == 1 else f'-{number}'}{path.suffix}")
        number += 1
    return str(new)


def _plain_name(label: str) -> bool:
    return bool(label.strip()) and label not in (".", "..") and not set(label) & set('/\\\0:*?"<>|\r\n')


def _spellings(value: Any) -> set[str]:
    """A label as text. pandas stores whole numbers as floats if some are missing, so 1 may be 1.0."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return {str(value).strip(), *([str(float(value))] if whole else [])}


def _parquet_form(file: Any) -> dict[str, Any]:
    """The writer settings of a Parquet file, as far as the file shows them."""
    meta = file.metadata
    if not meta.num_row_groups or not meta.num_columns:
        return {}
    groups = [meta.row_group(number) for number in range(meta.num_row_groups)]
    columns = [groups[0].column(number) for number in range(meta.num_columns)]
    codecs = {column.path_in_schema: _codec(column.compression) for column in columns}
    return {"compression": codecs, "row_group_size": max(1, max(group.num_rows for group in groups))}


def _codec(name: str) -> str:
    return {"UNCOMPRESSED": "NONE"}.get(name, name)


def _table(head: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    held = io.StringIO()
    writer = csv.writer(held, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([spreadsheet_safe(value) for value in line] for line in lines)
    return held.getvalue()
