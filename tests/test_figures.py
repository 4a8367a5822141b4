"""Figures on the pages are those of docs/results: nobody has to trust a number that no file holds."""

from __future__ import annotations

import json
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parent.parent / "docs"
MEASURED = "\n".join(path.read_text(encoding="utf-8") for path in sorted((DOCS / "results").glob("*.md")))
SPREAD = re.compile(r"\d+\.\d+ ± \d+\.\d+")
FILLED = re.compile(r"<!--\w+ [^>]+-->.*?<!---->")  # from the runs' JSON, which the scoreboard's own test checks
GAP = re.compile(r"[+-]\d+\.\d+ \[[+-]\d+\.\d+, [+-]\d+\.\d+\]")


def last(recipe: str, method: str) -> float:
    table = json.loads((DOCS / "results" / "digits.json").read_text(encoding="utf-8"))["table"]
    key = {"recipe": recipe, "method": method, "moment": "last", "metric": "T-ACC"}
    (row,) = [row for row in table if all(row[name] == value for name, value in key.items())]
    return 100 * row["mean"]


@pytest.mark.parametrize("page", ["which-method.md", "reproducing.md", "../README.md"])
def test_every_spread_and_interval_is_in_the_results(page: str) -> None:
    text = " ".join(FILLED.sub("", (DOCS / page).read_text(encoding="utf-8")).split())
    found = SPREAD.findall(text) + GAP.findall(text)
    assert len(found) > (0 if page == "reproducing.md" else 7)
    for figure in found:
        assert figure in MEASURED, f"{page} says {figure}, which no page of docs/results does"


def scoreboard() -> Any:
    path = DOCS.parent / "benchmarks" / "scoreboard.py"
    found = spec_from_file_location("scoreboard", path)
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_scoreboard_has_the_figures_of_the_runs() -> None:
    page = (DOCS / "reproducing.md").read_text(encoding="utf-8")
    assert scoreboard().filled(page) == page, "run python benchmarks/scoreboard.py"
    assert "APW" in page
    assert page.count("[+") + page.count("[-") > 15
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| ") and "not run yet" in line]
    assert all(row[4].strip() == "open" for row in rows), "no verdict without runs"
    summary = json.loads((DOCS / "results" / "cifar10-n40-200.json").read_text(encoding="utf-8"))["table"]
    key = {"method": "apw-e", "moment": "best", "metric": "T-ACC"}
    (row,) = [row for row in summary if all(row[name] == value for name, value in key.items())]
    words = f"apw-e {100 * row['difference']:+.2f} [{100 * row['low']:+.2f}, {100 * row['high']:+.2f}],<br>APWs "
    assert words in page


def test_the_bars_are_means_over_the_three_weightings() -> None:
    values = scoreboard().values
    three = [values(f"cifar10-n40:apw-{letters}", "eprop") for letters in ("e", "i", "ei")]
    bars = values("cifar10-n40:APWs", "eprop")
    assert set(bars) == {0, 1, 2}
    for seed, value in bars.items():
        assert value == pytest.approx(sum(one[seed] for one in three) / 3)


def test_the_scoreboard_says_what_was_not_run() -> None:
    filled = scoreboard().filled
    assert filled("<!--gaps acc nothing apw-e-->+1.00<!---->") == "<!--gaps acc nothing apw-e-->not run yet<!---->"
    both = filled("<!--means nci1:vanilla nci1-n40:vanilla--><!---->")
    assert both.endswith("-->68.32 / 68.32, 56.16 / 56.16 (5 seeds)<!---->")
    assert "(1 seed)" in filled("<!--gap acc cifar10n-readings:apw-e cifar10n-readings:vanilla--><!---->")


def test_the_picture_shows_the_figures_of_the_table() -> None:
    label = re.findall(r'aria-label="([^"]+)"', (DOCS / "pictures" / "accuracy.svg").read_text(encoding="utf-8"))[0]
    shown = dict(re.findall(r"(\S+) ([\d.]+) %", label.split("At the end: ")[1]))
    assert {"vanilla", "s-apw-e", "m-apw-beta-e"} <= set(shown)
    for name, value in shown.items():
        mean = last("digits-n40", name)
        assert float(value) == pytest.approx(mean, abs=0.06)
        for page in (DOCS / "index.md", DOCS.parent / "README.md"):
            words = re.findall(r"!\[([^\]]+)\]", page.read_text(encoding="utf-8"))[0]
            assert re.search(rf"\b{name} (?:ends )?at {mean:.0f} %", words), f"{page.name}: {name}"


def test_the_table_of_digits_is_that_of_the_file() -> None:
    text = (DOCS / "results" / "digits-at-a-glance.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| ([\d.]+) ± .*?\| ([\d.]+) ± .*?\| ([\d.]+) ±", text, re.MULTILINE)
    assert len(rows) >= 9
    for name, *values in rows:
        for recipe, value in zip(("digits-n0", "digits-n20", "digits-n40"), values, strict=True):
            assert f"{last(recipe, name):.2f}" == value
