"""Runs the cells of a notebook in order, without Jupyter, and keeps what they print.

python benchmarks/notebook.py examples/tour.ipynb [--store]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from pathlib import Path
from typing import Any


def run(notebook: dict[str, Any]) -> list[str]:
    """Runs the code cells in one namespace and replaces their outputs with what each prints."""
    names: dict[str, Any] = {"__name__": "__main__"}
    said = []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile("".join(cell["source"]), "a cell", "exec"), names)
        said.append(printed.getvalue())
        cell["execution_count"] = len(said)
        lines = said[-1].splitlines(keepends=True)
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--store", action="store_true", help="write the outputs into the file")
    options = parser.parse_args()
    notebook = json.loads(options.path.read_text(encoding="utf-8"))
    print("\n".join(run(notebook)))
    if options.store:
        options.path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
