"""Figures as inline SVG in the page's own colours, and pictures as PNG inside an address."""

from __future__ import annotations

import base64
import html
import io
import re
import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CHOICES", "colour", "picture", "render"]

CHOICES = 8  # colours for methods: choice-0 (a quiet grey, for the baseline) to choice-7
# "ink" comes first: its placeholder is black, matplotlib's default colour.
COLOURS = ("ink", "muted", "line", "early", *(f"choice-{number}" for number in range(CHOICES)))
INSTALL = "figures need matplotlib: pip install 'torchcurriculum[report]'"
ALONE = threading.Lock()  # matplotlib's settings and warning filters are global
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
# In tags: ids of groups (nothing refers to them), fonts (the page has its own), and all but two decimals.
SUPERFLUOUS = re.compile(r' id="[\w.]+_\d+"|font-family: [^;"]*;? ?|(?<=\.\d\d)\d+|\s*\n|xlink:(?=href)')


def colour(name: str) -> str:
    """A placeholder for the page's colour ``name``: ``render`` replaces it with the style sheet's variable.

    So one picture follows the reader's light or dark scheme.
    """
    return f"#0000{COLOURS.index(name):02x}"


def render(draw: Callable[[], Figure], key: str, label: str) -> str:
    """Draws a figure under matplotlib's defaults and returns it as an ``<svg>`` element.

    Args:
        draw: Makes the figure.
        key: Unique on the page, and part of the ids in the picture.
        label: Text for screen readers.

    Raises:
        ImportError: If matplotlib is missing, with the extra to install.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError(INSTALL) from error
    buffer = io.StringIO()
    with ALONE, matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # the reader's fonts draw the letters, not matplotlib's
        matplotlib.rcdefaults()  # a user's own settings must not reach the page
        matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": key, "font.size": 8})
        draw().savefig(buffer, format="svg", transparent=True, metadata=NO_METADATA)
    text = re.sub(r"<[^>]+>", lambda tag: _short(tag[0]), buffer.getvalue())
    text = re.sub(r"<style.*?</style>|(?<=>)\s+(?=<)", "", text)  # a style would apply to the whole page
    box, inner = re.findall(r'<svg [^>]*viewBox="([^"]*)"[^>]*>(.*)', text)[0]
    return f'<svg class="plot" viewBox="{box}" role="img" aria-label="{html.escape(label)}">{inner}'


def _short(tag: str) -> str:
    """A tag of matplotlib's SVG without superfluous parts, in the page's colours."""
    tag = SUPERFLUOUS.sub("", tag)
    return re.sub(r"#0000([0-9a-f]{2})\b", lambda match: f"var(--{COLOURS[int(match[1], 16)]})", tag)


def picture(values: np.ndarray) -> str:
    """A ``data:`` address of a PNG.

    Args:
        values: (H, W) grey or (H, W, 3) colour, uint8.

    Example:
        >>> picture(np.zeros((8, 8), dtype=np.uint8))[:22]
        'data:image/png;base64,'
    """
    try:
        from PIL import Image  # a dependency of matplotlib
    except ImportError as error:
        raise ImportError(INSTALL) from error
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, "png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
