"""Index-carrying loaders, label noise, and one file per family of data sets."""

from .arrays import Arrays
from .digits import load_digits
from .indexed import indexed
from .noise import flip_labels

__all__ = ["Arrays", "flip_labels", "indexed", "load_digits"]
