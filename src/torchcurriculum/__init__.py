"""Curriculum learning for PyTorch: which samples to learn from now, how they look, and how much they count."""

from . import functional, methods
from .audit import audit
from .checkpoint import Checkpoint, GracefulStop
from .core import Batch, Epoch, Method, Step
from .curriculum import Curriculum
from .data import Arrays, flip_labels, indexed
from .graphs import GraphedStep
from .losses import per_sample, weighted
from .methods import APW, Mixed, Mixup, Sampled, Vanilla
from .predictions import Predictions
from .previews import Previews
from .record import Record
from .thresholds import ParameterDissimilarity, error_threshold, estimate_noise_rate, quantile

__version__ = "0.1.0"

__all__ = [
    "APW",
    "Arrays",
    "Batch",
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
    "Vanilla",
    "audit",
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
