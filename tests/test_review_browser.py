"""The review page in a real browser: by mouse, by keyboard, on a telephone, with ten thousand suspects, after a reload.

Needs the package ``playwright`` and Debian's ``chromium``; nothing is downloaded.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchcurriculum.clean.decisions import Decision, Decisions
from torchcurriculum.clean.page import write_page
from torchcurriculum.clean.serve import Review

from . import test_browser
from .test_browser import CHROMIUM, VISIBLE_TEXT, Opened, contrast
from .test_review import EVIL, proposal

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium (Debian: apt-get install chromium)")
browser = test_browser.browser
OUTSIDE = """
() => [...document.querySelectorAll('body *')].filter(e => {
  const box = e.getBoundingClientRect();
  return box.width && box.right > innerWidth + 1 && !e.closest('.scroll');
}).map(e => e.outerHTML.slice(0, 80))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("review")
    write_page(proposal(), place / "review.html")
    write_page(proposal(text=EVIL), place / "evil.html")
    write_page(proposal(10_000), place / "large.html")
    held = proposal()
    rows = [*held.rows[:20], *(dataclasses.replace(row, called=False) for row in held.rows[20:])]
    write_page(dataclasses.replace(held, rows=rows), place / "check.html")
    return place


def saved(page: Any, button: str) -> str:
    with page.expect_download() as held:
        page.locator(button).click()
    return Path(held.value.path()).read_text(encoding="utf-8")


def state(page: Any, row: int) -> str:
    return page.locator(f'[data-row="{row}"]').get_attribute("data-decision")


def test_it_renders_and_asks_for_nothing(browser: Any, folder: Path) -> None:
    with Opened(browser, folder / "review.html") as opened:
        assert [url for url in opened.asked if not url.startswith("data:image/png")] == [
            (folder / "review.html").as_uri()
        ]
        assert opened.said == []
        page = opened.page
        assert page.get_by_role("heading", level=1).inner_text() == "60 of 1,000 labels look wrong"
        assert page.locator(".card").count() == 24
        assert page.locator(".card img").first.evaluate("image => image.naturalWidth") == 1
        assert page.locator(".card .text").first.inner_text().startswith("row row")
        assert page.locator(".card dd").first.inner_text() == "1"
        assert page.locator("kbd", has_text="a").first.is_visible()


def test_hostile_texts_stay_texts(browser: Any, folder: Path) -> None:
    with Opened(browser, folder / "evil.html") as opened:
        assert opened.page.title() == "Review: pets.csv"
        assert opened.said == []
        assert (
            opened.page.locator(".card .name").first.inner_text().startswith("</script><script>document.title='owned'")
        )
        assert opened.page.locator("img:not(.card img)").count() == 0


def test_decisions_by_mouse_last_through_a_reload(browser: Any, folder: Path, tmp_path: Path) -> None:
    with Opened(browser, folder / "review.html") as opened:
        page = opened.page
        page.locator('[data-row="0"]').get_by_role("button", name="Accept").click()
        page.locator('[data-row="7"]').get_by_role("button", name="Keep").click()
        page.locator('[data-row="14"]').get_by_role("button", name="Drop").click()
        page.locator('[data-row="21"] input').fill("-new")
        page.locator('[data-row="21"] input').press("Enter")
        page.locator('[data-row="28"] input').fill("=bird")  # what is suggested, typed
        page.locator('[data-row="28"] input').press("Enter")
        assert page.locator('[data-row="63"]').get_by_role("button", name="Accept").count() == 0  # nothing to accept
        page.reload()
        assert page.locator("#count").inner_text() == "5 of 60 decided"
        assert [state(page, row) for row in (0, 7, 14, 21, 28, 35)] == ["accept", "keep", "drop", "other", "accept", ""]
        expected = [
            Decision(0, "cat", "accept", "dog", "row 0"),
            Decision(7, "dog", "keep", None, "row 1"),
            Decision(14, "=bird", "drop", None, "row 2"),
            Decision(21, "cat", "other", "-new", "row 3"),
            Decision(28, "dog", "accept", "=bird", "row 4"),
        ]
        for button, name in (("#json", "decisions.json"), ("#csv", "decisions.csv")):
            (tmp_path / name).write_text(saved(page, button), encoding="utf-8")
            assert Decisions.read(tmp_path / name).rows == expected
        assert Decisions.read(tmp_path / "decisions.json") == Decisions.of(proposal(), expected)
        assert (tmp_path / "decisions.csv").read_text() == Decisions(expected).as_csv()
        assert opened.said == []


