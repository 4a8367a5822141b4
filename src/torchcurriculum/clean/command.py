"""``curriculum clean``: from a user's own data to a proposal, a review page and optionally corrected data."""

from __future__ import annotations

import base64
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..audit import Audit, audit
from .decisions import Decisions
from .fix import Fix, label_change, planned
from .folders import require_writable
from .folds import VOTERS, Folds, train_folds
from .inputs import DECISIONS, PROPOSAL, decisions_in
from .page import write_page
from .progress import Progress
from .proposal import Proposal, Share, Source, Suspect, digest
from .reading import read
from .userdata import UserData, named_counts
from .views import sure_labels, train_views

__all__ = ["PAGE", "clean", "propose"]

PAGE = "review.html"
LEARNT, SMALL = 0.25, 30  # least recall of a class, for classes with fewer rows than SMALL
SHOWN = 3000  # suspects with a preview
CHECKED = 10_000  # labels to check that are listed
TOP = 10  # suspects that are printed
TELLING = 2  # columns named in the reason


def clean(
    data: str | Path,
    out: str | Path | None = None,
    review: str | Path | None = None,
    folds: int = 5,
    epochs: int | None = None,
    seed: int = 0,
    echo: Callable[[str], None] = print,
    **options: Any,
) -> Proposal:
    """Reads data, trains, audits every row, and writes a proposal and its review page.

    Args:
        data: A CSV, TSV or Parquet file, or a folder of pictures or texts with one folder for each class.
        out: Where to write corrected data, in which only sure labels are changed; None writes none.
        review: The folder for the proposal and the page; by default the name of the data with ``-review``.
        folds: Number of folds; each is judged by networks trained on the others.
        epochs: Epochs of each network.
        seed: Random seed.
        echo: Called with each line of output.
        options: Of the reader, see ``read``.

    Returns:
        The proposal.
    """
    data = Path(data)
    name = data.stem if data.is_file() else data.resolve().name
    place = Path(f"{name}-review" if review is None else review)
    _refuse_early(data, out, place, folds, epochs)
    before = digest(data) if data.is_file() or data.is_dir() else ""  # the reader says what else it is
    decided = decisions_in(place, before)
    with Progress(echo) as progress:
        source = read(data, progress, **options)
        echo(source.message() + "\n")
        x, y, classes = source.features, source.labels, len(source.classes)
        found_by = train_folds(x, y, classes, folds, epochs, kinds=VOTERS[source.kind], seed=seed, watch=progress)
        read_notes = len(source.notes)
        source, found_by = without_unlearnt(source, found_by)
        for note in source.notes[read_notes:]:
            echo(note)
        views = train_views(source, folds, seed, progress)
        found = audit(source.labels, found_by.probabilities, views=views, classes=source.classes, names=source.ids)
        sure = sure_labels(found, views)
    proposal = propose(source, found, found_by, sure, options.get("drop") or (), options.get("features"))
    if proposal.source.digest != before:
        raise ValueError(f"{data} has changed while it was examined; nothing was written. Run `curriculum clean` again")
    path = proposal.write(place / PROPOSAL)
    page = write_page(proposal, place / PAGE)
    for line in _lines(found, proposal):
        echo(line)
    echo(f"\nwrote {path} and {page}")
    if out is not None:
        fix = Fix(proposal.source, planned(proposal))
        echo(fix.summary())
        for written in fix.write(out):
            echo(f"wrote {written}")
    else:
        for line in _what_next(proposal, decided, place, page):
            echo(line)
    return proposal


def _refuse_early(data: Path, out: str | Path | None, place: Path, folds: int, epochs: int | None) -> None:
    """Refuses before the work what would be refused after it."""
    if epochs is not None and epochs < 1:
        raise ValueError(f"--epochs must be at least 1, got {epochs}")
    if folds < 2:
        raise ValueError(f"--folds must be at least 2, got {folds}")
    if out is not None:
        Fix(Source(str(data), "pictures" if data.is_dir() else "table", "", label=""), []).target(out)
    if data.is_dir() and data.resolve() in place.resolve().parents:
        raise ValueError(f"{place} is inside the data; choose a folder outside {data} with --review")
    require_writable(place, "--review")


