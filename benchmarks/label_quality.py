"""Do the audit's numbers mean what they say? Simulated noise, out-of-fold probabilities, known truth; writes one page.

    python benchmarks/label_quality.py [--cases 100] [--out docs/results/label-quality]

Each case draws classes (2 to 100), noise (uniform, to the next class, or by class; 0 to 40 %), how hard the data are
and a classifier of scikit-learn, flips labels, and audits the probabilities of five folds. OUT.json keeps every case
and is continued if it exists; OUT.md is written from it. cleanlab's ranking of the same probabilities stands beside it
where cleanlab is installed. The fixed numbers of the audit were chosen on other cases (--base 0, 1000 and 3000).
"""

from __future__ import annotations

import argparse
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from torchcurriculum.audit import Audit, audit
from torchcurriculum.lab.provenance import environment

CLASSES = (2, 3, 5, 10, 20, 50, 100)
ROWS = {2: 1000, 3: 1000, 5: 1500, 10: 2000, 20: 2000, 50: 3000, 100: 4000}
KINDS = ("uniform", "next class", "by class")
RATES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4)
SPREAD = {"easy": 10.5, "middle": 6.6, "hard": 4.0}
CLASSIFIERS = ("linear", "network", "long network")
FOLDS = 5
BINS = 10
MARKER = "\n## What it says\n"
Row = dict[str, Any]


def channel(kind: str, classes: int, rate: float, draw: np.random.Generator) -> np.ndarray:
    """(C, C) probabilities of a given label (column) for a true one (row)."""
    wrong = np.full(classes, rate)
    others = np.full((classes, classes), 1.0)
    if kind == "next class":
        others = np.roll(np.eye(classes), 1, axis=1)
    elif kind == "by class":
        wrong = rate * 2 * draw.random(classes)
        wrong = (wrong * rate / max(wrong.mean(), 1e-9)).clip(0, 0.6)
        others = draw.dirichlet(np.full(classes, 0.5), classes) + 1e-3
    others = others * (1 - np.eye(classes))
    return np.diag(1 - wrong) + wrong[:, None] * others / others.sum(axis=1, keepdims=True)


