"""Which training labels are wrong: a ranking, a suggestion, an estimate of their share, from the record of one run."""

from .export import EXPORTS, export
from .ranking import audit
from .result import Audit

__all__ = ["EXPORTS", "Audit", "audit", "export"]
