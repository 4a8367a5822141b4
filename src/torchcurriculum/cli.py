"""The command line: ``curriculum run | compare | audit | report | list``."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import TextIO

from . import methods
from .audit import EXPORTS, audit, class_names, export, one_line, printable
from .lab.compare import by_recipe, figures, format_markdown, format_published, format_table, table_of, unfinished
from .lab.provenance import write_json
from .lab.recipe import Recipe, base_name
from .lab.recipes import RECIPES, TABLES
from .lab.runner import run
from .lab.sources import require_data
from .lab.trainer import SAVE_SECONDS, Interrupted
from .record import Previews, Record, RecordError
from .record.files import overwrite
from .report import too_large, write_report

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses, does, and turns expected errors into one sentence and exit status 2; 130 and 143 are those of signals."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # prints '?' where the terminal cannot print the dagger
    try:
        options.do(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # whoever read this has seen enough
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as shells count a closed pipe
    except (ValueError, TypeError, OSError, ImportError) as error:
        _say(f"curriculum: {error}", file=sys.stderr)
        return 2
    except Interrupted as stop:
        again = shlex.join(["curriculum", *arguments])
        _say(f"\ncurriculum: {stop}. To resume, give the same command again:\n  {again}", file=sys.stderr)
        return stop.status
    except KeyboardInterrupt:
        _say("\ncurriculum: stopped; what was recorded so far is kept", file=sys.stderr)
        return 130
    return 0


def _say(text: object = "", end: str = "\n", file: TextIO | None = None) -> None:
    """Prints without control characters: names come from files and folders that others made."""
    print(printable(str(text)), end=end, file=file)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("curriculum", description="Curriculum learning for PyTorch.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, do: Callable[[argparse.Namespace], None], words: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=words, description=words)
        sub.set_defaults(do=do)
        return sub

    one = command("run", _run, "run a recipe")
    one.add_argument("recipe", help="a name from `curriculum list`: a recipe, or a table of several")
    words = "only this method, or your own as package.module:Class (may be repeated)"
    one.add_argument("--method", action="append", metavar="NAME", help=words)
    one.add_argument("--seeds", type=int, nargs="+", metavar="N", help="only these seeds")
    one.add_argument("--epochs", type=int, metavar="N", help="another number of epochs")
    one.add_argument("--model", metavar="NAME", help="another network; for text also a folder or hub name")
    one.add_argument("--weights", metavar="FILE", help="pretrained weights to start from")
    words = "take a file of weights that lacks tensors or holds values that are not finite"
    one.add_argument("--partial-weights", action="store_true", default=None, help=words)
    one.add_argument("--label", metavar="COLUMN", help="the column with the classes, for the recipe csv")
    one.add_argument("--data", type=Path, metavar="DIR", help="the folder of the data set, for recipes that need one")
    one.add_argument("--out", type=Path, metavar="DIR", help="where results go (default: runs/RECIPE)")
    one.add_argument("--measure", choices=["pass", "running"], help="where losses come from (default: the recipe's)")
    one.add_argument("--precision", choices=["float32", "bfloat16"], help="(default: the recipe's)")
    one.add_argument("--compile", action="store_true", default=None, help="train through torch.compile")
    one.add_argument("--jobs", type=int, default=1, metavar="N", help="how many runs at once (default: 1)")
    words = "how old the saved state of a run may get (default: 5; 0 saves after every epoch)"
    one.add_argument("--save-seconds", type=float, default=SAVE_SECONDS, metavar="S", help=words)
    two = command("compare", _compare, "print the table of finished runs")
    two.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="a folder that `curriculum run` wrote")
    two.add_argument("--json", type=Path, metavar="FILE", help="write the table and every run's figures there, too")
    two.add_argument("--md", type=Path, metavar="FILE", help="write the table there as markdown")
    three = command("audit", _audit, "rank the training labels that are most likely wrong")
    three.add_argument("folder", type=Path, metavar="RUN", help="the folder of one record")
    three.add_argument("--top", type=int, default=20, metavar="N", help="how many to print (default: 20)")
    three.add_argument("--export", choices=list(EXPORTS), help="write the ranking of all rows to a file of this form")
    three.add_argument("--out", type=Path, metavar="FILE", help="the file (default: audit.csv or audit.json)")
    four = command("report", _report, "write one self-contained HTML page")
    four.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="a folder that `curriculum run` wrote")
    four.add_argument("--out", type=Path, default=Path("report.html"), metavar="FILE", help="(default: report.html)")
    command("list", _list, "list the recipes and the methods")
    return parser


def _run(options: argparse.Namespace) -> None:
    out = options.out or Path("runs") / options.recipe
    if options.recipe == "separable":
        fixed = ("method", "epochs", "model", "weights", "partial_weights", "label", "data", "measure", "precision")
        given = any(getattr(options, name) is not None for name in (*fixed, "compile")) or options.jobs != 1
        if given or len(options.seeds or [0]) != 1:
            raise ValueError("the recipe 'separable' is fixed: it takes --seeds (one) and --out only")
        from .lab.recipes.separable import run as run_separable

        run_separable(out, (options.seeds or [0])[0], _say)
        return
    if options.recipe not in TABLES:
        recipe = _chosen(_known(options.recipe), options)
        run(recipe, out, options.data, _say, save_seconds=options.save_seconds, jobs=options.jobs)
        return
    if options.model is not None or options.weights is not None:
        raise ValueError("a table has its own networks; --model and --weights are for a single recipe")
    parts = [_chosen(recipe, options) for recipe in TABLES[options.recipe]]
    for recipe in parts:
        require_data(recipe, options.data)  # before the first of them takes hours
    for recipe in parts:
        run(recipe, out / recipe.name, options.data, _say, save_seconds=options.save_seconds, jobs=options.jobs)


def _known(name: str) -> Recipe:
    if name not in RECIPES:
        known = [*RECIPES, *TABLES, "separable"]
        close = difflib.get_close_matches(name, known, n=2)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"known: {', '.join(known)}"
        raise ValueError(f"there is no recipe called {name!r}; {hint}")
    return RECIPES[name]


def _chosen(recipe: Recipe, options: argparse.Namespace) -> Recipe:
    for name in options.method or ():
        if ":" in name and os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())  # where people keep a module of their own
        methods.entry(base_name(name))
        if "@" in name and name not in recipe.options:
            variants = [variant for variant in recipe.options if "@" in variant]
            hint = f"it has {', '.join(variants)}" if variants else "it has no variants"
            raise ValueError(f"the recipe {recipe.name!r} has no variant called {name!r}; {hint}")
    if options.epochs is not None and options.epochs < 1:
        raise ValueError(f"--epochs must be at least 1, got {options.epochs}")
    if options.label is not None and recipe.data != "csv":
        raise ValueError(f"--label is for the recipe 'csv', and {recipe.name!r} has its own labels")
    names = ("seeds", "epochs", "model", "weights", "partial_weights", "label", "measure", "precision", "compile")
    changes = {"methods": options.method, **{name: getattr(options, name) for name in names}}
    chosen = {
        key: tuple(value) if isinstance(value, list) else value for key, value in changes.items() if value is not None
    }
    return recipe.with_(**chosen)


def _load(folders: Sequence[Path], problems: list[str] | None = None) -> list[Record]:
    """Records from folders of runs or of single records, each once.

    With a list for ``problems``, they are read for a report: damaged records and those of newer versions as far as they
    can be, large ones without their samples. Without, only what they say of whole epochs.
    """
    places = [path.parent for folder in folders for path in sorted(folder.rglob("record.json"))]
    paths = list({path.resolve(): path for path in places}.values())
    if not paths:
        raise RecordError(f"there is no record in {', '.join(map(str, folders))}")
    records = []
    for path in paths:
        if problems is None:
            records.append(Record.load(path, samples=False))
            continue
        record, found = Record.salvage(path, samples=False)
        if record is not None and too_large(record) is None:
            record, found = Record.salvage(path)
        problems += found
        records += [record] if record is not None else []
    return records


def _compare(options: argparse.Namespace) -> None:
    records = _load(options.folders)
    found = by_recipe(records)
    tables = {recipe: table_of(runs) for recipe, runs in found.items()}
    for recipe, rows in tables.items():
        _say(f"{recipe}\n" if len(tables) > 1 else "")
        _say(f"{format_table(rows)}\n{format_published(recipe, rows)}")
    if unfinished(records):
        _say(f"{unfinished(records)} of these {len(records)} runs are not finished; their figures are those so far")
    if options.json:
        table = [{"recipe": recipe, **vars(row)} for recipe, rows in tables.items() for row in rows]
        write_json(options.json, {"table": table, "runs": [one for runs in found.values() for one in figures(runs)]})
    if options.md:
        parts = [format_markdown(recipe, found[recipe], rows) for recipe, rows in tables.items()]
        with overwrite(options.md) as file:
            file.write("\n".join(parts))


def _audit(options: argparse.Namespace) -> None:
    if options.top < 1:
        raise ValueError(f"--top must be at least 1, got {options.top}")
    if options.out and not options.export:
        raise ValueError(f"--out {options.out} needs --export, one of {', '.join(EXPORTS)}")
    record = Record.load(options.folder)
    found = audit(record)
    _say(found.summary() + "\n")
    names, previews = class_names(record), _previews(options.folder)
    shown = found.rows(options.top)
    _say(f"{'rank':>4} {'row':>8} {'quality':>8}  given -> suggested")
    for rank, row in enumerate(shown, 1):
        words = one_line(row, names, previews.text(row["row"]) if previews else None)
        _say(f"{rank:>4} {row['row']:>8} {row['quality']:>8.4f}  {words}")
    if found.wrong is not None:
        auroc = found.auroc()
        known = "no label is wrong" if auroc is None else f"AUROC {auroc:.3f}"
        _say(f"\nprecision of these {len(shown)}: {found.precision(len(shown)):.1%}; {known}; ", end="")
        _say(f"right labels called wrong: {found.false_alarms()}")
    if options.export:
        out = options.out or Path(f"audit.{'csv' if options.export == 'csv' else 'json'}")
        _say(f"\nwrote {export(found, out, options.export, names=names)}")


def _previews(folder: Path) -> Previews | None:
    try:
        return Previews.load(folder)
    except ValueError as error:
        _say(f"curriculum: {error}", file=sys.stderr)
        return None


def _report(options: argparse.Namespace) -> None:
    problems: list[str] = []
    found = by_recipe(_load(options.folders, problems))
    several = len(found) > 1  # what belongs to different tables must not look like seeds of one
    groups = [(name, method, held) for name, group in found.items() for method, held in group.items()]
    runs = {f"{method} ({name})" if several else method: held for name, method, held in groups}
    title = ", ".join(folder.resolve().name for folder in options.folders)
    if sum(map(len, runs.values())) == 1:
        (method, [record]) = next(iter(runs.items()))
        title = f"{method}, seed {record.meta['seed']}" if "seed" in record.meta else method
    _say(write_report(runs, options.out, title=title, problems=problems))
    large = [reason for records in runs.values() for record in records if (reason := too_large(record)) is not None]
    for sentence in [f"{problem}; shown is what could be read" for problem in problems] + large:
        _say(f"curriculum: {sentence}", file=sys.stderr)


def _list(options: argparse.Namespace) -> None:
    _say("recipes (curriculum run NAME):")
    for name, recipe in RECIPES.items():
        _say(f"  {name:<28}{recipe.summary}")
    for name, table in TABLES.items():
        _say(f"  {name:<28}a table of {', '.join(recipe.name for recipe in table)}")
    _say(f"  {'separable':<28}the paper's illustrative example: logistic regression on separable points")
    _say("\nmethods (--method NAME, or torchcurriculum.methods.build):")
    for name in methods.names():
        _say(f"  {name:<16}{methods.entry(name).summary}")
    for point in entry_points(group=methods.GROUP):
        _say(f"  {point.name:<16}{point.value}")


if __name__ == "__main__":
    sys.exit(main())
