"""Index-carrying loaders, label noise and data sets held in memory."""

from .arrays import Arrays, Rows
from .loaders import indexed
from .noise import flip_labels
from .scorers import lengths, rarities, row_scores
from .streams import streamed

__all__ = ["Arrays", "Rows", "flip_labels", "indexed", "lengths", "rarities", "row_scores", "streamed"]
