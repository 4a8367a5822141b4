"""Index-carrying loaders, label noise and data sets held in memory."""

from .arrays import Arrays, Rows
from .loaders import indexed
from .noise import flip_labels

__all__ = ["Arrays", "Rows", "flip_labels", "indexed"]
