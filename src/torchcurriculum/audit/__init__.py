"""Which training labels are wrong: a ranking, a suggestion, an estimate of their share, from the record of one run."""

from .exports import EXPORTS, export
from .predictions import Predictions
from .ranking import audit
from .result import Audit
from .samples import class_names, label_name, one_line, printable, telling_rows
from .scores import difficulty, prune

__all__ = [
    "EXPORTS",
    "Audit",
    "Predictions",
    "audit",
    "class_names",
    "difficulty",
    "export",
    "label_name",
    "one_line",
    "printable",
    "prune",
    "telling_rows",
]
