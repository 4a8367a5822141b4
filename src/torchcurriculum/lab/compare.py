"""Tables of finished runs, with the published results of the paper and its peers, as text and markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..record import Record
from ..record.results import FURTHER, METRICS, Summary, best_epoch, summarise
from .literature import SOURCES, published
from .recipe import options_of, settings

__all__ = [
    "by_recipe",
    "figures",
    "format_markdown",
    "format_published",
    "format_table",
    "table_of",
    "unfinished",
    "without_paths",
]

Runs = Mapping[str, Sequence[Record]]
Table = tuple[list[str], list[list[str]]]  # its head, and its rows
MOMENTS = {"best": "at the best-validation epoch", "last": "at the last epoch"}
SPLIT = ", "  # between a recipe's name and the settings that distinguish its tables
GAP = "- vanilla [95 %]"
ONE_SET = "The validation set both selects the epoch and reports, because the protocol has no test labels."


def by_recipe(records: Sequence[Record]) -> dict[str, dict[str, list[Record]]]:
    """Records by recipe and method, in the order of their seeds, vanilla first.

    Runs of one recipe with other settings, or on other data, get a separate table, named after the difference. Two runs
    of one method and seed are refused, since they would look like two seeds.
    """
    ordered = sorted(records, key=lambda record: (record.meta.get("method") != "vanilla", _seed(record)))
    groups: dict[str, dict[str, list[Record]]] = {}
    for record in ordered:
        methods = groups.setdefault(json.dumps(_settings(record), sort_keys=True), {})
        same = methods.setdefault(str(record.meta.get("method", "?")), [])
        for other in same:
            _refuse_twins(record, other)
        same.append(record)
    firsts = [next(iter(methods.values()))[0] for methods in groups.values()]
    return dict(zip(_titles([without_paths(_settings(record)) for record in firsts]), groups.values(), strict=True))


def _refuse_twins(record: Record, other: Record) -> None:
    name = str(record.meta.get("method", "?"))
    both = f"{other.source} and {record.source}"
    mine, theirs = (options_of(_recipe(one).get("options"), name) for one in (record, other))
    if mine != theirs:
        raise ValueError(f"{both} are runs of {name} with the options {theirs} and {mine}; compare one at a time")
    seed = record.meta.get("seed")
    if seed is not None and other.meta.get("seed") == seed:
        raise ValueError(f"{both} are both runs of {name}, seed {seed}, with the same settings; omit one of them")


def _settings(record: Record) -> dict[str, Any]:
    """The settings that two runs must share to be compared; 1 and 1.0 count as equal."""
    held = {**settings(_recipe(record)), "digest": record.meta.get("data")}
    return {key: int(one) if isinstance(one, float) and one.is_integer() else one for key, one in held.items()}


def _titles(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The recipes' names, with the settings that differ if a name occurs twice."""
    titles: list[str] = []
    for mine in found:
        name = str(mine.get("name", ""))
        alike = [other for other in found if str(other.get("name", "")) == name]
        keys = dict.fromkeys(key for other in alike for key in other)
        differ = [key for key in keys if any(other.get(key) != mine.get(key) for other in alike)]
        title = SPLIT.join([name, *(f"{key} {mine.get(key)}" for key in differ)])
        titles.append(title if title not in titles else f"{title} ({len(titles)})")
    return titles


def _recipe(record: Record) -> dict[str, Any]:
    held = record.meta.get("recipe")
    return held if isinstance(held, dict) else {}


def _seed(record: Record) -> int:
    seed = record.meta.get("seed", 0)
    return seed if isinstance(seed, int) else 0


def unfinished(records: Sequence[Record]) -> int:
    """The number of records with fewer epochs than their recipe."""
    asked = [_recipe(record).get("epochs") for record in records]
    return sum(len(record.epochs) < n for record, n in zip(records, asked, strict=True) if isinstance(n, int))


def table_of(runs: Runs) -> list[Summary]:
    """Every metric of every method; differences to vanilla are paired by seed."""
    return summarise(runs, metrics={**METRICS, **FURTHER})


def format_table(rows: Sequence[Summary]) -> str:
    """The comparison as text: per cent, mean ± standard deviation over seeds, and the difference to vanilla."""
    tables = [_ours(rows, moment) for moment in MOMENTS]
    for head, body in tables:
        head[1] = ""
        for cells in body:
            cells[1] += " seed" if cells[1] == "1" else " seeds"
    return "\n".join(map(_text, tables))