def _what_next(proposal: Proposal, decided: Decisions | None, place: Path, page: Path) -> list[str]:
    """How to go on from a proposal: by decisions about an earlier one, or by its own."""
    if decided and decided.proposal != proposal.key:
        file = place / DECISIONS
        return [
            f"{file} is about an earlier proposal; move it to review this one",
            f"to write data corrected by it: curriculum fix {shlex.quote(str(file))} --out FIXED",
        ]
    if not proposal.rows:
        return []
    then = "to" if any(one.sure for one in proposal.rows) else "after that, to"
    return [
        f"to decide: open {page}, or curriculum review {shlex.quote(str(place))}",
        f"{then} write corrected data: curriculum fix {shlex.quote(str(place))} --out FIXED",
    ]


def propose(
    source: UserData,
    found: Audit,
    by: Folds,
    sure: np.ndarray,
    drop: Sequence[str] = (),
    features: str | None = None,
) -> Proposal:
    """A proposal from an audit: the labels called wrong, then those to check, since another class fits better.

    Args:
        source: The data.
        found: The audit.
        by: The cross-validated predictions.
        sure: (N,) bool, see ``sure_labels``.
        drop: Columns that were left out by the user.
        features: The user's choice.
    """
    assert found.suggested is not None
    assert found.suggestion_probability is not None
    best = by.probabilities.argmax(1)
    doubtful = (found.quality < 0.5) | ((best != source.labels) & np.isfinite(found.quality))
    called = [int(row) for row in found.order if found.issue[row]]
    check = [int(row) for row in found.order if doubtful[row] and not found.issue[row]]
    evidence, notes = _Evidence(source), [*source.notes]
    if called and not sure.any():
        notes.append("No label is sure enough to be changed without review: two halves of the columns must agree.")
    if len(check) > CHECKED:
        notes.append(f"Of {len(check):,} labels to check, the {CHECKED:,} most suspicious are listed.")
    suspects = []
    for place, row in enumerate([*called, *check[:CHECKED]]):
        given, suggested = int(source.labels[row]), int(found.suggested[row])
        likely = round(float(found.suggestion_probability[row]), 4) if suggested != given else None
        suggested = suggested if suggested != given else int(best[row])
        why, first = evidence(row, given, suggested)
        if not why or not found.issue[row]:
            why = f"{why} {_opinion(source, by.probabilities[row], given, suggested)}".strip()
        suspects.append(
            Suspect(
                row=int(source.rows[row]),
                id=source.ids[row],
                given=source.classes[given],
                suggested=source.classes[suggested],
                quality=round(float(found.quality[row]), 4),
                suggestion_probability=likely,
                called=bool(found.issue[row]),
                sure=bool(sure[row]),
                why=why,
                show=_shown(source, row, first) if place < SHOWN else {},
            )
        )
    layout = source.layout
    origin = Source(
        str(source.path.absolute()), source.kind, digest(source.path), layout.get("label"), layout.get("encoding"),
        layout.get("separator"), layout.get("id"), quotes=bool(layout.get("quotes", "yes")),
        drop=list(drop), features=features and str(features),
    )  # fmt: skip
    share = Share() if found.health else Share(found.share, found.share_low, found.share_high)
    if source.skipped:
        notes.append(f"Rows and files that were not examined: {len(source.skipped):,}.")
    return Proposal(origin, source.classes, len(source), suspects, share, found.health, by.words, notes)


