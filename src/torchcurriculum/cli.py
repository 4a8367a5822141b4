"""The command line: ``curriculum clean | review | fix | run | compare | audit | report | list``."""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import shlex
import sys
import webbrowser
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import TextIO

from . import methods
from .audit import EXPORTS, audit, class_names, export, one_line, printable
from .checks import suggest
from .clean.command import clean
from .clean.exchange import FORMS, read_answers, write_for
from .clean.fix import MODES, Fix, planned
from .clean.inputs import read_for_fix, read_for_review
from .clean.progress import Progress
from .clean.serve import Review
from .clean.tables import TABLE_OPTIONS
from .lab.compare import by_recipe, figures, format_markdown, format_published, format_table, table_of, unfinished
from .lab.missing import OPTIONS, missing_runs, shell_line
from .lab.pool import reason
from .lab.provenance import write_json
from .lab.recipe import Recipe, base_name
from .lab.recipes import RECIPES, TABLES
from .lab.runner import run_table
from .lab.sources import require_data
from .lab.trainer import SAVE_SECONDS, Interrupted
from .record import LaterRecord, Previews, Record, RecordError
from .record.files import overwrite
from .report import data_names, too_large, write_report

__all__ = ["main"]

CHANGED = ("seeds", "audit", *OPTIONS)  # options of `curriculum run` that are fields of a recipe


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command. Expected errors print one sentence and exit with status 2; signals exit with 130 or 143."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # prints '?' where the terminal cannot print the dagger
    try:
        options.do(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # 128 + SIGPIPE, as in a shell
    except (ValueError, TypeError, OSError, ImportError) as error:
        _say(f"curriculum: {reason(error)}", file=sys.stderr)
        return 2
    except Interrupted as stop:
        again = shell_line(["curriculum", *arguments])
        _say(f"\ncurriculum: {stop}. To resume, run the same command again:\n  {again}", file=sys.stderr)
        return stop.status
    except KeyboardInterrupt:
        _say("\ncurriculum: stopped", file=sys.stderr)
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

    _clean_arguments(command("clean", _clean, "find wrong labels in your own data and propose other ones"))
    one = command("run", _run, "run a recipe")
    words = "recipes or tables of recipes, as named by `curriculum list`; all share one queue of runs"
    one.add_argument("recipe", nargs="+", help=words)
    words = "only this method, or your own as package.module:Class (may be repeated)"
    one.add_argument("--method", action="append", metavar="NAME", help=words)
    one.add_argument("--seeds", type=int, nargs="+", metavar="N", help="only these seeds")
    one.add_argument("--epochs", type=int, metavar="N", help="override the number of epochs")
    one.add_argument("--model", metavar="NAME", help="use another network; for text also a folder or hub name")
    one.add_argument("--weights", metavar="FILE", help="pretrained weights to start from")
    words = "accept a file of weights that lacks tensors or holds non-finite values"
    one.add_argument("--partial-weights", action="store_true", default=None, help=words)
    one.add_argument("--size", type=int, metavar="N", help="resize images to N x N for the network")
    _table_arguments(one, ", for the recipe csv")
    one.add_argument("--data", type=Path, metavar="DIR", help="the folder of the data set, for recipes that need one")
    one.add_argument("--out", type=Path, metavar="DIR", help="where to write results (default: runs/RECIPE)")
    one.add_argument("--measure", choices=["pass", "running"], help="where losses come from (default: the recipe's)")
    one.add_argument("--precision", choices=["float32", "bfloat16"], help="(default: the recipe's)")
    words = "train through torch.compile, which needs a C++ compiler"
    one.add_argument("--compile", action="store_true", default=None, help=words)
    words = "do not collect predictions for the audit; saves many passes over the training set"
    one.add_argument("--no-audit", dest="audit", action="store_false", default=None, help=words)
    one.add_argument("--jobs", type=int, default=1, metavar="N", help="number of runs at a time (default: 1)")
    words = "seconds between saved states of a run (default: 5; 0 saves after every epoch)"
    one.add_argument("--save-seconds", type=float, default=SAVE_SECONDS, metavar="S", help=words)
    two = command("compare", _compare, "print the table of finished runs")
    two.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="a folder that `curriculum run` wrote")
    two.add_argument("--json", type=Path, metavar="FILE", help="also write the table and all results to this file")
    two.add_argument("--md", type=Path, metavar="FILE", help="also write the table to this file as markdown")
    three = command("audit", _audit, "rank the training labels that are most likely wrong")
    three.add_argument("folder", type=Path, metavar="RUN", help="the folder of one record")
    three.add_argument("--top", type=int, default=20, metavar="N", help="how many to print (default: 20)")
    three.add_argument("--export", choices=list(EXPORTS), help="write the ranking to a file in this format")
    three.add_argument("--out", type=Path, metavar="FILE", help="the file (default: audit.csv or audit.json)")
    four = command("report", _report, "write one self-contained HTML page")
    four.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="a folder that `curriculum run` wrote")
    four.add_argument("--out", type=Path, default=Path("report.html"), metavar="FILE", help="(default: report.html)")
    five = command("review", _review, "decide about the labels of a proposal, on a local page")
    five.add_argument("proposal", type=Path, metavar="DIR|PROPOSAL", help="what `curriculum clean` wrote")
    five.add_argument("--no-browser", action="store_true", help="only print the address of the page")
    words = "instead of a page, write the suspects for another tool to the folder --out"
    five.add_argument("--export", choices=list(FORMS), help=words)
    five.add_argument("--out", type=Path, metavar="DIR", help="the folder for --export")
    words = "instead of a page, take the answers that people gave in Label Studio or Argilla as decisions"
    five.add_argument("--import", type=Path, dest="answers", metavar="FILE", help=words)
    six = command("fix", _fix, "write the corrected data")
    six.add_argument("chosen", type=Path, metavar="DIR|PROPOSAL|DECISIONS", help="what to change")
    six.add_argument("--out", type=Path, metavar="FIXED", help="the corrected file; for folders also a .csv of labels")
    words = "relabel, drop or down-weight the rows (default: relabel)"
    six.add_argument("--mode", choices=MODES, default="relabel", help=words)
    six.add_argument("--dry-run", action="store_true", help="print what would change and write nothing")
    six.add_argument("--in-place", action="store_true", help="overwrite the original file (tables only)")
    words = "apply suggestions with at least this probability (default: only those marked sure)"
    six.add_argument("--min-probability", type=float, metavar="P", help=words)
    words = "the proposal that decisions are about (default: proposal.json next to them)"
    six.add_argument("--proposal", type=Path, metavar="FILE", help=words)
    six.add_argument("--data", type=Path, metavar="PATH", help="where the data is now, if it was moved")
    words = "train on the data before and after the fix, on the same split, and print both accuracies"
    six.add_argument("--check", action="store_true", help=words)
    six.add_argument("--link", action="store_true", help="make links instead of copies")
    command("list", _list, "list the recipes and the methods")
    return parser


