"""The command line: ``curriculum run | compare | audit | report | list``."""

from __future__ import annotations

import argparse
import csv
import difflib
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from . import methods
from .audit import audit
from .recipes import RECIPES, Recipe, run
from .recipes.runner import figures, format_table, write_json
from .recipes.trainer import SAVE_SECONDS, Interrupted
from .record import Record, RecordError
from .report import write_report
from .report.table import summarise

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses, does, and turns expected errors into one sentence and exit status 2; 130 and 143 are those of signals."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(arguments)
    try:
        options.do(options)
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"curriculum: {error}", file=sys.stderr)
        return 2
    except Interrupted as stop:
        again = shlex.join(["curriculum", *arguments])
        print(f"\ncurriculum: {stop}. To go on, give the same command again:\n  {again}", file=sys.stderr)
        return stop.status
    except KeyboardInterrupt:
        print("\ncurriculum: stopped; what was recorded so far is kept", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("curriculum", description="Curriculum learning for PyTorch.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, do: Callable[[argparse.Namespace], None], words: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=words, description=words)
        sub.set_defaults(do=do)
        return sub

    one = command("run", _run, "run a recipe")
    one.add_argument("recipe", help="a name from `curriculum list`")
    one.add_argument("--method", action="append", metavar="NAME", help="only this method (may be repeated)")
    one.add_argument("--seeds", type=int, nargs="+", metavar="N", help="only these seeds")
    one.add_argument("--epochs", type=int, metavar="N", help="another number of epochs")
    one.add_argument("--data", type=Path, metavar="DIR", help="the folder of the data set, for recipes that need one")
    one.add_argument("--out", type=Path, metavar="DIR", help="where results go (default: runs/RECIPE)")
    words = "how old the saved state of a run may get (default: 5; 0 saves after every epoch)"
    one.add_argument("--save-seconds", type=float, default=SAVE_SECONDS, metavar="S", help=words)
    two = command("compare", _compare, "print the table of finished runs")
    two.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="a folder that `curriculum run` wrote")
    two.add_argument("--json", type=Path, metavar="FILE", help="write the table and every run's figures there, too")
    three = command("audit", _audit, "rank the training labels that are most likely wrong")
    three.add_argument("folder", type=Path, metavar="RUN", help="the folder of one record")
    three.add_argument("--top", type=int, default=20, metavar="N", help="how many to print (default: 20)")
    three.add_argument("--csv", type=Path, metavar="FILE", help="write all rows there")
    four = command("report", _report, "write one self-contained HTML page")
    four.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="a folder that `curriculum run` wrote")
    four.add_argument("--out", type=Path, default=Path("report.html"), metavar="FILE", help="(default: report.html)")
    command("list", _list, "list the recipes and the methods")
    return parser


def _run(options: argparse.Namespace) -> None:
    out = options.out or Path("runs") / options.recipe
    if options.recipe == "separable":
        if options.method or options.epochs:
            raise ValueError("the recipe 'separable' is fixed: it takes --seeds (one) and --out only")
        from .recipes.separable import run as run_separable

        run_separable(out, *(options.seeds or [0])[:1])
        return
    run(_chosen(options), out, options.data, save_seconds=options.save_seconds)


def _chosen(options: argparse.Namespace) -> Recipe:
    if options.recipe not in RECIPES:
        known = [*RECIPES, "separable"]
        close = difflib.get_close_matches(options.recipe, known, n=2)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"known: {', '.join(known)}"
        raise ValueError(f"there is no recipe called {options.recipe!r}; {hint}")
    recipe = RECIPES[options.recipe]()
    for name in options.method or ():
        methods.entry(name)
    if options.epochs is not None and options.epochs < 1:
        raise ValueError(f"--epochs must be at least 1, got {options.epochs}")
    changes = {"methods": options.method, "seeds": options.seeds, "epochs": options.epochs}
    chosen = {key: tuple(value) if isinstance(value, list) else value for key, value in changes.items() if value}
    return recipe.with_(**chosen)


def _records(folders: Sequence[Path]) -> dict[str, list[Record]]:
    """Records by method, in the order of their seeds, from folders of runs or of single records."""
    paths = [path.parent for folder in folders for path in sorted(folder.rglob("record.json"))]
    if not paths:
        raise RecordError(f"there is no record in {', '.join(map(str, folders))}")
    records = sorted((Record.load(path) for path in paths), key=lambda record: record.meta.get("seed", 0))
    order = sorted({str(record.meta.get("method", "?")) for record in records}, key=lambda name: name != "vanilla")
    return {name: [record for record in records if record.meta.get("method", "?") == name] for name in order}


def _compare(options: argparse.Namespace) -> None:
    runs = _records(options.folders)
    rows = summarise(runs)
    print(format_table(rows))
    if options.json:
        write_json(options.json, {"table": [vars(row) for row in rows], "runs": figures(runs)})


def _audit(options: argparse.Namespace) -> None:
    found = audit(Record.load(options.folder))
    rows = found.rows(len(found.score))
    if options.csv:
        with open(options.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    print(f"{'rank':>4} {'row':>8} {'score':>8}  given -> suggested")
    for rank, row in enumerate(rows[: options.top], 1):
        truth = "" if row["wrong"] is None else "  wrong" if row["wrong"] else "  right"
        print(f"{rank:>4} {row['row']:>8} {row['score']:>8.3f}  {row['given']} -> {row['suggested']}{truth}")
    if found.wrong is not None:
        print(f"\nprecision of these {options.top}: {found.precision(options.top):.1%}; AUROC {found.auroc() or 0:.3f}")


def _report(options: argparse.Namespace) -> None:
    title = ", ".join(folder.name for folder in options.folders)
    print(write_report(_records(options.folders), options.out, title=title))


def _list(options: argparse.Namespace) -> None:
    print("recipes (curriculum run NAME):")
    for name, make in RECIPES.items():
        print(f"  {name:<16}{make().summary}")
    print(f"  {'separable':<16}the paper's illustrative example: logistic regression on separable points")
    print("\nmethods (--method NAME, or torchcurriculum.methods.build):")
    for name in methods.names():
        print(f"  {name:<16}{methods.entry(name).summary}")


if __name__ == "__main__":
    sys.exit(main())