def without_unlearnt(source: UserData, by: Folds) -> tuple[UserData, Folds]:
    """Leaves out small classes that the classifiers hardly ever predict, since their rows cannot be judged."""
    counts = np.bincount(source.labels, minlength=len(source.classes))
    right = np.bincount(source.labels[by.probabilities.argmax(1) == source.labels], minlength=len(counts))
    keep = (right >= LEARNT * counts) | (counts >= max(SMALL, len(source) // 50))
    if keep.all() or keep.sum() < 2:
        return source, by
    rows = np.flatnonzero(keep[source.labels])
    gone = [(source.ids[row], "its class is too small to learn") for row in np.flatnonzero(~keep[source.labels])]
    shares = by.probabilities[rows][:, keep]
    left = named_counts(source.labels[~keep[source.labels]], source.classes)
    small = replace(
        source,
        labels=(np.cumsum(keep) - 1)[source.labels[rows]],
        classes=[name for name, kept in zip(source.classes, keep, strict=True) if kept],
        ids=[source.ids[row] for row in rows],
        features=source.features[rows],
        rows=source.rows[rows],
        skipped=[*source.skipped, *gone],
        notes=[*source.notes, f"Not examined, since these classes are too small to learn: {left}."],
        shown=lambda row: source.show(int(rows[row])),
    )
    return small, replace(by, probabilities=shares / shares.sum(1, keepdims=True))


def _opinion(source: UserData, shares: np.ndarray, given: int, suggested: int) -> str:
    names = source.classes
    return (
        f"Classifiers that did not see this label predict {names[suggested]!r} with {shares[suggested]:.0%} and "
        f"{names[given]!r} with {shares[given]:.0%}."
    )


def _shown(source: UserData, row: int, first: Sequence[str]) -> dict[str, Any]:
    shown = dict(source.show(row))
    if "picture" in shown:
        shown["picture"] = "data:image/jpeg;base64," + base64.b64encode(shown["picture"]).decode()
    if "values" in shown:
        values = shown["values"]
        shown["values"] = {name: values[name] for name in [*(name for name in first if name in values), *values]}
    return shown


class _Evidence:
    """Finds the columns that distinguish two classes in a row, by the distance to the class means."""

    def __init__(self, source: UserData) -> None:
        self.source = source
        if source.kind == "table":
            x, count = source.features, np.bincount(source.labels, minlength=len(source.classes))[:, None]
            sums = np.zeros((len(source.classes), x.shape[1]))
            np.add.at(sums, source.labels, x)
            self.means, self.spread = sums / count, x.var(0).astype(np.float64) + 1e-6

    def __call__(self, row: int, given: int, suggested: int) -> tuple[str, list[str]]:
        """A sentence, or "", and the columns, the strongest first."""
        source = self.source
        if source.kind != "table":
            return "", []
        x, (mine, other) = source.features[row], self.means[[given, suggested]]
        gain = ((x - mine) ** 2 - (x - other) ** 2) / self.spread
        by_column = np.bincount(source.groups, gain, minlength=len(source.columns))
        order = [int(place) for place in np.argsort(-by_column) if by_column[place] > 0]
        names = [source.columns[place].name for place in order]
        values = source.show(row).get("values", {})
        parts = [f"{name} {values[name]!r}" for name in names if values.get(name)][:TELLING]
        words = f"{' and '.join(parts)} {'is' if len(parts) == 1 else 'are'} more like {source.classes[suggested]!r}."
        return (words if parts else ""), names


def _lines(found: Audit, proposal: Proposal) -> list[str]:
    """A summary for the terminal."""
    lines, called = [found.summary()], proposal.called
    if called:
        lines.append(f"{sum(one.sure for one in called):,} of these are sure enough to be changed without review.")
    if len(called) < len(proposal.rows):
        lines.append(proposal.to_check())
    if not proposal.rows:
        return lines
    pairs = Counter((one.given, one.suggested) for one in called or proposal.rows)
    lines += [f"{count:>8,}  {label_change(given, new)}" for (given, new), count in pairs.most_common(TOP)]
    lines.append("The most suspicious:")
    for one in proposal.rows[:TOP]:
        right = f"right with {one.quality:.1%}  " if one.called else ""
        lines.append(f"  {(one.id or '')[:40]:<24} {right}{label_change(one.given, one.suggested)}  {one.why}")
    return lines
