"""How well the audit finds wrong labels, beside cleanlab on the same model's probabilities; writes one table.

    python benchmarks/audit.py                                     # digits with 0, 10, 20 and 40 % flips
    python benchmarks/audit.py --wrench DIR                        # and the real weak labels of DIR/trec, DIR/youtube
    python benchmarks/audit.py --records DIR ... [--no-digits]     # and records of `curriculum run` that know the truth
    python benchmarks/audit.py --judged FILE ... [--no-digits]     # and what `beyond.py` judged on another machine

Results are kept by name in OUT.json, so that parts can be measured on different machines; OUT.md is written from it.
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
import torch
from common import epochs_of
from torch import nn

from torchcurriculum import Arrays, Curriculum, Record, methods, theory
from torchcurriculum.audit import Audit, Predictions, audit
from torchcurriculum.distributed import derive, evaluating
from torchcurriculum.lab.data import hashed_words, load_wrench, majority_vote
from torchcurriculum.lab.models import digits_cnn
from torchcurriculum.lab.provenance import environment
from torchcurriculum.lab.recipe import Recipe
from torchcurriculum.lab.recipes import RECIPES
from torchcurriculum.lab.sources import load_data
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
MARKER = "\n## What it says\n"
Row = dict[str, Any]
Run = tuple[str, str, Record]  # data, method, what happened


# ---------------------------------------------------------------------- runs


def digits_recipe(rate: float) -> Recipe:
    return RECIPES["digits"].with_(noise_rate=rate, threshold="auto")


def digits_runs(seeds: list[int], rates: list[float]) -> Iterator[Run]:
    for rate in rates:
        for seed in seeds:
            for name in ("vanilla", "apw-e"):
                with tempfile.TemporaryDirectory() as folder:
                    record = train(digits_recipe(rate), name, seed, Path(folder), lambda *_: None)
                yield digits_name(rate), name, record


def digits_name(rate: float) -> str:
    return f"digits, {rate:.0%} flipped"


def cross_validated(recipe: Recipe, seed: int, folds: int) -> np.ndarray:
    """(N, C) probabilities of plain networks that did not see the row, at their best-validation epoch."""
    sets = load_data(recipe, seed).sets
    train_set, valid_set = sets["train"], sets["valid"]
    assert isinstance(train_set, Arrays)
    assert isinstance(valid_set, Arrays)
    x, labels, n = train_set.x, train_set.y, len(train_set)
    place = torch.randperm(n, generator=torch.Generator().manual_seed(derive(seed, "folds"))) % folds
    shares = torch.zeros(n, 10)
    for fold in range(folds):
        inside, outside = place != fold, place == fold
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(seed, "initial weights", fold))
            model = digits_cnn()
        best = -1.0
        for _ in plain_epochs(model, Arrays(x[inside], labels[inside]), recipe, seed):
            with evaluating(model), torch.no_grad():
                valid = (model(valid_set.x).argmax(1) == valid_set.y).double().mean().item()
                if valid > best:
                    best, shares[outside] = valid, model(x[outside]).softmax(1)
    return shares.numpy()


def plain_epochs(model: nn.Module, data: Arrays, recipe: Recipe, seed: int) -> Iterator[int]:
    """Trains as the recipe says, and stops after every epoch to be looked at."""
    curriculum = Curriculum(methods.build("vanilla", len(data), recipe.epochs), data, batch_size=64, seed=seed)
    return epochs_of(model, curriculum, recipe.epochs, recipe.lr)


def wrench_runs(folder: Path, seeds: list[int], epochs: int = 20) -> Iterator[Run]:
    """A network with one hidden layer over hashed words, trained on the majority vote of the rules."""
    for data in ("trec", "youtube"):
        parts = load_wrench(folder / data)
        votes = majority_vote(parts["train"].weak)
        covered = votes >= 0
        texts = [text for text, kept in zip(parts["train"].texts, covered, strict=True) if kept]
        train_set = Arrays(hashed_words(texts), votes[covered])
        valid = Arrays(hashed_words(parts["valid"].texts), parts["valid"].labels)
        for seed in seeds:
            for name in ("vanilla", "apw-e"):
                record = text_run(name, train_set, valid, len(parts["train"].names), seed, epochs)
                record.set_array("clean", parts["train"].labels[covered].numpy())
                yield f"{data}, majority vote of rules", name, record


def text_run(name: str, train_set: Arrays, valid: Arrays, classes: int, seed: int, epochs: int) -> Record:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "initial weights"))
        model = nn.Sequential(nn.Linear(train_set.x.shape[1], 64), nn.ReLU(), nn.Linear(64, classes))
    options = {"threshold": "auto"} if "apw" in name else {}
    method = methods.build(name, len(train_set), epochs, **options)
    curriculum = Curriculum(method, train_set, batch_size=64, seed=seed, samples=True)
    predictions, best = Predictions(train_set.y, classes), -1.0
    for _ in epochs_of(model, curriculum, epochs, 0.5):
        with torch.no_grad():
            accuracy = (model(valid.x).argmax(1) == valid.y).double().mean().item()
            predictions.note(model(train_set.x), accuracy > best)
        best = max(best, accuracy)
    for word, values in {"labels": train_set.y.numpy(), **predictions.arrays()}.items():
        curriculum.record.set_array(word, values)
    return curriculum.record


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


def judge_folds(rate: float, seed: int, folds: int) -> list[Row]:
    """cleanlab as it asks to be used: on probabilities of networks that did not see the row."""
    recipe = digits_recipe(rate)
    problem = load_data(recipe, seed)
    assert problem.clean is not None
    given, clean = problem.sets["train"].y.numpy(), problem.clean.numpy()
    found = _nothing(given, given != clean)
    head = {"data": digits_name(rate), "method": f"{folds} x vanilla", "seed": seed, "n": len(given)}
    head["truth"] = float((given != clean).mean())
    return cleanlab_rows(head, found, cross_validated(recipe, seed, folds), "cleanlab, cross-validated")


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


def page(rows: list[Row], words: str) -> str:
    return f"""# The audit, measured

