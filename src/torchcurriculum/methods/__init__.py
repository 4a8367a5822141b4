"""One file per method; each knows nothing of the shell that runs it."""

from .apw import APW  # isort: skip  the paper's order is the order in which methods are listed
from .mixed import Mixed
from .mixup import Mixup
from .registry import build, entry, names, register
from .sampled import Sampled
from .vanilla import Vanilla

__all__ = ["APW", "Mixed", "Mixup", "Sampled", "Vanilla", "build", "entry", "names", "register"]