def _clean_arguments(zero: argparse.ArgumentParser) -> None:
    words = "a CSV, TSV or Parquet file, or a folder of pictures or texts with one folder for each class"
    zero.add_argument("data", type=Path, metavar="DATA", help=words)
    _table_arguments(zero)
    words = "write corrected data here, changing only labels marked sure; for pictures and texts a .csv or a folder"
    zero.add_argument("--out", type=Path, metavar="FIXED", help=words)
    words = "the folder for the proposal and the review page (default: DATA-review)"
    zero.add_argument("--review", type=Path, metavar="DIR", help=words)
    words = "for pictures a file of pretrained weights, a network's name, or 'none'; for text 'minilm' or 'tfidf'"
    zero.add_argument("--features", metavar="FILE|NAME", help=words)
    zero.add_argument("--strict", action="store_true", help="stop at a row or file that cannot be read")
    zero.add_argument("--folds", type=int, default=5, metavar="K", help="number of cross-validation folds (default: 5)")
    zero.add_argument("--epochs", type=int, metavar="N", help="epochs of each network")
    zero.add_argument("--seed", type=int, default=0, metavar="N", help="random seed (default: 0)")


def _table_arguments(parser: argparse.ArgumentParser, when: str = "") -> None:
    """Adds the options for reading a table, one for each of ``TABLE_OPTIONS``."""
    words = f"the column with the classes (default: label, target, ... or last){when}"
    parser.add_argument("--label", metavar="COLUMN", help=words)
    parser.add_argument("--id", metavar="COLUMN", help=f"the column that names the rows{when}")
    words = f"leave this column out (may be repeated){when}"
    parser.add_argument("--drop", action="append", metavar="COLUMN", help=words)
    parser.add_argument("--sep", metavar="LETTER", help=f"the cell separator (default: detected){when}")
    parser.add_argument("--encoding", metavar="NAME", help=f"the file's encoding (default: detected){when}")


