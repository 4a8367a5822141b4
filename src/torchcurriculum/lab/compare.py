"""The tables of finished runs: ours, beside what the paper and the peers have published, as text and as markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..record import Record
from ..report.table import FURTHER, METRICS, Summary, best_epoch, summarise
from .literature import SOURCES, Figure, published
from .recipe import options_of, settings

__all__ = ["by_recipe", "figures", "format_markdown", "format_published", "format_table", "table_of", "unfinished"]

Runs = Mapping[str, Sequence[Record]]
MOMENTS = {"best": "at the best-validation epoch", "last": "at the last epoch"}
SPLIT = ", "  # between a recipe's name and the settings that tell its tables apart
GAP = "- vanilla [95 %]"
ONE_SET = "The validation set selects the epoch and reports, as the protocol forces: there are no test labels."


def by_recipe(records: Sequence[Record]) -> dict[str, dict[str, list[Record]]]:
    """Records by recipe and method, in the order of their seeds, vanilla first.

    Runs of one recipe with other settings, or on other data, are in a table of their own, called by what differs. Two
    runs of one method and seed are refused: together they would look like two seeds.
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
    return dict(zip(_titles([_settings(record) for record in firsts]), groups.values(), strict=True))


def _refuse_twins(record: Record, other: Record) -> None:
    name = str(record.meta.get("method", "?"))
    words = f"{other.source} and {record.source} are both of {name}"
    mine, theirs = (options_of(_recipe(one).get("options"), name) for one in (record, other))
    if mine != theirs:
        raise ValueError(f"{words}, with options {theirs} and {mine}; compare one of them at a time")
    seed = record.meta.get("seed")
    if seed is not None and other.meta.get("seed") == seed:
        raise ValueError(f"{words}, seed {seed}, with the same settings; leave one of them out")


def _settings(record: Record) -> dict[str, Any]:
    """What must be the same for two runs to be compared; 1 and 1.0 are."""
    held = {**settings(_recipe(record)), "digest": record.meta.get("data")}
    return {key: int(one) if isinstance(one, float) and one.is_integer() else one for key, one in held.items()}