def test_decisions_by_keyboard(browser: Any, folder: Path) -> None:
    with Opened(browser, folder / "review.html") as opened:
        page = opened.page
        for key in "akd":
            page.keyboard.press(key)
        page.keyboard.press("o")
        page.keyboard.type("ad")  # these are letters now, and no decisions
        page.keyboard.press("Enter")
        assert [state(page, row) for row in (0, 7, 14, 21, 28)] == ["accept", "keep", "drop", "other", ""]
        assert page.locator('[data-row="21"] .decision').inner_text() == "You: another label, ad"
        page.keyboard.press("u")
        page.keyboard.press("u")
        assert [state(page, row) for row in (0, 7, 14, 21)] == ["accept", "keep", "", ""]
        page.keyboard.press("n")
        assert page.locator("#where").inner_text() == "25 to 48 of 60"
        page.keyboard.press("a")
        assert state(page, 24 * 7) == "accept"
        page.keyboard.press("p")
        page.keyboard.press("ArrowRight")
        assert page.locator(".card.current").get_attribute("data-row") == "7"
        for _ in range(23):
            page.keyboard.press("j")
        assert page.locator("#where").inner_text() == "25 to 48 of 60"
        assert page.evaluate("document.activeElement.className").startswith("card")


def test_filters_order_and_the_matrix(browser: Any, folder: Path) -> None:
    with Opened(browser, folder / "review.html") as opened:
        page = opened.page
        page.get_by_role("button", name="given cat and suggested dog").click()
        suspects = [row for row in proposal().rows if (row.given, row.suggested) == ("cat", "dog")]
        assert page.locator("#where").inner_text() == f"1 to {len(suspects)} of {len(suspects)}"
        assert page.locator(".card").count() == len(suspects)
        page.locator("#all").click()
        assert page.locator("#count").inner_text() == f"{len(suspects)} of 60 decided"
        page.locator("#undo").click()
        assert page.locator("#count").inner_text() == "0 of 60 decided"
        page.get_by_role("button", name="given cat and suggested dog").click()
        assert page.locator("#where").inner_text() == "1 to 24 of 60"
        page.locator("#state").select_option("sure")
        assert page.locator(".card").count() == 5
        page.locator("#clear").click()
        page.locator("#find").fill("row 41")
        assert page.locator(".card .name").all_inner_texts() == ["row 41"]
        page.locator("#find").fill("nothing of that kind")
        assert page.locator("#where").inner_text() == "Nothing fits these filters."
        page.keyboard.press("Escape")
        page.locator("#clear").click()
        page.locator("#order").select_option("unsure")
        closest = min(proposal().rows, key=lambda row: abs(row.quality - 0.5))
        assert page.locator(".card").first.get_attribute("data-row") == str(closest.row)
        page.locator(".card").first.get_by_role("button", name="Keep").click()
        page.locator("#state").select_option("open")
        assert "of 59" in page.locator("#where").inner_text()
        assert opened.said == []


