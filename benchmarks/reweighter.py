"""What `APWReweighter` gains on noisy labels: test accuracy beside the same estimator alone, paired over seeds.

python benchmarks/reweighter.py [--seeds 100 101 102 103 104]

The defaults of `APWReweighter` (tau, q, rounds) were chosen on seeds 0 to 4.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from torchcurriculum import error_threshold
from torchcurriculum.audit import audit
from torchcurriculum.integrations.sklearn import APWReweighter

DATA = {"digits": (load_digits, (0.0, 0.2, 0.4)), "breast cancer": (load_breast_cancer, (0.0, 0.15, 0.3))}
ESTIMATORS = {
    "logistic regression": LogisticRegression(max_iter=1000),
    "gradient boosting, 30 trees": GradientBoostingClassifier(n_estimators=30, random_state=0),
}


def models(estimator, rate):
    threshold = error_threshold(rate, "synthetic" if rate else "clean")
    return {
        "alone": estimator,
        "tau 0.5, q 5 (as published)": APWReweighter(estimator, threshold=threshold, tau=0.5, q=5),
        "defaults": APWReweighter(estimator, threshold=threshold),
        "cv=3": APWReweighter(estimator, threshold=threshold, cv=3),
    }


def run(model, load, rate, seed):
    X, y = load(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.4, random_state=seed, stratify=y)
    draws, classes = np.random.default_rng(seed), len(set(y))
    wrong = draws.random(len(y)) < rate
    given = np.where(wrong, (y + draws.integers(1, classes, len(y))) % classes, y)
    fitted = make_pipeline(StandardScaler(), clone(model)).fit(X, given)
    record = getattr(fitted[-1], "record_", None)
    found = np.nan if record is None or not rate else wrong[audit(record).order[:50]].mean()
    return fitted.score(X_test, y_test), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102, 103, 104])
    seeds = parser.parse_args().seeds
    print("| data | labels flipped | estimator | | T-ACC, % | difference, 95 % | wrong among 50 most suspicious, % |")
    print("|---|---|---|---|---|---|---|")
    for data, (load, rates) in DATA.items():
        for name, estimator in ESTIMATORS.items():
            for rate in rates:
                base = None
                for words, model in models(estimator, rate).items():
                    if (data, words, name[:8]) == ("digits", "cv=3", "gradient"):
                        continue  # minutes
                    values, found = np.array([run(model, load, rate, seed) for seed in seeds]).T * 100
                    base = values if base is None else base
                    gap = values - base
                    half = stats.t.ppf(0.975, len(seeds) - 1) * gap.std(ddof=1) / np.sqrt(len(seeds))
                    change = (
                        ""
                        if words == "alone"
                        else f"{gap.mean():+.2f} [{gap.mean() - half:+.2f}, {gap.mean() + half:+.2f}]"
                    )
                    share = "" if np.isnan(found).any() else f"{found.mean():.0f}"
                    spread = f"{values.mean():.2f} ± {values.std(ddof=1):.2f}"
                    print(f"| {data} | {rate:.0%} | {name} | {words} | {spread} | {change} | {share} |", flush=True)


if __name__ == "__main__":
    main()
