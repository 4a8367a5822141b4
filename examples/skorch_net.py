"""skorch on digits with 40 % wrong labels: a net, a pipeline, a grid search over methods.

python examples/skorch_net.py [--epochs 20]
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn

from torchcurriculum.audit import audit
from torchcurriculum.integrations.skorch import CurriculumNet


class Network(nn.Module):
    """One hidden layer."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the ten digits."""
        return self.layers(x)


def scale(X: np.ndarray) -> np.ndarray:
    """To [0, 1], in the precision of the network."""
    return (X / 16).astype(np.float32)


def main() -> None:
    """Prints skorch's table, the audit of its record, and the best method of a grid."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    epochs = parser.parse_args().epochs

    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)
    draws = np.random.default_rng(0)
    wrong = draws.random(len(y)) < 0.4
    given = np.where(wrong, (y + draws.integers(1, 10, len(y))) % 10, y)

    torch.manual_seed(0)
    net = CurriculumNet(
        Network,
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        lr=0.01,
        max_epochs=epochs,
        method="apw-e",
        method__threshold="auto",
        train_split=None,
    )
    pipeline = make_pipeline(FunctionTransformer(scale), net).fit(X, given)
    suspects = audit(net.record_).order[:50]
    print(f"test accuracy {pipeline.score(X_test, y_test):.1%}, {wrong[suspects].sum()} of 50 suspects are wrong")

    net.set_params(verbose=0, method__threshold=1.2)
    search = GridSearchCV(pipeline, {"curriculumnet__method": ["apw-e", "m-apw-beta-e"]}, cv=2).fit(X, given)
    print(f"best method {search.best_params_['curriculumnet__method']}, test {search.score(X_test, y_test):.1%}")


if __name__ == "__main__":
    main()
