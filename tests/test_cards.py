"""The cards in the docs are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchcurriculum import methods
from torchcurriculum.methods.card import card, index

FOLDER = Path(__file__).parent.parent / "docs" / "methods"
REMEDY = "run `python -m torchcurriculum.methods.card docs/methods`"


@pytest.mark.parametrize("name", methods.names())
def test_the_card_is_current_and_says_what_a_card_must(name: str) -> None:
    assert (FOLDER / f"{name}.md").read_text(encoding="utf-8") == card(name), REMEDY
    text = card(name)
    if methods.entry(name).method.__name__ != "Vanilla":
        assert "Reference:" in text, f"{name} must say where it comes from"
    for part in ("**When to use it.**", "**Cost.**", "## Knobs"):
        assert part in text


def test_there_are_no_other_cards() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == {*methods.names(), "README"}
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == index(), REMEDY
