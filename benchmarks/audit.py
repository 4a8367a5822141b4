"""How well the audit finds wrong labels in a run's own memory, beside cleanlab on the same run; prints one table.

    python benchmarks/audit.py                                     # digits with 0, 10, 20 and 40 % flips
    python benchmarks/audit.py --records DIR ... [--no-digits]     # and records of `curriculum run` that know the truth
    python benchmarks/audit.py --judged FILE ... [--no-digits]     # and what `beyond.py` judged on another machine

cleanlab comes with `pip install cleanlab`; without it its rows are left out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from torchcurriculum import Record, theory
from torchcurriculum.audit import Audit, audit
from torchcurriculum.lab.recipe import Recipe
from torchcurriculum.lab.recipes import RECIPES
from torchcurriculum.lab.trainer import train
from torchcurriculum.record import RecordError

RATES = (0.0, 0.1, 0.2, 0.4)
TOPS = (0.01, 0.05, 0.1)
COLUMNS = ("auroc", "average_precision", *(f"top_{top:g}" for top in TOPS))
NAMES = {
    f"{name}, {net}": f"{words}, {net}"
    for name, words in {"n40": "CIFAR-10, 40% flipped", "worse": "CIFAR-10N worse", "clean": "CIFAR-10, clean"}.items()
    for net in ("simple-cnn", "resnet18-3x3")
}
Row = dict[str, Any]
Run = tuple[str, str, Record]  # data, method, what happened


# ---------------------------------------------------------------------- runs


def digits_recipe(rate: float) -> Recipe:
    return RECIPES["digits"].with_(noise_rate=rate, threshold="auto")


def digits_runs(seeds: list[int], rates: list[float]) -> Iterator[Run]:
    for rate in rates:
        for seed in seeds:
            for name in ("vanilla", "apw-e", "rapw"):
                with tempfile.TemporaryDirectory() as folder:
                    record = train(digits_recipe(rate), name, seed, Path(folder), lambda *_: None)
                yield digits_name(rate), name, record


def digits_name(rate: float) -> str:
    return f"digits, {rate:.0%} flipped"


def record_runs(folders: list[Path]) -> Iterator[Run]:
    for path in sorted(path.parent for folder in folders for path in folder.rglob("record.json")):
        record = Record.load(path)
        recipe = record.meta.get("recipe")
        data = recipe.get("name", path.parent.name) if isinstance(recipe, dict) else path.parent.name
        yield str(data), str(record.meta.get("method", "?")), record


def judged_rows(path: Path) -> list[Row]:
    """Rows that `beyond.py` made of its jobs, and cleanlab's for the probabilities that it kept beside them."""
    rows = []
    for line in path.read_text().splitlines():
        job = json.loads(line)
        some = [{**row, "data": NAMES.get(row["data"], row["data"])} for row in job.get("judged", [])]
        name = f"{job.get('set')}-{job.get('model', 'simple-cnn')}-{job.get('method')}-{job.get('seed')}.npz"
        kept = path.with_name(f"{path.stem}-shares") / name
        if some and kept.exists():
            with np.load(kept) as held:
                given, clean, shares = held["labels"].astype(np.int64), held["clean"], held["p"]
            head = {key: some[0][key] for key in ("data", "method", "seed", "n", "truth")}
            some += cleanlab_rows(head, _nothing(given, given != clean), shares, "cleanlab, same run")
        rows += some
    return rows


# ---------------------------------------------------------------------- scores


def judge(data: str, method: str, record: Record) -> list[Row]:
    """A row for every way to rank the labels of a run."""
    started = time.perf_counter()
    found = audit(record)
    seconds = time.perf_counter() - started
    if found.wrong is None:
        raise RecordError(f"the record of {data}, {method}, does not know which labels are wrong (there is no 'clean')")
    rate = {"rate": found.share, "low": found.share_low, "high": found.share_high, "visible": not found.health}
    rate["seconds"] = seconds
    head = {"data": data, "method": method, "seed": record.meta.get("seed"), "n": record.n}
    head["truth"] = float(found.wrong.mean())
    rows = [head | {"score": "audit"} | measures(found) | called(found.wrong, found.issue) | rate]
    if found.suggested is not None and (found.issue & found.wrong).any():
        right = found.suggested == record.arrays["clean"]
        rows[0]["suggestions_right"] = float(right[found.issue & found.wrong].mean())
    if found.wrong.any():
        rows += rankings(head, found, record)
    if "probabilities" in record.arrays:
        rows += cleanlab_rows(head, found, record.arrays["probabilities"], "cleanlab, same run")
    return rows


def _nothing(given: np.ndarray, wrong: np.ndarray) -> Audit:
    """An audit that says nothing of labels, for another ranking to be put in."""
    zero = np.zeros(len(given))
    return Audit(zero, zero, zero, zero, 0.0, 0.0, 1.0, ["nothing"], zero, given, None, wrong=wrong)


