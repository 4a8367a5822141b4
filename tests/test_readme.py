"""The README and the first tutorial run as they stand, from an empty folder; the README is short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .newcomer.walk import FENCE, commands, follow

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "first-steps.md"
PLAIN = [
    "README.md",
    *(
        f"docs/{name}.md"
        for name in ("index", "first-steps", "three-lines", "tutorials", "how-to", "rooms", "which-method")
    ),
]


def test_every_snippet_of_the_readme_runs_from_an_empty_folder(tmp_path: Path) -> None:
    text = "".join(FENCE.sub(lambda m: m[0] if m[1] == "python" else "", README.read_text(encoding="utf-8")))
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    assert len(follow(page, tmp_path)) == 2
    assert commands(README)
    assert set(commands(README)) <= set(commands(TUTORIAL)), "the tutorial's test runs these"


def test_the_first_tutorial_runs_from_an_empty_folder(tmp_path: Path) -> None:
    _, found, fixed, trained = follow(TUTORIAL, tmp_path)
    assert re.search(r"About [\d.]+% of the labels are wrong", found)
    called = re.findall(r"(\d+) of 398 are called wrong", found)
    assert 40 < int(called[0]) < 90  # 80 are
    assert "wrote patients-fixed.csv" in fixed
    given, better = ((tmp_path / name).read_text().splitlines() for name in ("patients.csv", "patients-fixed.csv"))
    changed = sum(one != other for one, other in zip(given, better, strict=True))
    assert changed == int(re.findall(r"another label: (\d+)", fixed)[0])
    assert changed > 12
    right = dict(re.findall(r"^(\w+): ([\d.]+)% of the test rows", trained, re.MULTILINE))
    assert float(right["elr"]) > float(right["vanilla"]) + 3


def test_the_readme_is_short() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert text.index("![") < text.index("pip install") < text.index("```python"), "picture, install, code"
    for word in ("make demo", "make test", "docs/which-method.md", "docs/first-steps.md", "CITATION.cff"):
        assert word in text


def sentences(text: str) -> list[str]:
    """Prose without code, tables and the targets of links."""
    prose = re.sub(r"^\|.*$", "", FENCE.sub("", text), flags=re.MULTILINE)
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", prose)
    return re.split(r"(?<=[.:?!])\s|\n\n|\n- ", prose)


@pytest.mark.parametrize("page", PLAIN)
def test_no_sentence_has_more_than_one_bracket(page: str) -> None:
    assert all(one.count("(") <= 1 for one in sentences((ROOT / page).read_text(encoding="utf-8")))
    assert any(one.count("(") > 1 for one in sentences("This (one) is (not) plain."))


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.name
)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
