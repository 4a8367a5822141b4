"""The whole of `curriculum clean` on real data, beside cleanlab on the same probabilities: what is found, and when.

    python benchmarks/clean.py DIR [--only NAME ...] [--out docs/results/clean]

DIR holds `wrench`, `glue/SST-2`, `label-errors`, `weights`, the repository `seaborn-data` and the unpacked
`cifar-10-batches-bin`, as far as they are there. Each data set is first written as a user has it (a CSV or TSV file, a
folder of pictures); then the command reads it. The truth is the gold label, the label before flips, or what a majority
of five judges said. Seconds are of the CPU.

    python benchmarks/clean.py --rows 1000000 --columns 50

writes a table of that size, reads it and trains on it, and prints the peak of the memory.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torchcurriculum.audit import audit
from torchcurriculum.clean.command import propose, without_unlearnt
from torchcurriculum.clean.folds import VOTERS, train_folds
from torchcurriculum.clean.reading import read
from torchcurriculum.clean.views import sure_labels, train_views
from torchcurriculum.lab.provenance import environment

FLIPS = 0.15


class Case(NamedTuple):
    """A user's data: how it was made, what to pass, and the true class of each row or file."""

    words: str
    path: Path
    options: dict[str, Any]
    truth: dict[str, str]


def flipped(labels: list[str], rate: float, seed: int = 0) -> list[str]:
    draw = np.random.default_rng(seed)
    names = sorted(set(labels))
    return [draw.choice([n for n in names if n != one]) if draw.random() < rate else one for one in labels]


def table(path: Path, head: list[str], rows: list[list[Any]], truth: list[str], sep: str = ",") -> dict[str, str]:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=sep)
        writer.writerow(["id", *head, "label"])
        writer.writerows([f"r{number:06}", *row] for number, row in enumerate(rows))
    return {f"r{number:06}": name for number, name in enumerate(truth)}


def wrench(folder: Path, place: Path, name: str) -> Case:
    from torchcurriculum.lab.data import load_wrench, majority_vote

    held = load_wrench(folder / "wrench" / name)["train"]
    votes = majority_vote(held.weak).tolist()
    rows = [[text, held.names[vote]] for text, vote in zip(held.texts, votes, strict=True) if vote >= 0]
    gold = [held.names[one] for one, vote in zip(held.labels.tolist(), votes, strict=True) if vote >= 0]
    truth = table(place / f"{name}.csv", ["text"], rows, gold)
    return Case(f"{name}: majority vote of rules", place / f"{name}.csv", {"id": "id"}, truth)


