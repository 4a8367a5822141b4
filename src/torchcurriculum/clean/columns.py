"""The kind of a table's column (number, date, category, text, id), and its features."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Taken", "decimal_mark", "take"]

MISSING = ("", "na", "n/a", "n.a.", "nan", "null", "none", "nil", "-", "--", "?", ".", "#n/a", "#na", "missing", "<na>")
YES, NO = ("yes", "y", "true", "t", "on", "ja", "oui", "si", "sí"), ("no", "n", "false", "f", "off", "nein", "non")
ID = re.compile(
    r"(^|[\W_])(id|ids|uuid|guid|index|idx|key|nr|no|row|rowid|rownum|number)$|[a-z]I[dD]$|^#$", re.IGNORECASE
)
CODE = re.compile(r"0\d+")  # a number does not begin with 0
SPACES = " \u00a0\u202f'’$€£¥%"  # in and around numbers
CURRENCY, SPACING = str.maketrans("", "", SPACES), f"[{SPACES}]"
FORM = r"[+-]?(?:(?:\d{{1,3}}(?:{0}\d{{3}})+|\d+)(?:{1}\d*)?|{1}\d+)(?:[eE][+-]?\d+)?"
FORMS = {".": re.compile(FORM.format(",", r"\.")), ",": re.compile(FORM.format(r"\.", ","))}
DATES: tuple[str, ...] = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%Y/%m/%d", "%d.%m.%y", "%m/%d/%y")
DATES += ("%d/%m/%y",)
DATES += ("%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%d-%b-%y")
TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p")
DATE = re.compile(r"\d{1,4}[-/. ]\w{1,9}[-/. ,]+\d{1,4}.*|[A-Za-z]{3,9} \d{1,2}, \d{4}.*")
FIT = 0.95  # share of non-missing cells that must be of a kind
SAMPLE = 1000  # cells from which the kind is guessed
WORDS = 3.0  # per cell on average, from which on a column is text
CATEGORIES = 40  # one feature each; rarer ones share one
FEW = 20  # distinct values of a number that is not continuous


@dataclass
class Taken:
    """A column and how it is used.

    Attributes:
        kind: ``"number"``, ``"yes/no"``, ``"date"``, ``"category"``, ``"text"``, ``"id"`` or ``"left out"``.
        why: The reason, for the user.
        make: ``make() -> (N, d) float32`` features; None for ids, text and columns left out.
        texts: ``texts() -> N texts``, for text.
    """

    kind: str
    why: str
    make: Callable[[], np.ndarray] | None = None
    texts: Callable[[], list[str]] | None = field(default=None)


def decimal_mark(samples: list[list[str]], separator: str | None) -> str:
    """``"."`` or ``","``: the decimal mark that makes more cells of a file numbers; each column has one vote.

    Example:
        >>> decimal_mark([["1,5", "2,25"], ["1.061", "2.400"]], ","), decimal_mark([["1,061"]], ",")
        (',', '.')
    """
    votes = {".": 0, ",": 0}
    for cells in samples:
        known = [cell.translate(CURRENCY) for cell in cells if cell.strip().lower() not in MISSING]
        fits = {mark: sum(bool(form.fullmatch(cell)) for cell in known) for mark, form in FORMS.items()}
        best = max(fits, key=fits.__getitem__)
        if fits["."] != fits[","] and fits[best] >= FIT * len(known):
            votes[best] += 1
    if votes["."] == votes[","]:
        return "," if separator == ";" and votes[","] else "."
    return max(votes, key=votes.__getitem__)


def take(name: str, cells: Any, mark: str, ordered: np.ndarray | None = None) -> Taken:
    """Decides how to use a column.

    Args:
        name: Its name.
        cells: A pandas Series: the raw text of the file, or typed values of a Parquet file.
        mark: The file's decimal mark, for numbers that can be read in two ways.
        ordered: (N,) the labels, if the file is sorted by them, so that a row counter would leak them.

    Returns:
        How it is used.
    """
    import pandas as pd

    if not pd.api.types.is_string_dtype(cells.dtype) or cells.dtype == object:
        return _take_typed(name, cells, ordered)
    plain = cells.str.strip()
    missing = (plain.isna() | plain.str.lower().isin(MISSING)).to_numpy(bool)
    known = plain[~missing]
    if not len(known):
        return Taken("left out", "every cell is empty")
    some = known.iloc[:: max(1, len(known) // SAMPLE)].tolist()
    if all(cell == some[0] for cell in some) and known.nunique() == 1:
        gaps = bool(missing.any())
        return _category(plain, missing) if gaps else Taken("left out", f"every cell is {some[0][:30]!r}")
    lower = {cell.lower() for cell in some}
    if lower <= {*YES, *NO} and lower & {*YES} and lower & {*NO}:
        values = np.where(plain.str.lower().isin(YES).to_numpy(bool), 1.0, 0.0)
        return _number(name, np.where(missing, np.nan, values), "yes/no", "", ordered)
    if not any(CODE.fullmatch(cell) for cell in some) and (
        found := _as_number(name, plain, missing, some, mark, ordered)
    ):
        return found
    if found := _as_date(plain, missing, some):
        return found
    return _as_words(name, plain, missing, known, some)


def _take_typed(name: str, cells: Any, ordered: np.ndarray | None) -> Taken:
    import pandas as pd

    kind = pd.api.types
    missing = cells.isna().to_numpy(bool)
    if missing.all():
        return Taken("left out", "every cell is empty")
    if kind.is_bool_dtype(cells.dtype):
        return _number(name, cells.astype("float64").to_numpy(np.float64, na_value=np.nan), "yes/no", "", ordered)
    if kind.is_numeric_dtype(cells.dtype):
        return _number(name, cells.to_numpy(np.float64, na_value=np.nan), "number", "", ordered)
    if kind.is_datetime64_any_dtype(cells.dtype):
        return _date(pd.to_datetime(cells, utc=True), "")
    return take(name, cells.astype("str").where(~missing, ""), ".", ordered)


def _as_number(
    name: str, plain: Any, missing: np.ndarray, some: list[str], mark: str, ordered: np.ndarray | None
) -> Taken | None:
    """Numbers with thousands separators, currencies and either decimal mark; a few other cells count as missing."""
    import pandas as pd

    clean = [cell.translate(CURRENCY) for cell in some]
    fits = {key: sum(bool(form.fullmatch(cell)) for cell in clean) for key, form in FORMS.items()}
    mark = mark if fits["."] == fits[","] else max(fits, key=fits.__getitem__)
    if fits[mark] < FIT * len(some):
        return None
    values = np.full(len(plain), np.nan)
    if mark == ".":  # enough for most numbers
        values = pd.to_numeric(plain.where(~missing), errors="coerce").to_numpy(np.float64, na_value=np.nan).copy()
    rest = np.isnan(values) & ~missing
    why = ""
    if rest.any():
        cut = plain[rest].str.replace(SPACING, "", regex=True)
        cut = cut.where(cut.str.fullmatch(FORMS[mark].pattern), "")
        cut = cut.str.replace("," if mark == "." else ".", "", regex=False).str.replace(",", ".", regex=False)
        values[rest] = pd.to_numeric(cut, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        plainly = r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?" if mark == "." else r"[+-]?\d+"
        shape = next((cell for cell in some if not re.fullmatch(plainly, cell)), None)
        why = f"such as {shape}, with a decimal {'point' if mark == '.' else 'comma'}" if shape else ""
    values[~np.isfinite(values)] = np.nan
    bad = np.isnan(values) & ~missing
    if bad.sum() > (1 - FIT) * (~missing).sum():
        return None
    if bad.any():
        first = str(plain[bad].iloc[0])[:20]
        why = f"{why}; " * bool(why) + f"{int(bad.sum()):,} cells such as {first!r} are not numbers and count as empty"
    return _number(name, values, "number", why, ordered)


def _number(name: str, values: np.ndarray, kind: str, why: str, ordered: np.ndarray | None) -> Taken:
    known = values[~np.isnan(values)]
    distinct = len(np.unique(known))
    if distinct < 2 and len(known) == len(values):
        return Taken("left out", f"every cell is {known[0]:g}")
    whole = distinct == len(values) >= 10 and bool((known == np.round(known)).all())
    steps = np.diff(values)
    if whole and (np.ptp(known) == len(known) - 1 or (steps == steps[0]).all()):
        return Taken("id", "it only counts the rows")
    if whole and ID.search(name.strip()):
        return Taken("id", "whole numbers, each once")
    if ordered is not None and distinct == len(values) and ((steps > 0).all() or (steps < 0).all()):
        return Taken("left out", "the file is sorted by it and by the label, so it would leak the label")
    gaps = len(values) - len(known)
    why = "; ".join(part for part in (why, f"{gaps:,} empty" if gaps else "") if part)
    return Taken(kind, why, lambda: scaled(values))


def scaled(values: np.ndarray) -> np.ndarray:
    """(N, 1 or 2) float32: the number on a normal scale, 0 where it is missing, and whether it is.

    Args:
        values: (N,) float64, NaN where missing.

    Example:
        >>> scaled(np.array([1.0, 3.0, np.nan])).tolist()
        [[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """
    from sklearn.preprocessing import QuantileTransformer, StandardScaler

    gap = np.isnan(values)
    known = values[~gap]
    out = np.zeros((len(values), 1 + int(gap.any())), np.float32)
    if len(np.unique(known)) > FEW:
        count = min(1000, len(known))
        scale = QuantileTransformer(n_quantiles=count, output_distribution="normal", random_state=0)
    else:
        scale = StandardScaler()
    out[~gap, 0] = scale.fit_transform(known[:, None])[:, 0]
    out[:, 0] /= max(float(out[:, 0].std()), 1e-6) if gap.sum() == 0 else 1.0
    if gap.any():
        out[:, 1] = gap
    return out


def _as_date(plain: Any, missing: np.ndarray, some: list[str]) -> Taken | None:
    import pandas as pd

    if sum(bool(DATE.fullmatch(cell)) for cell in some) < FIT * len(some):
        return None
    sample = pd.Series(some)
    best, share = "", 0.0
    for form in ("ISO8601", *(day + time for day in DATES for time in TIMES)):
        fits = float(pd.to_datetime(sample, format=form, errors="coerce", utc=True).notna().mean())
        if fits > share:
            best, share = form, fits
    if share < FIT:
        return None
    when = pd.to_datetime(plain.where(~missing), format=best, errors="coerce", utc=True)
    if when.isna().sum() - missing.sum() > (1 - FIT) * len(plain):
        return None
    return _date(when, "year-month-day" if best == "ISO8601" else best.replace("%", ""))


def _date(when: Any, why: str) -> Taken:
    gaps = int(when.isna().sum())

    def make() -> np.ndarray:
        seconds = (when - when.min()).dt.total_seconds().to_numpy(np.float64, na_value=np.nan)
        parts = [scaled(seconds)]
        for turn in (when.dt.dayofyear / 365.25, when.dt.dayofweek / 7, (when.dt.hour + when.dt.minute / 60) / 24):
            angle = 2 * np.pi * turn.to_numpy(np.float64, na_value=np.nan)
            if np.nanstd(angle) > 0:
                parts.append(np.nan_to_num(np.stack([np.sin(angle), np.cos(angle)], 1)).astype(np.float32))
        return np.concatenate(parts, 1)

    return Taken("date", "; ".join(part for part in (why, f"{gaps:,} empty" if gaps else "") if part), make)


def _as_words(name: str, plain: Any, missing: np.ndarray, known: Any, some: list[str]) -> Taken:
    """Text, a category, or an id."""
    distinct = int(known.nunique())
    words = sum(len(cell.split()) for cell in some) / len(some)
    if words >= WORDS and distinct > max(FEW, 0.2 * len(known)):
        return Taken("text", f"{words:.0f} words on average", texts=lambda: plain.where(~missing, "").tolist())
    if distinct == len(known) or (distinct > 0.9 * len(known) and (ID.search(name.strip()) or distinct > 1000)):
        return Taken("id", "each value once" if distinct == len(known) else "nearly each value once")
    return _category(plain, missing)


def _category(plain: Any, missing: np.ndarray) -> Taken:
    distinct = int(plain[~missing].nunique())
    gaps = int(missing.sum())
    why = f"{distinct:,} values" + (
        f", the rarest of {distinct - CATEGORIES:,} taken as one" if distinct > CATEGORIES else ""
    )

    def make() -> np.ndarray:
        from sklearn.preprocessing import OneHotEncoder

        held = plain.where(~missing, "").astype(object).to_numpy()[:, None]
        encoder = OneHotEncoder(max_categories=CATEGORIES + 1, sparse_output=False, dtype=np.float32)
        return encoder.fit_transform(held)

    return Taken("category", "; ".join(part for part in (why, f"{gaps:,} empty" if gaps else "") if part), make)
