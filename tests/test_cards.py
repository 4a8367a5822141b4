"""The cards in the docs are those of the code."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from torchcurriculum import methods

FOLDER = Path(__file__).parent.parent / "docs" / "methods"
REMEDY = "run `python docs/cards.py`"
_tool = runpy.run_path(str(FOLDER.parent / "cards.py"))
card, index, package, navigation, INDENT = (
    _tool[name] for name in ("card", "index", "package", "navigation", "INDENT")
)


@pytest.mark.parametrize("name", methods.names())
def test_the_card_is_current_and_says_what_a_card_must(name: str) -> None:
    assert (FOLDER / f"{name}.md").read_text(encoding="utf-8") == card(name), REMEDY
    text = card(name)
    if methods.entry(name).method.__name__ != "Vanilla":
        assert "Reference:" in text, f"{name} must say where it comes from"
    for part in ("**When to use it.**", "**Cost.**", "## Knobs"):
        assert part in text


@pytest.mark.parametrize("name", methods.names())
def test_the_card_lists_the_knobs_that_build_takes(name: str) -> None:
    listed = re.findall(r"^\| `(\w+)` \|", card(name).split("## Knobs")[1], re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) - {"n", "epochs"} == set(methods.entry(name).options())


def test_there_are_no_other_cards() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == {*methods.names(), "README"}
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == index(), REMEDY


def test_the_imports_and_the_navigation_are_current() -> None:
    assert Path(methods.__file__).read_text(encoding="utf-8") == package(), REMEDY
    site = (FOLDER.parent.parent / "mkdocs.yml").read_text(encoding="utf-8")
    assert site == navigation(site), REMEDY
    first = f"{INDENT}- {min(methods.names())}: methods/{min(methods.names())}.md\n"
    assert navigation(site.replace(first, "")) == site, "a card without an entry gets one"
    assert navigation(site.replace(first, first + "  - gone: methods/gone.md\n")) == site


def test_a_new_file_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in Path(methods.__file__).parent.glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "brand_new.py").write_text('__all__ = ["BrandNew"]\nclass BrandNew: ...\nclass _Helper: ...\n')
    (tmp_path / "_base").mkdir()
    (tmp_path / "_base" / "tool.py").touch()
    listed = tmp_path / "__init__.py"
    listed.write_text(listed.read_text() + "from ._base.tool import helper\nfrom .gone import Gone\n")
    monkeypatch.setitem(package.__globals__, "METHODS", tmp_path)
    assert "from .both import Both\nfrom .brand_new import BrandNew\nfrom .c2f import C2F\n" in package()
    assert '    "Both",\n    "BrandNew",\n    "' in package()
    assert "\nfrom ._base.tool import helper\n" in package(), "what somebody wrote stays"
    assert "Gone" not in package()
