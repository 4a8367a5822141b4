"""The code on the pages about losses, scikit-learn, skorch and logging runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from torchcurriculum import APW, Curriculum

DOCS = Path(__file__).parent.parent / "docs"
PAGES = {
    "losses.md": ("criterion", "curriculum", "method"),
    "integrations/sklearn.md": ("search", "suspects", "model"),
    "integrations/skorch.md": ("net", "suspects"),
    "integrations/logging.md": ("curriculum",),
}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard.*")


def surroundings() -> dict[str, Any]:
    X, y = load_digits(return_X_y=True)
    X = (X[:400] / 16).astype("float32")
    train_set = TensorDataset(torch.from_numpy(X[:300]), torch.from_numpy(y[:300]))
    torch.manual_seed(0)
    model = nn.Linear(64, 10)

    def network(width: int = 16) -> nn.Module:
        return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

    return {
        "X_train": X[:300],
        "y_train": y[:300],
        "X_test": X[300:],
        "y_test": y[300:400],
        "nn": nn,
        "Network": network,
        "train_set": train_set,
        "loader": DataLoader(train_set, batch_size=32, shuffle=True),
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), 0.1),
        "epochs": 2,
        "curriculum": Curriculum(APW(300, q=2), train_set, batch_size=100),
    }


@pytest.mark.parametrize("page", PAGES)
def test_the_code_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    names = surroundings()
    for block in blocks:
        if "annotate" in block:  # which is about an epoch that has ended
            for batch in names["curriculum"].epoch(names["model"]):
                names["curriculum"].loss(names["model"], batch)
        exec(compile(block, page, "exec"), names)
    for name in PAGES[page]:
        assert names[name] is not None
    if page == "losses.md":
        assert names["criterion"].last.isfinite().all()
    if page == "integrations/logging.md":
        assert "0.93" in (tmp_path / "runs/a/epochs.csv").read_text()
        assert list((tmp_path / "runs/a/board").iterdir())