def _clean(options: argparse.Namespace) -> None:
    clean(**{name: value for name, value in vars(options).items() if name != "do"}, echo=_say)


def _run(options: argparse.Namespace) -> None:
    names = list(dict.fromkeys(options.recipe))
    out = options.out or Path("runs", *names if len(names) == 1 else ())
    if "separable" in names:
        fixed = (*CHANGED, "method", "data")
        given = any(getattr(options, name) is not None for name in fixed if name != "seeds") or options.jobs != 1
        if given or len(options.seeds or [0]) != 1 or len(names) != 1:
            raise ValueError("the recipe 'separable' is fixed: it takes --seeds (one) and --out only")
        from .lab.recipes.separable import run as run_separable

        run_separable(out, (options.seeds or [0])[0], _say)
        return
    several = len(names) > 1 or names[0] in TABLES
    if several and any(value is not None for value in (options.model, options.weights, options.size)):
        raise ValueError("--model, --weights and --size are for a single recipe; a table uses its own networks")
    found = [recipe for name in names for recipe in (TABLES[name] if name in TABLES else (_known(name),))]
    parts: dict[Path, Recipe] = {}
    for recipe in (_chosen(one, options) for one in found):
        require_data(recipe, options.data)  # fail now, not after hours of other runs
        place = out / recipe.name if several else out
        before = parts[place].methods if place in parts else ()  # two tables may share a recipe
        parts[place] = recipe.with_(methods=(*before, *recipe.methods))
    run_table(parts, options.data, _say, save_seconds=options.save_seconds, jobs=options.jobs)


def _known(name: str) -> Recipe:
    if name not in RECIPES:
        raise ValueError(f"unknown recipe {name!r}; {suggest(name, [*RECIPES, *TABLES, 'separable'])}")
    return RECIPES[name]


def _chosen(recipe: Recipe, options: argparse.Namespace) -> Recipe:
    for name in options.method or ():
        if ":" in name and os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())  # so that users' own modules can be imported
        methods.entry(base_name(name))
        if "@" in name and name not in recipe.options:
            variants = [variant for variant in recipe.options if "@" in variant]
            hint = f"it has {', '.join(variants)}" if variants else "it has no variants"
            raise ValueError(f"the recipe {recipe.name!r} has no variant called {name!r}; {hint}")
    if options.epochs is not None and options.epochs < 1:
        raise ValueError(f"--epochs must be at least 1, got {options.epochs}")
    for name in TABLE_OPTIONS:
        if getattr(options, name) is not None and recipe.data != "csv":
            raise ValueError(f"--{name} is for the recipe 'csv', and {recipe.name!r} reads no table")
    if options.size is not None and options.size < 1:
        raise ValueError(f"--size must be at least 1, got {options.size}")
    changes = {"methods": options.method, **{name: getattr(options, name) for name in CHANGED}}
    chosen = {
        key: tuple(value) if isinstance(value, list) else value for key, value in changes.items() if value is not None
    }
    return recipe.with_(**chosen)


