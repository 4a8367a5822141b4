"""The code on the pages runs as it stands, in a user's surroundings; no page has code that no test runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from torchcurriculum import APW, Curriculum

from .blocks import DOCS, blocks

PAGES = {
    "three-lines.md": ("method", "criterion", "curriculum"),
    "which-method.md": ("curriculum", "found"),
    "audit.md": ("record", "found"),
    "scores.md": ("suspects", "kept", "method", "vog"),
    "loop.md": ("curriculum",),
    "knobs.md": ("weights",),
    "add-a-method.md": ("Trust", "curriculum"),
    "thresholds.md": ("pd",),
    "difficulty.md": ("method", "curriculum"),
    "reliability.md": ("checkpoint",),
    "streaming.md": ("stream", "criterion"),
    "uneven.md": ("by_rows", "by_weights", "by_loss"),
    "tasks.md": ("curriculum", "method"),
    "losses.md": ("criterion", "curriculum", "method", "selective"),
    "integrations/sklearn.md": ("search", "suspects", "model"),
    "integrations/skorch.md": ("net", "suspects"),
    "integrations/logging.md": ("curriculum",),
}
ELSEWHERE = {  # in tests/integrations
    f"integrations/{name}.md" for name in ("accelerate", "distributed", "lightning", "transformers", "trl")
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
        "F": F,
        "nn": nn,
        "Network": network,
        "train_set": train_set,
        "loader": DataLoader(train_set, batch_size=32, shuffle=True),
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), 0.1),
        "epochs": 2,
        "train_losses": F.cross_entropy(model(train_set.tensors[0]), train_set.tensors[1], reduction="none").detach(),
        "curriculum": Curriculum(APW(300, q=2), train_set, batch_size=100),
    }


def _prints(blocks: list[str], said: str) -> Iterator[tuple[str, str]]:
    """What calls of print said, beside the comment that promises it, where there is one for each."""
    promised = re.findall(r"^print\(.*\)   # (.*)$", "\n".join(blocks), re.MULTILINE)
    return zip(said.splitlines(), promised, strict=True) if promised else iter(())


def test_every_page_with_code_is_run() -> None:
    pages = sorted(DOCS.rglob("*.md"))
    coded = {str(page.relative_to(DOCS)) for page in pages if "```python" in page.read_text(encoding="utf-8")}
    assert coded == set(PAGES) | ELSEWHERE


@pytest.mark.parametrize("page", PAGES)
def test_the_code_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks(page)
    assert found
    names = surroundings()
    for block in found:
        if "annotate" in block:  # which is about an epoch that has ended
            for batch in names["curriculum"].epoch(names["model"]):
                names["curriculum"].loss(names["model"], batch)
        exec(compile(block, page, "exec"), names)
    for name in PAGES[page]:
        assert names[name] is not None
    for said, promised in _prints(found, capsys.readouterr().out):
        assert said == promised
    if page == "losses.md":
        assert names["criterion"].last.isfinite().all()
    if page == "integrations/logging.md":
        assert "0.93" in (tmp_path / "runs/a/epochs.csv").read_text()
        assert list((tmp_path / "runs/a/board").iterdir())
