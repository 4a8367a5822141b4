"""What happened in a run, in memory and on disk. Needs no torch: NumPy reads a record.

``memory`` holds ``Record``, ``disk`` its folder, ``results`` the numbers of tables, ``previews`` pictures and texts of
samples, ``sinks`` other destinations of rows, and ``files`` the writer of all files of this library.
"""

from .disk import FORMAT, LaterRecord, RecordError
from .files import name_in_errors
from .memory import Record
from .previews import Previews
from .results import Summary, best_epoch, summarise

__all__ = [
    "FORMAT",
    "LaterRecord",
    "Previews",
    "Record",
    "RecordError",
    "Summary",
    "best_epoch",
    "name_in_errors",
    "summarise",
]