def _load(folders: Sequence[Path], problems: list[str], samples: bool = True) -> list[Record]:
    """Records from folders of runs or of single records, each once; adds a sentence for each damaged one.

    With ``samples``, reads for a report: damaged records and those of newer versions as far as possible, large ones
    without their samples. Otherwise reads only the epochs of intact records.
    """
    places = {folder: [path.parent for path in sorted(folder.rglob("record.json"))] for folder in folders}
    if not all(places.values()):
        raise RecordError(f"no record found in {', '.join(str(folder) for folder in folders if not places[folder])}")
    paths = {path.resolve(): path for held in places.values() for path in held}.values()
    records = []
    for path in paths:
        if not samples:
            try:
                records.append(Record.load(path, samples=False))
            except LaterRecord as error:
                problems.append(f"{error}; it is not in the table")
            except RecordError as error:
                words = "it is not in the table, and the same `curriculum run` command makes it again"
                problems.append(f"{error}; {words}")
            continue
        record, found = Record.salvage(path, samples=False)
        if record is not None and too_large(record) is None:
            record, found = Record.salvage(path)
        problems += found
        records += [record] if record is not None else []
    return records


def _compare(options: argparse.Namespace) -> None:
    problems: list[str] = []
    records = _load(options.folders, problems, samples=False)
    if not records:
        raise RecordError("\n".join(problems))
    found = by_recipe(records)
    tables = {recipe: table_of(runs) for recipe, runs in found.items()}
    for recipe, rows in tables.items():
        _say(f"{recipe}\n" if len(tables) > 1 else "")
        _say(f"{format_table(rows)}\n{format_published(recipe, rows)}")
    if unfinished(records):
        _say(f"{unfinished(records)} of these {len(records)} runs are unfinished; their figures are preliminary")
    for problem in problems:
        _say(f"curriculum: {problem}", file=sys.stderr)
    for text in dict.fromkeys(text for folder in options.folders for text in missing_runs(folder)):
        _say(text)
    for path in filter(None, (options.json, options.md)):
        path.parent.mkdir(parents=True, exist_ok=True)
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
    inner = min((path.parent for path in options.folder.rglob("record.json")), default=options.folder)
    if not (options.folder / "record.json").exists() and inner != options.folder:
        raise ValueError(f"{options.folder} is a folder of runs; give the folder of one run, such as {inner}")
    large = too_large(Record.load(options.folder, samples=False))
    if large is not None:
        raise ValueError(
            f"{large}; call torchcurriculum.audit.audit(Record.load(folder)) on a machine with enough memory"
        )
    record = Record.load(options.folder)
    found = audit(record)
    names, previews = class_names(record), _previews(options.folder)
    written = None
    if options.export:  # before printing, because the reader of a pipe may close it early
        out = options.out or Path(f"audit.{'csv' if options.export in ('csv', 'cleanlab') else 'json'}")
        written = export(found, out, options.export, names=None if options.export == "cleanlab" else names)
    _say(found.summary() + "\n")
    shown = found.rows(options.top)
    _say(f"{'rank':>4} {'row':>8} {'quality':>8}  given -> suggested")
    for rank, row in enumerate(shown, 1):
        words = one_line(row, names, previews.text(row["row"]) if previews else None)
        quality = "-" if math.isnan(row["quality"]) else f"{row['quality']:.4f}"  # where nothing is known
        _say(f"{rank:>4} {row['row']:>8} {quality:>8}  {words}")
    if found.wrong is not None:
        auroc = found.auroc()
        known = "no label is wrong" if auroc is None else f"AUROC {auroc:.3f}"
        _say(f"\nprecision of these {len(shown)}: {found.precision(len(shown)):.1%}; {known}; ", end="")
        _say(f"right labels called wrong: {found.false_alarms()}")
    if written is not None:
        _say(f"\nwrote {written}")