def flip(true: np.ndarray, matrix: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    reached = matrix.cumsum(axis=1)[true] < draw.random(len(true))[:, None]
    labels: np.ndarray = reached.sum(axis=1).clip(0, len(matrix) - 1)
    return labels


def classifier(name: str, seed: int) -> Any:
    if name == "linear":
        return make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    epochs, width, decay = {"network": (40, 64, 1e-2), "long network": (100, 128, 1e-4)}[name]
    return make_pipeline(StandardScaler(), MLPClassifier((width,), alpha=decay, max_iter=epochs, random_state=seed))


def draw_case(number: int, base: int) -> tuple[Row, np.ndarray, np.ndarray, np.ndarray]:
    """Settings, inputs, true and given labels: two clusters of a normal distribution for each class."""
    draw = np.random.default_rng([base, number])
    case: Row = {"number": number, "classes": CLASSES[number % 7], "kind": KINDS[(number // 7) % 3]}
    case |= {"rate": float(draw.choice(RATES)), "hard": str(draw.choice(list(SPREAD)))}
    case["classifier"] = str(draw.choice(CLASSIFIERS))
    n, size = ROWS[case["classes"]], max(8, min(40, case["classes"]))
    centres = draw.normal(size=(case["classes"], 2, size)) * SPREAD[case["hard"]] / np.sqrt(size)
    true = draw.integers(0, case["classes"], n)
    x = centres[true, draw.integers(0, 2, n)] + draw.normal(size=(n, size))
    given = flip(true, channel(case["kind"], case["classes"], case["rate"], draw), draw)
    return case, x, true, given


def out_of_fold(name: str, x: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of networks stopped before they converge
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
        shares: np.ndarray = cross_val_predict(classifier(name, seed), x, labels, cv=folds, method="predict_proba")
    return shares


def measure(number: int, base: int) -> Row:
    case, x, true, given = draw_case(number, base)
    shares, wrong = out_of_fold(case["classifier"], x, given, number), given != true
    found = audit(given, shares, features=x)
    row = case | {"n": len(given), "truth": float(wrong.mean()), "accuracy": float((shares.argmax(1) == true).mean())}
    row |= {"share": found.share, "low": found.share_low, "high": found.share_high, "health": found.health}
    row |= {"called": int(found.issue.sum()), "falsely": int((found.issue & ~wrong).sum())}
    if not found.health:
        row["bins"] = bins(found.quality, ~wrong)
        row["brier"] = float(((found.quality - ~wrong) ** 2).mean())
        some = found.issue & wrong
        assert found.suggested is not None
        assert found.suggestion_probability is not None
        row["suggestions"] = bins(found.suggestion_probability[found.issue], (found.suggested == true)[found.issue])
        row["suggested_right"] = [int((found.suggested == true)[some].sum()), int(some.sum())]
    if wrong.any():
        row["auroc"] = ranked(found, wrong, found.score)
        row["auroc_cleanlab"] = cleanlab(found, wrong, given, shares)
    return row


def bins(said: np.ndarray, happened: np.ndarray) -> list[list[float]]:
    """[rows, sum of what was said, how often it happened] for each tenth."""
    place = (said * BINS).astype(int).clip(0, BINS - 1)
    return [
        [int((place == b).sum()), float(said[place == b].sum()), int(happened[place == b].sum())] for b in range(BINS)
    ]


def ranked(found: Audit, wrong: np.ndarray, score: np.ndarray) -> float | None:
    return replace(found, score=score, wrong=wrong).auroc()


def cleanlab(found: Audit, wrong: np.ndarray, given: np.ndarray, shares: np.ndarray) -> float | None:
    try:
        from cleanlab.rank import get_label_quality_scores
    except ImportError:
        return None
    return ranked(found, wrong, -get_label_quality_scores(given, shares.astype(np.float64)))


# ---------------------------------------------------------------------- the page


def diagram(rows: list[Row], name: str) -> str:
    total = np.sum([row[name] for row in rows if name in row], axis=0)
    lines = ["| said | rows | said, mean | happened |", "|---|---|---|---|"]
    for place, (count, said, happened) in enumerate(total):
        if count:
            tenth = f"{place / BINS:.1f} to {(place + 1) / BINS:.1f}"
            lines.append(f"| {tenth} | {count:,.0f} | {said / count:.3f} | {happened / count:.3f} |")
    return "\n".join(lines)


def off(rows: list[Row]) -> list[str]:
    """The bins of `quality` that are off by more than 5 points."""
    total = np.sum([row["bins"] for row in rows], axis=0)
    apart = [abs(said - happened) > 0.05 * max(count, 1) for count, said, happened in total]
    return [f"{place / BINS:.1f} to {(place + 1) / BINS:.1f}" for place, one in enumerate(apart) if one]


def coverage(rows: list[Row], name: str, values: tuple[Any, ...]) -> list[str]:
    lines = []
    for value in values:
        some = [row for row in rows if row[name] == value]
        speak = [row for row in some if not row["health"]]
        inside = sum(row["low"] <= row["truth"] <= row["high"] for row in speak)
        error = np.mean([abs(row["share"] - row["truth"]) for row in speak]) if speak else np.nan
        width = np.mean([row["high"] - row["low"] for row in speak]) if speak else np.nan
        lines.append(
            f"| {name} {value} | {len(some)} | {len(speak)} | {inside} | {100 * error:.1f} | {100 * width:.1f} |"
        )
    return lines


def page(rows: list[Row], words: str, said: str) -> str:
    speak = [row for row in rows if not row["health"]]
    inside = sum(row["low"] <= row["truth"] <= row["high"] for row in speak)
    clean = [row for row in rows if not row["truth"]]
    brier = np.average([row["brier"] for row in speak], weights=[row["n"] for row in speak])
    right, of = np.sum([row["suggested_right"] for row in speak], axis=0)
    called, falsely = (sum(row[name] for row in rows) for name in ("called", "falsely"))
    both = [row for row in rows if row.get("auroc_cleanlab") is not None]
    ours, theirs = (np.mean([row[name] for row in both]) if both else np.nan for name in ("auroc", "auroc_cleanlab"))
    groups = {"kind": KINDS, "rate": RATES, "classes": CLASSES, "hard": tuple(SPREAD), "classifier": CLASSIFIERS}
    table = ["| cases | all | it speaks | interval holds the truth | mean error, points | mean width, points |"]
    table += ["|---|---|---|---|---|---|"]
    table += [line for name, values in groups.items() for line in coverage(rows, name, values)]
    alarms = sum(row["called"] for row in clean)
    bad = off(speak)
    where = "; not in " + ", ".join(bad) if bad else ""
    return f"""# The audit's numbers: do they mean what they say?

- Where the audit speaks ({len(speak)} of {len(rows)} cases), its interval of the share holds the truth in {inside}.
- Of the labels called wrong, {falsely / max(called, 1):.1%} are right; on {len(clean)} clean sets it calls {alarms}.
- `quality` is within 5 points of the truth in {BINS - len(bad)} of {BINS} bins{where}.

```
{words}
```

{len(rows)} simulated cases: 2 to 100 classes, 0 to 40 % of the labels wrong (uniform, to the next class, by class),
three degrees of hardness, three classifiers, probabilities of five folds. The fixed numbers of the audit were chosen on
other cases. "It speaks" where `health` is empty; elsewhere it calls nothing wrong.

- It does not speak in {len(rows) - len(speak)} cases, most often because the network is against most labels.
- Called wrong: {called:,}, falsely {falsely:,}.
- Brier score of `quality`: {brier:.4f}.
- Suggestions for labels rightly called wrong: {right / max(of, 1):.1%} of {of:,} are the true class.
- AUROC on the same probabilities, mean of {len(both)} cases: audit {ours:.4f}, cleanlab's label quality {theirs:.4f}.

{chr(10).join(table)}

`quality`, the probability that a label is right:

{diagram(speak, "bins")}

`suggestion_probability`, of labels called wrong:

{diagram(speak, "suggestions")}
{said}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--base", type=int, default=4000)
    parser.add_argument("--out", type=Path, default=Path("docs/results/label-quality"))
    options = parser.parse_args()
    kept, path = options.out.with_suffix(".json"), options.out.with_suffix(".md")
    rows = json.loads(kept.read_text())["cases"] if kept.exists() else []
    for number in range(len(rows), options.cases):
        rows.append(measure(number, options.base))
        print({name: value for name, value in rows[-1].items() if name not in ("bins", "suggestions")}, flush=True)
        kept.write_text(
            json.dumps({"environment": environment(), "base": options.base, "cases": rows}, indent=0) + "\n"
        )
    old = path.read_text() if path.exists() else ""
    said = MARKER + old.split(MARKER)[1] if MARKER in old else ""
    path.write_text(page(rows, f"python benchmarks/label_quality.py --cases {options.cases}", said))


if __name__ == "__main__":
    main()
