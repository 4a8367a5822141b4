"""scikit-learn on digits with 40 % wrong labels: a network under a curriculum, and APW around logistic regression.

python examples/sklearn_estimators.py [--epochs 30]
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from torchcurriculum import error_threshold
from torchcurriculum.audit import audit
from torchcurriculum.integrations.sklearn import APWReweighter, CurriculumClassifier


def main() -> None:
    """Prints the test accuracy of each, and how many of the 50 labels they find most suspicious are wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    epochs = parser.parse_args().epochs

    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)
    draws = np.random.default_rng(0)
    wrong = draws.random(len(y)) < 0.4
    given = np.where(wrong, (y + draws.integers(1, 10, len(y))) % 10, y)

    threshold = error_threshold(0.4, "synthetic")
    logistic = LogisticRegression(max_iter=1000)
    models = {
        "logistic regression": logistic,
        "APW around it": APWReweighter(logistic, threshold=threshold),
        "network, vanilla": CurriculumClassifier(method="vanilla", epochs=epochs, lr=0.01),
        "network, m-apw-beta-e": CurriculumClassifier(
            method="m-apw-beta-e", epochs=epochs, lr=0.01, threshold=threshold
        ),
    }
    for name, model in models.items():
        pipeline = make_pipeline(StandardScaler(), model).fit(X, given)
        record = getattr(pipeline[-1], "record_", None)
        found = "" if record is None else f"  {wrong[audit(record).order[:50]].sum()} of 50 suspects are wrong"
        print(f"{name:<20} test accuracy {pipeline.score(X_test, y_test):.1%}{found}")


if __name__ == "__main__":
    main()
