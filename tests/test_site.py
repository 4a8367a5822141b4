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
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("material", reason="needs mkdocs-material")

ROOT = Path(__file__).parent.parent
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


class Page(HTMLParser):
    """What a page links to, what it loads, and where it can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        held = {name: value or "" for name, value in attributes}
        self.ids |= {held[name] for name in ("id", "name") if name in held}
        if tag == "a" and "href" in held:
            self.links.append(held["href"])
        if tag in LOADED and LOADED[tag] in held and held.get("rel") != "canonical":
            self.loads.append(held[LOADED[tag]])


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
    assert set(listed) == written | made | {"CONTRIBUTING.md"}


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


def test_the_example_of_the_hook() -> None:
    found = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
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


def test_a_browser_asks_for_nothing_else(site: Path) -> None:
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("needs chromium (Debian: apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)")
    asked, said = [], []
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        for name in ("index.html", "knobs.html", "examples/tour.html"):
            page.goto((site / name).as_uri(), wait_until="load")
            shown = page.eval_on_selector_all("article img", "all => all.map(one => one.naturalWidth)")
            assert all(shown)
        browser.close()
    assert {urlsplit(address).scheme for address in asked} <= {"file", "data", "blob"}
    assert said == []