def _titles(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The recipes' names; where one is there more than once, with the settings in which they differ."""
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
    """How many records hold fewer epochs than their recipe says."""
    asked = [_recipe(record).get("epochs") for record in records]
    return sum(len(record.epochs) < n for record, n in zip(records, asked, strict=True) if isinstance(n, int))


def table_of(runs: Runs) -> list[Summary]:
    """Every metric of every method; differences to vanilla are paired by seed."""
    return summarise(runs, metrics={**METRICS, **FURTHER})


def format_table(rows: Sequence[Summary]) -> str:
    """The comparison as text: per cent, mean ± standard deviation over seeds, and the difference to vanilla."""
    lines = []
    names = list(dict.fromkeys(row.metric for row in rows if row.n or row.metric in METRICS))
    wide = _wide(rows)
    for moment, words in MOMENTS.items():
        head = f"{words:<{wide + 10}}" + "".join(f"{name:>16}" + f"{GAP:>26}" * (name in METRICS) for name in names)
        lines += [head, "-" * len(head)]
        for method, mine in _by_method(rows, moment):
            cells = [_cell(mine[name], differences=name in METRICS) for name in names]
            seeds = max(row.n for row in mine.values())
            lines.append(f"{method:<{wide}}{f'{seeds} seed' + 's' * (seeds != 1):<10}" + "".join(cells))
        lines.append("")
    return "\n".join(lines)


def _wide(rows: Sequence[Summary]) -> int:
    """Letters that the column of methods takes."""
    return max([20, *(len(row.method) + 2 for row in rows)])


def _by_method(rows: Sequence[Summary], moment: str) -> Iterator[tuple[str, dict[str, Summary]]]:
    chosen = [row for row in rows if row.moment == moment]
    for method in dict.fromkeys(row.method for row in chosen):
        yield method, {row.metric: row for row in chosen if row.method == method}


def _value(row: Summary) -> str:
    return f"{100 * row.mean:.2f}" + (f" ± {100 * row.std:.2f}" if row.n > 1 else "") if row.n else "-"


def _gap(row: Summary) -> str:
    gap = f"{100 * row.difference:+.2f}" if row.pairs else ""
    return gap + (f" [{100 * row.low:+.2f}, {100 * row.high:+.2f}]" if row.pairs > 1 else "")


def _cell(row: Summary, differences: bool) -> str:
    return f"{_value(row):>16}" + (f"{_gap(row):>26}" if differences else "")


def _beside(recipe: str, rows: Sequence[Summary]) -> list[tuple[str, Summary, dict[str, Figure]]]:
    """(method, ours at the best epoch, theirs by source) for every figure that somebody has published."""
    found = []
    for method, mine in _by_method(rows, "best"):
        for metric, row in mine.items():
            theirs = {
                figure.source: figure
                for figure in published(recipe.partition(SPLIT)[0], method)
                if figure.metric == metric
            }
            if theirs:
                found.append((method, row, theirs))
    return found


def format_published(recipe: str, rows: Sequence[Summary]) -> str:
    """Our figures beside the published ones; empty where there are none."""
    beside = _beside(recipe, rows)
    if not beside:
        return ""
    sources = list(dict.fromkeys(source for _, _, theirs in beside for source in theirs))
    wide = _wide(rows)
    head = f"{'beside published figures':<{wide + 10}}{'ours':>16}" + "".join(f"{source:>16}" for source in sources)
    lines = [head, "-" * len(head)]
    for method, row, theirs in beside:
        cells = "".join(f"{theirs.get(source, '-')!s:>16}" for source in sources)
        lines.append(f"{method:<{wide}}{row.metric:<10}{_value(row):>16}{cells}")
    return "\n".join([*lines, *[f"{source}: {SOURCES[source]}." for source in sources], ""])


def format_markdown(recipe: str, runs: Runs, rows: Sequence[Summary]) -> str:
    """A section for the docs: ours at both moments, and beside the published figures."""
    described = next((_recipe(record) for records in runs.values() for record in records), {})
    lines = [f"## {recipe or 'runs'}", "", str(described.get("summary", "")), ""]
    lines += [ONE_SET, ""] if described.get("one_set") else []
    names = [name for name in {**METRICS, **FURTHER} if any(row.metric == name and row.n for row in rows)]
    for moment, words in MOMENTS.items():
        columns = [column for name in names for column in ([name, GAP] if name in METRICS else [name])]
        lines += [f"| {words} | seeds | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
        for method, mine in _by_method(rows, moment):
            cells = [str(max(row.n for row in mine.values()))]
            for name in names:
                cells += [_value(mine[name]), _gap(mine[name])] if name in METRICS else [_value(mine[name])]
            lines.append(f"| `{method}` | {' | '.join(cells)} |")
        lines.append("")
    beside = _beside(recipe, rows)
    if beside:
        sources = list(dict.fromkeys(source for _, _, theirs in beside for source in theirs))
        lines += [f"| beside published figures | metric | ours | {' | '.join(sources)} |"]
        lines += ["|---" * (len(sources) + 3) + "|"]
        for method, row, theirs in beside:
            cells = [row.metric, _value(row), *[str(theirs.get(source, "-")) for source in sources]]
            lines.append(f"| `{method}` | {' | '.join(cells)} |")
        lines += ["", *[f"- {source}: {SOURCES[source]}." for source in sources], ""]
    return "\n".join(lines)


def figures(runs: Runs) -> list[dict[str, Any]]:
    """What a reader needs of every run to check a table: method, seed, its best and last rows, and its surroundings."""
    keys = ("method", "seed", "recipe", "environment", "pd_threshold", "pd_epoch")
    return [
        {
            **{key: record.meta[key] for key in keys if key in record.meta},
            "best": record.epochs[best_epoch(record) or 0],
            "last": record.epochs[-1],
            "seconds": float(record.column("seconds").sum()),
        }
        for records in runs.values()
        for record in records
        if record.epochs
    ]