def test_rows_to_check_are_not_accepted_with_the_others(browser: Any, folder: Path) -> None:
    with Opened(browser, folder / "check.html") as opened:
        page = opened.page
        assert page.get_by_role("heading", level=1).inner_text() == "20 of 1,000 labels look wrong"
        page.locator("#all").click()
        assert page.locator("#count").inner_text() == "18 of 60 decided"  # two have no suggestion
        page.locator("#state").select_option("called")
        assert "of 20" in page.locator("#where").inner_text()
        page.locator("#state").select_option("check")
        assert "of 40" in page.locator("#where").inner_text()
        assert page.locator(".card .badge").first.inner_text() == "to check"
        assert "right with" not in page.locator(".card").first.inner_text()
        page.locator("#all").click()
        assert page.locator("#count").inner_text() == "54 of 60 decided"
        assert opened.said == []


def test_ten_thousand_suspects_in_pages(browser: Any, folder: Path) -> None:
    with Opened(browser, folder / "large.html") as opened:
        page = opened.page
        assert page.locator("#where").inner_text() == "1 to 24 of 10,000"
        assert page.evaluate("document.getElementsByTagName('*').length") < 2_000
        page.locator("#all").click()
        assert page.locator("#count").inner_text() == "9,000 of 10,000 decided"
        page.reload()
        assert page.locator("#count").inner_text() == "9,000 of 10,000 decided"
        assert len(json.loads(saved(page, "#json"))["decisions"]) == 9_000


@pytest.mark.parametrize("name", ["review", "evil"])
@pytest.mark.parametrize("width", [375, 1000])
def test_no_page_scrolls_sideways(browser: Any, folder: Path, name: str, width: int) -> None:
    with Opened(browser, folder / f"{name}.html", width=width) as opened:
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
        assert opened.page.evaluate(OUTSIDE) == []
        button = opened.page.locator('[data-row="0"]').get_by_role("button", name="Accept")
        assert button.bounding_box()["height"] >= 40  # for a finger
        button.click()
        assert opened.page.locator("#count").inner_text() == "1 of 60 decided"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_letter_is_readable(browser: Any, folder: Path, scheme: str) -> None:
    with Opened(browser, folder / "review.html", scheme=scheme) as opened:
        found = opened.page.evaluate(VISIBLE_TEXT)
        assert len(found) > 80
        assert not {(colour, words) for colour, back, words in found if contrast(colour, back) < 4.5}
        named = "e => e.ariaLabel || e.alt || e.textContent.trim() || (e.labels && e.labels.length)"
        seen = "[...document.querySelectorAll('button, select, input, img')].filter(e => e.getClientRects().length)"
        assert opened.page.evaluate(f"{seen}.every({named})")


@pytest.fixture
def review(tmp_path: Path) -> Iterator[Review]:
    with Review(proposal(), tmp_path / "decisions.json") as running:
        thread = threading.Thread(target=running.run)
        thread.start()
        yield running
        running.stop()
        thread.join()


def test_the_server_saves_at_once_and_remembers(browser: Any, review: Review) -> None:
    context = browser.new_context()
    context.set_default_timeout(600_000)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(review.address)
    with page.expect_response("**/decisions"):
        page.keyboard.press("a")
    assert Decisions.read(review.path).rows == [Decision(0, "cat", "accept", "dog", "row 0")]
    with page.expect_response("**/decisions"):
        page.locator("#all").click()
    assert len(Decisions.read(review.path).rows) == 54
    with page.expect_response("**/decisions"):
        page.locator("#undo").click()
    page.reload()
    assert page.locator("#count").inner_text() == "1 of 60 decided"
    assert "is saved at once" in page.locator("#saved").inner_text()
    assert page.evaluate("localStorage.length") == 0
    assert said == []
    context.close()


def test_a_server_that_is_gone_is_said(browser: Any, tmp_path: Path) -> None:
    with Review(proposal(), tmp_path / "decisions.json") as running:
        thread = threading.Thread(target=running.run)
        thread.start()
        context = browser.new_context()
        context.set_default_timeout(600_000)
        page = context.new_page()
        page.goto(running.address)
        page.locator(".card").first.wait_for()
        running.stop()
        thread.join()
    page.keyboard.press("a")
    page.locator("#saved.warn").wait_for()
    assert "Not saved yet: 1." in page.locator("#saved").inner_text()
    context.close()
