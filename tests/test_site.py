"""The site builds from docs/ without a network, every page is in its navigation, and every link leads somewhere."""

from __future__ import annotations

import doctest
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import torchcurriculum

pytest.importorskip("material", reason="needs mkdocs-material")
pytest.importorskip("mkdocstrings", reason="needs mkdocstrings[python]")

ROOT = Path(__file__).parent.parent
PARTS = ("Tutorials", "How-to", "Reference", "Explanation")
OF_THE_ROOT = {"CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md"}
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


class Page(HTMLParser):
    """What a page links to, what it loads, and where it can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.own: list[str] = []  # of the page's own text: not of the menus around it
        self.in_article = False
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        held = {name: value or "" for name, value in attributes}
        self.ids |= {held[name] for name in ("id", "name") if name in held}
        self.in_article |= tag == "article"
        if tag == "a" and "href" in held:
            self.links.append(held["href"])
            self.own += [held["href"]] * self.in_article
        if tag in LOADED and LOADED[tag] in held and held.get("rel") != "canonical":
            self.loads.append(held[LOADED[tag]])

    def handle_endtag(self, tag: str) -> None:
        self.in_article &= tag != "article"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    found = sorted(site.rglob("*.html"))
    return {path: Page(path.read_text(encoding="utf-8")) for path in found if path.name != "404.html"}


def navigation() -> list[str]:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    return re.findall(r"- (?:[^:\n]+: )?(\S+\.md)$", text.split("\nnav:\n")[1], re.MULTILINE)


def test_every_page_is_in_the_navigation_once() -> None:
    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    made = {f"examples/{path.stem}.md" for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".ipynb")}
    listed = navigation()
    assert len(listed) == len(set(listed))
    assert set(listed) == written | made | OF_THE_ROOT


def test_there_is_a_page_for_each_entry(pages: dict[Path, Page], site: Path) -> None:
    built = {path.relative_to(site).as_posix() for path in pages}
    assert built == {name.replace("README.md", "index.md").replace(".md", ".html") for name in navigation()}


def followed(path: Path, links: list[str]) -> Iterator[tuple[str, Path, str]]:
    for link in links:
        parts = urlsplit(link)
        if not parts.scheme and not parts.netloc:
            yield link, (path.parent / unquote(parts.path)).resolve() if parts.path else path, unquote(parts.fragment)


def test_links_and_anchors_lead_somewhere(pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        for link, target, anchor in followed(path, page.links):
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{path.name} links to {link}"
            if anchor and not anchor.startswith("__"):
                assert anchor in pages[target].ids, f"{path.name} links to {link}"


def clicks(pages: dict[Path, Page], start: Path) -> dict[Path, int]:
    """How many links of pages' own text lead from ``start`` to each page."""
    found, now = {start: 0}, [start]
    while now:
        path = now.pop(0)
        for _, target, _ in followed(path, pages[path].own):
            if target in pages and target not in found:
                found[target] = found[path] + 1
                now.append(target)
    return found


def test_every_page_is_two_clicks_away_without_the_menus(pages: dict[Path, Page], site: Path) -> None:
    found = clicks(pages, site / "index.html")
    far = {path.relative_to(site).as_posix() for path in pages if found.get(path, 9) > 2}
    assert not far
    alone = {site / "index.html": Page("<article></article>"), site / "knobs.html": Page("")}
    assert site / "knobs.html" not in clicks(alone, site / "index.html")


def test_the_site_has_four_parts_that_list_their_pages(pages: dict[Path, Page], site: Path) -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    assert tuple(re.findall(r"^  - ([\w-]+):$", text, re.MULTILINE)) == PARTS
    first = {target for _, target, _ in followed(site / "index.html", pages[site / "index.html"].own)}
    assert {site / f"{part.lower()}.html" for part in PARTS} <= first


