"""Runs a recipe: every method with every seed, then the table, the audit and the report."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ..audit import Audit, audit, class_names, one_line
from ..checkpoint import GracefulStop
from ..record import Record, RecordError, Summary
from .compare import format_published, format_table, table_of, without_paths
from .lock import Busy, lock_folder, refuse_other_files
from .method_options import needs_vanilla
from .missing import missing_runs
from .pool import EXPECTED, Run, reason, train_together
from .progress import Progress
from .provenance import environment, write_json
from .recipe import Recipe, later_settings, settings
from .sources import digest, own_table
from .trainer import SAVE_SECONDS, Interrupted, finished, train

__all__ = ["run", "run_table"]

Echo = Callable[[str], None]
SHOWN = 20  # rows of an audit to print


def run(
    recipe: Recipe,
    out: Path,
    data: Path | None = None,
    echo: Echo = print,
    save_seconds: float = SAVE_SECONDS,
    jobs: int = 1,
) -> dict[str, list[Record]]:
    """Trains all methods with all seeds and writes records, ``summary.json`` and ``report.html`` into ``out``.

    Finished runs in ``out`` are not repeated, and a killed one resumes. A failed run does not stop the others, unless
    it is the first and fails before its first epoch, which means that the command is wrong.

    Args:
        recipe: The recipe.
        out: The folder; one that holds another recipe, or this one with other settings or data, is refused.
        data: Folder of the data set, for recipes that need one.
        echo: Called with each line of output.
        save_seconds: Seconds between saved states of a run.
        jobs: Number of parallel runs, each in its own process.

    Returns:
        The records, by method.

    Raises:
        ValueError: At the end, if runs failed, with their names and reasons.
    """
    return run_table({out: recipe}, data, echo, save_seconds, jobs)[out]


def run_table(
    parts: Mapping[Path, Recipe],
    data: Path | None = None,
    echo: Echo = print,
    save_seconds: float = SAVE_SECONDS,
    jobs: int = 1,
) -> dict[Path, dict[str, list[Record]]]:
    """Runs several recipes, each into its folder, as ``run`` does, with one queue of runs and one display for all."""
    if jobs < 1:
        raise ValueError(f"--jobs (jobs=) must be at least 1, got {jobs}")
    if not save_seconds >= 0:
        raise ValueError(f"--save-seconds (save_seconds=) must be at least 0, got {save_seconds}")
    parts = {out: _unique(recipe) for out, recipe in parts.items()}
    for recipe in parts.values():
        if recipe.epochs < 2 and any(needs_vanilla(recipe, name) for name in recipe.methods):
            raise ValueError(f"a threshold estimated from the vanilla run needs at least 2 epochs, got {recipe.epochs}")
    new = [out for out, recipe in parts.items() if _claim(recipe, out, data)]
    failed: list[tuple[Run, str]] = []
    try:
        _train_all(parts, data, echo, save_seconds, jobs, failed)
    finally:
        for out in new:
            if not any(out.rglob("record.json")):  # keep the folder usable after a wrong command
                (out / "recipe.json").unlink(missing_ok=True)
    problems: list[str] = []
    found = {out: _conclude(recipe, out, echo, problems) for out, recipe in parts.items()}
    if failed:
        problems.append(_failures(failed, len(parts) > 1, any(found.values())))
    if problems:
        raise ValueError("\n".join(problems))
    return found


def _unique(recipe: Recipe) -> Recipe:
    """The recipe with each method and seed once, and with weights and an encoder that are found from any folder."""
    once = {"methods": tuple(dict.fromkeys(recipe.methods)), "seeds": tuple(dict.fromkeys(recipe.seeds))}
    return recipe.with_(**once, **_resolved(recipe.as_dict()))


def _resolved(held: Mapping[str, Any]) -> dict[str, Any]:
    """The weights and the model of a recipe, as absolute paths if they are files."""
    found = {key: held.get(key) for key in ("weights", "model")}
    for key, value in found.items():
        if isinstance(value, str) and (key == "weights" or (Path(value) / "config.json").is_file()):  # an encoder
            found[key] = str(Path(value).resolve())
    return found


def _train_all(
    parts: Mapping[Path, Recipe],
    data: Path | None,
    echo: Echo,
    save_seconds: float,
    jobs: int,
    failed: list[tuple[Run, str]],
) -> None:
    """Trains unfinished runs; adds those that fail to ``failed``."""
    todo: list[Run] = []
    for out, recipe in parts.items():
        runs = [
            Run(recipe, name, seed, _place(out, name, seed)) for seed, name in product(recipe.seeds, recipe.methods)
        ]
        echo(f"{recipe.summary}\n{len(runs)} runs of {recipe.epochs} epochs, into {out}\n")
        if recipe.data == "csv" and data is not None:
            echo(f"{own_table(recipe, data).message()}\n")
        rest = [run for run in runs if finished(recipe, run.folder) is None]
        if len(rest) < len(runs):
            echo(f"already finished: {len(runs) - len(rest)} of them\n")
        todo += rest
    # The first seed of every recipe, then the second, so that an interrupted table has complete seeds.
    todo.sort(key=lambda run: (needs_vanilla(run.recipe, run.method), run.recipe.seeds.index(run.seed)))
    total = {(run.recipe.name, run.method, run.seed): run.recipe.epochs for run in todo}
    with GracefulStop() as stop, Progress(total, echo=echo) as progress:

        def watch(run: Run, row: dict[str, Any]) -> None:
            progress.watch(run.recipe.name, run.method, run.seed, row)

        def fail(run: Run, words: str) -> None:
            failed.append((run, words))
            progress.fail(run.recipe.name, run.method, run.seed, words)

        if jobs > 1:
            train_together(todo, watch, fail, data, stop, save_seconds, jobs)
            return
        for run in todo:
            try:
                tell = partial(progress.watch, run.recipe.name)
                train(run.recipe, run.method, run.seed, run.folder, tell, data, stop, save_seconds)
            except Interrupted:
                raise
            except Exception as error:
                if not progress.trained and not isinstance(error, Busy):
                    if isinstance(error, EXPECTED):
                        raise
                    raise ValueError(f"{run.method}, seed {run.seed}: {reason(error)}") from error
                fail(run, reason(error))


def _place(out: Path, name: str, seed: int) -> Path:
    return out / name.replace(":", ".") / f"seed-{seed}"  # valid on every file system


def _failures(failed: Sequence[tuple[Run, str]], several: bool, some: bool) -> str:
    """The failed runs with their reasons; only the reason if nothing finished and all failed alike."""
    if not some and len({words for _, words in failed}) == 1:
        return failed[0][1]
    lines = [
        f"{f'{run.recipe.name}, ' if several else ''}{run.method}, seed {run.seed}: {words}" for run, words in failed
    ]
    return "\n".join([f"failed runs: {len(failed)}; the same command retries them", *lines])


def _conclude(recipe: Recipe, out: Path, echo: Echo, problems: list[str]) -> dict[str, list[Record]]:
    """The records of the finished runs, with their table, audit and report, and a list of missing runs.

    Adds the reason to ``problems`` if a file cannot be written, as on a full disk.
    """
    held = {name: [finished(recipe, _place(out, name, seed)) for seed in recipe.seeds] for name in recipe.methods}
    runs = {name: whole for name, records in held.items() if (whole := [one for one in records if one is not None])}
    if runs:
        rows = table_of(runs)
        audited = {name: records for name, records in runs.items() if recipe.audit and _can_audit(records)}
        made = {name: _audits(records, problems) for name, records in audited.items()}
        found = {name: audits for name, audits in made.items() if audits}
        try:
            write_json(out / "summary.json", _summary(recipe, rows, found))
            report = _report(runs, out)
        except OSError as error:
            problems.append(reason(error))
            report = f"No report: {error}"
        audits = format_audits(found, class_names(next(iter(runs.values()))[0])) if recipe.audit else ""
        for text in (f"\n{format_table(rows)}", format_published(recipe.name, rows), audits, f"\n{report}"):
            echo(text)
    for text in missing_runs(out):
        echo(text)
    return runs


def _audits(records: Sequence[Record], problems: list[str]) -> list[Audit]:
    """The audits of the records; adds a sentence to ``problems`` for each record with damaged arrays."""
    audits = []
    for record in records:
        try:
            audits.append(audit(record))
        except ValueError as error:
            words = "delete this folder, and the same command makes the run again"
            problems.append(f"{record.source} is damaged: {error}; {words}")
    return audits


def format_audits(found: Mapping[str, Sequence[Audit]], classes: list[str] | None = None) -> str:
    """The most suspicious labels of one method's first seed, and the quality of each method's ranking if known."""
    if not found:
        return "No method measured the rows' own losses, so there is nothing to audit."
    lines = [
        "Which training labels are wrong? The estimated share, the share called wrong, and the quality of the "
        "ranking, if the truth is known:"
    ]
    width = max(12, *(len(name) + 2 for name in found))
    lines += [f"  {name:<{width}}{_judged(audits)}" for name, audits in found.items()]
    name = _auditor(found)
    rows = found[name][0].rows(SHOWN)
    lines.append(f"\nThe {len(rows)} most suspicious labels ({name}, first seed): given -> suggested")
    lines += [f"  row {row['row']:>7}  {one_line(row, classes)}" for row in rows]
    return "\n".join(lines)


def _judged(audits: Sequence[Audit]) -> str:
    """One line about a method's audits over its seeds."""
    estimates = ", ".join("-" if one.health else f"{one.share:.1%}" for one in audits)
    words = f"estimates {estimates}  calls {np.mean([one.issue.mean() for one in audits]):.1%}"
    aurocs = [auroc for one in audits if (auroc := one.auroc()) is not None]
    if len(aurocs) < len(audits):  # the true labels are unknown, or all labels are right
        return words
    size = len(audits[0].score)
    tops = [(top, np.mean([one.precision(top) for one in audits])) for top in (SHOWN, size // 10, size // 3)]
    shares = ", ".join(f"{share:.1%} of the top {top}" for top, share in tops)
    return f"{words}  really wrong: {shares}  AUROC {np.mean(aurocs):.3f}"


def _can_audit(records: Sequence[Record]) -> bool:
    """False for methods that mix rows and never measure, such as plain mixup: no row has its own loss."""
    return all(record.has("losses") and np.isfinite(record.history("losses")).any() for record in records)


def _auditor(found: Mapping[str, Sequence[Audit]]) -> str:
    """The method whose ranking is shown: the one that docs/audit.md recommends, otherwise the first."""
    return next((name for name in ("vanilla", "rapw") if name in found), next(iter(found)))


def _claim(recipe: Recipe, out: Path, data: Path | None) -> bool:
    """Writes the recipe and the place of its data to the folder; returns whether the folder is new to it."""
    path, told = out / "recipe.json", digest(recipe, data)
    if not path.exists():
        refuse_other_files(out)
    with lock_folder(out, wait=True):  # another command may be claiming it for other methods or seeds
        known = path.exists()
        kept = _refuse_other(recipe, path, told) if known else {}
        asked = dict.fromkeys([*kept.get("asked", ()), *product(recipe.methods, recipe.seeds)])
        where = {"digest": told or kept.get("digest"), "from": None if data is None else str(data.resolve())}
        write_json(path, {**recipe.as_dict(), **where, "asked": list(asked)})
    return not known


def _refuse_other(recipe: Recipe, path: Path, told: str | None) -> dict[str, Any]:
    """Raises an error if the folder's recipe has other settings; methods and seeds may differ. Returns that recipe."""
    try:
        held = dict(json.loads(path.read_text(encoding="utf-8")))
        held["asked"] = [(str(name), int(seed)) for name, seed in held.get("asked", ())]
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}); choose another folder") from error
    out, name = path.parent, held.get("name")
    if name != recipe.name:
        raise ValueError(f"{out} holds runs of the recipe {name!r}; choose another folder for {recipe.name!r}")
    if later := later_settings(held):
        raise ValueError(
            f"{path} has settings of a later version ({later}); update torchcurriculum, or choose another folder"
        )
    wanted = json.loads(json.dumps(recipe.as_dict()))
    if None not in (told, held.get("digest")) and held["digest"] != told:
        if _started(out):
            raise ValueError(f"{out} holds runs of {recipe.name!r} on other data; choose another folder (--out)")
        for stale in list(out.rglob("record.json")):  # from runs that ended before their first epoch
            shutil.rmtree(stale.parent)
    held = {"options": {}, **held, **settings(held)}  # written by an earlier version
    held |= _resolved(held)
    fields = [key for key in (*settings(wanted), "options") if held.get(key) != wanted[key]]
    if fields:
        words = ", ".join(f"{key} {held.get(key)!r} there and {wanted[key]!r} here" for key in fields)
        raise ValueError(f"{out} holds runs of {recipe.name!r} with other settings: {words}; choose another folder")
    return held


def _started(out: Path) -> bool:
    """Whether any run in a folder has finished an epoch; an unreadable record counts as one."""
    try:
        return any(Record.load(path.parent, samples=False).epochs for path in out.rglob("record.json"))
    except RecordError:
        return True


def _summary(recipe: Recipe, rows: Sequence[Summary], found: Mapping[str, Sequence[Audit]]) -> dict[str, Any]:
    aurocs = {name: [one.auroc() for one in audits] for name, audits in found.items()}
    table = [vars(row) for row in rows]
    return {
        "recipe": without_paths(recipe.as_dict()),
        "environment": environment(),
        "table": table,
        "audit_auroc": aurocs,
    }


def _report(runs: dict[str, list[Record]], out: Path) -> str:
    try:
        from ..report import data_names, write_report

        page = write_report(runs, out / "report.html", title=data_names(runs))
        return f"The report, with curves and pictures: {page}"
    except ImportError as error:
        return f"No report: {error}"
