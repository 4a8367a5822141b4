"""Per-sample losses: from any criterion, and robust ones."""

from .criterion import PerSample, Weighted, per_sample, reduce_positions, reduction_of, weighted
from .robust import (
    LDAM,
    Bootstrapped,
    ClassBalanced,
    Focal,
    ForwardCorrected,
    GeneralisedCrossEntropy,
    LogitAdjusted,
    SymmetricCrossEntropy,
    estimate_transition,
)
from .tokens import Tokens, token_losses

__all__ = [
    "LDAM",
    "Bootstrapped",
    "ClassBalanced",
    "Focal",
    "ForwardCorrected",
    "GeneralisedCrossEntropy",
    "LogitAdjusted",
    "PerSample",
    "SymmetricCrossEntropy",
    "Tokens",
    "Weighted",
    "estimate_transition",
    "per_sample",
    "reduce_positions",
    "reduction_of",
    "token_losses",
    "weighted",
]
