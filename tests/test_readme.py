"""The README's code runs as it stands, in a user's surroundings: a model, a loader, an optimizer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def surroundings() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 4, generator=generator)
    train_set = TensorDataset(x, (x[:, 0] > 0).long())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2)
    return {
        "F": F,
        "train_set": train_set,
        "loader": DataLoader(train_set, batch_size=16, shuffle=True, num_workers=2, generator=generator),
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), 0.5),
        "epochs": 3,
        "train_losses": F.cross_entropy(model(x), train_set.tensors[1], reduction="none").detach(),
    }


def test_there_are_three_blocks() -> None:
    assert len(BLOCKS) == 3


@pytest.mark.parametrize("number", [0, 1])
def test_both_ways_to_train(number: int) -> None:
    names = surroundings()
    before = names["model"].weight.detach().clone()
    exec(compile(BLOCKS[number], "README.md", "exec"), names)
    assert not torch.equal(before, names["model"].weight)
    method = names.get("method") or names["curriculum"].method
    assert method.weights.sum().item() == pytest.approx(1)


def test_the_audit() -> None:
    names = surroundings()
    exec(compile(BLOCKS[1].replace("seed=0)", "seed=0, samples=True)"), "README.md", "exec"), names)
    exec(compile(BLOCKS[2], "README.md", "exec"), names)
    assert len(names["suspects"]) == 20


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.name
)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