def test_the_api_pages_hold_every_public_name(pages: dict[Path, Page]) -> None:
    shown = {one for path, page in pages.items() if path.parent.name == "api" for one in page.ids}
    names = {one.rsplit(".", 1)[1] for one in shown if one.startswith("torchcurriculum.")}
    modules = {"functional", "methods"}
    assert set(torchcurriculum.__all__) - modules <= names
    for room in ("methods", "losses", "data", "audit", "record", "checkpoint", "thresholds", "theory", "functional"):
        module = importlib.import_module(f"torchcurriculum.{room}")
        public = {one for one in module.__all__ if callable(getattr(module, one)) and getattr(module, one).__doc__}
        missing = {one for one in public if f"torchcurriculum.{room}.{one}" not in shown}
        assert not missing - {"Noise"}, room  # a Literal
    assert {"torchcurriculum.curriculum.Curriculum.epoch", "torchcurriculum.core.Method.weigh"} <= shown


def test_examples_on_the_api_pages_are_code(site: Path) -> None:
    text = (site / "api" / "functional.html").read_text(encoding="utf-8")
    assert text.count("&gt;&gt;&gt;") > 20
    for block in re.findall(r"<p>[^<]*&gt;&gt;&gt;[^<]*</p>", text):
        raise AssertionError(block)
    assert ":math:" not in text


def test_nothing_is_loaded_from_elsewhere(pages: dict[Path, Page], site: Path) -> None:
    for path, page in pages.items():
        assert page.loads
        for link in page.loads:
            parts = urlsplit(link)
            assert not parts.netloc, f"{path.name} loads {link}"
            assert parts.scheme == "data" or (path.parent / parts.path).exists(), f"{path.name} loads {link}"
    for path in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", path.read_text(encoding="utf-8")), path.name


def test_links_that_leave_the_docs_lead_to_pages(pages: dict[Path, Page], site: Path) -> None:
    links = pages[site / "losses.html"].links
    assert "examples/reduced_loss.html" in links
    assert "from torchcurriculum.losses import weighted" in re.sub(
        "<[^>]+>", "", (site / "examples" / "reduced_loss.html").read_text(encoding="utf-8")
    )


@pytest.mark.parametrize("name", ["hooks", "docstrings"])
def test_the_example_of_the_hook(name: str) -> None:
    found = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    hooks = importlib.util.module_from_spec(found)
    found.loader.exec_module(hooks)
    results = doctest.testmod(hooks)
    assert results.attempted
    assert results.failed == 0


def test_pictures_are_small_and_carry_their_words() -> None:
    pictures = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
    assert pictures
    for path in pictures:
        text = path.read_text(encoding="utf-8")
        assert len(text) < 60_000
        assert 'aria-label="' in text
        assert "prefers-color-scheme: dark" in text
        assert not re.search(r"(?:href|src)=\"(?!#)|url\((?!#)", text), f"{path.name} loads something"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("needs chromium (Debian: apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)")
    with sync_api.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


def test_a_browser_asks_for_nothing_else(site: Path, browser: Any) -> None:
    asked, said = [], []
    page = browser.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    for name in ("index.html", "knobs.html", "examples/tour.html"):
        page.goto((site / name).as_uri(), wait_until="load")
        shown = page.eval_on_selector_all("article img", "all => all.map(one => one.naturalWidth)")
        assert all(shown)
    page.close()
    assert {urlsplit(address).scheme for address in asked} <= {"file", "data", "blob"}
    assert said == []


def test_search_works_from_a_folder(site: Path, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    page.set_default_timeout(300_000)  # for hangs only
    page.goto((site / "knobs.html").as_uri())
    page.click(".md-search__input")
    page.keyboard.type("co-teaching")
    page.wait_for_selector(".md-search-result__link[href*='co-teaching.html']")
    page.close()


@pytest.mark.parametrize(("name", "table"), [("which-method.html", 0), ("reproducing.html", 0)])
def test_the_two_tables_that_people_come_for_fit_a_screen(site: Path, browser: Any, name: str, table: int) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 1080})
    page.goto((site / name).as_uri(), wait_until="load")
    bottom = page.evaluate(f"document.querySelectorAll('article table')[{table}].getBoundingClientRect().bottom")
    page.close()
    assert bottom <= 1080
