"""The missing runs of a table, and the commands to make them."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from ..clean.tables import TABLE_OPTIONS
from ..record import Record, RecordError
from .recipe import later_settings, settings
from .recipes import RECIPES

__all__ = ["OPTIONS", "missing_runs", "shell_line"]

# Settings that `curriculum run` has an option for.
OPTIONS = ("epochs", "model", "weights", "partial_weights", "size", *TABLE_OPTIONS, "measure", "precision", "compile")


def missing_runs(folder: Path) -> list[str]:
    """A text for each recipe below ``folder`` with missing or unfinished runs.

    A run is expected if any command that wrote there named its method and its seed, as listed in ``recipe.json``.
    """
    texts = []
    for path in sorted(folder.rglob("recipe.json")):
        try:
            held = dict(json.loads(path.read_text(encoding="utf-8")))
            asked = [(str(name), int(seed)) for name, seed in held.get("asked", ())]
            asked += [(str(name), int(seed)) for name, seed in product(held.get("methods", ()), held.get("seeds", ()))]
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            texts.append(f"{path} is damaged ({error}), so its missing runs are unknown; restore it from a copy\n")
            continue
        done = _done(path.parent, held.get("epochs"))
        missing = [pair for pair in dict.fromkeys(asked) if pair not in done]
        if missing:
            texts.append(_text(path.parent, held, missing, len(set(asked))))
    return texts


def _done(folder: Path, epochs: Any) -> list[tuple[Any, Any]]:
    """Methods and seeds of the finished runs, as ``trainer.finished`` counts them."""
    found = []
    for path in folder.rglob("record.json"):
        with suppress(RecordError):
            found.append(Record.load(path.parent, samples=False))
    whole = [one.meta for one in found if one.meta.get("finished") and len(one.epochs) == epochs]
    return [(meta.get("method"), meta.get("seed")) for meta in whole]


def _text(out: Path, held: dict[str, Any], missing: list[tuple[str, int]], asked: int) -> str:
    seeds = {name: tuple(seed for other, seed in missing if other == name) for name, _ in missing}
    lines = [f"{len(missing)} of the {asked} runs of {held.get('name')!r} in {out} are missing or unfinished:"]
    lines += [f"  {name}, seed {', '.join(map(str, lost))}" for name, lost in seeds.items()]
    if later := later_settings(held):
        return "\n".join([*lines, f"This version does not know its settings ({later}); update torchcurriculum.", ""])
    known = RECIPES.get(str(held.get("name")))
    wanted, own = settings(held), settings(known.as_dict()) if known else {}
    differ = [key for key in own if json.dumps(wanted.get(key)) != json.dumps(own[key])]
    if known is None or not set(differ) <= set(OPTIONS):
        return "\n".join([*lines, "`curriculum run` does not have this recipe.", ""])
    fixed: list[str] = []
    for key in differ:
        option = f"--{key.replace('_', '-')}"
        for value in wanted[key] if isinstance(wanted[key], list | tuple) else [wanted[key]]:
            fixed += [option] if value is True else _option(option, str(value))
    fixed += ["--no-audit"] if held.get("audit") is False else []
    fixed += _option("--data", str(held["from"])) if held.get("from") else []
    fixed += _option("--out", str(out.resolve()))
    lines.append("To make them:")
    for group in dict.fromkeys(seeds.values()):  # one command for all methods with the same missing seeds
        methods = [word for name, mine in seeds.items() if mine == group for word in ("--method", name)]
        words = ["curriculum", "run", known.name, *methods, "--seeds", *map(str, group), *fixed]
        lines.append(f"  {shell_line(words)}")
    return "\n".join([*lines, ""])


def _option(name: str, value: str) -> list[str]:
    return [f"{name}={value}"] if value.startswith("-") else [name, value]


def shell_line(words: Sequence[str]) -> str:
    r"""A command to paste into a shell; control characters are escaped, since they are not printed.

    Example:
        >>> print(shell_line(["cut", "-d", "\t", "it's.tsv"]))
        cut -d $'\t' 'it'"'"'s.tsv'
    """
    return " ".join(shlex.quote(word) if word.isprintable() else f"$'{_escaped(word)}'" for word in words)


def _escaped(word: str) -> str:
    letters = re.sub(r"([\\'])", r"\\\1", word)
    return "".join(letter if letter.isprintable() else repr(os.fsencode(letter))[2:-1] for letter in letters)
