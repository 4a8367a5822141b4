"""Everything that is listed by method, made from the code so that it cannot drift: cards, imports and navigation.

``python docs/cards.py`` writes the cards and their index to ``docs/methods``, the imports of
``src/torchcurriculum/methods/__init__.py`` and the methods' entries of ``mkdocs.yml``.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import torchcurriculum  # whose methods are imported when they are first used: their list may be written before

__all__ = ["card", "index", "navigation", "package", "write_all"]

ROOT = Path(__file__).parent.parent
CARDS = ROOT / "docs" / "methods"
METHODS = ROOT / "src" / "torchcurriculum" / "methods"
FIRST, ORDER = "apw", "the paper's order is the order in which methods are listed"


def package() -> str:
    """``methods/__init__.py``: an import for every file beside it, as type checkers need them."""
    exports = {path.stem: _exports(path) for path in METHODS.glob("[!_]*.py")}
    lines = [f"from .{module} import {', '.join(names)}" for module, names in sorted(exports.items())]
    lines = [line for line in lines if not line.startswith(f"from .{FIRST} ")]
    listed = sorted((name for names in exports.values() for name in names), key=_place)
    return "\n".join(
        [
            '"""One file per method; each knows nothing of the shell that runs it. Written by ``docs/cards.py``."""',
            "",
            f"from .{FIRST} import {', '.join(exports[FIRST])}  # isort: skip  {ORDER}",
            *lines,
            "",
            "__all__ = [",
            *(f'    "{name}",' for name in listed),
            "]",
            "",
        ]
    )


def navigation(text: str) -> str:
    """The text of ``mkdocs.yml`` with an entry for every card."""
    entries = "".join(f"      - {name}: methods/{name}.md\n" for name in sorted(torchcurriculum.methods.names()))
    head = "      - methods/README.md\n"
    before, rest = text.split(head)
    return before + head + entries + re.sub(r"\A(?:      - .*: methods/.*\n)*", "", rest)


def _exports(path: Path) -> list[str]:
    """The public classes of a method's file, and the functions of the registry."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    kind = ast.FunctionDef if path.stem == "registry" else ast.ClassDef
    return sorted((node.name for node in body if isinstance(node, kind) and node.name[0] != "_"), key=_place)


def _place(name: str) -> tuple[int, str]:
    """Where ruff sorts a name: constants, then classes, then functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def card(name: str) -> str:
    """The card of one method, in Markdown: what it does, when to use it, what it costs, its knobs and reference."""
    known = torchcurriculum.methods.entry(name)
    text = inspect.getdoc(known.method) or ""
    made = inspect.signature(known.method).parameters
    by_run = {name for name in known.options() if name not in made or made[name].default is inspect.Parameter.empty}
    knobs = [
        f"| `{name}` | {'from the length of the run' if name in by_run and not value.default else _default(value)} |"
        for name, value in known.options().items()
    ]
    table = "\n".join(["| knob | default |", "|---|---|", *knobs]) if knobs else "None."
    return "\n".join(
        [
            f"# `{name}`",
            "",
            f"{known.summary[0].upper()}{known.summary[1:]}.",
            "",
            f"**When to use it.** {known.when}",
            "",
            f"**Cost.** {known.cost}",
            "",
            f"`methods.build({name!r}, n, epochs)` makes a `{known.method.__name__}` from `{known.method.__module__}`.",
            "",
            "## Knobs",
            "",
            table,
            "",
            f"## `{known.method.__name__}`",
            "",
            "```text",
            text,
            "```",
            "",
        ]
    )


def index() -> str:
    """A table of all methods, with a link to each card."""
    known = [torchcurriculum.methods.entry(name) for name in torchcurriculum.methods.names()]
    rows = [f"| [`{one.name}`]({one.name}.md) | {one.summary} | {one.cost} |" for one in known]
    head = ["# The methods", "", "Made by `python docs/cards.py`.", ""]
    return "\n".join([*head, "| name | what it does | cost |", "|---|---|---|", *rows, ""])


def write_all() -> None:
    """Writes everything, and removes cards of methods that are no more."""
    (METHODS / "__init__.py").write_text(package(), encoding="utf-8")
    pages = {f"{name}.md": card(name) for name in torchcurriculum.methods.names()} | {"README.md": index()}
    for path in CARDS.glob("*.md"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        (CARDS / name).write_text(text, encoding="utf-8")
    site = ROOT / "mkdocs.yml"
    site.write_text(navigation(site.read_text(encoding="utf-8")), encoding="utf-8")


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return "required"
    if callable(parameter.default):
        return f"`{parameter.default.__name__}`"
    return f"`{parameter.default:.6g}`" if isinstance(parameter.default, float) else f"`{parameter.default!r}`"


if __name__ == "__main__":
    write_all()
