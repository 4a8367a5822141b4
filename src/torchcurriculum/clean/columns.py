"""The kind of a table's column (number, date, category, text, id), and its features."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["ColumnUse", "cell_texts", "column_use", "decimal_mark"]

MISSING = ("", "na", "n/a", "n.a.", "nan", "null", "none", "nil", "-", "--", "?", ".", "#n/a", "#na", "missing", "<na>")
YES, NO = ("yes", "y", "true", "t", "on", "ja", "oui", "si", "sí"), ("no", "n", "false", "f", "off", "nein", "non")
ID = re.compile(
    r"(^|[\W_])(id|ids|uuid|guid|index|idx|key|nr|no|row|rowid|rownum|number)$|[a-z]I[dD]$|^#$", re.IGNORECASE
)
CODE = re.compile(r"0\d+")  # a number does not begin with 0
SPACES = " \u00a0\u202f'’$€£¥%"  # in and around numbers
CURRENCY, SPACING = str.maketrans("", "", SPACES), f"[{SPACES}]"
UNIT = re.compile(  # a currency, a number and a unit
    r"((?:USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|CZK|BRL|MXN|ZAR|Rs\.?|)\s*)(.*\d.*?)(\s*[^\W\d_]*)"
)
FORM = r"[+-]?(?:(?:\d{{1,3}}(?:{0}\d{{3}})+|\d+)(?:{1}\d*)?|{1}\d+)(?:[eE][+-]?\d+)?"
FORMS = {".": re.compile(FORM.format(",", r"\.")), ",": re.compile(FORM.format(r"\.", ","))}
DATES: tuple[str, ...] = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%Y/%m/%d", "%d.%m.%y", "%m/%d/%y")
DATES += ("%d/%m/%y", "%d-%m-%y")
DATES += ("%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%d-%b-%y")
TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p")
DATE = re.compile(r"\d{1,4}[-/. ]\w{1,9}[-/. ,]+\d{1,4}.*|[A-Za-z]{3,9} \d{1,2}, \d{4}.*")
FIT = 0.95  # share of non-missing cells that must be of a kind
RARE = 0.1  # least share of dates of a form beside others
SAMPLE = 1000  # cells from which the kind is guessed
WORD = re.compile(r"\S*[^\W\d_]\S*")  # it has a letter
UNSPACED = re.compile(  # letters of Thai, Lao, Burmese, Khmer, Japanese and Chinese: no spaces between words
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
OF_WORD = 2  # such letters of a word
WORDS = 3.0  # per cell on average, from which on a column is text
CATEGORIES = 40  # one feature each; rarer ones share one
FEW = 20  # distinct values of a number that is not continuous


@dataclass
class ColumnUse:
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


def cell_texts(cells: Any) -> list[str]:
    """The cells of a pandas Series as text; "" if missing."""
    return cells.astype("str").where(cells.notna(), "").tolist()


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


def column_use(name: str, cells: Any, mark: str, ordered: np.ndarray | None = None) -> ColumnUse:
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

    if cells.dtype == object:  # text in pandas 2; in Parquet files also decimals, dates and lists
        cells = cells.astype("str").where(cells.notna(), "")
    elif not pd.api.types.is_string_dtype(cells.dtype):
        return _take_typed(name, cells, ordered)
    plain = cells.str.strip()
    missing = (plain.isna() | plain.str.lower().isin(MISSING)).to_numpy(bool)
    known = plain[~missing]
    if not len(known):
        return ColumnUse("left out", "every cell is empty")
    some = known.iloc[:: max(1, len(known) // SAMPLE)].tolist()
    if all(cell == some[0] for cell in some) and known.nunique() == 1:
        gaps = bool(missing.any())
        return _category(plain, missing) if gaps else ColumnUse("left out", f"every cell is {some[0][:30]!r}")
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


def _take_typed(name: str, cells: Any, ordered: np.ndarray | None) -> ColumnUse:
    import pandas as pd

    kind = pd.api.types
    missing = cells.isna().to_numpy(bool)
    if missing.all():
        return ColumnUse("left out", "every cell is empty")
    if kind.is_bool_dtype(cells.dtype):
        return _number(name, cells.astype("float64").to_numpy(np.float64, na_value=np.nan), "yes/no", "", ordered)
    if kind.is_numeric_dtype(cells.dtype):
        return _number(name, cells.to_numpy(np.float64, na_value=np.nan), "number", "", ordered)
    if kind.is_datetime64_any_dtype(cells.dtype):
        return _date(pd.to_datetime(cells, utc=True), "")
    if kind.is_timedelta64_dtype(cells.dtype):
        return _number(name, cells.dt.total_seconds().to_numpy(np.float64), "number", "seconds", ordered)
    return column_use(name, cells.astype("str").where(~missing, ""), ".", ordered)


def _as_number(
    name: str, plain: Any, missing: np.ndarray, some: list[str], mark: str, ordered: np.ndarray | None
) -> ColumnUse | None:
    """Numbers with thousands separators, currencies and either decimal mark; a few other cells count as missing."""
    import pandas as pd

    bare, given = _bare(some), some
    some = bare(pd.Series(some)).tolist()
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
        cut = bare(plain[rest]).str.replace(SPACING, "", regex=True)
        cut = cut.where(cut.str.fullmatch(FORMS[mark].pattern), "")
        cut = cut.str.replace("," if mark == "." else ".", "", regex=False).str.replace(",", ".", regex=False)
        values[rest] = pd.to_numeric(cut, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        plainly = r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?" if mark == "." else r"[+-]?\d+"
        shape = next((cell for cell in given if not re.fullmatch(plainly, cell)), None)
        why = f"such as {shape}, with a decimal {'point' if mark == '.' else 'comma'}" if shape else ""
    values[~np.isfinite(values)] = np.nan
    bad = np.isnan(values) & ~missing
    if bad.sum() > (1 - FIT) * (~missing).sum():
        return None
    if bad.any():
        first = str(plain[bad].iloc[0])[:20]
        why = f"{why}; " * bool(why) + f"{int(bad.sum()):,} cells such as {first!r} are not numbers and count as empty"
    return _number(name, values, "number", why, ordered)


def _bare(some: list[str]) -> Callable[[Any], Any]:
    """Takes a unit that all cells share off them, and makes ``(3)`` and ``3-`` of accountants ``-3``."""
    units = Counter((found[1].strip(), found[3].strip()) for cell in some if (found := UNIT.fullmatch(cell)))
    before, after = units.most_common(1)[0][0] if units else ("", "")
    if max(units.values(), default=0) < FIT * len(some):
        before = after = ""

    def bare(cells: Any) -> Any:
        cells = cells.str.removeprefix(before).str.removesuffix(after).str.strip().str.replace("−", "-")  # U+2212
        return cells.str.replace(r"^\((.*\d.*)\)$|^(.*\d)-$", r"-\1\2", regex=True)

    return bare


def _number(name: str, values: np.ndarray, kind: str, why: str, ordered: np.ndarray | None) -> ColumnUse:
    known = values[~np.isnan(values)]
    distinct = len(np.unique(known))
    if distinct < 2 and len(known) == len(values):
        return ColumnUse("left out", f"every cell is {known[0]:g}")
    whole = distinct == len(values) >= 10 and bool((known == np.round(known)).all())
    steps = np.diff(values)
    if whole and (np.ptp(known) == len(known) - 1 or (steps == steps[0]).all()):
        return ColumnUse("id", "it only counts the rows")
    if whole and ID.search(name.strip()):
        return ColumnUse("id", "whole numbers, each once")
    if ordered is not None and distinct == len(values) and ((steps > 0).all() or (steps < 0).all()):
        return ColumnUse("left out", "the file is sorted by it and by the label, so it would leak the label")
    gaps = len(values) - len(known)
    why = "; ".join(part for part in (why, f"{gaps:,} empty" if gaps else "") if part)
    return ColumnUse(kind, why, lambda: scaled(values))


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
    if (largest := np.abs(known).max(initial=0)) > 1e150:  # its square would not be finite
        known = known / largest
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


def _as_date(plain: Any, missing: np.ndarray, some: list[str]) -> ColumnUse | None:
    import pandas as pd

    if sum(bool(DATE.fullmatch(cell)) for cell in some) < FIT * len(some):
        return None
    forms = ["ISO8601", *(day + time for day in DATES for time in TIMES)]
    left, used = pd.Series(some), list[str]()
    while len(left) > (1 - FIT) * len(some):  # a file may be merged from files with several forms
        fits = [pd.to_datetime(left, format=form, errors="coerce", utc=True).notna() for form in forms]
        best = max(range(len(forms)), key=lambda place: fits[place].sum())
        if fits[best].sum() < RARE * len(some):
            return None
        left, used = left[~fits[best]], [*used, forms[best]]
        forms = [form for form in forms if sorted(form) != sorted(used[-1])]  # not day and month the other way round
    when = pd.to_datetime(plain.where(~missing), format=used[0], errors="coerce", utc=True)
    for form in used[1:]:
        when = when.fillna(pd.to_datetime(plain.where(~missing), format=form, errors="coerce", utc=True))
    if when.isna().sum() - missing.sum() > (1 - FIT) * len(plain):
        return None
    return _date(when, " and ".join("year-month-day" if form == "ISO8601" else form.replace("%", "") for form in used))


def _date(when: Any, why: str) -> ColumnUse:
    gaps = int(when.isna().sum())

    def make() -> np.ndarray:
        seconds = (when - when.min()).dt.total_seconds().to_numpy(np.float64, na_value=np.nan)
        parts = [scaled(seconds)]
        for turn in (when.dt.dayofyear / 365.25, when.dt.dayofweek / 7, (when.dt.hour + when.dt.minute / 60) / 24):
            angle = 2 * np.pi * turn.to_numpy(np.float64, na_value=np.nan)
            if np.nanstd(angle) > 0:
                parts.append(np.nan_to_num(np.stack([np.sin(angle), np.cos(angle)], 1)).astype(np.float32))
        return np.concatenate(parts, 1)

    return ColumnUse("date", "; ".join(part for part in (why, f"{gaps:,} empty" if gaps else "") if part), make)


def _as_words(name: str, plain: Any, missing: np.ndarray, known: Any, some: list[str]) -> ColumnUse:
    """Text, a category, or an id."""
    distinct = int(known.nunique())
    words = sum(map(_words, some)) / len(some)
    if words >= WORDS and distinct > max(FEW, 0.2 * len(known)):
        return ColumnUse("text", f"{words:.0f} words on average", texts=lambda: plain.where(~missing, "").tolist())
    if distinct == len(known) or (distinct > 0.9 * len(known) and (ID.search(name.strip()) or distinct > 1000)):
        return ColumnUse("id", "each value once" if distinct == len(known) else "nearly each value once")
    return _category(plain, missing)


def _words(cell: str) -> float:
    """The number of words: of DE89 3704 0044 only the first is one."""
    spaced, letters = UNSPACED.subn(" ", cell)
    return len(WORD.findall(spaced)) + letters / OF_WORD


def _category(plain: Any, missing: np.ndarray) -> ColumnUse:
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

    return ColumnUse("category", "; ".join(part for part in (why, f"{gaps:,} empty" if gaps else "") if part), make)