def sst2(folder: Path, place: Path) -> Case:
    lines = (folder / "glue" / "SST-2" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    chosen = np.random.default_rng(0).permutation(len(lines))[:3000]
    pairs = [lines[row].rsplit("\t", 1) for row in chosen]
    gold = [{"0": "negative", "1": "positive"}[label] for _, label in pairs]
    rows = [[text, label] for (text, _), label in zip(pairs, flipped(gold, FLIPS), strict=True)]
    truth = table(place / "sst2.tsv", ["sentence"], rows, gold, "\t")
    return Case("SST-2: 3,000 sentences, 15 % flipped", place / "sst2.tsv", {"id": "id"}, truth)


def numbers(name: str) -> Callable[[Path, Path], Case]:
    def make(folder: Path, place: Path) -> Case:
        from sklearn import datasets

        held = getattr(datasets, f"load_{name}")()
        gold = [str(held.target_names[one]) for one in held.target]
        wrong = flipped(gold, FLIPS)
        rows = [[*map(float, x), label] for x, label in zip(held.data, wrong, strict=True)]
        truth = table(place / f"{name}.csv", [str(one) for one in held.feature_names], rows, gold)
        return Case(f"{name}: numbers, 15 % flipped", place / f"{name}.csv", {"id": "id"}, truth)

    return make


def seaborn(name: str, label: str, rate: float, drop: tuple[str, ...] = ()) -> Callable[[Path, Path], Case]:
    """At most 2,500 rows of a messy table of the seaborn-data repository."""

    def make(folder: Path, place: Path) -> Case:
        with open(folder / "seaborn-data" / f"{name}.csv", encoding="utf-8") as file:
            held = [row for row in csv.DictReader(file) if row[label]]
        held = [held[row] for row in sorted(np.random.default_rng(0).permutation(len(held))[:2500])]
        columns = [one for one in held[0] if one not in (label, *drop)]
        gold = [row[label] for row in held]
        rows = [[*[row[one] for one in columns], new] for row, new in zip(held, flipped(gold, rate), strict=True)]
        path = place / f"{name}-{label}-{rate}.csv"
        truth = table(path, columns, rows, gold)
        return Case(f"{name}: {label}, {rate:.0%} flipped", path, {"id": "id", "label": "label"}, truth)

    return make


def cifar(features: bool, judged: bool) -> Callable[[Path, Path], Case]:
    """Pictures of CIFAR-10's test part: 600 of three classes with flips, or all judged ones and 1,725 others."""

    def make(folder: Path, place: Path) -> Case:
        from PIL import Image

        from torchcurriculum.lab.data.cifar import CLASSES

        raw = np.fromfile(folder / "cifar-10-batches-bin" / "test_batch.bin", np.uint8).reshape(-1, 3073)
        pixels, y = raw[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), raw[:, 0]
        gold = {row: CLASSES[label] for row, label in enumerate(y)}
        given, draw = dict(gold), np.random.default_rng(0)
        if judged:
            for one in json.loads((folder / "label-errors" / "cifar10_mturk.json").read_text()):
                if one["mturk"]["given"] < 3:
                    gold[one["id"]] = CLASSES[one["our_guessed_label"]] if one["mturk"]["guessed"] >= 3 else "another"
            told = [one["id"] for one in json.loads((folder / "label-errors" / "cifar10_mturk.json").read_text())]
            rows = [*told, *[row for row in draw.permutation(len(y)).tolist() if row not in set(told)][:1725]]
        else:
            rows = [row for one in (0, 1, 8) for row in np.flatnonzero(y == one)[:200].tolist()]
            for row, label in zip(rows, flipped([gold[row] for row in rows], FLIPS), strict=True):
                given[row] = label
        name = f"cifar-{'judged' if judged else 'flipped'}-{'pretrained' if features else 'alone'}"
        truth = {}
        for row in rows:
            path = place / name / given[row] / f"{row}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels[row]).save(path)
            truth[f"{given[row]}/{row}.png"] = gold[row]
        weights = next((folder / "weights").glob("efficientnet*.safetensors"))
        words = "2,000 pictures, errors that people found" if judged else "600 pictures of 3 classes, 15 % flipped"
        kind = "EfficientNet-B0" if features else "no pretrained network"
        return Case(
            f"CIFAR-10 test: {words}; {kind}", place / name, {"features": str(weights) if features else "none"}, truth
        )

    return make


CASES: dict[str, Callable[[Path, Path], Case]] = {
    "cancer": numbers("breast_cancer"),
    "digits": numbers("digits"),
    "trec": lambda folder, place: wrench(folder, place, "trec"),
    "youtube": lambda folder, place: wrench(folder, place, "youtube"),
    "sst2": sst2,
    "pictures": cifar(features=True, judged=False),
    "pictures-alone": cifar(features=False, judged=False),
    "judged": cifar(features=True, judged=True),
}
for name, label in {"taxis": "payment", "titanic": "survived", "penguins": "species", "mpg": "origin"}.items():
    CASES[name] = seaborn(name, label, 0.1, ("alive",))
    CASES[f"{name}-clean"] = seaborn(name, label, 0.0, ("alive",))
# not used to choose anything
CASES |= {"colour": seaborn("taxis", "color", FLIPS), "colour-clean": seaborn("taxis", "color", 0.0)}
CASES |= {"diamonds": seaborn("diamonds", "cut", FLIPS), "diamonds-clean": seaborn("diamonds", "cut", 0.0)}


def auroc(score: np.ndarray, wrong: np.ndarray) -> float | None:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(wrong, score)) if 0 < wrong.sum() < len(wrong) else None


