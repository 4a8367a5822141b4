"""States that survive a crash at any moment, and a flag for stopping a loop cleanly."""

from .disk import CheckpointError
from .states import Checkpoint
from .stop import GracefulStop

__all__ = ["Checkpoint", "CheckpointError", "GracefulStop"]
