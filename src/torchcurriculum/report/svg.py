"""Pictures as text: a figure as inline SVG in the page's own colours, an array as a PNG inside an address."""

from __future__ import annotations

import base64
import html
import io
import re
import struct
import warnings
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CHOICES", "colour", "picture", "render"]

CHOICES = 8  # colours for methods: choice-0 (a quiet grey, for the baseline) to choice-7
# "ink" comes first: its stand-in is black, which is what matplotlib takes where nobody says a colour.
COLOURS = ("ink", "muted", "line", "early", *(f"choice-{number}" for number in range(CHOICES)))
DROPPED = ("metadata", "style")


def colour(name: str) -> str:
    """A stand-in for the page's colour ``name``: ``render`` puts the style sheet's variable in its place.

    So one picture follows the reader's light or dark scheme.
    """
    return f"#0000{COLOURS.index(name):02x}"


def render(draw: Callable[[], Figure], key: str, label: str) -> str:
    """Draws a figure under matplotlib's defaults and returns it as an ``<svg>`` element.

    Args:
        draw: Makes the figure.
        key: A prefix that keeps the ids of the page's pictures apart.
        label: What a screen reader says.

    Raises:
        ImportError: Where matplotlib is missing, with the extra to install.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'torchcurriculum[report]'") from error
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # the reader's fonts draw the letters, not matplotlib's
        # A reader's own settings must not leak into the page.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": key, "font.size": 8})
        buffer = io.BytesIO()
        draw().savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())
    head = f'<svg class="plot" viewBox="{root.get("viewBox")}" role="img" aria-label="{html.escape(label)}">'
    return head + "".join(_write(child, key) for child in root) + "</svg>"


def picture(values: np.ndarray) -> str:
    """A ``data:`` address of a PNG: (H, W) grey or (H, W, 3) colour; values that are not uint8 are stretched to it.

    Example:
        >>> picture(np.zeros((8, 8), dtype=np.uint8))[:22]
        'data:image/png;base64,'
    """
    values = np.asarray(values)
    if not (values.ndim == 2 or (values.ndim == 3 and values.shape[2] == 3)) or values.size == 0:
        raise ValueError(f"a picture must have the shape (H, W) or (H, W, 3), got {values.shape}")
    if values.dtype != np.uint8:
        values = np.nan_to_num(values.astype(float))
        low, high = values.min(), values.max()
        values = np.round(255 * (values - low) / ((high - low) or 1.0)).astype(np.uint8)
    height, width = values.shape[:2]
    head = struct.pack(">IIBBBBB", width, height, 8, 0 if values.ndim == 2 else 2, 0, 0, 0)
    lines = b"".join(b"\0" + line.tobytes() for line in values)  # each line begins with its filter: none
    parts = [_chunk(b"IHDR", head), _chunk(b"IDAT", zlib.compress(lines, 9)), _chunk(b"IEND", b"")]
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _write(element: Any, key: str) -> str:
    """An element as compact text: no name spaces, ids only where something refers to them, two decimals."""
    tag = element.tag.rpartition("}")[2]
    if tag in DROPPED:
        return ""
    attributes = _attributes(element, tag, key)
    inner = html.escape(element.text or "") if tag in ("text", "tspan") else ""
    children = list(element)
    styles = {child.get("style") for child in children}
    if tag == "g" and len(children) > 1 and len(styles) == 1 and all(c.tag.endswith("}use") for c in children):
        attributes["style"] = _style(styles.pop() or "")  # said once for all the marks of a group
        for child in children:
            child.attrib.pop("style", None)
    inner += "".join(_write(child, key) for child in children)
    if tag in ("g", "defs") and not attributes:
        return inner if tag == "g" or not inner else f"<defs>{inner}</defs>"
    said = "".join(f' {name}="{html.escape(value)}"' for name, value in attributes.items())
    return f"<{tag}{said}>{inner}</{tag}>"


def _attributes(element: Any, tag: str, key: str) -> dict[str, str]:
    kept = {}
    for name, value in element.attrib.items():
        name = name.rpartition("}")[2]
        if name == "style":
            value = _style(value)
        elif name == "id":
            value = "" if tag == "g" else f"{key}-{value}"
        elif name == "href":
            value = f"#{key}-{value.removeprefix('#')}"
        elif name == "clip-path":
            value = value.replace("url(#", f"url(#{key}-")
        elif name == "transform" and value.startswith("rotate(-0 "):
            value = ""
        else:
            value = _numbers(value)
        if value:
            kept[name] = value
    return kept


def _style(text: str) -> str:
    text = re.sub(r"font-family:[^;]*(; )?", "", text)
    return re.sub(r"#0000([0-9a-f]{2})\b", lambda match: f"var(--{COLOURS[int(match[1], 16)]})", text)


def _numbers(text: str) -> str:
    text = re.sub(r"-?\d+\.\d{2,}", lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), text)
    return re.sub(r"\s+", " ", text).strip()
