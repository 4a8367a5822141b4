"""Which training labels are wrong: a ranking, suggestions and the share, from a run or from given probabilities."""

from .exports import EXPORTS, export, read_csv
from .predictions import Predictions
from .ranking import audit
from .result import Audit, class_names
from .samples import label_name, one_line, printable, telling_rows
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
    "read_csv",
    "telling_rows",
]
