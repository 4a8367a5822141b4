"""States that survive a crash at any moment, and a flag that lets a loop stop in order."""

from .disk import CheckpointError
from .states import Checkpoint
from .stop import GracefulStop

__all__ = ["Checkpoint", "CheckpointError", "GracefulStop"]
