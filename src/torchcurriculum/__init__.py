"""Curriculum learning for PyTorch: which samples to learn from now, how they look, and how much they count.

Names are imported when they are first used, so that ``torchcurriculum.record`` can be read without torch.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import functional, methods
    from .audit import Predictions
    from .checkpoint import Checkpoint, GracefulStop
    from .core import Batch, Epoch, Method, Step, Task
    from .curriculum import Curriculum
    from .data import Arrays, flip_labels, indexed
    from .fast.graphs import GraphedStep
    from .losses import per_sample, weighted
    from .methods import APW, RAPW, Both, Mixed, Mixup, Sampled, SuperLoss, Then, Vanilla
    from .record import Previews, Record
    from .thresholds import ParameterDissimilarity, error_threshold, estimate_noise_rate, quantile

__version__ = "0.2.0"

__all__ = [
    "APW",
    "RAPW",
    "Arrays",
    "Batch",
    "Both",
    "Checkpoint",
    "Curriculum",
    "Epoch",
    "GracefulStop",
    "GraphedStep",
    "Method",
    "Mixed",
    "Mixup",
    "ParameterDissimilarity",
    "Predictions",
    "Previews",
    "Record",
    "Sampled",
    "Step",
    "SuperLoss",
    "Task",
    "Then",
    "Vanilla",
    "error_threshold",
    "estimate_noise_rate",
    "flip_labels",
    "functional",
    "indexed",
    "methods",
    "per_sample",
    "quantile",
    "weighted",
]

_NAMES_BY_MODULE = {
    "audit": ("Predictions",),
    "checkpoint": ("Checkpoint", "GracefulStop"),
    "core": ("Batch", "Epoch", "Method", "Step", "Task"),
    "curriculum": ("Curriculum",),
    "data": ("Arrays", "flip_labels", "indexed"),
    "fast.graphs": ("GraphedStep",),
    "losses": ("per_sample", "weighted"),
    "methods": ("APW", "RAPW", "Both", "Mixed", "Mixup", "Sampled", "SuperLoss", "Then", "Vanilla"),
    "record": ("Previews", "Record"),
    "thresholds": ("ParameterDissimilarity", "error_threshold", "estimate_noise_rate", "quantile"),
}
_MODULES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    elif not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        value = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
