"""A card for every method, made from the code so that it cannot drift.

``python docs/cards.py`` writes them to ``docs/methods``.
"""

from __future__ import annotations

import inspect
from pathlib import Path

from torchcurriculum.methods import entry, names

__all__ = ["card", "index", "write_cards"]


def card(name: str) -> str:
    """The card of one method, in Markdown: what it does, when to use it, what it costs, its knobs and reference."""
    known = entry(name)
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
    rows = [f"| [`{name}`]({name}.md) | {entry(name).summary} | {entry(name).cost} |" for name in names()]
    head = ["# The methods", "", "Made by `python docs/cards.py`.", ""]
    return "\n".join([*head, "| name | what it does | cost |", "|---|---|---|", *rows, ""])


def write_cards(folder: Path) -> None:
    """Writes all cards and their index, and removes cards of methods that are no more."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {f"{name}.md": card(name) for name in names()} | {"README.md": index()}
    for path in folder.glob("*.md"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return "required"
    if callable(parameter.default):
        return f"`{parameter.default.__name__}`"
    return f"`{parameter.default:.6g}`" if isinstance(parameter.default, float) else f"`{parameter.default!r}`"


if __name__ == "__main__":
    write_cards(Path(__file__).parent / "methods")