```
{words}
```

Which training labels are wrong, found from the record of one run. How the audit weighs epochs and pools its two
opinions was chosen among some forty variants on digits (seeds 0 to 2: 10, 20 and 40 % flips, and 30 % moved to the next
class), on TREC and YouTube (seeds 0 to 2) and on 6,000 images of CIFAR-10. The rows of digits below are of other seeds,
with other splits and flips. Those of TREC and YouTube are not held out: another seed changes only the network.

Scores:

- "audit" is `torchcurriculum.audit.audit`; "losses only" is the same without the mean probabilities (`Predictions`);
- "mean loss" is the plain mean over the epochs; "m_K" is the accumulated easiness of the theory at the last epoch;
- "cleanlab" is the default label quality and the default filter of cleanlab 2.9, on the probabilities of the same run
  at its best-validation epoch (by a clean validation set; these have seen the labels), or of five-fold cross-validation
  (five further trainings of plain networks, each at its best-validation epoch).

AUROC (± standard deviation over the runs), average precision, and precision among the top 1, 5 and 10 %: means over
runs with different seeds. "Called wrong" and "falsely" are shares of all rows. The last column is the audit's estimate
of the share of wrong labels (and the truth), and in how many runs its interval holds the truth; "none" where a run
shows one population and there is no estimate.

{table(rows)}
"""


def write_page(path: Path, rows: list[Row]) -> None:
    """Writes the table anew, and keeps what people wrote about it below."""
    words = "python benchmarks/audit.py --folds 5 --wrench DIR --judged RESULTS.jsonl"
    _, marker, kept = path.read_text(encoding="utf-8").partition(MARKER) if path.exists() else ("", "", "")
    path.write_text(page(rows, words) + marker + kept, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[5, 6, 7, 8, 9])
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES))
    parser.add_argument("--folds", type=int, default=0, help="also cross-validate plain networks for cleanlab (digits)")
    parser.add_argument("--no-digits", action="store_true")
    parser.add_argument("--wrench", type=Path, metavar="DIR", help="holds trec/ and youtube/")
    parser.add_argument("--records", type=Path, nargs="+", default=[], metavar="DIR")
    parser.add_argument("--judged", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--out", type=Path, default=Path("docs/results/audit"))
    options = parser.parse_args()
    if options.folds == 1 or options.folds < 0:
        parser.error("--folds must be 0 or at least 2")
    runs: list[Iterator[Run]] = [record_runs(options.records)]
    if not options.no_digits:
        runs.append(digits_runs(options.seeds, options.rates))
    if options.wrench:
        runs.append(wrench_runs(options.wrench, options.seeds))
    fresh = [row for path in options.judged for row in judged_rows(path)]
    for data, method, record in itertools.chain(*runs):
        fresh += judge(data, method, record)
        print(data, method, record.meta.get("seed"), flush=True)
    for rate, seed in itertools.product(options.rates, options.seeds if options.folds else []):
        fresh += judge_folds(rate, seed, options.folds)
        print(digits_name(rate), "cross-validated", seed, flush=True)
    path = options.out.with_suffix(".json")
    held = json.loads(path.read_text())["rows"] if path.exists() else []
    measured = {(row["data"], row["method"]) for row in fresh}
    rows = [row for row in held if (row["data"], row["method"]) not in measured] + fresh
    rows.sort(key=lambda row: row["data"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n")
    write_page(options.out.with_suffix(".md"), rows)
    print(table(rows))


if __name__ == "__main__":
    main()
