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

from torchcurriculum import APW, Curriculum, cli

from .blocks import DOCS, blocks

PAGES = {
    "three-lines.md": ("method", "criterion", "curriculum"),
    "which-method.md": ("curriculum",),
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
ELSEWHERE = {  # in tests/integrations; the tutorial in tests/test_readme.py
    *(f"integrations/{name}.md" for name in ("accelerate", "distributed", "lightning", "transformers", "trl")),
    "first-steps.md",
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


@pytest.mark.parametrize("page", sorted((DOCS / "results").glob("[!R]*.md")), ids=lambda page: page.stem)
def test_a_page_of_results_begins_with_its_answer(page: Path) -> None:
    title, answer = page.read_text(encoding="utf-8").split("\n\n")[:2]
    assert title.startswith("# ")
    assert len(answer.splitlines()) <= 3, "three lines"
    assert not answer.startswith(("#", "```", "    ", "|")), "neither code nor a table"
    assert len(answer) < 1000


def test_every_room_and_every_decision_is_listed() -> None:
    source = DOCS.parent / "src" / "torchcurriculum"
    rooms = {f"{path.parent.name}/" for path in source.glob("*/__init__.py")}
    rooms |= {path.name for path in source.glob("[!_]*.py")}
    rows = re.findall(
        r"^\| `([\w./]+)` \| .{10,110} \|$", (DOCS / "rooms.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(rows) == sorted(rooms)
    listed = re.findall(r"\((\d{4}-[\w-]+\.md)\)", (DOCS / "decisions" / "README.md").read_text(encoding="utf-8"))
    assert listed == sorted(path.name for path in (DOCS / "decisions").glob("0*.md"))


def test_the_command_line_is_as_the_page_says() -> None:
    rows = re.findall(r"^\| `curriculum (\w+)` \|(.*)\|$", (DOCS / "command-line.md").read_text("utf-8"), re.MULTILINE)
    commands = next(action.choices for action in cli._parser()._actions if isinstance(action.choices, dict))
    assert {name for name, _ in rows} == set(commands)
    for name, words in rows:
        for flag in re.findall(r"`(--[\w-]+)`", words):
            assert flag in commands[name]._option_string_actions, f"{name} {flag}"


def test_those_who_carry_on_find_what_they_need() -> None:
    root = DOCS.parent
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 80, "one page"
    for part in ("Set up", "Run one test", "Find your way", "Add a method", "Release"):
        assert f"\n## {part}\n" in text
    for name in set(re.findall(r"`((?:tests|benchmarks|docs)/[\w/.-]+)`", text)):
        assert (root / name).exists(), name
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    cited = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    for path in (root / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"):
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= set(form)
        assert all({"type", "attributes"} <= set(field) for field in form["body"])
    assert (root / ".github" / "pull_request_template.md").exists()
    assert "maintainer" in (root / "CODE_OF_CONDUCT.md").read_text(encoding="utf-8")


def test_the_changelog_begins_with_how_to_upgrade() -> None:
    text = (DOCS.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = text.split("\n## ")[1]
    assert "### Upgrading from 0.1" in newest.split("\n\n")[1]
