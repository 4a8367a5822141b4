"""Docstrings as the API pages show them: examples as code, mathematics and references as literals."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^( *)Example:$", re.MULTILINE)
ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")


def shown(text: str) -> str:
    """The text with the section title that griffe knows, and without Sphinx' roles.

    Example:
        >>> shown("Weights :math:`w_k`." + chr(10) + "Example:")
        'Weights `w_k`.\\nExamples:'
    """
    return ROLE.sub(r"`\1`", EXAMPLE.sub(r"\1Examples:", text))


class Docstrings(Extension):
    """Rewrites every docstring before it is parsed."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called by griffe for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = shown(obj.docstring.value)
