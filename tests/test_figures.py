"""Figures on the pages are those of docs/results: nobody has to trust a number that no file holds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
MEASURED = "\n".join(path.read_text(encoding="utf-8") for path in sorted((DOCS / "results").glob("*.md")))
SPREAD = re.compile(r"\d+\.\d+ ± \d+\.\d+")
GAP = re.compile(r"[+-]\d+\.\d+ \[[+-]\d+\.\d+, [+-]\d+\.\d+\]")


def last(recipe: str, method: str) -> float:
    table = json.loads((DOCS / "results" / "digits.json").read_text(encoding="utf-8"))["table"]
    key = {"recipe": recipe, "method": method, "moment": "last", "metric": "T-ACC"}
    (row,) = [row for row in table if all(row[name] == value for name, value in key.items())]
    return 100 * row["mean"]


@pytest.mark.parametrize("page", ["which-method.md", "reproducing.md"])
def test_every_spread_and_interval_is_in_the_results(page: str) -> None:
    text = " ".join((DOCS / page).read_text(encoding="utf-8").split())
    found = SPREAD.findall(text) + GAP.findall(text)
    assert len(found) > 8
    for figure in found:
        assert figure in MEASURED, f"{page} says {figure}, which no page of docs/results does"


def test_the_picture_shows_the_figures_of_the_table() -> None:
    label = re.findall(r'aria-label="([^"]+)"', (DOCS / "pictures" / "accuracy.svg").read_text(encoding="utf-8"))[0]
    shown = dict(re.findall(r"(\S+) ([\d.]+) %", label.split("At the end: ")[1]))
    assert set(shown) == {"vanilla", "s-apw-e", "m-apw-beta-e", "rapw"}
    for name, value in shown.items():
        mean = last("digits-n40", "rapw, running" if name == "rapw" else name)
        assert float(value) == pytest.approx(mean, abs=0.06)
        for page in (DOCS / "index.md", DOCS.parent / "README.md"):
            words = re.findall(r"!\[([^\]]+)\]", page.read_text(encoding="utf-8"))[0]
            assert re.search(rf"\b{name} (?:ends )?at {mean:.0f} %", words), f"{page.name}: {name}"


def test_the_table_of_digits_is_that_of_the_file() -> None:
    text = (DOCS / "which-method.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| ([\d.]+) ± .*?\| ([\d.]+) ± .*?\| ([\d.]+) ±", text, re.MULTILINE)
    assert len(rows) == 9
    for name, *values in rows:
        for recipe, value in zip(("digits-n0", "digits-n20", "digits-n40"), values, strict=True):
            assert f"{last(recipe, name):.2f}" == value