def _previews(folder: Path) -> Previews | None:
    try:
        return Previews.load(folder)
    except ValueError as error:
        _say(f"curriculum: {error}", file=sys.stderr)
        return None


def _report(options: argparse.Namespace) -> None:
    problems: list[str] = []
    found = by_recipe(_load(options.folders, problems))
    several = len(found) > 1  # runs of different tables are not seeds of one method
    groups = [(name, method, held) for name, group in found.items() for method, held in group.items()]
    runs = {f"{method} ({name})" if several else method: held for name, method, held in groups}
    title = data_names(runs) or ", ".join(folder.resolve().name for folder in options.folders)
    _say(write_report(runs, options.out, title=title, problems=problems))
    reasons = [too_large(record) for records in runs.values() for record in records]
    large = [f"{reason}, so its samples are not shown" for reason in reasons if reason is not None]
    for sentence in [f"{problem}; showing what could be read" for problem in problems] + large:
        _say(f"curriculum: {sentence}", file=sys.stderr)


def _review(options: argparse.Namespace) -> None:
    proposal, path = read_for_review(options.proposal)
    if not proposal.rows:
        raise ValueError(f"{options.proposal} proposes nothing, so there is nothing to review")
    if (options.out is None) != (options.export is None) or (options.export and options.answers):
        raise ValueError("--export FORM needs --out DIR, and neither can be combined with --import")
    if options.export:
        for written in write_for(options.export, proposal, options.out):
            _say(f"wrote {written}")
        return
    if options.answers:
        with Review(proposal, path) as review:
            answered = read_answers(proposal, options.answers).rows
            review.decide({one.row: one for one in answered})
        _say(f"{len(answered):,} answers are now decisions, in {path}")
        return
    with Review(proposal, path) as review, contextlib.suppress(KeyboardInterrupt):
        print(f"review at {review.address}", flush=True)
        _say(f"decisions are saved to {path} as you make them; press Ctrl-C to stop")
        if not options.no_browser:
            webbrowser.open(review.address)
        review.run()
    done = len(review.decisions().rows)
    _say(f"\n{done:,} of {len(proposal.rows):,} labels decided, in {path}")
    if done:
        _say(f"to apply them: curriculum fix {shlex.quote(str(path))} --out FIXED")


def _fix(options: argparse.Namespace) -> None:
    source, proposal, decisions, words = read_for_fix(options.chosen, options.proposal)
    _say(words)
    if options.min_probability is not None and proposal is not None and proposal.share.low == 0:
        _say("All labels may be right, so --min-probability changes only labels that are called wrong.")
    fix = Fix(source, planned(proposal, decisions, options.mode, options.min_probability), options.mode, options.data)
    _say(fix.summary())
    if not options.dry_run:
        fix.target(options.out, options.in_place, options.link)  # check the target before training
    if options.check:
        with Progress(_say) as progress:
            checked = fix.checked(progress)
        _say(checked.summary())
    if options.dry_run:
        fix.check()
        _say("Nothing was written (--dry-run).")
        return
    for path in fix.write(options.out, in_place=options.in_place, link=options.link):
        _say(f"wrote {path}")


def _list(options: argparse.Namespace) -> None:
    _say("recipes (curriculum run NAME):")
    for name, recipe in RECIPES.items():
        _say(f"  {name:<28}{recipe.summary}")
    for name, table in TABLES.items():
        _say(f"  {name:<28}a table of {', '.join(recipe.name for recipe in table)}")
    _say(f"  {'separable':<28}the paper's illustrative example: logistic regression on separable points")
    _say("\nmethods (--method NAME, or torchcurriculum.methods.build):")
    for name in methods.names():
        _say(f"  {name:<22}{methods.entry(name).summary}")
    for point in entry_points(group=methods.GROUP):
        _say(f"  {point.name:<22}{point.value}")


if __name__ == "__main__":
    sys.exit(main())
