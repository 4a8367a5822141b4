"""The report in a real browser: it renders, asks for nothing, says nothing in the console, and everyone can read it.

Needs the package ``playwright`` and Debian's ``chromium``; nothing is downloaded.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from torchcurriculum.audit.samples import telling_rows
from torchcurriculum.record import Previews, Record
from torchcurriculum.report import write_report

from .test_report import make

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium (Debian: apt-get install chromium)")
sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)")

VISIBLE_TEXT = """
() => [...document.querySelectorAll('h1, h2, h3, p, th, td, dt, dd, figcaption, caption, li, .plot text, a, b, .small')]
  .filter(e => e.innerHTML.trim() && e.getClientRects().length).map(e => {
    const style = getComputedStyle(e);
    const ground = getComputedStyle(document.documentElement).backgroundColor;
    return [e.namespaceURI.endsWith('svg') ? style.fill : style.color, ground, e.textContent.slice(0, 30)];
  })
"""
OUTSIDE = """
() => [...document.querySelectorAll('.plot')].flatMap(svg => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(t => {
    const r = t.getBoundingClientRect();
    return r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1;
  }).map(t => t.textContent);
})
"""
WIDER = """
() => [...document.querySelectorAll('.plot, .scroll, figure, table')]
  .filter(e => e.getBoundingClientRect().right > innerWidth || e.scrollWidth > e.clientWidth + 1)
  .map(e => e.outerHTML.slice(0, 80))
"""
LETTERS = """
() => [...document.querySelectorAll('.plot text')]
  .map(t => parseFloat(getComputedStyle(t).fontSize) * t.ownerSVGElement.getScreenCTM().a)