def measured(case: Case) -> dict[str, Any]:
    start = time.process_time()
    source = read(case.path, **case.options)
    reading = time.process_time() - start
    by = train_folds(source.features, source.labels, len(source.classes), kinds=VOTERS[source.kind])
    source, by = without_unlearnt(source, by)
    views = train_views(source)
    found = audit(source.labels, by.probabilities, views=views, classes=source.classes)
    sure = sure_labels(found, views)
    proposal = propose(source, found, by, sure)
    whole = time.process_time() - start
    assert found.suggested is not None
    true = np.array([case.truth[one] for one in source.ids], dtype=object)
    names = np.array(source.classes, dtype=object)
    wrong = names[source.labels] != true
    check = np.isin(source.rows, [one.row for one in proposal.rows if not one.called])
    result = {
        "data": case.words, "rows": len(source), "wrong": int(wrong.sum()), "called": int(found.issue.sum()),
        "called wrong": int((found.issue & wrong).sum()), "sure": int(sure.sum()),
        "check": int(check.sum()), "check wrong": int((check & wrong).sum()),
        "sure right": int((names[found.suggested[sure]] == true[sure]).sum()), "auroc": auroc(found.score, wrong),
        "share": [found.share, found.share_low, found.share_high], "health": found.health,
        "cpu reading": round(reading), "cpu": round(whole),
    }  # fmt: skip
    start = time.process_time()
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    quality = get_label_quality_scores(source.labels, by.probabilities)
    theirs = find_label_issues(source.labels, by.probabilities)
    result |= {
        "cleanlab called": int(theirs.sum()), "cleanlab called wrong": int((theirs & wrong).sum()),
        "cleanlab auroc": auroc(-quality, wrong), "cleanlab cpu": round(time.process_time() - start, 1),
    }  # fmt: skip
    return result


def lines(results: list[dict[str, Any]]) -> Iterator[str]:
    head = ["data", "rows", "wrong", "called (wrong)", "precision", "to check (wrong)", "found", "changed (right)"]
    head += ["AUROC", "share", "CPU s"]
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for one in results:
        for who in ("", "cleanlab "):
            called, hit = one[f"{who}called"], one[f"{who}called wrong"]
            precision = f"{hit / called:.1%}" if called else "-"
            share, low, high = one["share"]
            ranked = "-" if one["auroc"] is None else f"{one[f'{who}auroc']:.4f}"
            check, rest = "", ["", ranked, "", ""]
            if not who:
                check, hit = f"{one['check']} ({one['check wrong']})", hit + one["check wrong"]
                told = "says nothing: " + one["health"][0] if one["health"] else f"{share:.1%} [{low:.1%}, {high:.1%}]"
                rest = [f"{one['sure']} ({one['sure right']})", ranked, told, str(one["cpu"])]
            found = f"{hit / one['wrong']:.1%}" if one["wrong"] else "-"
            first = (
                [one["data"], str(one["rows"]), str(one["wrong"])]
                if not who
                else ["cleanlab, same probabilities", "", ""]
            )
            yield (
                "| "
                + " | ".join([*first, f"{called} ({one[f'{who}called wrong']})", precision, check, found, *rest])
                + " |"
            )


def large(rows: int, columns: int, place: Path) -> None:
    """Peak memory and seconds of a table of numbers, categories and dates."""
    draw = np.random.default_rng(0)
    path = place / "large.csv"
    with open(path, "w", encoding="utf-8") as file:
        file.write(",".join([*(f"c{one}" for one in range(columns - 1)), "label"]) + "\n")
        for start in range(0, rows, 10_000):
            count = min(10_000, rows - start)
            y = draw.integers(0, 2, count)
            cells = [draw.normal(y * (one % 5 == 0), 1.0).round(4).astype(str) for one in range(columns - 6)]
            cells += [draw.choice(["red", "green", "blue"], count) for _ in range(3)]
            cells += [(draw.integers(0, 10**6, count) / 100).astype(str) for _ in range(2)]
            file.writelines(",".join(row) + "\n" for row in zip(*cells, np.where(y, "yes", "no"), strict=True))
    print(f"{path.stat().st_size / 2**20:,.0f} MiB of text", flush=True)
    began = time.process_time()
    source = read(path)
    print(f"read: {time.process_time() - began:,.0f} CPU s, {peak()}", flush=True)
    began = time.process_time()
    by = train_folds(source.features, source.labels, len(source.classes))
    print(f"train: {time.process_time() - began:,.0f} CPU s, {peak()}", flush=True)
    began = time.process_time()
    found = audit(source.labels, by.probabilities, views=train_views(source), classes=source.classes)
    print(f"halves of the columns, audit: {time.process_time() - began:,.0f} CPU s, {peak()}", flush=True)
    print(found.summary())


def peak() -> str:
    return f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--columns", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        if options.rows:
            large(options.rows, options.columns, Path(place))
            return
        results = []
        for name in options.only:
            results.append(measured(CASES[name](options.folder, Path(place))))
            print(json.dumps(results[-1]), flush=True)
    print("\n".join(lines(results)))
    if options.out:
        held = {"environment": environment(), "results": results}
        options.out.with_suffix(".json").write_text(json.dumps(held, indent=1) + "\n")


if __name__ == "__main__":
    main()
