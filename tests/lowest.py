"""Prints the lowest version of every requirement of the package and of some of its extras, as constraints for pip.

    python tests/lowest.py demo sklearn > lowest.txt

Requirements of the extras that are not named are left out. Only the standard library is needed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

# Newer ones refuse NumPy 1.26 when they are imported, and their metadata does not say so.
BESIDE = ["pyarrow==21.0.0"]
PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def lowest(extras: list[str]) -> list[str]:
    """Lines such as ``torch==2.4``, each package once."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    own = [f"torchcurriculum[{extra}]" for extra in extras]
    pinned = {line.split("==")[0] for line in BESIDE}
    found = {line for line in _lines([*project["dependencies"], *own], project) if line.split("==")[0] not in pinned}
    return sorted({*found, *BESIDE})


def _lines(requirements: list[str], project: dict) -> Iterator[str]:
    for requirement in requirements:
        if own := re.fullmatch(r"torchcurriculum\[(.+)\]", requirement):
            for extra in own[1].split(","):
                yield from _lines(project["optional-dependencies"][extra], project)
        elif bound := re.fullmatch(r"([\w.-]+)(?:\[.+\])?>=([\w.]+)", requirement):
            yield f"{bound[1]}=={bound[2]}"
        else:
            raise ValueError(f"{requirement!r} names no lower bound; write it as name>=version")


if __name__ == "__main__":
    print("\n".join(lowest(sys.argv[1:])))
