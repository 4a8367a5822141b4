"""One self-contained HTML page from the records of runs."""

from .page import write_report

__all__ = ["write_report"]