"""
NAMES = """
() => [...document.querySelectorAll('a, [tabindex]')].map(e => e.getAttribute('aria-label') || e.textContent.trim())
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=600_000)
        yield started
        started.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Wide names and ticks, pictures, texts, several methods and seeds, a large record, and next to nothing."""
    folder = tmp_path_factory.mktemp("browser")
    one, text = make(0, n=300, epochs=12), make(1, n=300, epochs=12)
    for name, record in {"pictures": one, "texts": text}.items():
        record.save(folder / name)
        rows = telling_rows(record)
        shown: dict[str, Any] = {"texts": [f"<b>Where is row {row} ?</b> " + "word " * 60 for row in rows]}
        if name == "pictures":
            shown = {"pictures": np.random.default_rng(0).integers(0, 256, (len(rows), 8, 8, 3)).astype(np.uint8)}
        Previews(rows, **shown).save(folder / name)
    several = {
        "vanilla": [make(seed, apw=False) for seed in (0, 1)],
        **{f"apw-{name}": [make(seed) for seed in (0, 1)] for name in "ab"},
    }
    tiny = make(0)
    for row in tiny.epochs:
        row["weight_quantiles"] = [1e-11, 1e-9, 1e-6, 1e-3, 1.0, 2.0, 4e5]
    runs = {
        "wide": {"W" * 60: [tiny], "vanilla": [make(0, apw=False)]},
        "pictures": {"apw-e": [Record.load(folder / "pictures")]},
        "texts": {"apw-e": [Record.load(folder / "texts")]},
        "several": several,
        "large": {"apw-e": [make(0, n=20_000, epochs=3)]},
        "empty": {"apw-e": [Record(5)]},
    }
    problems = ["record.json has format 99, and this version reads format 1"]
    return {
        name: write_report(some, folder / f"{name}.html", title=name, problems=problems if name == "empty" else [])
        for name, some in runs.items()
    }


class Opened:
    """A page in the browser, with everything that it asked for and said."""

    def __init__(self, browser: Any, path: Path, width: int = 1000, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.context.set_default_timeout(600_000)
        self.page = self.context.new_page()
        self.asked: list[str] = []
        self.said: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.goto(path.as_uri())

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


NAMES_OF_PAGES = ["wide", "pictures", "texts", "several", "large", "empty"]


@pytest.mark.parametrize("name", NAMES_OF_PAGES)
def test_it_renders_and_asks_for_nothing(browser: Any, pages: dict[str, Path], name: str) -> None:
    with Opened(browser, pages[name]) as opened:
        asked = [url for url in opened.asked if not url.startswith("data:image/png;base64,")]
        assert asked == [pages[name].as_uri()]
        assert opened.said == []
        assert opened.page.get_by_role("heading", level=1).inner_text().startswith(f"{name}, 20")
        plots = opened.page.locator("svg.plot")
        for place in range(plots.count()):
            assert plots.nth(place).bounding_box()["height"] > 100
        for picture in opened.page.locator("img").all():
            assert picture.evaluate("image => image.naturalWidth") == 8
        assert opened.page.evaluate(OUTSIDE) == []


def test_what_is_shown_of_each(browser: Any, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["pictures"]) as opened:
        assert opened.page.get_by_role("img", name=re.compile(r"Row \d+, given the label \d")).count() == 64
        assert opened.page.get_by_text("12 epochs, 300 training rows").is_visible()
    with Opened(browser, pages["texts"]) as opened:
        assert opened.page.locator("q", has_text="<b>Where is row").first.is_visible()
    with Opened(browser, pages["empty"]) as opened:
        assert opened.page.get_by_text("has format 99").is_visible()
    assert pages["large"].stat().st_size < 1_000_000
    with Opened(browser, pages["large"]) as opened:
        assert opened.page.evaluate("document.getElementsByTagName('*').length") < 8_000


@pytest.mark.parametrize("name", NAMES_OF_PAGES)
def test_screen_readers_and_keyboards(browser: Any, pages: dict[str, Path], name: str) -> None:
    with Opened(browser, pages[name]) as opened:
        page = opened.page
        assert all(page.evaluate(NAMES))
        for plot in page.locator("svg").all():
            assert plot.get_attribute("role") == "img"
            assert len(plot.get_attribute("aria-label")) > 20
        for table in page.get_by_role("table").all():
            assert table.get_by_role("columnheader").count() >= 2
            assert table.get_by_role("rowheader").count() >= 1
        for section in page.locator("section").all():
            assert page.locator(f"#{section.get_attribute('aria-labelledby')}").inner_text()
        order = []
        for place in range(len(page.evaluate(NAMES))):
            page.keyboard.press("Tab")
            if not place:
                assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
                assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
            order.append(page.evaluate("document.activeElement.getBoundingClientRect().top + scrollY"))
        assert order == sorted(order)
        page.locator(".skip").focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**#content", wait_until="commit")
        assert page.url.endswith("#content")


def contrast(text: str, ground: str) -> float:
    """The ratio of WCAG between two colours as the browser writes them."""

    def brightness(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted([brightness(text), brightness(ground)])
    return (high + 0.05) / (low + 0.05)


def test_contrast_by_hand() -> None:
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21)
    assert contrast("rgb(119, 119, 119)", "rgb(255, 255, 255)") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["pictures", "several"])
def test_every_letter_is_readable_in_both_schemes(browser: Any, pages: dict[str, Path], name: str, scheme: str) -> None:
    with Opened(browser, pages[name], scheme=scheme) as opened:
        found = opened.page.evaluate(VISIBLE_TEXT)
        assert len(found) > 80
        ground = found[0][1]
        assert (contrast(ground, "rgb(255, 255, 255)") < 2) == (scheme == "light")
        faint = {(colour, words) for colour, back, words in found if contrast(colour, back) < 4.5}
        assert not faint


def test_paper_is_white_whatever_the_scheme(browser: Any, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["several"], scheme="dark") as opened:
        opened.page.emulate_media(media="print", color_scheme="dark")
        found = opened.page.evaluate(VISIBLE_TEXT)
        assert {back for _, back, _ in found} == {"rgb(255, 255, 255)"}
        assert all(contrast(colour, back) >= 4.5 for colour, back, _ in found)
        assert not opened.page.get_by_role("navigation").is_visible()
        printed = opened.page.pdf(format="A4")
        assert printed.startswith(b"%PDF")
        assert 3 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", printed)) <= 20


@pytest.mark.parametrize("name", NAMES_OF_PAGES)
def test_a_phone_shows_everything_without_scrolling_sideways(browser: Any, pages: dict[str, Path], name: str) -> None:
    with Opened(browser, pages[name], width=360) as opened:
        page = opened.page
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate(WIDER) == []
        assert page.evaluate(OUTSIDE) == []
        assert all(size >= 8.5 for size in page.evaluate(LETTERS))


def test_the_phone_test_can_fail(browser: Any, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["several"], width=360) as opened:
        opened.page.add_style_tag(content=".plot { min-width: 34rem; } .plot text { translate: -40px 0; }")
        assert opened.page.evaluate(WIDER)
        assert opened.page.evaluate(OUTSIDE)
