"""The Python blocks of a page, for the tests that run them."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["DOCS", "blocks"]

DOCS = Path(__file__).parent.parent / "docs"


def blocks(page: str) -> list[str]:
    """What stands between ```python and ``` on a page of ``docs``, in order."""
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