def format_published(recipe: str, rows: Sequence[Summary]) -> str:
    """Our results next to published ones; empty if there are none."""
    table = _beside(recipe, rows)
    return _text(table) + "".join(f"{source}: {SOURCES[source]}.\n" for source in table[0][3:]) if table[1] else ""


def format_markdown(recipe: str, runs: Runs, rows: Sequence[Summary]) -> str:
    """A section for the docs: our results at both moments, and next to published ones."""
    described = next((_recipe(record) for records in runs.values() for record in records), {})
    parts = [f"## {recipe or 'runs'}\n", f"{described.get('summary', '')}\n"]
    parts += [f"{ONE_SET}\n"] if described.get("one_set") else []
    parts += [_markdown(_ours(rows, moment)) for moment in MOMENTS]
    table = _beside(recipe, rows)
    if table[1]:
        parts += [_markdown(table), "".join(f"- {source}: {SOURCES[source]}.\n" for source in table[0][3:])]
    return "\n".join(parts)


def _ours(rows: Sequence[Summary], moment: str) -> Table:
    """Every method's results at one moment."""
    names = list(dict.fromkeys(row.metric for row in rows if row.n or row.metric in METRICS))
    head, body = [MOMENTS[moment], "seeds"], []
    for name in names:
        head += [name, GAP] if name in METRICS else [name]
    for method, mine in _by_method(rows, moment):
        body.append([method, str(max(row.n for row in mine.values()))])
        for name in names:
            body[-1] += [_value(mine[name]), _gap(mine[name])] if name in METRICS else [_value(mine[name])]
    return head, body


def _beside(recipe: str, rows: Sequence[Summary]) -> Table:
    """Our results at the best epoch next to published ones, one column per source."""
    name = recipe.partition(SPLIT)[0]
    found = []
    for method, mine in _by_method(rows, "best"):
        for metric, row in mine.items():
            theirs = {figure.source: str(figure) for figure in published(name, method) if figure.metric == metric}
            found += [(method, row, theirs)] if theirs else []
    sources = list(dict.fromkeys(source for _, _, theirs in found for source in theirs))
    body = [[method, row.metric, _value(row), *(theirs.get(s, "-") for s in sources)] for method, row, theirs in found]
    return ["beside published figures", "metric", "ours", *sources], body


def _by_method(rows: Sequence[Summary], moment: str) -> Iterator[tuple[str, dict[str, Summary]]]:
    chosen = [row for row in rows if row.moment == moment]
    for method in dict.fromkeys(row.method for row in chosen):
        yield method, {row.metric: row for row in chosen if row.method == method}


def _value(row: Summary) -> str:
    return f"{100 * row.mean:.2f}" + (f" ± {100 * row.std:.2f}" if row.n > 1 else "") if row.n else "-"


def _gap(row: Summary) -> str:
    gap = f"{100 * row.difference:+.2f}" if row.pairs else ""
    return gap + (f" [{100 * row.low:+.2f}, {100 * row.high:+.2f}]" if row.pairs > 1 else "")


def _text(table: Table) -> str:
    head, body = table
    first, *others = (max(map(len, column)) for column in zip(head, *body, strict=True))
    lines = [
        "  ".join([cells[0].ljust(first), *(cell.rjust(width) for cell, width in zip(cells[1:], others, strict=True))])
        for cells in (head, *body)
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], ""])


def _markdown(table: Table) -> str:
    head, body = table
    rows = [head, *([f"`{method}`", *cells] for method, *cells in body)]
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:], ""])


def figures(runs: Runs) -> list[dict[str, Any]]:
    """The data of every run to check a table: method, seed, best and last rows, and environment."""
    keys = ("method", "seed", "recipe", "environment", "pd_threshold", "pd_epoch")
    return [
        {
            **{key: without_paths(record.meta[key]) for key in keys if key in record.meta},
            "best": record.epochs[best_epoch(record) or 0],
            "last": record.epochs[-1],
            "seconds": float(record.column("seconds").sum()),
        }
        for records in runs.values()
        for record in records
        if record.epochs
    ]


def without_paths(value: Any) -> Any:
    """A recipe with the names of its file of weights and of its encoder, without their folders."""
    if not isinstance(value, Mapping):
        return value
    paths = {key: value[key] for key in ("weights", "model") if isinstance(value.get(key), str)}
    local = {key: Path(path).name for key, path in paths.items() if key == "weights" or Path(path).is_absolute()}
    return {**value, **local}
