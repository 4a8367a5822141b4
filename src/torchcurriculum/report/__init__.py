"""One self-contained HTML page from the records of runs."""

from .page import data_names, too_large, write_report

__all__ = ["data_names", "too_large", "write_report"]
