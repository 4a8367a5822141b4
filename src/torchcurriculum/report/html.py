"""The page's building blocks as HTML text; everything that comes from a record is escaped here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources

__all__ = ["STYLE", "alert", "escape", "figure", "frame", "missing", "table", "tiles"]

STYLE = resources.files(__package__).joinpath("style.css").read_text(encoding="utf-8")


def frame(title: str, lede: str, sections: Mapping[str, str]) -> str:
    """The whole page around its sections; those without content are left out."""
    sections = {name: content for name, content in sections.items() if content}
    anchors = {name: name.lower().replace(" ", "-") for name in sections}
    links = "".join(f'<li><a href="#{anchor}">{escape(name)}</a></li>' for name, anchor in anchors.items())
    body = "\n".join(
        f'<section aria-labelledby="{anchors[name]}"><h2 id="{anchors[name]}">{escape(name)}</h2>\n{content}</section>'
        for name, content in sections.items()
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header><h1>{escape(title)}</h1>
{lede}
<nav aria-label="Sections"><ul>{links}</ul></nav></header>
<main id="content">
{body}
</main>
<footer>Made by torchcurriculum from the records of these runs.</footer>
</body>
</html>
"""


def missing(sentence: str) -> str:
    """A sentence instead of something that cannot be shown."""
    return f'<p class="missing">{escape(sentence)}</p>\n'


def alert(sentence: str) -> str:
    """A warning at the top of the page."""
    return f'<p class="alert">{escape(sentence)}</p>\n'


def figure(panels: Sequence[str], caption: str) -> str:
    """Panels, given as SVG, above their caption."""
    return f'<figure><div class="panels">{"".join(panels)}</div><figcaption>{escape(caption)}</figcaption></figure>\n'


def tiles(values: Mapping[str, tuple[str, str]]) -> str:
    """Numbers at a glance: each with its name above and a note below."""
    parts = (
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}"
        + (f'<span class="small">{escape(words)}</span>' if words else "")
        + "</dd></div>"
        for name, (value, words) in values.items()
    )
    return f'<dl class="tiles">{"".join(parts)}</dl>\n'


def table(caption: str, head: Sequence[str], lines: Sequence[tuple[str, Sequence[str]]]) -> str:
    """A table whose first column names the rows; cells and row names are HTML."""
    columns = f'<th scope="col">{escape(head[0])}</th>'
    columns += "".join(f'<th scope="col" class="number">{escape(name)}</th>' for name in head[1:])
    body = "".join(
        f'<tr><th scope="row">{name}</th>' + "".join(f'<td class="number">{cell}</td>' for cell in cells) + "</tr>\n"
        for name, cells in lines
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption>\n<thead><tr>{columns}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
    )