def rankings(head: Row, found: Audit, record: Record) -> list[Row]:
    """Simpler scores from the same record."""
    rows = []
    if "mean_probabilities" in record.arrays:
        alone = Record(record.n)
        alone.epochs, alone._histories = record.epochs, record._histories
        rows.append(head | {"score": "audit, losses only"} | measures(reranked(found, audit(alone).score)))
    rows.append(head | {"score": "mean loss"} | measures(reranked(found, mean_loss(record))))
    if (accumulated := relative(record)) is not None:
        rows.append(head | {"score": "m_K (theory)"} | measures(reranked(found, -accumulated)))
    return rows


def mean_loss(record: Record) -> np.ndarray:
    losses = record.history("losses").astype(np.float64)
    return np.where(np.isfinite(losses), losses, 20.0).mean(axis=0)


def relative(record: Record) -> np.ndarray | None:
    try:
        return theory.relative_performance(record)  # 1 for a row that was always easy, whatever the sign of A_K
    except ValueError:
        return None


def cleanlab_rows(head: Row, found: Audit, shares: np.ndarray, words: str) -> list[Row]:
    try:
        from cleanlab.filter import find_label_issues
        from cleanlab.rank import get_label_quality_scores
    except ImportError:
        return []
    shares = shares.astype(np.float64)
    shares /= shares.sum(axis=1, keepdims=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quality = get_label_quality_scores(found.given, shares)
        issues = find_label_issues(found.given, shares, n_jobs=1)
    assert found.wrong is not None
    return [head | {"score": words} | measures(reranked(found, -quality)) | called(found.wrong, issues)]


def reranked(found: Audit, score: np.ndarray) -> Audit:
    return replace(found, score=score, order=np.argsort(-score, kind="stable"))


def measures(found: Audit) -> Row:
    tops = {f"top_{top:g}": found.precision(max(1, round(top * len(found.score)))) for top in TOPS}
    return {"auroc": found.auroc(), "average_precision": found.average_precision(), **tops}


def called(wrong: np.ndarray, issue: np.ndarray) -> Row:
    return {"called": int(issue.sum()), "false_alarms": int((issue & ~wrong).sum())}


# ---------------------------------------------------------------------- the table


def table(rows: list[Row]) -> str:
    head = ["data", "run", "score", "runs", "AUROC", "AP", *(f"P@{top:.0%}" for top in TOPS)]
    head += ["called wrong", "falsely", "estimated share (truth)"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["data"], row["method"], row["score"]), []).append(row)
    for (data, method, score), some in groups.items():
        cells = [data, f"`{method}`", score, str(len(some)), *(mean(some, name) for name in COLUMNS)]
        cells += [share(some, "called"), share(some, "false_alarms"), estimate(some)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def mean(rows: list[Row], name: str) -> str:
    values = [row[name] for row in rows if row[name] is not None]
    if not values or (name.startswith("top") and not any(row["truth"] for row in rows)):
        return "-"
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 and name == "auroc" else ""
    return f"{statistics.mean(values):.4f}{spread}"


def share(rows: list[Row], name: str) -> str:
    if name not in rows[0]:
        return ""
    return f"{statistics.mean(row[name] / row['n'] for row in rows):.2%}"


def estimate(rows: list[Row]) -> str:
    if "rate" not in rows[0]:
        return ""
    truth, seen = statistics.mean(row["truth"] for row in rows), [row for row in rows if row["visible"]]
    if not seen:
        return f"none ({truth:.1%})"
    inside = sum(row["low"] <= row["truth"] <= row["high"] for row in seen)
    words = (
        f"{statistics.mean(row['rate'] for row in seen):.1%} ({truth:.1%}); interval right in {inside} of {len(seen)}"
    )
    return words if len(seen) == len(rows) else f"{words}, none in {len(rows) - len(seen)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[5, 6, 7, 8, 9])
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES))
    parser.add_argument("--no-digits", action="store_true")
    parser.add_argument("--records", type=Path, nargs="+", default=[], metavar="DIR")
    parser.add_argument("--judged", type=Path, nargs="+", default=[], metavar="FILE")
    options = parser.parse_args()
    runs: list[Iterator[Run]] = [record_runs(options.records)]
    if not options.no_digits:
        runs.append(digits_runs(options.seeds, options.rates))
    rows = [row for path in options.judged for row in judged_rows(path)]
    for data, method, record in itertools.chain(*runs):
        rows += judge(data, method, record)
        print(data, method, record.meta.get("seed"), flush=True)
    print(table(sorted(rows, key=lambda row: row["data"])))


if __name__ == "__main__":
    main()
