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
IMPORT = re.compile(r"^from \.([\w.]+) import ([\w, ]+\w)", re.MULTILINE)
INDENT = " " * 10  # of the methods in mkdocs.yml
FIRST, ORDER = "apw", "the paper's order is the order in which methods are listed"


def package() -> str:
    """``methods/__init__.py``: an import for every method beside it, as type checkers need them, and those it has."""
    written = (METHODS / "__init__.py").read_text(encoding="utf-8")
    exports = {module: set(names.split(", ")) for module, names in IMPORT.findall(written) if _file(module).exists()}
    for path in METHODS.glob("[!_]*.py"):
        exports.setdefault(path.stem, set()).update(_classes(path))
    lines = {
        module: f"from .{module} import {', '.join(sorted(names, key=_place))}" for module, names in exports.items()
    }
    first = f"{lines.pop(FIRST)}  # isort: skip  {ORDER}"
    listed = [f'    "{name}",' for name in sorted(set().union(*exports.values()), key=_place)]
    head = '"""One file per method; none depends on the shell that runs it. Written by ``docs/cards.py``."""'
    return "\n".join([head, "", first, *map(lines.get, sorted(lines)), "", "__all__ = [", *listed, "]", ""])


def navigation(text: str) -> str:
    """The text of ``mkdocs.yml`` with an entry for every card."""
    entries = "".join(f"{INDENT}- {name}: methods/{name}.md\n" for name in sorted(torchcurriculum.methods.names()))
    head = f"{INDENT}- methods/README.md\n"
    before, rest = text.split(head)
    return before + head + entries + re.sub(r"\A(?: +- .*: methods/.*\n)*", "", rest)


def _file(module: str) -> Path:
    return METHODS / f"{module.replace('.', '/')}.py"


def _classes(path: Path) -> set[str]:
    """The public classes of a file."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, ast.ClassDef) and node.name[0] != "_"} - {"Entry"}


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
