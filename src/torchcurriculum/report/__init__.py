"""One self-contained HTML page, and the numbers of its table, from the records of runs."""

from .page import write_report
from .table import Summary, summarise

__all__ = ["Summary", "summarise", "write_report"]
