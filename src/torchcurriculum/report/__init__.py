"""One self-contained HTML page from the records of runs."""

from .page import too_large, write_report

__all__ = ["too_large", "write_report"]
