"""What the site needs besides the Markdown of docs/: pages of the examples, and links that leave docs/.

On GitHub a page links to `../examples/plain_loop.py` or `../CONTRIBUTING.md`. On the site these are pages, made here,
under the same path below the site's root, so only the leading dots change.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
OF_THE_ROOT = ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")
# Pages whose table takes the place of the page's table of contents.
WIDE = ("reproducing.md", "results/cifar100.md", "results/cifar-n-resnet18.md")
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")


def on_files(files: Any, config: Any) -> Any:
    """Adds the examples, the tour and the pages of the repository's root."""
    made = {name: (ROOT / name).read_text(encoding="utf-8") for name in OF_THE_ROOT}
    for path in sorted((ROOT / "examples").iterdir()):
        if path.suffix in PAGES:
            made[f"examples/{path.stem}.md"] = PAGES[path.suffix](path)
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    for tool in ("hooks.py", "cards.py", "docstrings.py"):
        files.remove(files.get_file_from_path(tool))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turns links that leave docs/ into links to the pages made above; code stays as it is."""
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["toc"]
    folder = posixpath.dirname(page.file.src_uri)
    place = folder if page.file.abs_src_path is None else f"docs/{folder}"  # pages made above have no file
    parts = FENCE.split(markdown)
    parts[::2] = [LINK.sub(lambda m: m[1] + target(m[2], place, folder) + m[3], part) for part in parts[::2]]
    return "".join(parts)


def target(link: str, place: str, folder: str) -> str:
    """Where ``link``, on a page that lies in ``place`` of the repository and in ``folder`` of the site, leads there.

    Example:
        >>> target("../../examples/plain_loop.py", "docs/integrations", "integrations")
        '../examples/plain_loop.md'
    """
    if re.match(r"[a-z]+:", link):
        return link
    path = posixpath.normpath(posixpath.join(place, link))
    if path.startswith("docs/"):
        path = path.removeprefix("docs/")
    elif path.startswith("examples/"):
        path = posixpath.splitext(path)[0] + ".md"
    return posixpath.relpath(path, folder or ".")


def script_page(path: Path) -> str:
    """A script as a page: its first sentence, then the whole of it."""
    text = path.read_text(encoding="utf-8")
    return f"# `{path.name}`\n\n```python\n{text}```\n"


def notebook_page(path: Path) -> str:
    """A notebook as a page: its words, its code, and what the code said."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            if "text" in output:
                parts.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
            else:
                parts.append("".join(output["data"]["image/svg+xml"]))
    return "\n\n".join(parts) + "\n"


PAGES = {".py": script_page, ".ipynb": notebook_page}
